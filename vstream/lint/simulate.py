"""What a publish becomes, in every cluster, with the places of the rules that decide."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from vstream.findings import Span
from vstream.lint.workspace import MappingEntry, MappingFault, MappingsBlock
from vstream.subjects.account_flow import GLOBAL_ACCOUNT, AccountArrival, AccountFlow, AccountLink, ImportKind
from vstream.subjects.algebra import FULL_WILDCARD, PARTIAL_WILDCARD, SEPARATOR, SubjectTrie
from vstream.subjects.compile_mapping import CompiledMapping, Route
from vstream.subjects.functions import looks_like_call, parse_token
from vstream.subjects.leaf_flow import LeafArrival, LeafLink, LeafSide, cross_leaves
from vstream.subjects.resolve import Candidate, Outcome, Resolution, publish_cost_us
from vstream.value_class import value_class

_PERCENT = 100
_Arrival = TypeVar("_Arrival", AccountArrival, LeafArrival)


def _list_certain(resolution: Resolution) -> list[Outcome]:
    """The outcomes that go somewhere, and do not depend on a number that the server draws."""
    return [outcome for outcome in resolution.outcomes if not outcome.kind.is_lost and not outcome.expansion.draws]


def _merge_arrivals(arrivals: Iterable[tuple[Outcome, _Arrival]], *, is_ambiguous: bool) -> tuple[_Arrival, ...]:
    """*arrivals* of several outcomes: each place once, with the sum of its shares, as far as that is known."""
    shares: dict[_Arrival, float | None] = {}
    for outcome, arrival in arrivals:
        place = replace(arrival, percent=None)
        earlier = shares.get(place, 0.0)
        if is_ambiguous or arrival.percent is None or earlier is None:
            shares[place] = None
        else:
            shares[place] = earlier + arrival.percent * outcome.probability_percent / _PERCENT
    return tuple(replace(place, percent=share) for place, share in shares.items())


@value_class
class Refusal:
    """Why `nats-server -t` refuses the mappings, and where."""

    message: str
    span: Span


@value_class
class Simulation:
    """The answer. In *elsewhere*, at all known clusters but the one asked for, None stands for those that no rule names."""

    block: MappingsBlock
    subject: str
    cluster: str | None
    at_cluster: Resolution | None
    """None if no cluster was asked for: then they are all in *elsewhere*."""
    elsewhere: tuple[Resolution, ...]
    refusals: tuple[Refusal, ...]
    flow: AccountFlow | None = None
    """Where messages go from account to account, where that is known."""
    origin: LeafSide | None = None
    """The server that the client is connected to, where that is known."""
    leaf_links: tuple[LeafLink, ...] = ()

    @property
    def account(self) -> str:
        """The account that publishes."""
        return self.block.account or GLOBAL_ACCOUNT

    def arrivals(self, resolution: Resolution) -> tuple[AccountArrival, ...]:
        """Who sees the message in other accounts, by imports; the shares are of all publishes."""
        if self.flow is None:
            return ()
        arrivals = []
        for outcome in _list_certain(resolution):
            for arrival in self.flow.arrivals(self.account, outcome.subject, resolution.cluster):
                arrivals.append((outcome, arrival))
        return _merge_arrivals(arrivals, is_ambiguous=resolution.is_ambiguous)

    def crossings(self) -> tuple[LeafArrival, ...]:
        """Who sees the message beyond leaf node connections; the shares are of all publishes."""
        if self.origin is None:
            return ()
        resolution, arrivals = self.at_cluster or self.elsewhere[-1], []
        for outcome in _list_certain(resolution):
            for arrival in cross_leaves(self.leaf_links, self.origin, outcome.subject):
                arrivals.append((outcome, arrival))
        return _merge_arrivals(arrivals, is_ambiguous=resolution.is_ambiguous)

    def is_undecided(self, resolution: Resolution) -> bool:
        """Whether a number that the server draws decides which imports take the message."""
        if self.flow is None:
            return False
        drawn = [outcome.subject for outcome in resolution.outcomes if outcome.expansion.draws]
        return any(self.flow.can_leave(self.account, subject) for subject in drawn)

    @property
    def rule_count(self) -> int:
        """How many rules every publish in the account is compared with."""
        return len(self.block.table.mappings)

    @property
    def cost_us(self) -> float:
        """Microseconds that the rules cost for each message that a client of the account publishes."""
        return publish_cost_us(self.rule_count)

    def locate(self, candidate: Candidate) -> Span | None:
        """Where the rule of *candidate* is written; None where no rule matches."""
        return self.block.entry(candidate.mapping).key_span if candidate.mapping else None

    def overridden(self, candidate: Candidate) -> tuple[MappingEntry, ...]:
        """The rules that the server forgets for that of *candidate*: same source, written earlier."""
        if candidate.mapping is None:
            return ()
        winner = self.block.entry(candidate.mapping)
        return tuple(entry for entry in self.block.entries if entry.source == winner.source and entry is not winner)


def simulate(
    block: MappingsBlock,
    subject: str,
    cluster: str | None,
    clusters: Iterable[str],
    flow: AccountFlow | None = None,
    *,
    origin: LeafSide | None = None,
    leaf_links: tuple[LeafLink, ...] = (),
) -> Simulation:
    """
    What a publish to the literal *subject* becomes by the rules of *block*, and by *flow* in other accounts.

    From *origin* it crosses *leaf_links*.

    *clusters* are those that exist; those that the rules name are added. Raises ValueError for a subject
    that is not literal.
    """
    named = frozenset[str]().union(*(entry.clusters for entry in block.entries))
    other_clusters = sorted({*clusters, *named} - {cluster})
    resolve = block.table.resolve
    return Simulation(
        block=block,
        subject=subject,
        cluster=cluster,
        at_cluster=resolve(subject, cluster) if cluster is not None else None,
        elsewhere=(*(resolve(subject, other_cluster) for other_cluster in other_clusters), resolve(subject, None)),
        refusals=tuple(refusals_of(block)),
        flow=flow,
        origin=origin,
        leaf_links=leaf_links,
    )


def refusals_of(block: MappingsBlock) -> Iterator[Refusal]:
    """Why `nats-server -t` refuses the rules of *block*."""
    faults: list[MappingFault] = [fault for entry in block.entries for fault in entry.list_faults()]
    for fault in (*([block.fault] if block.fault else []), *faults):
        yield Refusal(message=fault.message, span=fault.span)
    for error in block.table.errors:
        if error.is_rejected:
            yield Refusal(message=error.message, span=block.locate_error(error))


@value_class
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


@value_class
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
    cluster: str | None = None
    account: str | None = None
    streams: tuple[str, ...] = ()
    span: Span | None


def tabulate_account(
    block: MappingsBlock, flow: AccountFlow, streams: Sequence[ListeningStream], cluster: str | None = None
) -> tuple[AccountRow, ...]:
    """The rules of *block*, in the order written, then imports and exports; with *cluster*, only what counts there."""
    account = block.account or GLOBAL_ACCOUNT
    listeners = _Listeners(streams)
    rows: list[AccountRow] = []
    for rule in block.table.compiled_mappings:
        span = block.entry(rule.mapping).key_span
        names = rule.routes if cluster is None else (cluster if cluster in rule.routes else "",)
        for name in names:
            for destination, percent in _list_shares(rule, rule.routes[name]):
                row = AccountRow(
                    kind="mapping",
                    source=rule.mapping.source,
                    destination=destination,
                    percent=percent,
                    cluster=name or cluster,
                    streams=listeners.find(_list_places(flow, account, _pattern(destination)), {None, name or cluster})
                    if destination
                    else (),
                    span=span,
                )
                rows.append(row)
    rows.extend(_list_link_rows(account, flow, listeners))
    return tuple(rows)


def _list_shares(rule: CompiledMapping, routes: Sequence[Route]) -> Iterator[tuple[str | None, int]]:
    for route in routes:
        if route.weight:
            yield route.destination.subject if route.destination else rule.mapping.source, route.weight
    gap = _PERCENT - sum(route.weight for route in routes)
    if gap:
        yield None, gap


def _list_link_rows(account: str, flow: AccountFlow, listeners: _Listeners) -> Iterator[AccountRow]:
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
            percent=_PERCENT,
            account=link.exporter if is_import else link.importer,
            streams=listeners.find(_list_places(flow, receiver, link.destination, came_by=link)),
            span=link.span,
        )
    for export in flow.unused_exports(account):
        yield AccountRow(
            kind=f"{export.kind.value} export",
            source=export.subject,
            destination=export.subject,
            percent=_PERCENT,
            span=export.span,
        )


def _list_places(
    flow: AccountFlow, account: str, pattern: str, *, came_by: AccountLink | None = None
) -> list[tuple[str, str]]:
    """The accounts where what has *pattern* in *account* comes to, by imports too, and under which subjects."""
    is_followed = came_by is None or came_by.kind is ImportKind.SERVICE
    return [(account, pattern), *(flow.reachable_by_services(account, pattern) if is_followed else ())]


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
