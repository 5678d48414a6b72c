"""
Which read streams to resync: those that stand still without a reason.

Pure: from one look at the servers after the other. Making a leader step down costs its consumers a moment. It helps only
if the next leader can be answered, so there is a reason to wait for each case in which it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from vstream.health.pairs import assess_pairs
from vstream.health.snapshot import Snapshot
from vstream.health.status import AssessedPair, PairState
from vstream.topology.model import Role, Topology
from vstream.topology.profiles import profile_of
from vstream.topology.replication import list_physical_streams
from vstream.value_class import value_class

META_GROUP = "JetStream meta group"
AGAIN_AFTER_SECONDS = 6.0
"""Seconds until a stream that still stands still is resynced again: longer than one that works is silent. Doubles each time."""
_MOVED_AGAIN_AFTER_SECONDS = 20.0
_MAX_PAUSE_SECONDS = 640.0


class ResyncAction(Enum):
    """What to do with a stream that stands still."""

    RESYNC = "resync"
    MOVE_LEADER = "move leader"
    """Its leader hands over to `ResyncDecision.new_leader`: it is not where the topology wants it."""
    WAIT = "wait"


@value_class
class ResyncDecision:
    """One stream that stands still: what to do with it, and why it stands still, or why to wait."""

    stream: str
    place: str
    action: ResyncAction
    reason: str
    new_leader: str | None = None


@dataclass(slots=True)
class _EarlierLooks:
    """What earlier checks have shown of a stream."""

    cursors: Mapping[str, int | None] = field(default_factory=dict)
    """By origin, the reader's position at the last look."""
    stalled: frozenset[str] = frozenset()
    """Origins that nothing came from at the last look."""
    resynced_at: float | None = None
    resync_count: int = 0


class ResyncPolicy:
    """Decides check by check. It remembers earlier checks, and what it has resynced."""

    def __init__(self, topology: Topology, *, can_move_meta: bool = False) -> None:
        self._topology = topology
        self._can_move_meta = can_move_meta
        self._moved_at: dict[str, float] = {}
        """When each leader was asked to hand over."""
        self._physical = list_physical_streams(topology)
        self._role = {stream.name: stream.role for stream in self._physical}
        self._past: dict[str, _EarlierLooks] = {}

    def decide(self, snapshot: Snapshot) -> tuple[ResyncDecision, ...]:
        """Every stream that stands still since the last look. Those to resync count as resynced at this moment."""
        by_reader: dict[str, list[AssessedPair]] = {}
        for pair in assess_pairs(self._topology, snapshot):
            by_reader.setdefault(pair.reader, []).append(pair)
        # An order that is resynced stops its mirrors once more: these are next, when it has what it needs.
        readers = sorted(by_reader, key=lambda name: self._role[name] is not Role.ORDER)
        decisions: list[ResyncDecision] = []
        for reader in readers:
            busy = {decision.stream for decision in decisions}
            decision = self._decide(snapshot, by_reader[reader], busy)
            if decision is not None:
                decisions.append(decision)
        return (*decisions, *self._move_leaders(snapshot, {decision.stream for decision in decisions}))

    def _move_leaders(self, snapshot: Snapshot, busy: set[str]) -> Iterator[ResyncDecision]:
        """Where the member that the topology wants as a leader could lead, and does not."""
        stretch = self._topology.stretch
        if stretch is None or stretch.leader is None:
            return
        preferred, leaders = stretch.members[stretch.leader].name, dict[str, str | None]()
        for part in self._physical:
            stream = snapshot.streams.get(part.name)
            if part.place == stretch.cluster and stream is not None and stream.current == stream.replicas:
                leaders[part.name] = stream.leader
        named = {server.meta_leader for server in snapshot.servers if server.has_jetstream}
        nearby = {server.name for server in snapshot.servers if server.region == stretch.leader}
        if self._can_move_meta and len(named) == 1 and not named & nearby:
            leaders[META_GROUP] = named.pop()
        if not any(server.name == preferred and server.has_jetstream for server in snapshot.servers):
            return
        for name, leader in leaders.items():
            is_soon = name in self._moved_at and snapshot.at - self._moved_at[name] < _MOVED_AGAIN_AFTER_SECONDS
            if leader not in {None, preferred} and name not in busy and not is_soon:
                self._moved_at[name] = snapshot.at
                reason = f"`{leader}` leads it, and `{preferred}` can"
                action, place = ResyncAction.MOVE_LEADER, stretch.cluster
                yield ResyncDecision(stream=name, place=place, action=action, reason=reason, new_leader=preferred)

    def _decide(self, snapshot: Snapshot, pairs: list[AssessedPair], busy: set[str]) -> ResyncDecision | None:
        reader, place = pairs[0].reader, pairs[0].reader_place
        past = self._past.setdefault(reader, _EarlierLooks())
        stalled = frozenset(pair.origin for pair in pairs if _stands_still(pair, past.cursors.get(pair.origin)))
        confirmed = [pair for pair in pairs if pair.origin in stalled & past.stalled]
        past.cursors, past.stalled = {pair.origin: pair.cursor for pair in pairs}, stalled
        if not stalled and all(pair.state is PairState.OK for pair in pairs):
            past.resynced_at, past.resync_count = None, 0
        if not confirmed:
            seen = {name for name, stream in snapshot.streams.items() if stream.leader is not None}
            away = next((f"`{pair.origin}` has no leader" for pair in pairs if pair.origin not in seen), None)
            return ResyncDecision(stream=reader, place=place, action=ResyncAction.WAIT, reason=away) if away else None
        hindrance = next(self._list_hindrances(snapshot, pairs, confirmed, busy), _explain_too_soon(past, snapshot.at))
        if hindrance is not None:
            return ResyncDecision(stream=reader, place=place, action=ResyncAction.WAIT, reason=hindrance)
        past.resynced_at, past.resync_count = snapshot.at, past.resync_count + 1
        return ResyncDecision(stream=reader, place=place, action=ResyncAction.RESYNC, reason=confirmed[0].detail)

    def _list_hindrances(
        self, snapshot: Snapshot, pairs: Sequence[AssessedPair], stalled: Iterable[AssessedPair], busy: set[str]
    ) -> Iterator[str]:
        """Why not to resync the reader of *pairs* now."""
        reader = snapshot.streams.get(pairs[0].reader)
        for pair in pairs:
            if pair.state is PairState.ROLLED_BACK:
                yield f"{pair.detail}: `vstream repair messages --kind refill` comes first"
        if reader is None or reader.leader is None:
            yield "it has no leader"
            return
        if reader.replicas == 1:
            yield "one replica: no other server can lead it"
        elif reader.current == 1 or reader.current <= reader.replicas // 2:
            yield f"{reader.current} of its {reader.replicas} replicas are current: nobody can take over"
        for pair in stalled:
            yield from self._list_obstacles(snapshot, pair, busy)

    def _list_obstacles(self, snapshot: Snapshot, pair: AssessedPair, busy: set[str]) -> Iterator[str]:
        """Why the origin would not answer the next leader."""
        origin = snapshot.streams.get(pair.origin)
        if origin is None or origin.leader is None:
            yield f"`{pair.origin}` has no leader"
        if pair.origin in busy:
            yield f"`{pair.origin}` comes first"
        clusters = {self._topology.cluster_at(pair.reader_place), self._topology.cluster_at(pair.origin_place)}
        for server in snapshot.servers:
            if server.cluster not in clusters or not server.is_reached:
                continue
            has_domains = profile_of(self._topology).has_domains
            if not has_domains and server.gateways is not None:
                missing = clusters - {server.cluster} - server.gateways.keys()
                if missing:
                    yield f"`{server.name}` has no gateway to {', '.join(sorted(missing))}"
            if server.has_jetstream and server.meta_size > 1 and not server.meta_leader:
                yield f"`{server.name}` knows no JetStream meta leader"


def _stands_still(pair: AssessedPair, before: int | None) -> bool:
    """Whether nothing comes: the origin is not heard, or what waits there has waited and the reader did not move."""
    if pair.state is PairState.SILENT:
        return True
    return pair.state is PairState.BEHIND and pair.cursor is not None and pair.cursor == before


def _explain_too_soon(past: _EarlierLooks, now: float) -> str | None:
    if past.resynced_at is None:
        return None
    patience = min(_MAX_PAUSE_SECONDS, AGAIN_AFTER_SECONDS * 2 ** (past.resync_count - 1))
    if now - past.resynced_at >= patience:
        return None
    return f"it was resynced {now - past.resynced_at:.0f} s ago: again after {patience:.0f} s"
