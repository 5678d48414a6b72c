"""What VS425 says of single users, exports and imports (server/opts.go, parseUsers, parseExportStreamMap, accounts.go)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from vstream.diagnostics import Related, Span
from vstream.lint.reading.accounts import AccountImport, exports_of, imports_of
from vstream.lint.reading.nodes import entry, maps_in, option, table
from vstream.lint.registry import Violation
from vstream.lint.rules.server_values import has_any
from vstream.lint.rules.servers.option_kinds import is_key
from vstream.lint.rules.wording import closest, refuse_start
from vstream.lint.workspace import ServerConf
from vstream.subjects.algebra import has_wildcards, is_subset, overlaps
from vstream.subjects.functions import TransformError
from vstream.subjects.transform import SubjectTransform
from vstream.syntax.natsconf.nodes import ConfArray, ConfMap, ConfScalar

_SHORTEST_KEY: Final = 20
_RESERVED: Final = "$G"
_MOST_PERCENT: Final = 100


def check_user_keys(server: ServerConf) -> Iterator[Violation]:
    """Users with an nkey: its form, and that it is the only login."""
    for conf in _user_confs(server):
        key = option(conf, "nkey")
        if key is None or not key.text:
            continue
        login = entry(conf, "user", "username", "password", "pass")
        # What is much shorter stands for a key, in documents and tests.
        if len(key.text) >= _SHORTEST_KEY and not is_key(key.text, "U"):
            yield refuse_start(
                key.span,
                f"`{key.text}` is not the public key of a user",
                "write the 56 letters that begin with `U`, as `nsc` or `nk -pubout` print them",
            )
        if login is not None:
            yield refuse_start(
                login.key_span, f"a user with an `nkey` has no `{login.key}`", f"remove `{login.key}`, or the key"
            )


def _user_confs(server: ServerConf) -> Iterator[ConfMap]:
    for conf in (server.authorization, *(account.conf for account in server.accounts)):
        yield from maps_in(conf, "users")


def check_token(server: ServerConf) -> Iterator[Violation]:
    """A token beside a list of users."""
    token, users = entry(server.authorization, "token"), entry(server.authorization, "users")
    if token is not None and users is not None:
        yield refuse_start(
            token.key_span, "`authorization` has a token and a list of users", "remove the token, or the users"
        )


def check_exports(server: ServerConf) -> Iterator[Violation]:
    """Whom exports are for, the position of the account in a subject, and where latencies are published."""
    names = sorted(account.name for account in server.accounts)
    for account in server.accounts:
        if account.name == _RESERVED:
            yield refuse_start(
                account.key_span,
                f"`{_RESERVED}` is the account of users that have none",
                "give the account another name, or move its users into `authorization`",
            )
        for export in exports_of(account):
            yield from _unknown_importers(export.conf, names)
            yield from _check_position(export.conf, str(export.subject.value))
            yield from _check_latency(table(export.conf, "latency"))


def _unknown_importers(conf: ConfMap, names: list[str]) -> Iterator[Violation]:
    listed = entry(conf, "accounts")
    for item in listed.value.items if listed and isinstance(listed.value, ConfArray) else ():
        name = getattr(item, "value", None)
        if isinstance(name, str) and name not in names:
            yield refuse_start(
                item.span, f"there is no account `{name}` to export to", closest(name, names, "accounts")
            )


def _check_position(conf: ConfMap, subject: str) -> Iterator[Violation]:
    position = option(conf, "account_token_position")
    if position is None or not isinstance(position.value, int):
        return
    tokens = subject.split(".")
    wildcards = [index for index, token in enumerate(tokens, 1) if token == "*"]
    if position.value not in wildcards:
        yield refuse_start(
            position.span,
            f"token {position.value} of `{subject}` is not `*`",
            f"write {wildcards[0]}" if wildcards else "write `*` in the subject where the account's name is",
        )


def _check_latency(conf: ConfMap | None) -> Iterator[Violation]:
    subject, sampling = option(conf, "subject"), option(conf, "sampling")
    if subject is not None and subject.text and has_wildcards(subject.text):
        yield refuse_start(
            subject.span, f"latencies cannot be published to `{subject.text}`", "write a subject without wildcards"
        )
    percent = str(sampling.value).removesuffix("%") if sampling is not None else ""
    if sampling is not None and percent.isdecimal() and not 1 <= int(percent) <= _MOST_PERCENT:
        yield refuse_start(
            sampling.span, f"{sampling.value} is not a share of the requests", "write a percentage from 1 to 100"
        )


def check_imports(server: ServerConf) -> Iterator[Violation]:
    """Where imports appear, that no two appear at one subject, and that none comes back to where it started."""
    cycles = _Cycles(server)
    for account in server.accounts:
        first: dict[tuple[str, str], Span] = {}
        for wish in imports_of(account):
            place = wish.to or wish.subject
            prefix = str(wish.prefix.value) if wish.prefix else ""
            # Streams may be imported to one subject from several: the same one twice is refused.
            twice = str(place.value) if wish.kind == "service" else f"{wish.subject.value} {place.value} {prefix}"
            key = (str(wish.account.value), twice)
            yield from _check_prefix(wish)
            yield from _check_target(wish)
            if key in first:
                yield Violation(
                    at=place.span,
                    message=f"`{key[0]}` already has a {wish.kind} that is imported to `{place.value}`: the server does not start",
                    hint="import it to another subject, with `to`, or remove it",
                    related=(Related(span=first[key], message="the other import"),),
                )
            elif cycles.has(account.name, wish):
                yield refuse_start(
                    wish.subject.span,
                    f"`{wish.subject.value}` comes back to account `{account.name}`",
                    "remove one of the imports, or give them subjects that exclude each other",
                )
            first.setdefault(key, place.span)


def _check_prefix(wish: AccountImport) -> Iterator[Violation]:
    if wish.prefix is not None and wish.to is not None:
        yield refuse_start(wish.prefix.span, "an import cannot have both `prefix` and `to`", "remove one of them")
    if wish.prefix is not None and wish.prefix.text and has_wildcards(wish.prefix.text):
        yield refuse_start(
            wish.prefix.span, f"the prefix `{wish.prefix.text}` has wildcards", "write a prefix without `*` and `>`"
        )


def _check_target(wish: AccountImport) -> Iterator[Violation]:
    """An import appears with every wildcard of what is imported (NewSubjectTransformStrict)."""
    subject = str(wish.subject.value)
    if wish.to is None or not wish.to.text or wish.to.text == subject or not has_wildcards(subject):
        return
    numbers = count(1)
    tokens = [f"${next(numbers)}" if token == "*" else token for token in wish.to.text.split(".")]
    parsed = SubjectTransform.parse(subject, ".".join(tokens), strict=True)
    if isinstance(parsed, TransformError):
        yield refuse_start(wish.to.span, f"{parsed.message}", "write as many `*` in both subjects")


class _Cycles:
    """Which imports lead back to their own account (accounts.go, serviceImportFormsCycle, streamImportFormsCycle)."""

    def __init__(self, server: ServerConf) -> None:
        self._wishes = {account.name: imports_of(account) for account in server.accounts}

    def has(self, importer: str, wish: AccountImport) -> bool:
        """Whether what *importer* imports is what another account imports from it."""
        if wish.prefix is not None:
            return False
        place = str((wish.to or wish.subject).value)
        return self._reaches(str(wish.account.value), str(wish.subject.value), importer, place, wish.kind, set())

    def _reaches(self, account: str, subject: str, goal: str, place: str, kind: str, seen: set[str]) -> bool:
        if account == goal or account in seen:
            return account == goal and overlaps(subject, place)
        seen.add(account)
        for wish in self._wishes.get(account, ()):
            mine = str((wish.to or wish.subject).value)
            is_same = wish.kind == kind and (is_subset(subject, mine) or overlaps(mine, subject))
            if is_same and wish.prefix is None:
                further = str(wish.subject.value)
                if self._reaches(str(wish.account.value), further, goal, place, kind, seen):
                    return True
        return False


def check_items(server: ServerConf) -> Iterator[Violation]:
    """Items of `exports` and `imports` that are a stream and a service, and imports that do not say of what."""
    for account in server.accounts:
        for item in (*maps_in(account.conf, "exports"), *maps_in(account.conf, "imports")):
            stream, service = entry(item, "stream"), entry(item, "service")
            if stream is not None and service is not None:
                yield refuse_start(
                    service.key_span,
                    "one item is both a `stream` and a `service`",
                    "split it into two items, or remove one",
                )
        for item in maps_in(account.conf, "imports"):
            source = entry(item, "stream", "service")
            conf = source.value if source is not None and isinstance(source.value, ConfMap) else None
            lacking = [name for name in ("account", "subject") if not has_any(conf, name)]
            if source is not None and isinstance(source.value, ConfScalar) and not has_any(item, "account"):
                yield refuse_start(
                    source.value.span,
                    "this import does not say of which account",
                    f'write `{source.key}: {{account: NAME, subject: "{source.value.value}"}}`',
                )
            # Of two options, one is misspelt, as VS421 says.
            if source is not None and conf is not None and lacking and len(conf.entries) <= 1:
                yield refuse_start(
                    source.key_span,
                    f"this import has no `{lacking[0]}`",
                    f"add `{lacking[0]}`: an import is `{source.key}: {{account: NAME, subject: SUBJECT}}`",
                )


CHECKS: Final = (check_user_keys, check_token, check_exports, check_imports, check_items)
