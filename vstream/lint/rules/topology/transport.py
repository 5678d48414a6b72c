"""TLS between the servers that vstream renders, and to their clients."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.render import account_view
from vstream.topology.model import Security, is_loopback


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
    names = {topology.certificates.get(user, user) for user in account_view.logins(topology)}
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
    hosts = [seat.server.host for seat in topology.processes if seat.server.host and not is_loopback(seat.server.host)]
    if hosts:
        yield Violation(
            at=("regions",),
            message=(
                f"servers on {len(set(hosts))} hosts, such as `{hosts[0]}`, have no TLS between them: "
                "anyone who reaches their ports can join as a server"
            ),
            hint="set `security: {transport: {cert_file: …, key_file: …, ca_file: …}}`, or say why they need none: "
            '`security: {transport: {none: "the hosts are joined by WireGuard"}}`',
            on_key=True,
        )


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
    hosts = [seat.server.host for seat in topology.processes if seat.server.host and not is_loopback(seat.server.host)]
    if hosts and users is None:
        yield Violation(
            at=("regions",),
            message=(
                f"servers on {len(set(hosts))} hosts, such as `{hosts[0]}`, have no users: anyone who "
                "reaches them has full access to the streams"
            ),
            hint="name the `account`: vstream then renders it with its users; or say where yours are defined: "
            '`security: {users: "accounts.conf, kept by operations"}`',
            on_key=True,
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
