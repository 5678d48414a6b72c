"""
Restart sourcing at once after an outage.

A stream that has lost a source tries again after 10 s, then after 20, up to two minutes. A new leader asks
at once, so the leader of every read stream steps down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from vstream.errors import LabError, NotPermittedError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection
from vstream.jetstream.error_codes import ELECTION_TIMEOUT
from vstream.servers import leaders
from vstream.servers.leaders import StreamLeadership
from vstream.servers.target_servers import TargetServers
from vstream.timing import ALIVE_SECONDS, SECOND_NS
from vstream.topology.model import Role, Topology
from vstream.topology.replication import physical_streams, sources_of
from vstream.value_class import value_class

_POLL_SECONDS = 0.1
_MIN_APART_SECONDS = 0.2
"""Minimum seconds between two separate signs of life, seen over a network."""


class ResyncMode(Enum):
    """Whose leaders step down: those of all streams, or of what does not deliver, so that nothing is done twice; or nobody's."""

    ALL = "all"
    SILENT = "silent"
    MEASURE = "measure"


@value_class
class ResyncedStream:
    """
    One stream with sources, in seconds after the step-downs; None for what has not happened before the deadline.

    *note* says why it was not stepped down, or what is missing.
    """

    stream: str
    region: str
    is_stepped_down: bool
    active: float | None
    caught_up: float | None
    note: str | None


@value_class
class ResyncResult:
    """The result. *waited* is the time until gateways, a meta leader and the write streams' leaders were ready, in seconds."""

    waited: float
    streams: tuple[ResyncedStream, ...]

    @property
    def behind(self) -> tuple[ResyncedStream, ...]:
        """The streams that have not caught up with their sources."""
        return tuple(stream for stream in self.streams if stream.caught_up is None)

    @property
    def silent(self) -> tuple[ResyncedStream, ...]:
        """The streams that have heard nothing from a source yet."""
        return tuple(stream for stream in self.streams if stream.active is None)


async def resync_readers(
    topology: Topology,
    target: TargetServers,
    *,
    timeout: float,
    mode: ResyncMode,
    only: Collection[str] | None = None,
) -> ResyncResult:
    """
    Wait for gateways and leaders, step streams down that others feed, and measure until all of them deliver.

    *only* names the streams, by default all. Raises LabError if gateways, the meta leader or a write stream's leader are not
    there after *timeout* seconds, which are then counted again.
    """
    began = time.monotonic()
    while (missing := await _find_missing_link(target) or await _find_missing_meta_leader(target)) is not None:
        if time.monotonic() - began > timeout:
            raise LabError(
                f"not resynced: after {timeout:g} s {missing}", hint="`vstream chaos heal` undoes the faults of a lab"
            )
        await asyncio.sleep(_POLL_SECONDS)
    async with target.connect() as connection:
        # Whoever asks a stream without a leader is refused, and waits 10 s and more.
        published_streams = _streams_with_role(topology, Role.WRITE, Role.ORIGIN)
        deadline = began + timeout
        await asyncio.gather(*(_wait_for_leader(connection, stream.name, deadline) for stream in published_streams))
        ready = time.monotonic()
        streams: list[ResyncedStream] = []
        # What read streams mirror comes first: another leader of it would stop them once more.
        for roles in ((Role.ORDER,), (Role.READ,)):
            turn = [reader for reader in _streams_with_role(topology, *roles) if only is None or reader.name in only]
            until = ready + timeout
            streams += await asyncio.gather(*(_resync_stream(connection, reader, until, mode) for reader in turn))
    return ResyncResult(waited=ready - began, streams=tuple(streams))


@dataclass(frozen=True, slots=True)
class _Stream:
    """A physical stream, its place, and its number of sources."""

    name: str
    place: str
    source_count: int


def _streams_with_role(topology: Topology, *roles: Role) -> tuple[_Stream, ...]:
    streams: list[_Stream] = []
    for stream in topology.streams:
        for part in physical_streams(stream):
            if part.role in roles:
                streams.append(_Stream(part.name, part.place, source_count=len(sources_of(stream, part.role))))
    return tuple(streams)


async def _find_missing_link(target: TargetServers) -> str | None:
    """The missing gateway; None if there is none, or no monitoring address is known."""
    joined = set(target.hubs.values()) or set(target.servers)
    present = {target.clusters[server] for server in joined if target.may_answer(server)}
    for url in target.monitors(joined):
        try:
            linked = await monitoring.read_gateway_bytes(url)
        except VstreamError as error:
            return error.message
        # A server has gateways to all clusters but its own.
        if len(missing := present - linked.keys()) > 1:
            return f"the server at `{url}` misses a gateway to one or more of {', '.join(sorted(missing))}"
    return None


async def _find_missing_meta_leader(target: TargetServers) -> str | None:
    for group in target.meta_groups:
        urls = target.monitors(group)
        # A single server is no cluster: it decides alone.
        if len(group) > 1 and urls and await leaders.find_meta_leader(urls) is None:
            return f"the JetStream meta group of {', '.join(sorted(group))} has no leader"
    return None


async def _wait_for_leader(connection: Connection, stream: str, deadline: float) -> None:
    while await leaders.find_stream_leader(connection, stream) is None:
        if time.monotonic() > deadline:
            raise LabError(
                f"not resynced: write stream `{stream}` has no leader",
                hint="are its servers running? `vstream chaos status` shows open faults",
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _resync_stream(connection: Connection, stream: _Stream, deadline: float, mode: ResyncMode) -> ResyncedStream:
    """Make the leader of a stream step down where *mode* says so, and measure until it has everything, or the *deadline*."""
    if mode is not ResyncMode.ALL:
        soon = deadline if mode is ResyncMode.MEASURE else min(deadline, time.monotonic() + 2 * ALIVE_SECONDS)
        measured = await _measure_stream(connection, stream, soon, None, None)
        if mode is ResyncMode.MEASURE or measured.caught_up is not None:
            return measured
    former, note = await _make_step_down(connection, stream.name, deadline)
    return await _measure_stream(connection, stream, deadline, former, note)


async def _measure_stream(
    connection: Connection, stream: _Stream, deadline: float, former: StreamLeadership | None, note: str | None
) -> ResyncedStream:
    """When a stream hears its sources and has everything; under another leader than the *former* one, if that stepped down."""
    began, heard = time.monotonic(), _HeardSources()
    active: float | None = None
    caught_up: float | None = None
    problem: str | None = "not asked"
    target: int | None = None
    while time.monotonic() < deadline:
        elapsed = time.monotonic() - began
        info = await _read_info(connection, stream.name, after=former if elapsed < ELECTION_TIMEOUT else None)
        sources = () if info is None else tuple(info.get("sources") or filter(None, [info.get("mirror")]))
        if info is None or len(sources) < stream.source_count:
            problem = "no server answers for it"  # or so new a leader that it does not know them yet
        else:
            silent = heard.silent(sources, elapsed)
            active = elapsed if active is None and not silent else active
            problem = _find_problem(sources, silent)
        if problem is None and info is not None and info.get("mirror"):
            held = int(info["state"]["last_seq"])
            target = target or await _read_last_seq(connection, str(info["mirror"]["name"]))
            # Servers say "lag 0" and "just heard" of a mirror that begins to ask again, too.
            problem = None if target is not None and held >= target else f"at {held} of {target or 'an unknown number'}"
        if problem is None:
            caught_up, problem = elapsed, note
            break
        await asyncio.sleep(_POLL_SECONDS)
    return ResyncedStream(
        stream=stream.name,
        region=stream.place,
        is_stepped_down=former is not None,
        active=active,
        caught_up=caught_up,
        note=problem,
    )


class _HeardSources:
    """When each source was first heard. A new leader has always "just heard" it: only once more shows that it delivers."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}

    def silent(self, sources: Sequence[dict[str, Any]], now: float) -> tuple[str, ...]:
        """The names of *sources* that do not deliver at *now*, in seconds."""
        silent_names = []
        for source in sources:
            name, age = str(source.get("name")), int(source.get("active", -1)) / SECOND_NS
            if not 0 <= age < ALIVE_SECONDS:
                self._first.pop(name, None)
                silent_names.append(name)
            elif now - age < self._first.setdefault(name, now - age) + _MIN_APART_SECONDS:
                silent_names.append(name)
        return tuple(silent_names)


async def _make_step_down(
    connection: Connection, stream: str, deadline: float
) -> tuple[StreamLeadership | None, str | None]:
    """The former leader; or None, and why it did not step down."""
    note = "time was up"
    while time.monotonic() < deadline:
        try:
            role = await leaders.fetch_leadership(connection, stream)
            if role.replicas == 1:
                return None, "one replica: there is no other server to lead it"
            if role.can_elect:
                await JetStreamAdmin(connection).step_down(stream)
                return role, None
            note = "no follower is current"
        except NotPermittedError:
            raise
        except (NotReachableError, ServerError) as error:
            note = error.message  # it may have no leader yet: this soon after an outage that is to be expected
        await asyncio.sleep(_POLL_SECONDS)
    return None, note


async def _read_info(connection: Connection, stream: str, *, after: StreamLeadership | None) -> dict[str, Any] | None:
    """STREAM.INFO from the leader of *stream* that follows *after*; None while there is none."""
    try:
        info = await JetStreamAdmin(connection).info(stream, timeout=leaders.REQUEST_TIMEOUT)
    except NotPermittedError:
        raise
    except (NotReachableError, ServerError):
        return None
    if after is not None and is_still(after, info.get("cluster") or {}):
        return None
    return dict(info)


async def _read_last_seq(connection: Connection, stream: str) -> int | None:
    """The last sequence of *stream*; None if it does not answer."""
    info = await _read_info(connection, stream, after=None)
    return None if info is None else int(info["state"]["last_seq"])


def is_still(before: StreamLeadership, cluster: Mapping[str, Any]) -> bool:
    """Whether *cluster* still has the leader of *before*, not elected again. Before 2.12, servers do not say since when."""
    since = cluster.get("leader_since")
    return cluster.get("leader") == before.leader and (since is None or since == before.since)


def _find_problem(sources: Sequence[dict[str, Any]], silent: Sequence[str]) -> str | None:
    """What the sources still lack; None if each delivers and nothing is pending."""
    if silent:
        return f"nothing heard of {', '.join(silent)}"
    behind = [f"{source.get('name')} ({source['lag']} messages)" for source in sources if source.get("lag")]
    return f"behind {', '.join(behind)}" if behind else None
