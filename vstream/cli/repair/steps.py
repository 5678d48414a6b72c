"""The stages of `vstream repair`: what is looked at, and what is done, kind by kind."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from vstream.errors import NotReachableError, RefusedError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

    from rich.progress import Progress

    from vstream.cli.servers import Servers
    from vstream.health.repair.live.missing import Contents
    from vstream.health.repair.plan import Duplicates, Leftover, Replay, Standstill
    from vstream.health.repair.refill import Refill
    from vstream.health.repair.sequence_set import SequenceSet
    from vstream.health.report import PairStatus
    from vstream.jetstream.reconnecting import ReconnectingConnection
    from vstream.topology.model import Topology

_CONNECT = 5.0


class Kind(Enum):
    """What can be repaired, in the order in which it is."""

    CLEAR = "clear"
    RESUME = "resume"
    REFILL = "refill"
    REPLAY = "replay"
    DELETE = "delete"


_CONTENTS = frozenset({Kind.REPLAY, Kind.DELETE})
MAPPED_ONLY = frozenset({Kind.CLEAR, *_CONTENTS})
"""Kinds that have been tried where all streams share an account."""


@dataclass(slots=True, kw_only=True)
class Flows:
    """What is wrong with how streams take from each other."""

    leftovers: tuple[Leftover, ...] = ()
    standstills: tuple[Standstill, ...] = ()
    refills: tuple[Refill, ...] = ()
    standing: tuple[PairStatus, ...] = ()
    """Pairs of which nothing is known."""

    @property
    def is_open(self) -> bool:
        """Whether something could be done about any of it."""
        return bool(self.leftovers or self.standstills or self.refills or self.standing)


@dataclass(slots=True, kw_only=True)
class Stock:
    """What is wrong with what streams hold."""

    contents: list[Contents] = field(default_factory=list)
    replays: list[Replay] = field(default_factory=list)
    doubles: list[Duplicates] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether something could be done about any of it, or is not known."""
        return bool(self.unread or any(one.count for one in self.replays) or any(one.count for one in self.doubles))


def chosen(topology: Topology, kinds: Sequence[Kind], streams: Sequence[str]) -> tuple[frozenset[Kind], frozenset[str]]:
    """The kinds and the virtual streams that are meant. Raises VstreamError for what there is not, or was never tried."""
    from vstream.topology.profiles import profile_of  # noqa: PLC0415

    names = [stream.name for stream in topology.streams]
    for name in streams:
        if name not in names:
            raise UnknownNameError(f"the topology has no stream `{name}`", hint=f"it has {', '.join(names)}")
    if profile_of(topology).has_domains:
        raise RefusedError(
            f"`{topology.name}` has `routing: domains`, where nobody has tried a repair yet",
            hint="`vstream doctor` says what is lost, and which read streams hold it",
        )
    wanted = frozenset(kinds) or frozenset(Kind)
    if not profile_of(topology).has_physical_names:
        refused = sorted(one.value for one in wanted & MAPPED_ONLY)
        if kinds and refused:
            raise RefusedError(
                f"`{topology.name}` has `routing: {topology.routing.value}`, where nobody has tried "
                f"`--kind {refused[0]}` yet",
                hint="`--kind refill` and `--kind resume` work there",
            )
        wanted -= MAPPED_ONLY
    return wanted, frozenset(streams) or frozenset(names)


async def look_at_flows(
    topology: Topology, where: Servers, deadline: float, kinds: frozenset[Kind], streams: Collection[str]
) -> Flows:
    """Leftovers, streams that take nothing, and write streams without their end."""
    from vstream.health.doctor.sourcing import STUCK_AFTER  # noqa: PLC0415
    from vstream.health.live.collect import collect_snapshot  # noqa: PLC0415
    from vstream.health.repair.live import (  # noqa: PLC0415
        refill,
        replay,
    )
    from vstream.health.repair.refill import find_lost_ends, find_standstills  # noqa: PLC0415
    from vstream.health.report import PairState  # noqa: PLC0415
    from vstream.health.status import assess  # noqa: PLC0415
    from vstream.jetstream.connection import Connection  # noqa: PLC0415
    from vstream.plan.live.observe import any_connection, connect_all  # noqa: PLC0415

    found = Flows()
    async with connect_all(topology, where.endpoints) as opened:
        if Kind.CLEAR in kinds:
            found.leftovers = await replay.find_leftovers(topology, any_connection(opened))
    if not kinds & {Kind.RESUME, Kind.REFILL}:
        return found
    facts = await collect_snapshot(topology, where.endpoints, deadline=deadline)
    picture = assess(topology, facts)
    pairs = [pair for pair in picture.pairs if pair.virtual in streams]
    replicas = {name: one.replicas for name, one in facts.streams.items()}
    found.standing = tuple(one for one in pairs if one.state is PairState.UNKNOWN)
    stopped = find_standstills(pairs, replicas, STUCK_AFTER)
    if Kind.RESUME in kinds:
        found.standstills = stopped
    else:
        found.standing += tuple(one for one in pairs if one.state is PairState.SILENT)
    ends = [one for one in find_lost_ends(picture) if one.virtual in streams] if Kind.REFILL in kinds else []
    if not ends:
        return found
    async with connect_all(topology, where.endpoints) as opened:
        connections = {region: one for region, one in opened.items() if isinstance(one, Connection)}
        found.refills = tuple([await refill.plan_refill(topology, end, facts.streams, connections) for end in ends])
    return found


async def mend_flows(topology: Topology, where: Servers, lab: str | None, found: Flows, timeout: float) -> list[str]:
    """Do what can be done about *found*; returns what is still open, in words."""
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.health.repair.live import (  # noqa: PLC0415
        refill,
        replay,
    )
    from vstream.jetstream.connection import connect  # noqa: PLC0415
    from vstream.plan.live.observe import any_connection, connect_all  # noqa: PLC0415

    left: list[str] = []
    async with connect_all(topology, where.endpoints) as opened:
        for one in found.leftovers:
            if one.is_running:
                left.append(f"`{one.stream}` is used by a repair that still runs")
            else:
                await replay.remove_leftover(any_connection(opened), one)
    stopped = frozenset(one.reader for one in found.standstills if one.blocked is None)
    if stopped:
        left += await _resumed(topology, lab, stopped, timeout)
    for end in found.refills:
        if end.blocked is not None:
            continue
        region = refill.writing_region(topology, end.lost)
        if region not in where.endpoints:
            raise NotReachableError(
                f"`{end.lost.origin}` is filled by a connection to region `{region}`, and nothing says how to reach it",
                hint="name its servers under `connect`",
            )
        with console.progress_bar() as progress:
            tick = ticker(progress, end.lost.origin)
            async with connect(where.endpoints[region], region) as connection:
                await refill.refill(end, connection, tick)
    return left


async def _resumed(topology: Topology, lab: str | None, readers: frozenset[str], timeout: float) -> list[str]:
    from vstream.cli.chaos import common  # noqa: PLC0415
    from vstream.health.live.resync import resync  # noqa: PLC0415

    result = await resync(topology, common.site_for(topology, lab), timeout=timeout, only=readers)
    return [f"`{one.stream}` still takes nothing: {one.note}" for one in result.streams if one.caught_up is None]


@asynccontextmanager
async def opened(topology: Topology, where: Servers) -> AsyncIterator[dict[str, ReconnectingConnection]]:
    """Connections to read and repair contents with, by region, those that stand. Raises NotReachableError if none does."""
    from vstream.jetstream.connection import resolve_context  # noqa: PLC0415
    from vstream.jetstream.reconnecting import open_reconnecting  # noqa: PLC0415

    connections: dict[str, ReconnectingConnection] = {}
    problems: list[str] = []
    try:
        for region, endpoint in where.endpoints.items():
            try:
                connections[region] = await open_reconnecting(
                    resolve_context(endpoint) if endpoint.context else endpoint,
                    region,
                    name="vstream",
                    knows=lambda *_: True,
                    within=_CONNECT,
                )
            except NotReachableError as error:
                problems.append(error.message)
        if not connections:
            raise NotReachableError(problems[0] if problems else f"nothing says how to reach `{topology.name}`")
        yield connections
    finally:
        for one in connections.values():
            await one.close()


async def look_at_stock(
    topology: Topology,
    connections: Mapping[str, ReconnectingConnection],
    kinds: frozenset[Kind],
    streams: Collection[str],
    progress: Progress,
) -> Stock:
    """Read what streams hold, and compare."""
    from vstream.health.repair.live import (  # noqa: PLC0415
        duplicates,
        missing,
    )

    found = Stock()
    for stream in topology.streams:
        if stream.name not in streams or not missing.has_provenance(stream):
            continue
        tick = ticker(progress, stream.name)
        contents = await missing.find_missing(topology, stream, connections, tick, for_replay=Kind.REPLAY in kinds)
        found.contents.append(contents)
        found.unread.update(contents.unread)
        found.replays += contents.replays
        if Kind.DELETE in kinds:
            for scan in contents.scans:
                if not scan.adds_up and (one := await duplicates.find_duplicates(stream.name, scan, tick)) is not None:
                    found.doubles.append(one)
    return found


async def mend_stock(
    topology: Topology, connections: Mapping[str, ReconnectingConnection], found: Stock, progress: Progress
) -> list[str]:
    """Put in what is missing and delete what is double; returns what is still open, in words."""
    from vstream.health.repair.live import (  # noqa: PLC0415
        duplicates,
        replay,
    )

    left: list[str] = []
    for contents in found.contents:
        for one in contents.replays:
            if one.count:
                tick = ticker(progress, one.reader)
                refused: SequenceSet = await replay.replay_missing(topology, contents.stream, one, connections, tick)
                if refused:
                    left.append(
                        f"`{one.reader}` did not take {refused.words()} of `{one.origin}`: it has taken messages with "
                        "the same ids within its `duplicate_window`"
                    )
        wanted = {one.reader for one in found.doubles if one.count}
        for scan in contents.scans:
            if scan.name in wanted:
                await duplicates.delete_duplicates(scan, ticker(progress, scan.name))
    return left


def ticker(progress: Progress, what: str) -> Callable[[int, int], None]:
    """Shows how many of how many."""
    task = progress.add_task(what, total=None)
    return lambda count, total: progress.update(task, completed=count, total=total)
