"""How regions are reached."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.wording import join_names
from vstream.syntax.quoting import quote_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject
    from vstream.topology.document import ConnectDocument


@rule("VS115", "bad-connection", Severity.ERROR)
def bad_connection(subject: TopologySubject) -> Iterator[Violation]:
    """
    A region's connection is missing something, or says two things.

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
            "`context: NAME` takes a nats CLI context; `urls: nats://host:4222` names servers",
        )
    if bool(connect.user) != bool(connect.password_env):
        yield f"`connect.{name}` needs `user` and `password_env` together", "the password itself never stands here"
    logins = [login for login in ("creds", "nkey", "user", "token_env") if getattr(connect, login)]
    if len(logins) > 1:
        yield f"`connect.{name}` has {join_names(logins)}", "keep one of them"
    if connect.context and (logins or connect.tls):
        yield (
            f"`connect.{name}` has a `context` and {join_names([*logins, *(['tls'] if connect.tls else [])])}",
            "put the credentials into the context, or write `urls` instead of it",
        )
    if connect.tls and bool(connect.tls.cert) != bool(connect.tls.key):
        yield f"`connect.{name}.tls` needs `cert` and `key` together", "`ca` may stand alone"


def _address_problem(url: str, schemes: tuple[str, ...], example: str) -> tuple[str, str] | None:
    if "@" in url:
        return "an address must not hold a user or password", "use `user` and `password_env`, `creds` or `nkey`"
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not url.isprintable() or " " in url or "," in url:
        return f"{quote_value(url)} is no address", f"write `{example}`"
    return None
