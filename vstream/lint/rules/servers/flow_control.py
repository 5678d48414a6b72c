"""Accounts that do not fit together, and the JetStream subjects that they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final, NamedTuple

from vstream.findings import Related, Severity, Span
from vstream.lint.reading.accounts import AccountImport, ExportIndex, exports_of, imports_of
from vstream.lint.reading.nodes import entry, list_values, maps_in, option, table
from vstream.lint.rule import Violation, make_refusal, once_per_place, rule, suggest_closest
from vstream.lint.rules.mappings.api import is_api
from vstream.lint.rules.server_values import SUBJECT_HINT, check_subjects, has_any
from vstream.lint.rules.servers.option_kinds import is_key
from vstream.lint.rules.servers.trust import ACCOUNT_CHECKS as TRUST
from vstream.lint.workspace import AccountConf, ConfValue, ServerConf, Workspace
from vstream.subjects.algebra import (
    PARTIAL_WILDCARD,
    SEPARATOR,
    has_wildcards,
    is_literal,
    is_subset,
    is_valid,
    overlaps,
)
from vstream.subjects.functions import TransformError
from vstream.subjects.transform import SubjectTransform
from vstream.syntax.natsconf.nodes import ConfArray, ConfMap, ConfScalar
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
@once_per_place
def accounts_do_not_fit(workspace: Workspace) -> Iterator[Violation]:
    """
    An account imports something that is not exported to it, or users cannot be distinguished.

    ## Why is this bad?
    The server does not start and refuses to reload. Its message names the first account of the file, not the place. An
    import needs an export of the other account that covers its subject, and that lists this account if it lists
    accounts. A permission must be a subject, and the message does not say whose it is (all versions; server/opts.go,
    accounts.go).
    """
    for server in workspace.servers:
        yield from _check_unavailable_imports(server)
        yield from _check_response_types(server)
        yield from _check_repeated_users(server)
        yield from _check_permissions(server)
        for check in (*CHECKS, *TRUST):
            yield from check(server)


def _check_unavailable_imports(server: ServerConf) -> Iterator[Violation]:
    exports = {account.name: ExportIndex(exports_of(account)) for account in server.accounts}
    # The system account exports more than is written.
    provided = {*_BUILT_IN, server.system_account.text if server.system_account else None}
    for account in server.accounts:
        for account_import in imports_of(account):
            name = str(account_import.account.value)
            if name in provided:
                continue
            if name not in exports:
                yield make_refusal(
                    account_import.account.span,
                    f"account `{account.name}` imports from `{name}`, which does not exist",
                    suggest_closest(name, sorted(exports), "accounts"),
                )
            else:
                yield from _check_not_exported(account.name, account_import, name, exports[name])


def _check_not_exported(
    importer: str, account_import: AccountImport, exporter: str, exports: ExportIndex
) -> Iterator[Violation]:
    subject = str(account_import.subject.value)
    covering = exports.covering(account_import.kind, subject)
    if not covering:
        yield make_refusal(
            account_import.subject.span,
            f"account `{exporter}` does not export the {account_import.kind} `{subject}`",
            f'add `{{{account_import.kind}: "{subject}"}}` to the `exports` of `{exporter}`',
        )
    elif all(export.accounts is not None and importer not in export.accounts for export in covering):
        yield Violation(
            at=account_import.subject.span,
            message=f"account `{exporter}` exports the {account_import.kind} `{subject}` to others, not to `{importer}`",
            hint=f"add `{importer}` to the `accounts` of the export",
            related=(Related(span=covering[0].subject.span, message="the export"),),
        )


def _check_response_types(server: ServerConf) -> Iterator[Violation]:
    for account in server.accounts:
        for export in exports_of(account):
            response = entry(export.conf, *_RESPONSE) if export.kind == "stream" else None
            if response is not None:
                yield make_refusal(
                    response.key_span,
                    f"`{response.key}` is only for services, but `{export.subject.value}` is a stream",
                    "remove it, or export a `service`",
                )


def _check_permissions(server: ServerConf) -> Iterator[Violation]:
    for user in server.users:
        for permission in (user.publish, user.subscribe):
            written = (*(permission.allow or ()), *permission.deny) if permission else ()
            for value in written:
                # A subscription may name a queue behind the subject.
                most = 1 if permission is user.subscribe else 0
                subject, *queue = str(value.value).split() or [""]
                if not is_valid(subject) or len(queue) > most:
                    message = f"`{value.value}` is not a subject that user `{user.name}` may have"
                    yield make_refusal(value.span, message, SUBJECT_HINT)

    yield from _check_route_permissions(server)


def _check_route_permissions(server: ServerConf) -> Iterator[Violation]:
    conf = table(server.cluster, "permissions")
    for direction in (entry(conf, "import", "publish", "pub"), entry(conf, "export", "subscribe", "sub")):
        lists = [direction.value] if direction is not None else []
        if direction is not None and isinstance(direction.value, ConfMap):
            lists = [part.value for part in direction.value.effective_entries()]
        for listed in lists:
            yield from check_subjects(list_values(listed), "a subject that routes may have")


def _check_repeated_users(server: ServerConf) -> Iterator[Violation]:
    seen_users: dict[str, Span] = {}
    for user in server.users:
        if not user.name or user.name.startswith("$"):
            continue
        if user.name in seen_users and seen_users[user.name] != user.span:
            yield make_refusal(
                user.span,
                f"user `{user.name}` is defined twice",
                "user names must be unique across all accounts",
                Related(span=seen_users[user.name], message="the other one"),
            )
        seen_users.setdefault(user.name, user.span)
    authorization = server.authorization
    single, users, secret = (entry(authorization, *names) for names in (("user", "username"), ("users",), ("token",)))
    if single is not None and (users is not None or secret is not None):
        beside = "a list of users" if users is not None else "a token"
        yield make_refusal(
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
        shared = (entry for account in server.accounts for entry in (*_read_exports(account), *_read_imports(account)))
        is_shared = any(map(_is_flow_control, shared))
        for account in server.accounts:
            if not is_shared:
                yield from _check_flow_control_exports(account)
            # Without JetStream an account has no streams that could source anything.
            imports = list(_read_imports(account)) if entry(account.conf, "jetstream") else []
            for origin in dict.fromkeys(share.account for share in imports if share.account):
                shares = [share for share in imports if share.account == origin]
                if any(map(_is_flow_control, shares)):
                    yield from _check_flow_control_answers(account, origin, shares)
                elif not is_shared:
                    yield from _check_flow_control_imports(account, origin, shares)


def _is_flow_control(share: SharedSubject) -> bool:
    return share.is_service and share.text.startswith(_FLOW_CONTROL)


def _check_flow_control_exports(account: AccountConf) -> Iterator[Violation]:
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


def _check_flow_control_imports(account: AccountConf, origin: str, imports: list[SharedSubject]) -> Iterator[Violation]:
    creates = _find_create(imports)
    if creates is not None and _delivers(imports):
        yield Violation(
            at=creates.subject.span,
            message=f"account `{account.name}` can source streams of `{origin}`, but imports no flow control: {_LOSS}",
            hint=_describe_import(origin),
        )


def _check_flow_control_answers(account: AccountConf, origin: str, imports: list[SharedSubject]) -> Iterator[Violation]:
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


_MIN_KEY_LENGTH: Final = 20
_RESERVED: Final = "$G"
_MAX_PERCENT: Final = 100


def check_user_keys(server: ServerConf) -> Iterator[Violation]:
    """Users with an nkey: its form, and that it is the only login."""
    for conf in _list_user_confs(server):
        key = option(conf, "nkey")
        if key is None or not key.text:
            continue
        login = entry(conf, "user", "username", "password", "pass")
        # What is much shorter stands for a key, in documents and tests.
        if len(key.text) >= _MIN_KEY_LENGTH and not is_key(key.text, "U"):
            yield make_refusal(
                key.span,
                f"`{key.text}` is not the public key of a user",
                "write the 56 letters that begin with `U`, as `nsc` or `nk -pubout` print them",
            )
        if login is not None:
            yield make_refusal(
                login.key_span, f"a user with an `nkey` has no `{login.key}`", f"remove `{login.key}`, or the key"
            )


def _list_user_confs(server: ServerConf) -> Iterator[ConfMap]:
    for conf in (server.authorization, *(account.conf for account in server.accounts)):
        yield from maps_in(conf, "users")


def check_token(server: ServerConf) -> Iterator[Violation]:
    """A token beside a list of users."""
    token, users = entry(server.authorization, "token"), entry(server.authorization, "users")
    if token is not None and users is not None:
        yield make_refusal(
            token.key_span, "`authorization` has a token and a list of users", "remove the token, or the users"
        )


def check_exports(server: ServerConf) -> Iterator[Violation]:
    """Whom exports are for, the position of the account in a subject, and where latencies are published."""
    names = sorted(account.name for account in server.accounts)
    for account in server.accounts:
        if account.name == _RESERVED:
            yield make_refusal(
                account.key_span,
                f"`{_RESERVED}` is the account of users that have none",
                "give the account another name, or move its users into `authorization`",
            )
        for export in exports_of(account):
            yield from _check_unknown_importers(export.conf, names)
            yield from _check_position(export.conf, str(export.subject.value))
            yield from _check_latency(table(export.conf, "latency"))


def _check_unknown_importers(conf: ConfMap, names: list[str]) -> Iterator[Violation]:
    listed = entry(conf, "accounts")
    for item in listed.value.items if listed and isinstance(listed.value, ConfArray) else ():
        name = getattr(item, "value", None)
        if isinstance(name, str) and name not in names:
            yield make_refusal(
                item.span, f"there is no account `{name}` to export to", suggest_closest(name, names, "accounts")
            )


def _check_position(conf: ConfMap, subject: str) -> Iterator[Violation]:
    position = option(conf, "account_token_position")
    if position is None or not isinstance(position.value, int):
        return
    tokens = subject.split(".")
    wildcards = [index for index, token in enumerate(tokens, 1) if token == "*"]
    if position.value not in wildcards:
        yield make_refusal(
            position.span,
            f"token {position.value} of `{subject}` is not `*`",
            f"write {wildcards[0]}" if wildcards else "write `*` in the subject where the account's name is",
        )


def _check_latency(conf: ConfMap | None) -> Iterator[Violation]:
    subject, sampling = option(conf, "subject"), option(conf, "sampling")
    if subject is not None and subject.text and has_wildcards(subject.text):
        yield make_refusal(
            subject.span, f"latencies cannot be published to `{subject.text}`", "write a subject without wildcards"
        )
    percent = str(sampling.value).removesuffix("%") if sampling is not None else ""
    if sampling is not None and percent.isdecimal() and not 1 <= int(percent) <= _MAX_PERCENT:
        yield make_refusal(
            sampling.span, f"{sampling.value} is not a share of the requests", "write a percentage from 1 to 100"
        )


def check_imports(server: ServerConf) -> Iterator[Violation]:
    """Where imports appear, that no two appear at one subject, and that none comes back to where it started."""
    cycles = _Cycles(server)
    for account in server.accounts:
        seen_imports: dict[tuple[str, str], Span] = {}
        for account_import in imports_of(account):
            place = account_import.to or account_import.subject
            prefix = str(account_import.prefix.value) if account_import.prefix else ""
            # Streams may be imported to one subject from several: the same one twice is refused.
            twice = (
                str(place.value)
                if account_import.kind == "service"
                else f"{account_import.subject.value} {place.value} {prefix}"
            )
            key = (str(account_import.account.value), twice)
            yield from _check_prefix(account_import)
            yield from _check_target(account_import)
            if key in seen_imports:
                yield make_refusal(
                    place.span,
                    f"`{key[0]}` already has a {account_import.kind} that is imported to `{place.value}`",
                    "import it to another subject, with `to`, or remove it",
                    Related(span=seen_imports[key], message="the other import"),
                )
            elif cycles.has(account.name, account_import):
                yield make_refusal(
                    account_import.subject.span,
                    f"`{account_import.subject.value}` comes back to account `{account.name}`",
                    "remove one of the imports, or give them subjects that exclude each other",
                )
            seen_imports.setdefault(key, place.span)


def _check_prefix(account_import: AccountImport) -> Iterator[Violation]:
    if account_import.prefix is not None and account_import.to is not None:
        yield make_refusal(
            account_import.prefix.span, "an import cannot have both `prefix` and `to`", "remove one of them"
        )
    if account_import.prefix is not None and account_import.prefix.text and has_wildcards(account_import.prefix.text):
        yield make_refusal(
            account_import.prefix.span,
            f"the prefix `{account_import.prefix.text}` has wildcards",
            "write a prefix without `*` and `>`",
        )


def _check_target(account_import: AccountImport) -> Iterator[Violation]:
    """An import appears with every wildcard of what is imported (NewSubjectTransformStrict)."""
    subject = str(account_import.subject.value)
    if (
        account_import.to is None
        or not account_import.to.text
        or account_import.to.text == subject
        or not has_wildcards(subject)
    ):
        return
    numbers = count(1)
    tokens = [f"${next(numbers)}" if token == "*" else token for token in account_import.to.text.split(".")]
    parsed = SubjectTransform.parse(subject, ".".join(tokens), strict=True)
    if isinstance(parsed, TransformError):
        yield make_refusal(account_import.to.span, f"{parsed.message}", "write as many `*` in both subjects")


class _Cycles:
    """Which imports lead back to their own account (accounts.go, serviceImportFormsCycle, streamImportFormsCycle)."""

    def __init__(self, server: ServerConf) -> None:
        self._imports = {account.name: imports_of(account) for account in server.accounts}

    def has(self, importer: str, account_import: AccountImport) -> bool:
        """Whether what *importer* imports is what another account imports from it."""
        if account_import.prefix is not None:
            return False
        place = str((account_import.to or account_import.subject).value)
        return self._reaches(
            str(account_import.account.value),
            str(account_import.subject.value),
            importer,
            place,
            account_import.kind,
            set(),
        )

    def _reaches(self, account: str, subject: str, goal: str, place: str, kind: str, seen: set[str]) -> bool:
        if account == goal or account in seen:
            return account == goal and overlaps(subject, place)
        seen.add(account)
        for account_import in self._imports.get(account, ()):
            mine = str((account_import.to or account_import.subject).value)
            is_same = account_import.kind == kind and (is_subset(subject, mine) or overlaps(mine, subject))
            if is_same and account_import.prefix is None:
                further = str(account_import.subject.value)
                if self._reaches(str(account_import.account.value), further, goal, place, kind, seen):
                    return True
        return False


def check_items(server: ServerConf) -> Iterator[Violation]:
    """Items of `exports` and `imports` that are a stream and a service, and imports that do not say of what."""
    for account in server.accounts:
        for item in (*maps_in(account.conf, "exports"), *maps_in(account.conf, "imports")):
            stream, service = entry(item, "stream"), entry(item, "service")
            if stream is not None and service is not None:
                yield make_refusal(
                    service.key_span,
                    "one item is both a `stream` and a `service`",
                    "split it into two items, or remove one",
                )
        for item in maps_in(account.conf, "imports"):
            source = entry(item, "stream", "service")
            conf = source.value if source is not None and isinstance(source.value, ConfMap) else None
            lacking = [name for name in ("account", "subject") if not has_any(conf, name)]
            if source is not None and isinstance(source.value, ConfScalar) and not has_any(item, "account"):
                yield make_refusal(
                    source.value.span,
                    "this import does not say of which account",
                    f'write `{source.key}: {{account: NAME, subject: "{source.value.value}"}}`',
                )
            # Of two options, one is misspelt, as VS421 says.
            if source is not None and conf is not None and lacking and len(conf.entries) <= 1:
                yield make_refusal(
                    source.key_span,
                    f"this import has no `{lacking[0]}`",
                    f"add `{lacking[0]}`: an import is `{source.key}: {{account: NAME, subject: SUBJECT}}`",
                )


CHECKS: Final = (check_user_keys, check_token, check_exports, check_imports, check_items)
