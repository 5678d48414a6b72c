"""Accounts and users, and how vstream connects to the regions."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from vstream.diagnostics import Severity
from vstream.formatting import join_names, quote_value
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.render import account_view
from vstream.topology.document import ConnectDocument
from vstream.topology.model import AccountLimits, Naming, Security, Topology, is_context_name
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
        yield from _certificates(topology)
    yield from _limits(topology)
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


def _limits(topology: Topology) -> Iterator[Violation]:
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


def _certificates(topology: Topology) -> Iterator[Violation]:
    users = account_view.logins(topology)
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
        for message, hint in _contradictions(name, connect):
            yield Violation(at=("connect", name), message=message, hint=hint, on_key=True)
        for index, url in enumerate(connect.urls):
            problem = _address_problem(url, ("nats", "tls", "ws", "wss"), "nats://host:4222")
            if problem:
                message, hint = problem
                yield Violation(at=("connect", name, "urls", index), message=message, hint=hint)
        for index, url in enumerate(connect.monitor):
            problem = _address_problem(url, ("http", "https"), "http://host:8222")
            if problem:
                message, hint = problem
                yield Violation(at=("connect", name, "monitor", index), message=message, hint=hint)


def _contradictions(name: str, connect: ConnectDocument) -> Iterator[tuple[str, str]]:
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
        yield f"`connect.{name}` has {join_names(logins)}", "keep one of them"
    extras = [*logins, *(key for key in ("tls", "inbox") if getattr(connect, key))]
    if connect.context and extras:
        yield (
            f"`connect.{name}` has a `context` and {join_names(extras)}",
            "put the credentials into the context, or write `urls` instead of it",
        )
    yield from _system_contradictions(name, connect)
    if connect.tls and bool(connect.tls.cert) != bool(connect.tls.key):
        yield f"`connect.{name}.tls` needs `cert` and `key` together", "`ca` can be used alone"


def _system_contradictions(name: str, connect: ConnectDocument) -> Iterator[tuple[str, str]]:
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


def _address_problem(url: str, schemes: tuple[str, ...], example: str) -> tuple[str, str] | None:
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
