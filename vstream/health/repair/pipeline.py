"""The use case behind `vstream repair messages`: what is checked and repaired, kind by kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from vstream.errors import NotReachableError, RefusedError
from vstream.health.assess import assess
from vstream.health.doctor.sourcing import STUCK_SECONDS
from vstream.health.live.collect import collect_snapshot
from vstream.health.live.refresh_readers import RefreshMode, refresh_readers
from vstream.health.repair.live import duplicates, missing, refill, replay
from vstream.health.repair.live.missing import Contents
from vstream.health.repair.live.scan import Tick
from vstream.health.repair.plan import Duplicates, Leftover, Replay
from vstream.health.repair.refill import Refill, find_lost_ends
from vstream.health.repair.resume import Standstill, find_standstills
from vstream.health.status import PairState, PairStatus
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.plan.live.connections import choose_connection, connect_reconnecting, select_reached
from vstream.servers.target_servers import TargetServers
from vstream.syntax.document import Json
from vstream.topology import physical
from vstream.topology.model import Role, Topology
from vstream.topology.profiles import profile_of
from vstream.value_class import value_class

_Opened = Mapping[str, ReconnectingConnection | NotReachableError]
_RESUME_TIMEOUT = 60.0
"""Seconds until what was resumed has everything, at least."""


class RepairKind(Enum):
    """What can be repaired, in the order of repair."""

    CLEAR = "clear"
    RESUME = "resume"
    REFILL = "refill"
    REPLAY = "replay"
    DELETE = "delete"


_CONTENTS = frozenset({RepairKind.REPLAY, RepairKind.DELETE})
MAPPED_ONLY = frozenset({RepairKind.CLEAR, *_CONTENTS})
"""Kinds that were only tested where all streams share an account."""


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


@dataclass(slots=True, kw_only=True)
class SourcingRepairs:
    """Problems of how streams source from each other."""

    leftovers: tuple[Leftover, ...] = ()
    standstills: tuple[Standstill, ...] = ()
    refills: tuple[Refill, ...] = ()
    unknown: tuple[PairStatus, ...] = ()
    """Pairs with unknown state."""
    silent: tuple[PairStatus, ...] = ()
    """Pairs in which a reader takes nothing, where `resume` was not asked for."""

    @property
    def plans(self) -> tuple[Standstill | Refill, ...]:
        """Those that may be blocked."""
        return (*self.standstills, *self.refills)


@dataclass(slots=True, kw_only=True)
class ContentRepairs:
    """Problems of what streams hold."""

    contents: list[Contents] = field(default_factory=list)
    replays: list[Replay] = field(default_factory=list)
    duplicates: list[Duplicates] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)


class RepairObserver(Protocol):
    """Shows a repair to a person while it runs."""

    def found_sourcing(self, repairs: SourcingRepairs) -> None:
        """Problems of how streams source from each other were found."""

    def repaired_sourcing(self, repairs: SourcingRepairs, still_open: Collection[str]) -> None:
        """They were repaired, except what *still_open* says."""

    def found_contents(self, repairs: ContentRepairs) -> None:
        """Problems of what streams hold were found."""

    def repaired_contents(self, repairs: ContentRepairs) -> None:
        """They were repaired."""

    def progress(self) -> AbstractContextManager[Callable[[str], Tick]]:
        """A progress display, by names of streams."""


class RepairEnd(Enum):
    """What there is to do after a repair, or was before."""

    HEALTHY = "healthy"
    REPAIRED = "repaired"
    OPEN = "open"
    UNKNOWN = "unknown"
    """Nothing as far as is known: something did not answer."""


@dataclass(slots=True, kw_only=True)
class RepairResult:
    """What was found, and what remains."""

    request: RepairRequest
    sourcing: SourcingRepairs = field(default_factory=SourcingRepairs)
    contents: ContentRepairs = field(default_factory=ContentRepairs)
    still_open: list[str] = field(default_factory=list)
    """What remains, in words."""

    @property
    def repairable(self) -> list[object]:
        """What can be repaired from here, or was."""
        ready = [plan for plan in self.sourcing.plans if plan.obstacle is None]
        counted: list[Replay | Duplicates] = [*self.contents.replays, *self.contents.duplicates]
        return [*self.sourcing.leftovers, *ready, *(item for item in counted if item.count)]

    @property
    def obstacles(self) -> list[str]:
        """Why what is blocked cannot be repaired from here."""
        return [plan.obstacle for plan in self.sourcing.plans if plan.obstacle is not None]

    @property
    def outcome(self) -> RepairEnd:
        """What there is still to do."""
        left_open = [*self.still_open, *self.sourcing.silent, *self.obstacles]
        if left_open or (self.repairable and not self.request.is_approved):
            return RepairEnd.OPEN
        if self.sourcing.unknown or self.contents.unread:
            return RepairEnd.UNKNOWN
        return RepairEnd.REPAIRED if self.repairable else RepairEnd.HEALTHY

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        ready = [refill.lost.origin for refill in self.sourcing.refills if refill.obstacle is None]
        return {
            "topology": self.request.topology.name,
            "is_done": self.request.is_approved,
            "leftovers": [item.as_dict() for item in self.sourcing.leftovers],
            "standstills": [item.as_dict() for item in self.sourcing.standstills],
            "refills": [item.as_dict() for item in self.sourcing.refills],
            "repaired": list(ready) if self.request.is_approved else [],
            "unknown": [item.as_dict() for item in (*self.sourcing.unknown, *self.sourcing.silent)],
            "replays": [item.as_dict() for item in self.contents.replays],
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
    if not profile.has_physical_names:
        refused = sorted(kind.value for kind in selected & MAPPED_ONLY)
        if kinds and refused:
            raise RefusedError(
                f"`{topology.name}` has `routing: {topology.routing.value}`, for which "
                f"`--kind {refused[0]}` has not been tested yet",
                hint="`--kind refill` and `--kind resume` work there",
            )
        selected -= MAPPED_ONLY
    return selected


async def repair(request: RepairRequest, observer: RepairObserver) -> RepairResult:
    """
    Check everything that *request* names, and repair it if approved.

    Sourcing comes first, since contents depend on it. Raises NotReachableError if no region can be reached.
    """
    result, kinds = RepairResult(request=request), request.kinds & _CONTENTS
    async with connect_reconnecting(request.topology, request.target.endpoints) as opened:
        leftovers: tuple[Leftover, ...] = ()
        if request.kinds & {RepairKind.CLEAR, RepairKind.REPLAY}:
            leftovers = await replay.find_leftovers(request.topology, choose_connection(opened))
        result.sourcing = await _examine_sourcing(request, opened)
        if RepairKind.CLEAR in request.kinds:
            result.sourcing.leftovers = leftovers
        observer.found_sourcing(result.sourcing)
        if request.is_approved:
            result.still_open += await _repair_sourcing(request, opened, result.sourcing, observer)
            observer.repaired_sourcing(result.sourcing, result.still_open)
        is_cleared = request.is_approved and RepairKind.CLEAR in request.kinds
        in_use = [item for item in leftovers if (item.is_running or not is_cleared) and _is_about(item, request)]
        if in_use and RepairKind.REPLAY in kinds:
            result.still_open.append(_describe_wait(in_use[0]))
            kinds -= {RepairKind.REPLAY}
        if not kinds:
            return result
        connections = select_reached(opened)
        with observer.progress() as ticker:
            result.contents = await _examine_contents(request, kinds, connections, ticker)
        observer.found_contents(result.contents)
        if request.is_approved:
            with observer.progress() as ticker:
                result.still_open += await _repair_contents(request.topology, connections, result.contents, ticker)
            observer.repaired_contents(result.contents)
    return result


def _is_about(leftover: Leftover, request: RepairRequest) -> bool:
    """Whether *leftover* holds messages of a requested stream."""
    streams = (stream for stream in request.topology.streams if stream.name in request.streams)
    return any(leftover.stream.startswith(physical.physical_name(stream, Role.WRITE, "")) for stream in streams)


def _describe_wait(leftover: Leftover) -> str:
    """Why nothing is replayed while *leftover* is there: what it is about to put in would be put in twice."""
    reason = "`vstream repair messages --kind clear --yes` removes what a killed repair has left"
    if leftover.is_running:
        reason = "a running repair uses it"
    return f"missing messages are not looked for before `{leftover.stream}` is gone: {reason}"


async def _examine_sourcing(request: RepairRequest, opened: _Opened) -> SourcingRepairs:
    """Streams that take nothing, and write streams without their end."""
    topology, kinds, repairs = request.topology, request.kinds, SourcingRepairs()
    if not kinds & {RepairKind.RESUME, RepairKind.REFILL}:
        return repairs
    snapshot = await collect_snapshot(topology, request.target.endpoints, timeout=request.timeout)
    status = assess(topology, snapshot)
    pairs = [pair for pair in status.pairs if pair.virtual in request.streams]
    repairs.unknown = tuple(pair for pair in pairs if pair.state is PairState.UNKNOWN)
    if RepairKind.RESUME in kinds:
        replicas = {name: stream.replicas for name, stream in snapshot.streams.items()}
        repairs.standstills = find_standstills(pairs, replicas, STUCK_SECONDS)
    else:
        repairs.silent = tuple(pair for pair in pairs if pair.state is PairState.SILENT)
    ends = [end for end in find_lost_ends(status) if end.virtual in request.streams]
    if RepairKind.REFILL in kinds and ends:
        connections = select_reached(opened)
        refills = [await refill.plan_refill(topology, end, snapshot.streams, connections) for end in ends]
        repairs.refills = tuple(refills)
    return repairs


async def _repair_sourcing(
    request: RepairRequest, opened: _Opened, repairs: SourcingRepairs, observer: RepairObserver
) -> list[str]:
    """Do what can be done about *repairs*; returns what is still open, in words."""
    still_open: list[str] = []
    for leftover in repairs.leftovers:
        if leftover.is_running:
            still_open.append(f"`{leftover.stream}` is in use by a running repair")
        else:
            await replay.remove_leftover(choose_connection(opened), leftover)
    stopped = frozenset(planned.reader for planned in repairs.standstills if planned.obstacle is None)
    if stopped:
        timeout = max(request.timeout, _RESUME_TIMEOUT)
        result = await refresh_readers(
            request.topology, request.target, timeout=timeout, mode=RefreshMode.ALL, only=stopped
        )
        still_open += [f"`{stream.stream}` still takes nothing: {stream.note}" for stream in result.behind]
    for planned in repairs.refills:
        if planned.obstacle is None:
            connection = opened[refill.choose_writing_region(request.topology, planned.lost)]
            if isinstance(connection, NotReachableError):
                raise connection
            with observer.progress() as ticker:
                await refill.refill(planned, connection, ticker(planned.lost.origin))
    return still_open


async def _examine_contents(
    request: RepairRequest,
    kinds: frozenset[RepairKind],
    connections: Mapping[str, ReconnectingConnection],
    ticker: Callable[[str], Tick],
) -> ContentRepairs:
    """Read what streams hold, and compare."""
    repairs = ContentRepairs()
    for stream in request.topology.streams:
        # Copies must name their origin: mirrors have its sequences instead.
        if stream.name not in request.streams or stream.consistency.has_origin:
            continue
        tick = ticker(stream.name)
        contents = await missing.read_contents(
            request.topology, stream, connections, tick, with_replays=RepairKind.REPLAY in kinds
        )
        repairs.contents.append(contents)
        repairs.unread.update(contents.unread)
        repairs.replays += contents.replays
        if RepairKind.DELETE not in kinds:
            continue
        for scan in contents.scans:
            copies = None if scan.adds_up else await duplicates.find_duplicates(stream.name, scan, tick)
            if copies is not None:
                repairs.duplicates.append(copies)
    return repairs


async def _repair_contents(
    topology: Topology,
    connections: Mapping[str, ReconnectingConnection],
    repairs: ContentRepairs,
    ticker: Callable[[str], Tick],
) -> list[str]:
    """Put in what is missing and delete duplicates; returns what is still open, in words."""
    still_open: list[str] = []
    for contents in repairs.contents:
        for planned in contents.replays:
            if not planned.count:
                continue
            refused = await replay.replay_missing(
                topology, contents.stream, planned, connections, ticker(planned.reader)
            )
            if refused:
                still_open.append(
                    f"`{planned.reader}` did not take {refused.describe()} of `{planned.origin}`: it has taken messages with "
                    "the same ids within its `duplicate_window`"
                )
        with_copies = {planned.reader for planned in repairs.duplicates if planned.count}
        for scan in contents.scans:
            if scan.name in with_copies:
                await duplicates.delete_duplicates(scan, ticker(scan.name))
    return still_open
