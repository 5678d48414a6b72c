"""The use case behind `vstream repair messages`: what is checked and repaired, kind by kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Protocol

from vstream.errors import NotReachableError, RefusedError
from vstream.health.live.collect import collect_snapshot
from vstream.health.live.resync_readers import ResyncMode, ResyncResult, resync_readers
from vstream.health.pairs import assess_pairs
from vstream.health.repair.contents import ContentRepairs, Duplicates, RepairedContents, Replay, ReusedSequences
from vstream.health.repair.live import duplicates, missing, refill, replay
from vstream.health.repair.live.reused import find_changed_mirrors
from vstream.health.repair.live.scan import Fetcher, Scan, Tick
from vstream.health.repair.sourcing import (
    Leftover,
    Refill,
    RepairedSourcing,
    SourcingRepairs,
    Standstill,
    find_lost_ends,
    find_standstills,
)
from vstream.health.status import PairState
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.jetstream.region_connections import connect_reconnecting, join_connections, require_reached, select_reached
from vstream.servers.target_servers import TargetServers
from vstream.syntax.document import Json
from vstream.topology import physical
from vstream.topology.model import Role, Topology
from vstream.topology.profiles import profile_of
from vstream.value_class import value_class

_Connections = Mapping[str, ReconnectingConnection]
_Opened = Mapping[str, ReconnectingConnection | NotReachableError]
_RESYNC_TIMEOUT = 60.0
"""Seconds until what was resynced has everything, at least."""


class RepairKind(Enum):
    """What can be repaired, in the order of repair."""

    CLEAR = "clear"
    RESYNC = "resync"
    REFILL = "refill"
    REPLAY = "replay"
    DELETE = "delete"


_CONTENT_KINDS = frozenset({RepairKind.REPLAY, RepairKind.DELETE})
_NOT_EVERYWHERE = frozenset({RepairKind.CLEAR, *_CONTENT_KINDS})
"""Kinds that were only tested with profiles that have every operation."""


@value_class
class RepairRequest:
    """What to check, and whether to repair it."""

    topology: Topology
    target: TargetServers
    kinds: frozenset[RepairKind]
    streams: frozenset[str]
    """Virtual streams."""
    timeout: float
    is_approved: bool
    """Whether to change anything."""


class RepairObserver(Protocol):
    """Shows a repair to a person while it runs."""

    def found_sourcing(self, repairs: SourcingRepairs) -> None:
        """Problems of how streams source from each other were found."""

    def repaired_sourcing(self, repaired: RepairedSourcing) -> None:
        """As many of them as could be were repaired."""

    def found_contents(self, repairs: ContentRepairs) -> None:
        """Problems of what streams hold were found."""

    def repaired_contents(self, repaired: RepairedContents) -> None:
        """As many of them as could be were repaired."""

    def show_progress(self, name: str, done: int, total: int) -> None:
        """Of the stream *name*, *done* of *total* messages were read or written; of 0 where that is not known yet."""


class RepairEnd(Enum):
    """What there is to do after a repair, or was before."""

    HEALTHY = "healthy"
    REPAIRED = "repaired"
    OPEN = "open"
    UNKNOWN = "unknown"
    """Nothing as far as is known: something did not answer."""


@value_class
class RepairResult:
    """What was found, and what remains."""

    request: RepairRequest
    sourcing: SourcingRepairs = SourcingRepairs()
    contents: ContentRepairs = ContentRepairs()
    repaired: tuple[str, ...] = ()
    """The names of streams of which something was repaired, in order."""
    still_open: tuple[str, ...] = ()
    """What remains, in words."""

    @property
    def outcome(self) -> RepairEnd:
        """What there is still to do."""
        plans: tuple[Standstill | Refill, ...] = (*self.sourcing.standstills, *self.sourcing.refills)
        contents: tuple[Replay | Duplicates, ...] = (*self.contents.replays, *self.contents.duplicates)
        can_repair = any(plan.obstacle is None for plan in plans) or any(plan.count for plan in contents)
        has_repairs = bool(self.sourcing.leftovers) or can_repair
        is_blocked = any(plan.obstacle is not None for plan in plans) or bool(
            self.still_open or self.sourcing.silent or self.contents.reused
        )
        if is_blocked or (has_repairs and not self.request.is_approved):
            return RepairEnd.OPEN
        if self.sourcing.unknown or self.contents.unread:
            return RepairEnd.UNKNOWN
        return RepairEnd.REPAIRED if has_repairs else RepairEnd.HEALTHY

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "topology": self.request.topology.name,
            "is_done": self.request.is_approved,
            "leftovers": [item.as_dict() for item in self.sourcing.leftovers],
            "standstills": [item.as_dict() for item in self.sourcing.standstills],
            "refills": [item.as_dict() for item in self.sourcing.refills],
            "repaired": list(self.repaired),
            "unknown": [item.as_dict() for item in (*self.sourcing.unknown, *self.sourcing.silent)],
            "replays": [item.as_dict() for item in self.contents.replays],
            "reused": [item.as_dict() for item in self.contents.reused],
            "doubles": [item.as_dict() for item in self.contents.duplicates],
            "unread": dict(self.contents.unread),
            "open": list(self.still_open),
        }


def choose_repairs(topology: Topology, kinds: Sequence[RepairKind]) -> frozenset[RepairKind]:
    """The kinds to repair, by default all. Raises RefusedError for those that were never tried."""
    profile = profile_of(topology)
    if profile.has_domains:
        raise RefusedError(
            f"`{topology.name}` has `routing: domains`, for which repair has not been tested yet",
            hint="`vstream doctor` shows what is lost, and which read streams hold it",
        )
    selected = frozenset(kinds) or frozenset(RepairKind)
    if not profile.has_every_operation:
        refused = sorted(kind.value for kind in selected & _NOT_EVERYWHERE)
        if kinds and refused:
            raise RefusedError(
                f"`{topology.name}` has `routing: {topology.routing.value}`, for which "
                f"`--kind {refused[0]}` has not been tested yet",
                hint="`--kind refill` and `--kind resync` work there",
            )
        selected -= _NOT_EVERYWHERE
    return selected


async def check_and_repair(request: RepairRequest, observer: RepairObserver) -> RepairResult:
    """
    Check everything that *request* names, and repair it if approved: how streams source, and then what they hold.

    The second depends on the first. Raises NotReachableError if no region can be reached.
    """
    contents = ContentRepairs()
    repaired_sourcing, repaired_contents = RepairedSourcing(), RepairedContents()
    async with connect_reconnecting(request.topology, request.target.endpoints) as opened:
        leftovers: tuple[Leftover, ...] = ()
        if request.kinds & {RepairKind.CLEAR, RepairKind.REPLAY}:
            leftovers = await replay.find_leftovers(request.topology, join_connections(opened))
        sourcing = await _plan_sourcing(request, opened, leftovers)
        observer.found_sourcing(sourcing)
        if request.is_approved:
            repaired_sourcing = await _repair_sourcing(request, opened, sourcing, observer)
            observer.repaired_sourcing(repaired_sourcing)
        hindrances = tuple(_list_hindrances(leftovers, request)) if RepairKind.REPLAY in request.kinds else ()
        kinds = (request.kinds & _CONTENT_KINDS) - ({RepairKind.REPLAY} if hindrances else set())
        if kinds:
            connections = select_reached(opened)
            scans, contents = await _plan_contents(request, kinds, connections, observer)
            observer.found_contents(contents)
            if request.is_approved:
                repaired_contents = await _repair_contents(request.topology, scans, contents, connections, observer)
                observer.repaired_contents(repaired_contents)
    return RepairResult(
        request=request,
        sourcing=sourcing,
        contents=contents,
        repaired=tuple(dict.fromkeys((*repaired_sourcing.streams, *repaired_contents.streams))),
        still_open=(*repaired_sourcing.still_open, *hindrances, *repaired_contents.still_open),
    )


def _list_hindrances(leftovers: Iterable[Leftover], request: RepairRequest) -> Iterator[str]:
    """Why nothing is replayed: what another repair, a stream of which stays, is about to put in would be put in twice."""
    is_cleared = request.is_approved and RepairKind.CLEAR in request.kinds
    streams = (stream for stream in request.topology.streams if stream.name in request.streams)
    prefixes = tuple(physical.physical_name(stream, Role.WRITE, "") for stream in streams)
    for leftover in leftovers:
        if leftover.stream.startswith(prefixes) and (leftover.is_running or not is_cleared):
            reason = "`vstream repair messages --kind clear --yes` removes what a killed repair has left"
            if leftover.is_running:
                reason = "a running repair uses it"
            yield f"missing messages are not looked for before `{leftover.stream}` is gone: {reason}"
            return


async def _plan_sourcing(request: RepairRequest, opened: _Opened, leftovers: tuple[Leftover, ...]) -> SourcingRepairs:
    """What to do about *leftovers*, streams that take nothing, and write streams without their end."""
    topology, kinds = request.topology, request.kinds
    removable = leftovers if RepairKind.CLEAR in kinds else ()
    if not kinds & {RepairKind.RESYNC, RepairKind.REFILL}:
        return SourcingRepairs(leftovers=removable)
    snapshot = await collect_snapshot(topology, request.target.endpoints, timeout=request.timeout, opened=opened)
    pairs = [pair for pair in assess_pairs(topology, snapshot) if pair.virtual in request.streams]
    replicas = {name: stream.replicas for name, stream in snapshot.streams.items()}
    is_resyncing = RepairKind.RESYNC in kinds
    ends = find_lost_ends(pairs) if RepairKind.REFILL in kinds else ()
    connections = select_reached(opened) if ends else {}
    refills = [await refill.plan_refill(topology, end, snapshot.streams, connections) for end in ends]
    return SourcingRepairs(
        leftovers=removable,
        standstills=find_standstills(pairs, replicas) if is_resyncing else (),
        refills=tuple(refills),
        unknown=tuple(pair for pair in pairs if pair.state is PairState.UNKNOWN),
        silent=tuple(pair for pair in pairs if pair.state is PairState.SILENT and not is_resyncing),
    )


async def _repair_sourcing(
    request: RepairRequest, opened: _Opened, repairs: SourcingRepairs, observer: RepairObserver
) -> RepairedSourcing:
    """Do what can be done about *repairs*, in the order of `RepairKind`."""
    cleared, in_use = await _clear(repairs.leftovers, opened)
    resynced, behind = await _resync(request, repairs.standstills)
    refilled = await _refill(request.topology, repairs.refills, opened, observer)
    return RepairedSourcing(cleared=cleared, resynced=resynced, refilled=refilled, still_open=(*in_use, *behind))


async def _clear(leftovers: Iterable[Leftover], opened: _Opened) -> tuple[tuple[Leftover, ...], list[str]]:
    """Remove *leftovers*. Returns those that are gone, and what remains, in words."""
    cleared: list[Leftover] = []
    still_open: list[str] = []
    for leftover in leftovers:
        if leftover.is_running:
            still_open.append(f"`{leftover.stream}` is in use by a running repair")
        else:
            await replay.remove_leftover(join_connections(opened), leftover)
            cleared.append(leftover)
    return tuple(cleared), still_open


async def _resync(
    request: RepairRequest, standstills: Iterable[Standstill]
) -> tuple[tuple[Standstill, ...], list[str]]:
    """Resync readers. Returns those that have everything again, and what remains. Connects anew, once there are leaders."""
    stopped = tuple(standstill for standstill in standstills if standstill.obstacle is None)
    if not stopped:
        return (), []
    result = await resync_readers(
        request.topology,
        request.target,
        timeout=max(request.timeout, _RESYNC_TIMEOUT),
        mode=ResyncMode.ALL,
        only=frozenset(standstill.reader for standstill in stopped),
    )
    behind = [f"`{stream.stream}` still takes nothing: {stream.note}" for stream in result.behind]
    return select_resynced(stopped, result), behind


def select_resynced(stopped: Iterable[Standstill], result: ResyncResult) -> tuple[Standstill, ...]:
    """Those of the *stopped* readers that have everything again after a resync."""
    behind = {stream.stream for stream in result.behind}
    return tuple(standstill for standstill in stopped if standstill.reader not in behind)


async def _refill(
    topology: Topology, refills: Iterable[Refill], opened: _Opened, observer: RepairObserver
) -> tuple[Refill, ...]:
    """Publish the lost ends of write streams again, where nothing hinders it."""
    refilled = tuple(planned for planned in refills if planned.obstacle is None)
    for planned in refilled:
        connection = require_reached(opened[refill.choose_writing_region(topology, planned.lost)])
        await refill.publish_lost_end(planned, connection, _make_tick(observer, planned.lost.origin))
    return refilled


async def _plan_contents(
    request: RepairRequest, kinds: frozenset[RepairKind], connections: _Connections, observer: RepairObserver
) -> tuple[dict[str, Scan], ContentRepairs]:
    """What the requested streams hold, by name, and what to put in and to delete: of each stream as soon as it was read."""
    scans: dict[str, Scan] = {}
    replays: list[Replay] = []
    reused: list[ReusedSequences] = []
    doubled: list[Duplicates] = []
    unread: dict[str, str] = {}
    for stream in request.topology.streams:
        if stream.name not in request.streams:
            continue
        tick = _make_tick(observer, stream.name)
        # Nothing is put in or deleted where copies do not name their origin: mirrors have its sequences instead.
        if stream.consistency.has_origin:
            if RepairKind.REPLAY in kinds:
                changed, uncompared = await find_changed_mirrors(Fetcher(request.topology, stream, connections, tick))
                reused += changed
                unread.update(uncompared)
            continue
        contents = await missing.read_contents(stream, connections, tick)
        scans |= {scan.name: scan for scan in contents.scans}
        unread.update(contents.unread)
        if RepairKind.REPLAY in kinds:
            lacking = await missing.plan_replays(request.topology, contents, connections, tick)
            replays += lacking.replays
            reused += lacking.reused
            unread.update(lacking.unread)
        if RepairKind.DELETE in kinds:
            doubled += await duplicates.find_duplicates(contents, tick)
    return scans, ContentRepairs(replays=tuple(replays), reused=tuple(reused), duplicates=tuple(doubled), unread=unread)


async def _repair_contents(
    topology: Topology,
    scans: Mapping[str, Scan],
    repairs: ContentRepairs,
    connections: _Connections,
    observer: RepairObserver,
) -> RepairedContents:
    """Do what can be done about *repairs* of the streams of *scans*, in the order of `RepairKind`."""
    replayed, still_open = await _replay(topology, repairs.replays, connections, observer)
    deleted = await _delete(repairs.duplicates, scans, observer)
    return RepairedContents(replayed=replayed, deleted=deleted, still_open=still_open)


async def _replay(
    topology: Topology, replays: Iterable[Replay], connections: _Connections, observer: RepairObserver
) -> tuple[tuple[Replay, ...], tuple[str, ...]]:
    """Put in what is missing. Returns what readers took, and what remains, in words."""
    replayed: list[Replay] = []
    still_open: list[str] = []
    for planned in (planned for planned in replays if planned.count):
        refused = await replay.replay_missing(topology, planned, connections, _make_tick(observer, planned.reader))
        if (accepted := planned.exclude(refused, {})).count:
            replayed.append(accepted)
        if refused:
            still_open.append(
                f"`{planned.reader}` did not take {refused.describe()} of `{planned.origin}`: it has taken messages with "
                "the same ids within its `duplicate_window`, or may store no more (`vstream doctor`)"
            )
    return tuple(replayed), tuple(still_open)


async def _delete(
    planned: Iterable[Duplicates], scans: Mapping[str, Scan], observer: RepairObserver
) -> tuple[Duplicates, ...]:
    """Delete duplicates. Returns those of each stream, with the number of copies that were deleted."""
    deleted: list[Duplicates] = []
    for doubled in (doubled for doubled in planned if doubled.count):
        gone, _ = await duplicates.delete_duplicates(scans[doubled.reader], _make_tick(observer, doubled.reader))
        if gone:
            deleted.append(replace(doubled, count=gone))
    return tuple(deleted)


def _make_tick(observer: RepairObserver, name: str) -> Tick:
    """What shows the progress of the stream *name*, which begins now."""
    observer.show_progress(name, 0, 0)
    return partial(observer.show_progress, name)
