"""VS431: values that the server takes, and that nobody means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from vstream.findings import Severity
from vstream.lint.reading.nodes import entry, list_values, maps_in, option, table, values_in
from vstream.lint.rule import Violation, rule, suggest_closest
from vstream.lint.rules.server_values import (
    find_system_account,
    has_any,
    has_jetstream,
    has_operator,
    is_on,
    list_whole,
    read_duration,
)
from vstream.lint.rules.servers.options import BLOCKS
from vstream.lint.rules.servers.startup import DISK, MEMORY
from vstream.lint.workspace import ServerConf, UserConf, Workspace
from vstream.subjects.algebra import is_literal, is_subset
from vstream.syntax.natsconf.nodes import ConfArray, ConfMap

_SMALLEST: Final[tuple[tuple[str, int], ...]] = (
    ("max_payload", 256),
    ("max_control_line", 256),
    ("max_pending", 64 << 10),
    ("logfile_size_limit", 1024),
    ("log_size_limit", 1024),
)
"""The options of a server that are sizes, and what nobody goes below, in bytes."""
_STORAGE: Final = ("max_memory_store", "max_mem_store", "max_mem", "max_file_store", "max_file")
_MIN_STORAGE_BYTES: Final = 64 << 10
_RANDOM_PORT: Final = "-1"
_MIN_SECONDS: Final[dict[str, float]] = {"ping_interval": 0.1, "write_deadline": 0.01}
_MAX_WAIT_SECONDS: Final = 300
_BCRYPT: Final = re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}")
_EVERYWHERE: Final = re.compile(r"0\.0\.0\.0|\[::\]")
_NOBODY: Final = "$2a$11$none"
"""What rendered files have until somebody writes a password: no password has this hash."""
_EVERYTHING: Final = ">"
_NOT_IN_NAMES: Final = re.compile(r"[\s.*>]+")
_VARIABLE: Final = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?")


@rule("VS431", "implausible-option", Severity.WARNING)
def implausible_option(workspace: Workspace) -> Iterator[Violation]:
    """
    An option has a value that the server accepts but that is almost certainly a mistake.

    ## Why is this bad?
    The server starts, but does not do what was meant. A number without a unit is bytes or seconds: `max_payload: 8`
    refuses every message of more than 8 bytes, a `timeout` of `2000` is half an hour. In quotes, `'$PASSWORD'` is not a
    variable but the password itself. A user without a password can log in without one, and `~` is a directory with that
    name (server/opts.go, auth.go; all versions).
    """
    for server in list_whole(workspace):
        for check in _CHECKS:
            yield from check(server)


def _check_open_system_account(server: ServerConf) -> Iterator[Violation]:
    """Without accounts, everybody is in `$G`. Beside JetStream, VS426 says that the server does not start."""
    system = server.system_account
    if system is not None and system.text == "$G" and not server.accounts and not has_jetstream(server):
        yield Violation(
            at=system.span,
            message="every client is in `$G`, and so sees all connections and may command the servers",
            hint="write `SYS`, and add it to `accounts` with users of its own",
        )


def _check_sizes(server: ServerConf) -> Iterator[Violation]:
    sized: list[tuple[ConfMap | None, str, int]] = [(server.root, name, least) for name, least in _SMALLEST]
    sized += [(server.jetstream_conf, name, _MIN_STORAGE_BYTES) for name in _STORAGE]
    for account in server.accounts:
        sized += [(table(account.conf, "jetstream"), name, _MIN_STORAGE_BYTES) for name in (*MEMORY, *DISK)]
    address = option(server.root, "listen", "port")
    is_test = address is not None and str(address.value).endswith(_RANDOM_PORT)
    for conf, name, least in sized:
        size = option(conf, name)
        if size is not None and isinstance(size.value, int) and size.value < -1:
            message = f"`{name}` is {size.value}, and no size is below zero"
            yield Violation(at=size.span, message=message, hint="write a size, such as 10GB, or remove it")
        elif size is not None and isinstance(size.value, int) and 0 < size.value < least:
            yield Violation(
                at=size.span,
                message=f"`{name}` is {size.value} bytes: a number without a unit is bytes",
                hint=f"write {size.value}MB or {size.value}GB",
                # On a port that nobody can know beforehand, only a test listens.
                severity=Severity.NOTE if is_test else None,
            )


def _check_times(server: ServerConf) -> Iterator[Violation]:
    for name, least in _MIN_SECONDS.items():
        time = option(server.root, name)
        nanoseconds = read_duration(time)
        if time is not None and nanoseconds is not None and 0 < nanoseconds < least * 1e9:
            yield Violation(
                at=time.span, message=f"`{name}` is only {time.value}", hint='write a longer time, such as "10s"'
            )
    for conf in _blocks_with_timeout(server):
        timeout = option(conf, "timeout")
        if timeout is not None and isinstance(timeout.value, int | float) and timeout.value > _MAX_WAIT_SECONDS:
            yield Violation(
                at=timeout.span,
                message=f"the `timeout` is {timeout.value} seconds",
                hint=f'write "{int(timeout.value)}ms", if milliseconds are meant, or at most "{_MAX_WAIT_SECONDS}s"',
            )


def _blocks_with_timeout(server: ServerConf) -> Iterator[ConfMap | None]:
    for conf in (server.root, server.cluster, server.gateway_conf, server.leafnodes):
        yield table(conf, "tls")
        yield table(conf, "authorization")


def _check_passwords(server: ServerConf) -> Iterator[Violation]:
    token = option(server.authorization, "token")
    secrets = [("password", user.password) for user in server.users if user.password is not None]
    for kind, secret in (*secrets, ("token", token)):
        if secret is None or not secret.text or not secret.text.startswith("$"):
            continue
        if secret.text.startswith("$2") and secret.text != _NOBODY and not _BCRYPT.fullmatch(secret.text):
            yield Violation(
                at=secret.span,
                message=f"the {kind} looks like a bcrypt hash but is not one: nobody can log in with it",
                hint="copy all 60 characters that `nats server passwd` prints",
            )
        elif _VARIABLE.fullmatch(secret.text) and not secret.text.startswith("$2"):
            yield Violation(
                at=secret.span,
                message=f"in quotes, `{secret.text}` is the {kind} itself and not a variable",
                hint="remove the quotes",
            )


def _check_open_users(server: ServerConf) -> Iterator[Violation]:
    if server.has_callout or any(is_on(conf, "verify_and_map", "verify") for conf in _list_tls_blocks(server)):
        return
    for conf in _list_user_confs(server):
        name = option(conf, "user", "username")
        # VS421 reports unknown options: one of them may be the password.
        is_known = all(written.key.lower() in BLOCKS["user"].options for written in conf.entries)
        is_known = is_known or conf is server.authorization
        has_secret = has_any(conf, "password", "pass", "nkey", "token", "proxy_required")
        if name is not None and name.text and is_known and not has_secret:
            yield Violation(
                at=name.span,
                message=f"user `{name.text}` has no password: whoever knows the name may log in",
                hint="add `password`, from a variable",
            )


def _list_tls_blocks(server: ServerConf) -> Iterator[ConfMap | None]:
    for conf in (server.root, server.websocket, server.mqtt):
        yield table(conf, "tls")
    yield table(server.leafnodes, "tls")


def _list_user_confs(server: ServerConf) -> Iterator[ConfMap]:
    blocks = (server.root, server.websocket, server.mqtt)
    guests = {guest.text for conf in blocks if (guest := option(conf, "no_auth_user")) is not None}
    for conf in (server.authorization, *(account.conf for account in server.accounts)):
        for item in (*maps_in(conf, "users"), *([conf] if conf is server.authorization and conf is not None else [])):
            name = option(item, "user", "username")
            if name is not None and name.text not in guests:
                yield item


def _check_permissions(server: ServerConf) -> Iterator[Violation]:
    for user in server.users:
        yield from _find_denied(user)


def _find_denied(user: UserConf) -> Iterator[Violation]:
    for permission, verb in ((user.publish, "publish"), (user.subscribe, "subscribe to")):
        denied = permission.deny if permission else ()
        for allowed in (permission.allow or ()) if permission else ():
            cover = next((subject for subject in denied if is_subset(str(allowed.value), str(subject.value))), None)
            if cover is not None:
                yield Violation(
                    at=allowed.span,
                    message=f"user `{user.name}` may {verb} `{allowed.value}`, and `{cover.value}` forbids it: "
                    "`deny` wins",
                    hint="remove one of them: what is not allowed is denied anyway",
                    # Who is denied everything may be locked out on purpose, and notices at once.
                    severity=Severity.NOTE if cover.value == _EVERYTHING else None,
                )


def _check_home(server: ServerConf) -> Iterator[Violation]:
    written = (
        option(server.root, "store_dir", "storedir"),
        server.jetstream.store_dir if server.jetstream else None,
        option(server.root, "log_file", "logfile"),
        option(server.root, "pid_file", "pidfile"),
    )
    for path in written:
        if path is not None and path.text and path.text.startswith("~"):
            yield Violation(
                at=path.span,
                message=f"servers do not expand `~`: `{path.text}` is below the current directory",
                hint="write the whole path",
            )


def _check_tags(server: ServerConf) -> Iterator[Violation]:
    tags = entry(server.root, "server_tags")
    for tag in list_values(tags.value) if tags and not isinstance(tags.value, ConfArray) else ():
        if tag.text and "," in tag.text:
            items = ", ".join(f'"{part.strip()}"' for part in tag.text.split(","))
            yield Violation(at=tag.span, message="this is one tag, with commas in it", hint=f"write [{items}]")


def _check_authorities(server: ServerConf) -> Iterator[Violation]:
    """Certificates of the other side are verified, and nothing says whose."""
    for conf, is_verified in ((server.root, False), (server.cluster, True), (server.gateway_conf, True)):
        tls = table(conf, "tls")
        verify = entry(tls, "verify", "verify_and_map")
        if tls is None or has_any(tls, "ca_file", "cert_store", "pinned_certs"):
            continue
        if is_verified or is_on(tls, "verify", "verify_and_map"):
            yield Violation(
                at=verify.key_span if verify else tls.span,
                message="certificates are verified without a `ca_file`: only public authorities are trusted",
                hint="add `ca_file` with the authority that signs your certificates",
                severity=Severity.NOTE if is_verified else None,
            )


def _check_advertised(server: ServerConf) -> Iterator[Violation]:
    for who, address in (
        ("clients", option(server.root, "client_advertise")),
        ("clients", option(server.websocket, "advertise")),
        ("other servers", option(server.cluster, "cluster_advertise", "advertise")),
        ("other servers", option(server.gateway_conf, "advertise")),
        ("leaf nodes", option(server.leafnodes, "leafnode_advertise", "advertise")),
    ):
        if address is not None and _EVERYWHERE.match(str(address.value)):
            yield Violation(
                at=address.span,
                message=f"{who} are told to connect to `{address.value}`, which is their own machine",
                hint=f"write the name or address by which {who} reach this server, or remove it",
            )


def _check_callout(server: ServerConf) -> Iterator[Violation]:
    # Beside an operator, VS426 says that the server does not start with it.
    callout = None if has_operator(server) else table(server.authorization, "auth_callout", "auth_hook")
    names = {user.name for user in server.users}
    for user in values_in(callout, "auth_users", "users"):
        if user.text and user.text not in names:
            yield Violation(
                at=user.span,
                message=f"there is no user `{user.text}`: nobody can answer the authorization callout",
                hint="add the user, or write the name of one that exists",
            )
    account = option(callout, "account", "acc")
    accounts = sorted(account.name for account in server.accounts)
    if account is not None and account.text and account.text not in {*accounts, "$G", "$SYS"}:
        yield Violation(
            at=account.span,
            message=f"there is no account `{account.text}`: nobody answers there, so nobody can log in",
            hint=suggest_closest(account.text, accounts, "accounts")
            if accounts
            else "remove it: the users are in `$G`",
        )


def _check_guest_commands(server: ServerConf) -> Iterator[Violation]:
    guest = option(server.root, "no_auth_user")
    system = find_system_account(server)
    accounts = {user.account for user in server.users if guest is not None and user.name == guest.text}
    if guest is not None and system in accounts:
        yield Violation(
            at=guest.span,
            message=f"whoever gives no login is in `{system}`, and so sees all connections and may command the servers",
            hint="name a user of another account",
        )


def _check_account_names(server: ServerConf) -> Iterator[Violation]:
    """Subjects of the system account contain them (server/events.go, accSubsSubj and the like)."""
    for account in server.accounts:
        if not is_literal(account.name) or "." in account.name:
            yield Violation(
                at=account.key_span,
                message=f"`{account.name}` is not one token of a subject: requests for its statistics do not work",
                hint=f"write `{_NOT_IN_NAMES.sub('-', account.name)}`",
                # With a space the server logs errors, too.
                severity=None if " " in account.name else Severity.NOTE,
            )


def _check_log_directory(server: ServerConf) -> Iterator[Violation]:
    file = option(server.root, "log_file", "logfile")
    if file is not None and file.text and file.text.endswith("/"):
        yield Violation(
            at=file.span,
            message=f"`{file.text}` is a directory: the server stops without a message",
            hint=f"write `{file.text}nats.log`",
        )


def _check_unnamed_system(server: ServerConf) -> Iterator[Violation]:
    is_named = server.system_account or is_on(server.root, "no_system_account") or has_operator(server)
    for account in server.accounts if not is_named else ():
        if account.name.upper() in {"SYS", "SYSTEM"} and account.users and not has_any(account.conf, "jetstream"):
            yield Violation(
                at=account.key_span,
                message=f"no `system_account` names `{account.name}`: its users see nothing of the servers",
                hint=f"add `system_account: {account.name}`",
            )


def _check_empty_resolver(server: ServerConf) -> Iterator[Violation]:
    resolver = option(server.root, "resolver", "account_resolver", "accounts_resolver")
    is_memory = resolver is not None and str(resolver.value).upper() in {"MEM", "MEMORY"}
    if resolver is not None and is_memory and not has_any(server.root, "resolver_preload"):
        yield Violation(
            at=resolver.span,
            message="the resolver in memory has no `resolver_preload`: it knows no account",
            hint="add `resolver_preload { ACCOUNT: JWT }`, or use a resolver of the type `full`",
            severity=Severity.NOTE,
        )


_CHECKS: Final[tuple[Callable[[ServerConf], Iterator[Violation]], ...]] = (
    _check_open_system_account,
    _check_sizes,
    _check_times,
    _check_passwords,
    _check_open_users,
    _check_permissions,
    _check_home,
    _check_tags,
    _check_authorities,
    _check_advertised,
    _check_callout,
    _check_empty_resolver,
    _check_guest_commands,
    _check_account_names,
    _check_log_directory,
    _check_unnamed_system,
)
