"""Everything that an account does with messages: its mapping rules, imports and exports, one line for each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from vstream.diagnostics import Span
from vstream.lint.workspace import MappingsBlock
from vstream.subjects.account_flow import GLOBAL_ACCOUNT, AccountFlow, AccountLink, ImportKind
from vstream.subjects.algebra import FULL_WILDCARD, PARTIAL_WILDCARD, SEPARATOR, SubjectTrie
from vstream.subjects.functions import looks_like_call, parse_token
from vstream.subjects.mapping_rules import CompiledMapping, Route

_ALL = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningStream:
    """
    A stream and what it listens to.

    *account* is None where its file does not say whose it is. *cluster* is set where messages of other clusters do not
    come to it.
    """

    name: str
    account: str | None
    cluster: str | None = None
    subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRow:
    """
    *percent* of what is published to *source* goes to *destination*, where it is None if nobody gets it.

    *kind* is `mapping`, or `service import` and its like. *cluster* is None for every other cluster. *account* is the
    other one of an import or export, None if no account of the files imports what is exported. *streams* can take it.
    """

    kind: str
    source: str
    destination: str | None
    percent: int
    cluster: str | None
    account: str | None
    streams: tuple[str, ...]
    span: Span | None


def tabulate_account(
    block: MappingsBlock, flow: AccountFlow, streams: Sequence[ListeningStream], cluster: str | None = None
) -> tuple[AccountRow, ...]:
    """The rules of *block*, in the order written, then imports and exports; with *cluster*, only what counts there."""
    account = block.account or GLOBAL_ACCOUNT
    listeners = _Listeners(streams)
    rows: list[AccountRow] = []
    for rule in block.table.rules:
        span = block.entry(rule.mapping).key_span
        names = rule.routes if cluster is None else (cluster if cluster in rule.routes else "",)
        for name in names:
            for destination, percent in _shares(rule, rule.routes[name]):
                row = AccountRow(
                    kind="mapping",
                    source=rule.mapping.source,
                    destination=destination,
                    percent=percent,
                    cluster=name or cluster,
                    account=None,
                    streams=listeners.find(_places(flow, account, _pattern(destination)), {None, name or cluster})
                    if destination
                    else (),
                    span=span,
                )
                rows.append(row)
    rows.extend(_link_rows(account, flow, listeners))
    return tuple(rows)


def _shares(rule: CompiledMapping, routes: Sequence[Route]) -> Iterator[tuple[str | None, int]]:
    for route in routes:
        if route.weight:
            yield route.destination.subject if route.destination else rule.mapping.source, route.weight
    gap = _ALL - sum(route.weight for route in routes)
    if gap:
        yield None, gap


def _link_rows(account: str, flow: AccountFlow, listeners: _Listeners) -> Iterator[AccountRow]:
    links = sorted(flow.links, key=lambda link: (link.importer != account, link.kind is ImportKind.STREAM))
    for link in links:
        if account not in {link.importer, link.exporter}:
            continue
        is_import = link.importer == account
        receiver = link.exporter if link.kind is ImportKind.SERVICE else link.importer
        yield AccountRow(
            kind=f"{link.kind.value} {'import' if is_import else 'export'}",
            source=link.source,
            destination=link.destination,
            percent=_ALL,
            cluster=None,
            account=link.exporter if is_import else link.importer,
            streams=listeners.find(_places(flow, receiver, link.destination, came_by=link)),
            span=link.span,
        )
    for export in flow.unused_exports(account):
        yield AccountRow(
            kind=f"{export.kind.value} export",
            source=export.subject,
            destination=export.subject,
            percent=_ALL,
            cluster=None,
            account=None,
            streams=(),
            span=export.span,
        )


def _places(
    flow: AccountFlow, account: str, pattern: str, *, came_by: AccountLink | None = None
) -> list[tuple[str, str]]:
    """The accounts where what has *pattern* in *account* comes to, by imports too, and under which subjects."""
    is_followed = came_by is None or came_by.kind is ImportKind.SERVICE
    return [(account, pattern), *(flow.reachable(account, pattern) if is_followed else ())]


class _Listeners:
    """An index of what streams listen to: there may be thousands of them, and of rules."""

    def __init__(self, streams: Sequence[ListeningStream]) -> None:
        pairs = [(stream, subject) for stream in streams for subject in stream.subjects]
        self._streams = [stream for stream, _ in pairs]
        self._subjects = SubjectTrie(subject for _, subject in pairs)

    def find(
        self, places: Iterable[tuple[str, str]], clusters: Collection[str | None] | None = None
    ) -> tuple[str, ...]:
        """The streams that can take what comes to *places*, accounts and patterns; only those of *clusters*, if given."""
        numbers = set[int]()
        for account, pattern in places:
            for number in self._subjects.overlapping(pattern):
                stream = self._streams[number]
                if stream.account in {None, account} and (clusters is None or stream.cluster in clusters):
                    numbers.add(number)
        return tuple(dict.fromkeys(self._streams[number].name for number in sorted(numbers)))


def _pattern(destination: str) -> str:
    """What subjects *destination* can give, with a wildcard for each token that depends on the message."""
    tokens = destination.split(SEPARATOR)
    if any("split" in token.lower() or "slice" in token.lower() for token in tokens if looks_like_call(token)):
        # These give any number of tokens.
        cut = next(number for number, token in enumerate(tokens) if looks_like_call(token))
        return SEPARATOR.join((*tokens[:cut], FULL_WILDCARD))
    return SEPARATOR.join(PARTIAL_WILDCARD if parse_token(token) else token for token in tokens)
