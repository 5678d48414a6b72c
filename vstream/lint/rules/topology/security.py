"""Accounts and users, how vstream connects to the regions, and TLS between servers and to their clients."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from vstream.findings import Severity
from vstream.formatting import quote_names, quote_value
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.render import account_view
from vstream.topology.document import ConnectDocument
from vstream.topology.model import AccountLimits, Naming, Security, Topology, is_context_name, is_loopback
from vstream.topology.profiles import profile_of


@rule("VS160", "security-unfit", Severity.ERROR)
def security_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    The security mode cannot be combined with another setting of the topology.

    ## Why is this bad?
    With `routing: mapped`, you define the users unless `account` is set, so vstream does not know how they log in.
    Certificates of unknown users, or of several users with one name, are a mistake.

    Operator mode: with `routing: accounts` and `regional`, several accounts share flow control: servers before 2.12.6
    (and 2.11.15) refuse the tokens of such accounts. The token of an account is pushed in one message, and servers
    accept at most 1 MB: with many regions, or many streams without a root, it gets larger. With `naming: blog`, vstream
    cannot express who may publish where.
    """
    topology = subject.topology
    at = ("security", "mode")
    if topology.certificates:
        yield from _check_certificates(topology)
    yield from _check_limits(topology)
    if topology.security in {Security.NKEYS, Security.CERTIFICATES} and not topology.has_accounts:
        yield Violation(
            at=at,
            message=f"`mode: {topology.security.value}` has no effect with `routing: mapped`: you define its users",
            hint="omit `security`, name the `account` and let vstream write it, or choose another `routing`",
        )
    if topology.security is not Security.OPERATOR:
        return
    if profile_of(topology).has_physical_names and topology.naming is Naming.BLOG:
        yield Violation(
            at=("security", "mode"),
            message="with `naming: blog`, subjects do not show who may publish where, so users cannot be restricted",
            hint="use `naming: isolated`, or omit `security` and put the mappings into your account's token yourself",
        )
    since = profile_of(topology).operator_since
    if since is not None and topology.server_version < since:
        yield Violation(
            at=("server_version",),
            message=f"servers before 2.12 refuse the tokens of `mode: operator` with `routing: {topology.routing.value}`",
            hint='upgrade to at least 2.12.6 and set `server_version: "2.12"`, or omit `security`',
        )


def _check_limits(topology: Topology) -> Iterator[Violation]:
    limits = topology.limits
    if limits == AccountLimits():
        return
    at = ("security", "limits")
    if not topology.has_accounts:
        yield Violation(
            at=at,
            message="`limits` has no effect with `routing: mapped`: the account is yours",
            hint="name the `account` and let vstream write it, or choose another `routing`",
        )
    for stream in topology.streams:
        if limits.consumers is not None and len(stream.consumers) > limits.consumers:
            yield Violation(
                at=(*at, "consumers"),
                message=f"stream `{stream.name}` has {len(stream.consumers)} consumers, more than the limit",
                hint="raise the limit: applications, `vstream probe` and `vstream audit` make some, too",
            )


def _check_certificates(topology: Topology) -> Iterator[Violation]:
    users = account_view.index_users(topology)
    if topology.security is not Security.CERTIFICATES:
        yield Violation(
            at=("security", "certificates"),
            message=f"`certificates` has no effect with `mode: {topology.security.value}`",
            hint="use `mode: certificates`, or omit it",
        )
        return
    for user in topology.certificates:
        if user not in users:
            yield Violation(
                at=("security", "certificates", user),
                message=f"there is no user {quote_value(user)}",
                hint=f"there are {', '.join(users)}",
                on_key=True,
            )
    owners: dict[str, str] = {}
    for user in users:
        name = topology.certificates.get(user, user)
        owner = owners.setdefault(name, user)
        if owner != user:
            yield Violation(
                at=("security", "certificates", user if user in topology.certificates else owner),
                message=f"users `{owner}` and `{user}` have certificates with the same name, {quote_value(name)}",
                hint="give each its own name: servers could not tell them apart",
            )


@rule("VS115", "bad-connection", Severity.ERROR)
def bad_connection(subject: TopologySubject) -> Iterator[Violation]:
    """
    A region's connection is incomplete or contradicts itself.

    ## Why is this bad?
    vstream would have to guess which servers to change.
    """
    for name, connect in subject.document.connect.items():
        for message, hint in _list_contradictions(name, connect):
            yield Violation(at=("connect", name), message=message, hint=hint, on_key=True)
        for index, url in enumerate(connect.urls):
            problem = _find_address_problem(url, ("nats", "tls", "ws", "wss"), "nats://host:4222")
            if problem:
                message, hint = problem
                yield Violation(at=("connect", name, "urls", index), message=message, hint=hint)
        for index, url in enumerate(connect.monitor):
            problem = _find_address_problem(url, ("http", "https"), "http://host:8222")
            if problem:
                message, hint = problem
                yield Violation(at=("connect", name, "monitor", index), message=message, hint=hint)


def _list_contradictions(name: str, connect: ConnectDocument) -> Iterator[tuple[str, str]]:
    if bool(connect.context) == bool(connect.urls):
        yield (
            f"`connect.{name}` needs either a `context` or `urls`",
            "`context: NAME` uses a nats CLI context; `urls: nats://host:4222` lists servers",
        )
    if connect.context and not is_context_name(connect.context):
        yield (
            f"`{connect.context}` is not the name of a nats CLI context",
            "names contain no `/` and do not begin with a dot",
        )
    if bool(connect.user) != bool(connect.password_env):
        yield (
            f"`connect.{name}` needs `user` and `password_env` together",
            "the password itself must not be written here",
        )
    logins = [login for login in ("creds", "nkey", "user", "token_env") if getattr(connect, login)]
    if len(logins) > 1:
        yield f"`connect.{name}` has {quote_names(logins)}", "keep one of them"
    extras = [*logins, *(key for key in ("tls", "inbox") if getattr(connect, key))]
    if connect.context and extras:
        yield (
            f"`connect.{name}` has a `context` and {quote_names(extras)}",
            "put the credentials into the context, or write `urls` instead of it",
        )
    yield from _list_system_contradictions(name, connect)
    if connect.tls and bool(connect.tls.cert) != bool(connect.tls.key):
        yield f"`connect.{name}.tls` needs `cert` and `key` together", "`ca` can be used alone"


def _list_system_contradictions(name: str, connect: ConnectDocument) -> Iterator[tuple[str, str]]:
    system = connect.system
    if system is None:
        return
    place = f"`connect.{name}.system`"
    if bool(system.user) != bool(system.password_env):
        yield f"{place} needs `user` and `password_env` together", "the password itself must not be written here"
    logins = [login for login in ("context", "creds", "nkey", "user") if getattr(system, login)]
    if len(logins) != 1:
        yield f"{place} needs one of `context`, `creds`, `nkey` and `user`", "name a user of the system account"
    elif bool(connect.context) != bool(system.context):
        yield (
            f"`connect.{name}` and its `system` must both have a `context`, or neither",
            "a context also contains the addresses of servers",
        )


def _find_address_problem(url: str, schemes: tuple[str, ...], example: str) -> tuple[str, str] | None:
    if "@" in url:
        return "an address must not hold a user or password", "use `user` and `password_env`, `creds` or `nkey`"
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not url.isprintable() or set(url) & set(" ,?#"):
        return f"{quote_value(url)} is not a valid address", f"write `{example}`"
    return None


@rule("VS162", "transport-unfit", Severity.ERROR)
def transport_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    `security.transport` is incomplete or contradicts itself.

    ## Why is this bad?
    A server without its key does not start. If the authority in `ca_file` also signed the certificates of users, each
    of these users can join as a server and bypass all accounts and permissions, unless `peer_name` is a name that none of
    them has.
    """
    topology, transport = subject.topology, subject.document.security.transport
    if transport is None:
        return
    at = ("security", "transport")
    files = {"cert_file": transport.cert_file, "key_file": transport.key_file, "ca_file": transport.ca_file}
    missing = [name for name, path in files.items() if path is None]
    if transport.none is not None:
        if len(missing) < len(files) or transport.peer_name:
            yield Violation(
                at=(*at, "none"),
                message="`none` cannot be combined with certificate files",
                hint="keep the files (TLS), or `none` with the reason why these servers need no TLS",
                on_key=True,
            )
        return
    if missing:
        yield Violation(
            at=at,
            message=f"`transport` needs {', '.join(f'`{name}`' for name in missing)}",
            hint='name the three files that each server has, or say why they need no TLS: `transport: {none: "…"}`',
            on_key=True,
        )
    has_certificates = topology.security is Security.CERTIFICATES
    names = {topology.certificates.get(user, user) for user in account_view.index_users(topology)}
    is_told_apart = transport.peer_name is not None and transport.peer_name not in names
    if has_certificates and transport.client_ca_file in {None, transport.ca_file} and not is_told_apart:
        yield Violation(
            at=(*at, "client_ca_file") if transport.client_ca_file else at,
            message=(
                "with `mode: certificates`, every user could join as a server: one authority signs both "
                "kinds of certificate"
            ),
            hint=(
                "let another authority sign the certificates of users, and name it: `client_ca_file: "
                "/etc/nats/users-ca.pem`; or give all servers a name that no user has, `peer_name`"
            ),
            on_key=True,
        )
    if not has_certificates and transport.client_ca_file is not None:
        yield Violation(
            at=(*at, "client_ca_file"),
            message="`client_ca_file` has no effect without `mode: certificates`",
            hint="use `mode: certificates`, or omit it",
            on_key=True,
        )


@rule("VS172", "plaintext-servers", Severity.ERROR)
def plaintext_servers(subject: TopologySubject) -> Iterator[Violation]:
    """
    Servers have host names, but the traffic between them is not encrypted.

    ## Why is this bad?
    Routes, gateways and leaf nodes without TLS accept anyone. Anyone who reaches their ports can join the super-cluster
    as a server and read and write every stream, whatever users and accounts are defined. Passwords and messages cross
    the network unencrypted.
    """
    topology = subject.topology
    if topology.transport is not None or subject.document.security.transport is not None:
        return
    yield from _check_other_hosts(
        topology,
        "TLS between them: anyone who reaches their ports can join as a server",
        "set `security: {transport: {cert_file: …, key_file: …, ca_file: …}}`, or say why they need none: "
        '`security: {transport: {none: "the hosts are joined by WireGuard"}}`',
    )


def _check_other_hosts(topology: Topology, lacking: str, hint: str) -> Iterator[Violation]:
    """Servers on other hosts than this one have no *lacking*, which says also what follows."""
    hosts = [seat.server.host for seat in topology.all_seats if seat.server.host and not is_loopback(seat.server.host)]
    if hosts:
        message = f"servers on {len(set(hosts))} hosts, such as `{hosts[0]}`, have no {lacking}"
        yield Violation(at=("regions",), message=message, hint=hint, on_key=True)


@rule("VS173", "users-missing", Severity.ERROR)
def users_missing(subject: TopologySubject) -> Iterator[Violation]:
    """
    Servers have host names, but vstream renders no users, because `routing: mapped` is used without `account`.

    ## Why is this bad?
    Without users, anyone who reaches the client port has full access: they can delete streams, publish as any region,
    and read all messages. If you define the users, you also define their permissions.
    """
    topology, users = subject.topology, subject.document.security.users
    if topology.has_accounts:
        if users is not None:
            yield Violation(
                at=("security", "users"),
                message="`users` has no effect here: vstream renders users",
                hint="omit it",
                on_key=True,
            )
        return
    if users is None:
        yield from _check_other_hosts(
            topology,
            "users: anyone who reaches them has full access to the streams",
            "name the `account`: vstream then renders it with its users; or say where yours are defined: "
            '`security: {users: "accounts.conf, kept by operations"}`',
        )


@rule("VS174", "plaintext-credentials", Severity.WARNING)
def plaintext_credentials(subject: TopologySubject) -> Iterator[Violation]:
    """
    A region's connection has credentials, but its address is on another machine and does not use TLS.

    ## Why is this bad?
    Passwords and tokens cross the network unencrypted, and anyone on the path can take over the connection. vstream
    refuses to send them unless you allow it with `vstream --allow-plaintext`.
    """
    if subject.topology.is_plaintext_meant:
        return
    for region in subject.topology.regions:
        hosts = region.endpoint.plaintext_hosts if region.endpoint is not None else ()
        if hosts:
            yield Violation(
                at=("connect", region.name),
                message=f"credentials would cross the network unencrypted, to `{hosts[0]}`",
                hint="use `tls://` addresses, or say why the network needs no TLS: `security: {transport: {none: …}}`",
                on_key=True,
            )
