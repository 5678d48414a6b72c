"""Accounts that do not fit together, and the JetStream subjects that they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from vstream.diagnostics import Related, Severity, Span
from vstream.lint.reading.accounts import AccountImport, ExportIndex, exports_of, imports_of
from vstream.lint.reading.nodes import entry, maps_in, option, several, table
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.mappings.api import is_api
from vstream.lint.rules.servers.account_details import CHECKS as DETAILS
from vstream.lint.rules.servers.trust import ACCOUNTS as TRUST
from vstream.lint.rules.wording import closest, refuse_start
from vstream.lint.workspace import AccountConf, ConfValue, ServerConf, Workspace
from vstream.subjects.algebra import PARTIAL_WILDCARD, SEPARATOR, is_literal, is_valid, overlaps
from vstream.syntax.natsconf.nodes import ConfMap
from vstream.topology.naming import PHYSICAL_PREFIX

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


_CREATE: Final = ("CONSUMER.CREATE.>", "CONSUMER.DURABLE.CREATE.>")
_APIS: Final = ("$JS.API.", "$JS.*.API.")
_CONSUMER: Final = ".CONSUMER."
_AFTER_CREATE: Final = ".CREATE."
_FLOW_CONTROL: Final = "$JS.FC."
_SHAPE: Final = "$JS.FC.<stream>.<consumer>.<id>"
_OWN: Final = f"{PHYSICAL_PREFIX}."
"""Begins the names through which vstream leads its clients, while nobody sources through them."""
_LOSS: Final = "sourcing stops for ever after about 2 MB, without an error"


class SharedSubject(NamedTuple):
    """An export, or an import: its subject in the account that exports it, and under which name it is imported."""

    is_service: bool
    subject: ConfValue
    account: str | None = None
    name: ConfValue | None = None

    @property
    def text(self) -> str:
        """The subject."""
        return self.subject.text or ""


@rule("VS423", "flow-control-not-shared", Severity.WARNING)
def flow_control_not_shared(workspace: Workspace) -> Iterator[Violation]:
    """
    An account can source streams of another account, but not answer its flow control.

    ## Why is this bad?
    A stream that sources or mirrors from another account needs three imports: the request to create a consumer, its
    deliveries, and `$JS.FC.>`, on which servers acknowledge flow control. Without the last one, the source stalls for
    ever after about 2 MB: 1,890 of 6,000 messages of 1 kB arrived, on 2.15.1. Up to that version, servers report no
    error, and the lag stays 0 (nats-server issues 8630 and 7326). Flow control uses exactly
    `$JS.FC.<stream>.<consumer>.<id>`, so an import under another name (`to`) does not work.
    """
    for server in workspace.servers:
        # Where it is shared at all, whoever wrote the file knows of it: an account may answer on some servers only,
        # since accounts that import it from each other are a cycle, which the server refuses.
        is_shared = any(map(_shares_flow_control, server.accounts))
        for account in server.accounts:
            if not is_shared:
                yield from _check_exports(account)
            # Without JetStream an account has no streams that could source anything.
            imports = list(_read_imports(account)) if entry(account.conf, "jetstream") else []
            for origin in dict.fromkeys(share.account for share in imports if share.account):
                shares = [share for share in imports if share.account == origin]
                if any(map(_is_flow_control, shares)):
                    yield from _check_answers(account, origin, shares)
                elif not is_shared:
                    yield from _check_imports(account, origin, shares)


def _shares_flow_control(account: AccountConf) -> bool:
    return any(map(_is_flow_control, (*_read_exports(account), *_read_imports(account))))


def _is_flow_control(share: SharedSubject) -> bool:
    return share.is_service and share.text.startswith(_FLOW_CONTROL)


def _check_exports(account: AccountConf) -> Iterator[Violation]:
    exports = list(_read_exports(account))
    creates = _find_create(exports)
    # The whole API is exported to manage streams as well.
    if creates is None or _CONSUMER not in creates.text or not _delivers(exports):
        return
    yield Violation(
        at=creates.subject.span,
        message=f"account `{account.name}` lets others source its streams, but exports no flow control: {_LOSS}",
        hint='export `{service: "$JS.FC.>"}` to the same accounts',
    )


def _check_imports(account: AccountConf, origin: str, imports: list[SharedSubject]) -> Iterator[Violation]:
    creates = _find_create(imports)
    if creates is not None and _delivers(imports):
        yield Violation(
            at=creates.subject.span,
            message=f"account `{account.name}` can source streams of `{origin}`, but imports no flow control: {_LOSS}",
            hint=_describe_import(origin),
        )


def _check_answers(account: AccountConf, origin: str, imports: list[SharedSubject]) -> Iterator[Violation]:
    """Whether what *account* imports of the flow control of *origin* is of use."""
    creates = _find_create(imports)
    if creates is None or not _delivers(imports):
        return
    answers = [share for share in imports if _is_flow_control(share)]
    fitting = [share for share in answers if overlaps(share.text, _flow_control_of(creates))]
    renamed = [share.name for share in fitting if share.name and share.name.text != share.text]
    if not fitting:
        message = f"`{answers[0].text}` is not the flow control of the sourced stream, which is `{_SHAPE}`: {_LOSS}"
        yield Violation(at=answers[0].subject.span, message=message, hint=_describe_import(origin))
    elif len(renamed) == len(fitting) and not _maps_flow_control(account) and not str(renamed[0].text).startswith(_OWN):
        message = f"servers send flow control replies to `{fitting[0].text}`, not to `{renamed[0].text}`: {_LOSS}"
        yield Violation(at=renamed[0].span, message=message, hint="remove `to`")


def _describe_import(origin: str) -> str:
    return f'import `{{service: {{account: "{origin}", subject: "$JS.FC.>"}}}}`, and export it there'


def _maps_flow_control(account: AccountConf) -> bool:
    """Whether answers get another name by a mapping, as an import with `to` needs."""
    sources = (mapping.source for block in account.mappings for mapping in block.entries)
    return any(overlaps(source, f"{_FLOW_CONTROL}*.*.*") for source in sources if source.startswith("$JS."))


def _find_create(shares: Iterable[SharedSubject]) -> SharedSubject | None:
    """The first that lets consumers be created, which every source needs."""
    subjects = [f"{api}{request}" for api in _APIS for request in _CREATE]
    services = (share for share in shares if share.is_service and is_api(share.text))
    return next((share for share in services if any(overlaps(share.text, subject) for subject in subjects)), None)


def _delivers(shares: Iterable[SharedSubject]) -> bool:
    """Whether messages pass: a stream of subjects other than the server's own."""
    return any(not share.is_service and not share.text.startswith("$") for share in shares)


def _flow_control_of(creates: SharedSubject) -> str:
    """The subjects of flow control that belong to the streams whose consumers may be created."""
    _, separator, rest = creates.text.partition(_AFTER_CREATE)
    stream = rest.split(SEPARATOR)[0] if separator else PARTIAL_WILDCARD
    return f"{_FLOW_CONTROL}{stream if is_literal(stream) else PARTIAL_WILDCARD}.*.*"


def _read_exports(account: AccountConf) -> Iterator[SharedSubject]:
    for item in maps_in(account.conf, "exports"):
        for kind in ("service", "stream"):
            subject = option(item, kind)
            if subject is not None and subject.text:
                yield SharedSubject(is_service=kind == "service", subject=subject)


def _read_imports(account: AccountConf) -> Iterator[SharedSubject]:
    for item in maps_in(account.conf, "imports"):
        for kind in ("service", "stream"):
            source = table(item, kind)
            subject, origin = option(source, "subject"), option(source, "account")
            if subject is not None and subject.text and origin is not None:
                yield SharedSubject(
                    is_service=kind == "service", subject=subject, account=origin.text, name=option(item, "to")
                )
