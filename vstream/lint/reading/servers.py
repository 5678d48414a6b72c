"""Views of a server configuration, with the names and forms that nats-server takes (server/opts.go)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from vstream.findings import Span
from vstream.lint.detect import split_words
from vstream.lint.reading.mappings import BlockCache, read_conf_block
from vstream.lint.reading.nodes import entry, list_values, maps_in, option, scalar, table, values_in
from vstream.lint.workspace import (
    AccountConf,
    ConfValue,
    GatewayConf,
    GatewayRemote,
    JetStreamConf,
    LeafRemote,
    Listener,
    MappingsBlock,
    Permission,
    ServerConf,
    UserConf,
)
from vstream.syntax.natsconf.nodes import ConfArray, ConfDocument, ConfEntry, ConfMap, ConfNode

_MAPPINGS: Final = ("mappings", "maps")
_SYSTEM_ACCOUNT: Final = ("system_account", "system")
_URLS: Final = ("url", "urls")
_BLOCKS: Final = (("cluster",), ("gateway",), ("leafnodes", "leaf"), ("websocket", "ws"), ("mqtt",))
"""What opens ports, each by its names."""
_SERVER_OPTIONS: Final = split_words(
    "addr host http http_port https https_port jetstream listen monitor_port net port server_name"
).union(*_BLOCKS)
_DIGITS_LIMIT: Final = 10
_OFF: Final = frozenset({"disabled", "disable", "false", "off", "0"})


def read_server_conf(
    document: ConfDocument, file: str, included: Iterable[str] = (), cache: BlockCache | None = None
) -> ServerConf:
    """
    What *document* configures. *included* are the names of the files that went into it.

    *cache* is for several documents that include the same files.
    """
    blocks_of = _Blocks(document, file, cache)
    root = document.root
    is_fragment = not any(top.key.lower() in _SERVER_OPTIONS for top in root.entries)
    leafnodes = table(root, "leafnodes", "leaf")
    gateway = entry(root, "gateway")
    jetstream = entry(root, "jetstream")
    accounts = tuple(_read_accounts(root, blocks_of))
    authorization = table(root, "authorization")
    blocks = [*blocks_of.list_all(root, None), *(block for account in accounts for block in account.mappings)]
    return ServerConf(
        file=file,
        document=document,
        is_fragment=is_fragment,
        included=tuple(included),
        server_name=option(root, "server_name"),
        cluster_name=option(table(root, "cluster"), "name"),
        cluster=table(root, "cluster"),
        gateway=_read_gateway(gateway) if gateway else None,
        leafnodes=leafnodes,
        websocket=table(root, "websocket", "ws"),
        mqtt=table(root, "mqtt"),
        jetstream=_read_jetstream(jetstream) if jetstream else None,
        listeners=() if is_fragment else tuple(_read_listeners(root)),
        accounts=accounts,
        users=(*_read_users(authorization, None), *(user for account in accounts for user in account.users)),
        system_account=option(root, *_SYSTEM_ACCOUNT),
        authorization=authorization,
        leaf_remotes=tuple(_read_leaf_remotes(leafnodes)),
        mappings=tuple(sorted(blocks, key=lambda block: block.key_span)),
    )


class _Blocks:
    """Makes the blocks of one document, those of included files by the cache."""

    def __init__(self, document: ConfDocument, file: str, cache: BlockCache | None) -> None:
        # An included file sees no variables but its own; where it has some, they may come from the environment.
        is_constant = all(reference.span.file == file for reference in document.references)
        self._cache = cache if is_constant else None
        self._file = file

    def __call__(self, conf_entry: ConfEntry, account: str | None) -> MappingsBlock:
        if self._cache is None or conf_entry.key_span.file == self._file:
            return read_conf_block(conf_entry, account)
        return self._cache.block(conf_entry, account)

    def list_all(self, conf: ConfMap, account: str | None) -> tuple[MappingsBlock, ...]:
        """Every block that the server reads: the last of each key, and `mappings` and `maps` are two keys."""
        return tuple(self(entry, account) for entry in conf.effective_entries() if entry.key.lower() in _MAPPINGS)


def _read_accounts(root: ConfMap, blocks_of: _Blocks) -> Iterator[AccountConf]:
    accounts = table(root, "accounts")
    for account in accounts.effective_entries() if accounts else ():
        if isinstance(account.value, ConfMap):
            yield AccountConf(
                name=account.key,
                span=account.span,
                key_span=account.key_span,
                conf=account.value,
                users=tuple(_read_users(account.value, account.key)),
                mappings=blocks_of.list_all(account.value, account.key),
            )


def _read_users(conf: ConfMap | None, account: str | None) -> Iterator[UserConf]:
    if conf is None:
        return
    default = table(conf, "default_permissions", "default_permission")
    listed = entry(conf, "users")
    items = listed.value.items if listed and isinstance(listed.value, ConfArray) else ()
    single = [conf] if account is None and entry(conf, "user", "username") else []
    for item in (*single, *items):
        if not isinstance(item, ConfMap):
            continue
        name = option(item, "user", "username", "nkey")
        permissions = table(item, "permissions", "permission", "authorization") or default
        if item is conf:
            permissions = None  # The defaults are for those that are listed.
        yield UserConf(
            name=(name.text or str(name.value)) if name else "",
            account=account,
            span=name.span if name else item.span,
            password=option(item, "password", "pass"),
            publish=_read_permission(permissions, "publish", "pub", "import"),
            subscribe=_read_permission(permissions, "subscribe", "sub", "export"),
        )


def _read_permission(conf: ConfMap | None, *names: str) -> Permission | None:
    written = entry(conf, *names)
    if written is None:
        return None
    if not isinstance(written.value, ConfMap):
        return Permission(allow=list_values(written.value))
    allow = entry(written.value, "allow")
    return Permission(allow=list_values(allow.value) if allow else None, deny=values_in(written.value, "deny"))


def _read_gateway(conf_entry: ConfEntry) -> GatewayConf | None:
    conf = conf_entry.value
    if not isinstance(conf, ConfMap):
        return None
    remotes = []
    for item in maps_in(conf, "gateways"):
        remotes.append(GatewayRemote(name=option(item, "name"), urls=values_in(item, *_URLS), span=item.span))
    return GatewayConf(
        name=option(conf, "name"), remotes=tuple(remotes), span=conf.span, key_span=conf_entry.key_span, conf=conf
    )


def _read_jetstream(conf_entry: ConfEntry) -> JetStreamConf:
    conf = conf_entry.value if isinstance(conf_entry.value, ConfMap) else None
    switch: ConfNode | None = conf_entry.value
    if conf is not None:
        enabled = entry(conf, "enabled", "enable")
        switch = enabled.value if enabled else None
    value = scalar(switch)
    return JetStreamConf(
        is_enabled=value is None or str(value).lower() not in _OFF,
        store_dir=option(conf, "store_dir", "storedir", "store"),
        max_file=option(conf, "max_file_store", "max_file"),
        max_memory=option(conf, "max_memory_store", "max_mem_store", "max_mem"),
        domain=option(conf, "domain"),
        span=conf_entry.value.span,
        key_span=conf_entry.key_span,
        conf=conf,
    )


def _read_leaf_remotes(leafnodes: ConfMap | None) -> Iterator[LeafRemote]:
    for item in maps_in(leafnodes, "remotes"):
        yield LeafRemote(
            urls=values_in(item, *_URLS), account=option(item, "account", "local"), span=item.span, conf=item
        )


def _read_listeners(root: ConfMap) -> Iterator[Listener]:
    host = option(root, "host", "net", "addr")
    client = _read_listener("client", root) or Listener(
        block="client", host=(host.text or "") if host else "", port=None, span=Span.point(root.span.file, 1, 1)
    )
    yield client
    for block, *aliases in (("http", "http_port", "monitor_port"), ("https", "https_port")):
        # Several names of one option: one of them counts.
        address_option = option(root, block, *aliases)
        if address_option is not None:
            address, port = _read_address(address_option)
            # The monitoring port listens where the clients do, if it names no host.
            yield Listener(block=block, host=address or client.host, port=port, span=address_option.span)
    for names in _BLOCKS:
        listener = _read_listener(names[0], table(root, *names))
        if listener is not None:
            yield listener


def _read_listener(block: str, conf: ConfMap | None) -> Listener | None:
    listen = option(conf, "listen")
    if listen is not None:
        host, port = _read_address(listen)
        return Listener(block=block, host=host, port=port, span=listen.span)
    port_option, host_option = option(conf, "port"), option(conf, "host", "net", "addr")
    if port_option is None:
        return None
    port = port_option.value if isinstance(port_option.value, int) else None
    return Listener(
        block=block,
        host=(host_option.text or "") if host_option else "",
        port=port,
        span=(host_option or port_option).span,
    )


def _read_address(listen: ConfValue) -> tuple[str, int | None]:
    """Host and port of a `listen` option: `host:port`, or a port alone."""
    host, _, port = str(listen.value).rpartition(":")
    return host, int(port) if port.isascii() and port.isdecimal() and len(port) < _DIGITS_LIMIT else None


def distinct_blocks(servers: Iterable[ServerConf]) -> tuple[MappingsBlock, ...]:
    """
    The blocks of *servers*, each once: a file that nine servers include is one block.

    Where one of them includes it inside an account, that account is the one it is for.
    """
    blocks: dict[Span, MappingsBlock] = {}
    for server in servers:
        for mappings_block in server.mappings:
            earlier = blocks.get(mappings_block.key_span)
            if earlier is None or (earlier.account is None and mappings_block.account is not None):
                blocks[mappings_block.key_span] = mappings_block
    return tuple(sorted(blocks.values(), key=lambda block: block.key_span))
