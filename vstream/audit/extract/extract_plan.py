"""
What to read of servers: how far each stream goes now (its snapshot), and which part of that is read.

Write streams are asked before the streams that source them (`stream_snapshots`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median_low
from typing import Final

from vstream.audit.connector import stream_snapshots
from vstream.audit.connector.values import ABSENT, Access, ReadSnapshot, StreamRef
from vstream.audit.extract import server_access
from vstream.audit.extract.sample import sample_subjects
from vstream.audit.tables.stream_settings import is_origin
from vstream.errors import NotReachableError
from vstream.jetstream.connection import choose_hint
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Endpoint
from vstream.topology.stream_limits import OLDEST_FIRST, PER_SUBJECT, RETENTION
from vstream.value_class import value_class

_REMOVING: Final = OLDEST_FIRST | {PER_SUBJECT, RETENTION}
"""Limits that the topology gives, and nobody else should."""
_UNLED: Final = "its replica that answers has no leader, or hears too few others: they may have more messages"


@value_class
class ExtractPlan:
    """The streams to audit, and the messages to read of each."""

    snapshots: tuple[ReadSnapshot, ...]
    """All streams, including those that cannot be read."""
    parts: tuple[ReadSnapshot, ...]
    """The streams whose messages are read, each limited to the messages to read."""
    access: Mapping[str, Access]
    """By region."""
    asked_at: float
    """When servers were asked for the snapshots, in seconds of the monotonic clock."""

    @property
    def messages(self) -> int:
        """Number of messages to read."""
        return sum(item.messages for item in self.parts if item.is_readable)


def plan_extraction(
    streams: Sequence[RenderedStream],
    endpoints: Mapping[str, Endpoint],
    scratch: Path,
    *,
    path: str | None = None,
    since_ns: int | None = None,
    sample: int | None = None,
) -> ExtractPlan:
    """
    Decide what to read of *streams* now. Write streams are asked first.

    A stream that cannot be asked is in the snapshots with its error. With *since_ns* (nanoseconds
    since 1970 by this machine's clock), streams are read from the first message stored since then. With
    *sample*, that many random subjects of each virtual stream are read.
    *scratch* must exist until the streams are read: it holds secrets. Raises NotReachableError if
    no stream can be read, and VstreamError for a missing credential.
    """
    requested = [StreamRef.of(stream) for stream in streams]
    access = server_access.find_access(requested, endpoints, scratch)
    asked_at = time.monotonic()
    snapshots = take_complete_snapshots(streams, access, path=path)
    if since_ns is not None:
        told_ns = to_server_clock(since_ns, snapshots)
        snapshots = [_ask_for_recent(item, access[item.stream_ref.region], told_ns) for item in snapshots]
    parts = snapshots if sample is None else sample_subjects(snapshots, streams, access, number=sample)
    return ExtractPlan(snapshots=tuple(snapshots), parts=tuple(parts), access=access, asked_at=asked_at)


def take_complete_snapshots(
    streams: Sequence[RenderedStream], access: Mapping[str, Access], *, path: str | None = None
) -> list[ReadSnapshot]:
    """Ask *streams* for snapshots, with all positions and with the limits of the topology. Raises as `plan_extraction`."""
    planned = {stream.config.name: stream_snapshots.find_limits(stream.config.fields) for stream in streams}
    answered = stream_snapshots.take_snapshots([StreamRef.of(stream) for stream in streams], access, path=path)
    snapshots = require_readable(
        [item if item.error or item.is_led else replace(item, error=_UNLED) for item in answered]
    )
    return [with_planned_limits(item, planned[item.stream_ref.stream]) for item in _fill_positions(snapshots, access)]


def _fill_positions(snapshots: Sequence[ReadSnapshot], access: Mapping[str, Access]) -> list[ReadSnapshot]:
    """
    *snapshots* with how far readers are whose servers, before 2.15, do not say it, and which have stored all that there was.

    They have as many messages as their origins. Of origins that go on, newer ones may make up for some on their way.
    """
    lasts = {item.stream_ref.stream: item.last_seq for item in snapshots if item.error is None}
    filled = {}
    for item in snapshots:
        names = {source.origin for source in item.sources}
        is_told = all(source.last_seq is not None for source in item.sources)
        if not is_told and names <= lasts.keys() and item.last_seq == sum(lasts[name] for name in names):
            told = tuple(replace(source, last_seq=lasts[source.origin]) for source in item.sources)
            filled[item.stream_ref] = replace(item, sources=told)
    asked = {source.origin for item in filled.values() for source in item.sources}
    again = stream_snapshots.take_snapshots(
        [item.stream_ref for item in snapshots if item.stream_ref.stream in asked], access
    )
    moved = {item.stream_ref.stream for item in again if item.last_seq != lasts[item.stream_ref.stream]}
    sure = {ref: item for ref, item in filled.items() if moved.isdisjoint(each.origin for each in item.sources)}
    return [sure.get(item.stream_ref, item) for item in snapshots]


def to_server_clock(moment_ns: int, snapshots: Sequence[ReadSnapshot]) -> int:
    """Convert *moment_ns* of this machine's clock, which may be wrong, to the servers'; *snapshots* were taken just now."""
    told = [item.snapshot_ns for item in snapshots if item.error is None]
    ahead = median_low(told) - time.time_ns() if told else 0
    return moment_ns + ahead if abs(ahead) > stream_snapshots.SKEW_NS else moment_ns


def _ask_for_recent(snapshot: ReadSnapshot, access: Access, since_ns: int) -> ReadSnapshot:
    """The part of *snapshot* stored since *since_ns*; of a reader, its copies of that, which another server has stored."""
    if snapshot.error is not None:
        return snapshot
    # The clock of a reader's server may be behind that of the origin's.
    stored_ns = since_ns if is_origin(snapshot.stream_ref) else since_ns - stream_snapshots.MAX_SKEW_NS
    recent = stream_snapshots.ask_for_period(snapshot, access, since_ns=stored_ns)
    # What arrives late of an origin that has written nothing since is older, too.
    first = recent.first_seq if recent.messages else snapshot.last_seq + 1
    return replace(recent, first_seq=first, messages=snapshot.messages if recent.messages else 0)


def with_planned_limits(snapshot: ReadSnapshot, planned: Mapping[str, int]) -> ReadSnapshot:
    """
    *snapshot* without the limits of a reader that are not *planned*; limits below the plan are raised to it.

    They removed messages that the topology says the reader has, so they do not excuse missing messages.
    """
    if is_origin(snapshot.stream_ref) or snapshot.limits is None:
        return snapshot
    limits = dict(snapshot.limits)
    for name in _REMOVING & limits.keys():
        if name in planned:
            limits[name] = max(limits[name], planned[name])
        else:
            del limits[name]
    return replace(snapshot, limits=limits)


def require_readable(snapshots: list[ReadSnapshot]) -> list[ReadSnapshot]:
    """Return *snapshots* if any stream can be read; otherwise raise NotReachableError with the reasons."""
    if not snapshots or not all(item.error for item in snapshots):
        return snapshots
    if all(item.error == ABSENT for item in snapshots):
        raise NotReachableError(
            f"none of the {len(snapshots)} streams exist",
            hint="`vstream apply` creates them. Is this the right topology, account and lab?",
        )
    raise NotReachableError(f"no stream can be read: {snapshots[0].error}", hint=choose_hint(snapshots[0].error or ""))
