"""Accounts that do not fit together: imports without an export, and users that the server cannot distinguish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vstream.diagnostics import Related, Severity, Span
from vstream.lint.reading.accounts import AccountImport, ExportIndex, exports_of, imports_of
from vstream.lint.reading.nodes import entry, several, table
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.servers.account_details import CHECKS as DETAILS
from vstream.lint.rules.servers.trust import ACCOUNTS as TRUST
from vstream.lint.rules.wording import closest, refuse_start
from vstream.lint.workspace import ServerConf, Workspace
from vstream.subjects.algebra import is_valid
from vstream.syntax.natsconf.nodes import ConfMap

_BUILT_IN: Final = frozenset({"$SYS", "$G"})
_RESPONSE: Final = (
    "response",
    "response_type",
    "threshold",
    "response_threshold",
    "response_time",
    "response_max_time",
)


@rule("VS425", "accounts-do-not-fit", Severity.ERROR)
def accounts_do_not_fit(workspace: Workspace) -> Iterator[Violation]:
    """
    An account imports something that is not exported to it, or users cannot be distinguished.

    ## Why is this bad?
    The server does not start and refuses to reload. Its message names the first account of the file, not the place. An
    import needs an export of the other account that covers its subject, and that lists this account if it lists
    accounts. A permission must be a subject, and the message does not say whose it is (all versions; server/opts.go,
    accounts.go).
    """
    seen: set[Span] = set()
    for server in workspace.servers:
        details = (violation for check in (*DETAILS, *TRUST) for violation in check(server))
        for violation in (*_imports(server), *_exports(server), *_users(server), *_permissions(server), *details):
            if isinstance(violation.at, Span) and violation.at not in seen:
                seen.add(violation.at)
                yield violation


def _imports(server: ServerConf) -> Iterator[Violation]:
    exports = {account.name: ExportIndex(exports_of(account)) for account in server.accounts}
    # The system account exports more than is written.
    provided = {*_BUILT_IN, server.system_account.text if server.system_account else None}
    for account in server.accounts:
        for wish in imports_of(account):
            name = str(wish.account.value)
            if name in provided:
                continue
            if name not in exports:
                yield refuse_start(
                    wish.account.span,
                    f"account `{account.name}` imports from `{name}`, which does not exist",
                    closest(name, sorted(exports), "accounts"),
                )
            else:
                yield from _not_exported(account.name, wish, name, exports[name])


def _not_exported(importer: str, wish: AccountImport, exporter: str, exports: ExportIndex) -> Iterator[Violation]:
    subject = str(wish.subject.value)
    covering = exports.covering(wish.kind, subject)
    if not covering:
        yield refuse_start(
            wish.subject.span,
            f"account `{exporter}` does not export the {wish.kind} `{subject}`",
            f'add `{{{wish.kind}: "{subject}"}}` to the `exports` of `{exporter}`',
        )
    elif all(export.accounts is not None and importer not in export.accounts for export in covering):
        yield Violation(
            at=wish.subject.span,
            message=f"account `{exporter}` exports the {wish.kind} `{subject}` to others, not to `{importer}`",
            hint=f"add `{importer}` to the `accounts` of the export",
            related=(Related(span=covering[0].subject.span, message="the export"),),
        )


def _exports(server: ServerConf) -> Iterator[Violation]:
    for account in server.accounts:
        for export in exports_of(account):
            response = entry(export.conf, *_RESPONSE) if export.kind == "stream" else None
            if response is not None:
                yield Violation(
                    at=response.key_span,
                    message=f"`{response.key}` is only for services, but `{export.subject.value}` is a stream: "
                    "the server does not start",
                    hint="remove it, or export a `service`",
                )


def _permissions(server: ServerConf) -> Iterator[Violation]:
    for user in server.users:
        for permission in (user.publish, user.subscribe):
            written = (*(permission.allow or ()), *permission.deny) if permission else ()
            for value in written:
                # A subscription may name a queue behind the subject.
                most = 1 if permission is user.subscribe else 0
                subject, *queue = str(value.value).split() or [""]
                if not is_valid(subject) or len(queue) > most:
                    yield refuse_start(
                        value.span,
                        f"`{value.value}` is not a subject that user `{user.name}` may have",
                        "write tokens between single dots, and `>` only at the end",
                    )

    yield from _route_permissions(server)


def _route_permissions(server: ServerConf) -> Iterator[Violation]:
    conf = table(server.cluster, "permissions")
    for direction in (entry(conf, "import", "publish", "pub"), entry(conf, "export", "subscribe", "sub")):
        lists = [direction.value] if direction is not None else []
        if direction is not None and isinstance(direction.value, ConfMap):
            lists = [part.value for part in direction.value.effective()]
        for written in (value for listed in lists for value in several(listed)):
            if written.text is not None and not is_valid(written.text):
                yield refuse_start(
                    written.span,
                    f"`{written.text}` is not a subject that routes may have",
                    "write tokens between single dots, and `>` only at the end",
                )


def _users(server: ServerConf) -> Iterator[Violation]:
    first: dict[str, Span] = {}
    for user in server.users:
        if not user.name or user.name.startswith("$"):
            continue
        if user.name in first and first[user.name] != user.span:
            yield Violation(
                at=user.span,
                message=f"user `{user.name}` is defined twice: the server does not start",
                hint="user names must be unique across all accounts",
                related=(Related(span=first[user.name], message="the other one"),),
            )
        first.setdefault(user.name, user.span)
    authorization = server.authorization
    single, users, secret = (entry(authorization, *names) for names in (("user", "username"), ("users",), ("token",)))
    if single is not None and (users is not None or secret is not None):
        beside = "a list of users" if users is not None else "a token"
        yield refuse_start(
            single.key_span,
            f"`authorization` has a single user and {beside}",
            f"move the user into `users`, and remove `{single.key}` here"
            if users
            else f"remove `{single.key}`, or the token",
        )
