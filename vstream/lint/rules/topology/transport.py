"""TLS between the servers that vstream renders, and to their clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.topology.model import Security, is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject


@rule("VS162", "transport-unfit", Severity.ERROR)
def transport_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    `security.transport` is incomplete, or says two things that exclude each other.

    ## Why is this bad?
    A server without its key does not start. A server whose `ca_file` also signed the certificates of users lets each
    of these users join as a server, past all accounts and permissions.
    """
    transport = subject.document.security.transport
    if transport is None:
        return
    at = ("security", "transport")
    files = {"cert_file": transport.cert_file, "key_file": transport.key_file, "ca_file": transport.ca_file}
    missing = [name for name, path in files.items() if path is None]
    if transport.none is not None:
        if len(missing) < len(files):
            yield Violation(
                at=(*at, "none"),
                message="`none` excludes certificate files",
                hint="keep the files for TLS, or `none` with the reason why these servers need none",
                on_key=True,
            )
        return
    if missing:
        yield Violation(
            at=at,
            message=f"`transport` needs {', '.join(f'`{name}`' for name in missing)}",
            hint='name the three files on each server, or say why they need no TLS: `transport: {none: "…"}`',
            on_key=True,
        )
    has_certificates = subject.topology.security is Security.CERTIFICATES
    if has_certificates and transport.client_ca_file in {None, transport.ca_file}:
        yield Violation(
            at=(*at, "client_ca_file") if transport.client_ca_file else at,
            message="with `mode: certificates`, every user could join as a server: both are trusted by the same authority",
            hint="sign the certificates of users by another authority, and name it: `client_ca_file: /etc/nats/users-ca.pem`",
            on_key=True,
        )
    if not has_certificates and transport.client_ca_file is not None:
        yield Violation(
            at=(*at, "client_ca_file"),
            message="`client_ca_file` has no effect without `mode: certificates`",
            hint="use `mode: certificates`, or leave it out",
            on_key=True,
        )


@rule("VS172", "plaintext-servers", Severity.ERROR)
def plaintext_servers(subject: TopologySubject) -> Iterator[Violation]:
    """
    Servers have host names, and nothing between them is encrypted.

    ## Why is this bad?
    Routes, gateways and leaf nodes without TLS ask nobody who they are. Whoever reaches their ports becomes a server
    of the super-cluster, whatever users and accounts there are, and can read and write every stream. Passwords and
    messages cross the network in clear.
    """
    topology = subject.topology
    if topology.transport is not None or subject.document.security.transport is not None:
        return
    hosts = [seat.server.host for seat in topology.processes if seat.server.host and not is_loopback(seat.server.host)]
    if hosts:
        yield Violation(
            at=("regions",),
            message=f"servers on {len(set(hosts))} hosts, such as `{hosts[0]}`, and no TLS between them: "
            "whoever reaches their ports can join as a server",
            hint="set `security: {transport: {cert_file: …, key_file: …, ca_file: …}}`, or say why they need none: "
            '`security: {transport: {none: "the hosts are joined by WireGuard"}}`',
            on_key=True,
        )


@rule("VS173", "users-missing", Severity.ERROR)
def users_missing(subject: TopologySubject) -> Iterator[Violation]:
    """
    Servers have host names, and vstream renders no users for them, as `routing: mapped` has no `account`.

    ## Why is this bad?
    Without users, whoever reaches the port for clients may do everything: delete streams, publish as any region, read
    all messages. With users of your own, each needs permissions of your own.
    """
    topology, users = subject.topology, subject.document.security.users
    if topology.has_accounts:
        if users is not None:
            yield Violation(
                at=("security", "users"),
                message="`users` has no effect here: vstream renders users",
                hint="leave it out",
                on_key=True,
            )
        return
    hosts = [seat.server.host for seat in topology.processes if seat.server.host and not is_loopback(seat.server.host)]
    if hosts and users is None:
        yield Violation(
            at=("regions",),
            message=f"servers on {len(set(hosts))} hosts, such as `{hosts[0]}`, and no users: "
            "whoever reaches them may do everything with the streams",
            hint="name the `account`, and vstream renders it with its users; or say where yours are: "
            '`security: {users: "accounts.conf, kept by operations"}`',
            on_key=True,
        )


@rule("VS174", "plaintext-credentials", Severity.WARNING)
def plaintext_credentials(subject: TopologySubject) -> Iterator[Violation]:
    """
    A region's connection has credentials, and an address without TLS on another machine.

    ## Why is this bad?
    Passwords and tokens cross the network in clear, and whoever is in between can take over any connection. vstream sends
    nothing there unless whoever runs it says that it is meant: `vstream --allow-plaintext`.
    """
    if subject.topology.is_plaintext_meant:
        return
    for region in subject.topology.regions:
        hosts = region.endpoint.plaintext_hosts if region.endpoint is not None else ()
        if hosts:
            yield Violation(
                at=("connect", region.name),
                message=f"credentials would cross the network in clear, to `{hosts[0]}`",
                hint="use `tls://` addresses, or say why the network needs no TLS: `security: {transport: {none: …}}`",
                on_key=True,
            )
