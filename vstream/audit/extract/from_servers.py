"""
Stage 1: decide what to read of servers (`plan_extraction`), and read it (`read_plan`).

Where the messages of a plan go is a `MessagePlace`: this process, which can read few of them while Spark starts
(`extract`), or a place of Spark (`audit_tables`, `state`, `follow`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import median_low
from string import ascii_lowercase, ascii_uppercase, digits
from threading import Event
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from vstream.audit.extract import server_access
from vstream.audit.extract.sample import sample_subjects
from vstream.audit.source import reading, stream_cuts
from vstream.audit.source.values import ABSENT, Access, ReadTask, StreamCut, StreamRef, group_tasks, split_tasks
from vstream.audit.spark.daemon_threads import DaemonExecutor
from vstream.audit.state.closed import LOST_OLDEST, OLDEST_FIRST, SIZES
from vstream.audit.tables.cut_tables import CAPTURE, HAS_HOLES, REPLACING, is_origin
from vstream.audit.tables.schema import MESSAGES
from vstream.errors import NotReachableError, VstreamError
from vstream.jetstream.connection import choose_hint
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Endpoint
from vstream.value_class import value_class

_MAX_MESSAGE_BYTES: Final = 64 * 1024**2
"""The most bytes of a message that servers allow."""
_REMOVING: Final = OLDEST_FIRST | {"max_msgs_per_subject", "retention"}
_UNLED: Final = "its replica that answers has no leader, or hears too few others: they may have more messages"
MAX_BEFORE_SPARK: Final = 200_000
"""Number of messages that this process can read before Spark has started."""
_TASK_ROWS: Final = 20_000
"""Messages in one task of a thread."""
_THREAD_COUNT: Final = 8
"""Number of threads; they mostly wait for servers."""
MessagesT = TypeVar("MessagesT")
MessagesT_co = TypeVar("MessagesT_co", covariant=True)
_SUDDEN = frozenset({"retention", "allow_msg_ttl", "allow_rollup_hdrs"})
"""Limits that remove messages from streams of any size."""
_ALPHABET: Final = digits + ascii_uppercase + ascii_lowercase
_NAME_LENGTH: Final = 8


@value_class
class ExtractPlan:
    """The streams to audit, and the messages to read of each."""

    cuts: tuple[StreamCut, ...]
    """All streams, including those that cannot be read."""
    parts: tuple[StreamCut, ...]
    """The streams whose messages are read, each limited to the messages to read."""
    access: Mapping[str, Access]
    """By region."""
    asked_at: float
    """When servers were asked for the cuts, in seconds of the monotonic clock."""

    @property
    def messages(self) -> int:
        """Number of messages to read."""
        return sum(item.messages for item in self.parts if item.is_readable)


class MessagePlace(Protocol[MessagesT_co]):
    """Where the messages of a plan are read into."""

    def read(self, plan: ExtractPlan) -> MessagesT_co:
        """Read all messages of *plan*, each stream up to its cut. Returns where they are then."""


@value_class
class Extraction(Generic[MessagesT]):
    """What was read by *plan*."""

    plan: ExtractPlan
    messages: MessagesT
    """Those up to the cuts, as the place has them."""
    arrivals: pa.Table
    """Further ones (`schema.MESSAGES`), which came meanwhile to streams that replace messages."""
    later: Mapping[StreamRef, StreamCut]
    """Cuts from after the reading, of the streams that have gone on removing messages."""
    read_in_ns: int
    """How long after the cuts everything had been read."""

    @property
    def streams(self) -> list[tuple[Any, ...]]:
        """The rows of `schema.STREAMS`."""
        counts, rows = Counter(self.arrivals["stream"].to_pylist()), []
        for item in self.plan.cuts:
            ref = item.stream_ref
            rows.append(stream_row(item, self.read_in_ns, counts[ref.stream], self.later.get(ref)))
        return rows


@value_class
class ExtractedTables:
    """The tables `messages` (`schema.MESSAGES`, Arrow) and `streams` (rows of `schema.STREAMS`), not yet in Spark."""

    messages: pa.Table
    streams: Sequence[tuple[Any, ...]]


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

    A stream that cannot be asked is in the cuts with its error. With *since_ns* (nanoseconds
    since 1970 by this machine's clock), streams are read from the first message stored since then. With
    *sample*, that many random subjects of each virtual stream are read.
    *scratch* must exist until the streams are read: it holds secrets. Raises NotReachableError if
    no stream can be read, and VstreamError for a missing credential.
    """
    requested = [StreamRef.of(stream) for stream in streams]
    access = server_access.find_access(requested, endpoints, scratch)
    asked_at = time.monotonic()
    cuts = take_complete_cuts(streams, access, path=path)
    if since_ns is not None:
        told_ns = to_server_clock(since_ns, cuts)
        cuts = [_ask_for_recent(item, access[item.stream_ref.region], told_ns) for item in cuts]
    parts = cuts if sample is None else sample_subjects(cuts, streams, access, number=sample)
    return ExtractPlan(cuts=tuple(cuts), parts=tuple(parts), access=access, asked_at=asked_at)


def take_complete_cuts(
    streams: Sequence[RenderedStream], access: Mapping[str, Access], *, path: str | None = None
) -> list[StreamCut]:
    """Ask *streams* for cuts, with all positions and with the limits of the topology. Raises as `plan_extraction`."""
    planned = {stream.config.name: stream_cuts.find_limits(stream.config.fields) for stream in streams}
    answered = stream_cuts.take_cuts([StreamRef.of(stream) for stream in streams], access, path=path)
    cuts = require_readable([item if item.error or item.is_led else replace(item, error=_UNLED) for item in answered])
    return [with_planned_limits(item, planned[item.stream_ref.stream]) for item in _fill_positions(cuts, access)]


def _fill_positions(cuts: Sequence[StreamCut], access: Mapping[str, Access]) -> list[StreamCut]:
    """
    *cuts* with how far readers are whose servers, before 2.15, do not say it, and which have stored all that there was.

    They have as many messages as their origins. Of origins that go on, newer ones may make up for some on their way.
    """
    lasts = {item.stream_ref.stream: item.last_seq for item in cuts if item.error is None}
    filled = {}
    for item in cuts:
        names = {source.origin for source in item.sources}
        is_told = all(source.last_seq is not None for source in item.sources)
        if not is_told and names <= lasts.keys() and item.last_seq == sum(lasts[name] for name in names):
            told = tuple(replace(source, last_seq=lasts[source.origin]) for source in item.sources)
            filled[item.stream_ref] = replace(item, sources=told)
    asked = {source.origin for item in filled.values() for source in item.sources}
    again = stream_cuts.take_cuts([item.stream_ref for item in cuts if item.stream_ref.stream in asked], access)
    moved = {item.stream_ref.stream for item in again if item.last_seq != lasts[item.stream_ref.stream]}
    sure = {ref: item for ref, item in filled.items() if moved.isdisjoint(each.origin for each in item.sources)}
    return [sure.get(item.stream_ref, item) for item in cuts]


def read_plan(
    plan: ExtractPlan, place: MessagePlace[MessagesT], limits: frozenset[str] = SIZES
) -> Extraction[MessagesT]:
    """
    Read all messages of *plan* into *place*, and then what came meanwhile, before its limits remove it.

    Streams with any of *limits* are asked again: they may have reached them since. Raises VstreamError if a stream
    cannot be asked or read to its end.
    """
    try:
        messages = place.read(plan)
        later = _ask_again(plan, limits)
        arrivals = _read_arrivals(plan, later)
    except NotReachableError as error:
        # Others could be read, so there is something to audit.
        raise VstreamError(error.message, hint=error.hint) from error
    read_in_ns = round((time.monotonic() - plan.asked_at) * 1e9)
    return Extraction(plan=plan, messages=messages, arrivals=arrivals, later=later, read_in_ns=read_in_ns)


def _ask_again(plan: ExtractPlan, limits: frozenset[str]) -> dict[StreamRef, StreamCut]:
    """New cuts of the streams of *plan* that have any of *limits*, or replace messages. Raises VstreamError without one."""
    asked = (item for item in plan.parts if item.error is None and (REPLACING | limits) & (item.limits or {}).keys())
    later = {item.stream_ref: item for item in stream_cuts.take_cuts([item.stream_ref for item in asked], plan.access)}
    for ref, item in later.items():
        if item.error is not None:
            raise VstreamError(f"stream `{ref.stream}` could not be asked again: {item.error}")
    return later


def _read_arrivals(plan: ExtractPlan, later: Mapping[StreamRef, StreamCut]) -> pa.Table:
    """
    What came to readers that keep the last messages of subjects alone, between the cuts of *plan* and *later* ones.

    Such a reader has gone on removing messages, for newer ones that its cut does not have. They are read until none is
    left. What is then the newest of a subject has been there since it came, so it was read, and shows what it replaced.
    """
    grown, schema = [], to_arrow_schema(MESSAGES)
    for before in plan.parts:
        item = later.get(before.stream_ref)
        replaces = not is_origin(before.stream_ref) and REPLACING & (before.limits or {}).keys()
        if item is not None and replaces and item.last_seq > before.last_seq:
            grown.append(replace(item, first_seq=before.last_seq + 1, subjects=before.subjects))
    tasks = split_tasks(grown, plan.access, rows=max((item.messages for item in grown), default=1))
    batches = [batch for task in tasks for batch in reading.read_range(replace(task, goes_on=True), schema)]
    return pa.Table.from_batches(batches, schema)


@value_class
class ThisProcess:
    """The memory of this process: about a hundred bytes for each message. Ends early once *given_up* is set."""

    given_up: Event

    def read(self, plan: ExtractPlan) -> pa.Table:
        """The messages of *plan* (`schema.MESSAGES`). Raises CancelledError if they are not wanted any more."""
        groups = group_tasks(split_tasks(plan.parts, plan.access, rows=_TASK_ROWS), rows=_TASK_ROWS)
        is_over, schema = Event(), to_arrow_schema(MESSAGES)

        def read_group(tasks: Sequence[ReadTask]) -> list[pa.RecordBatch]:
            batches = []
            for batch in reading.read_ranges(tasks, schema):
                if is_over.is_set() or self.given_up.is_set():
                    break
                batches.append(batch)
            return batches

        threads = DaemonExecutor(_THREAD_COUNT)
        begun = [threads.submit(read_group, tasks) for tasks in groups]
        try:
            batches = [batch for item in begun for batch in item.result()]
        finally:
            is_over.set()
            threads.shutdown(wait=False, cancel_futures=True)
        if self.given_up.is_set():
            raise CancelledError
        return pa.Table.from_batches(batches, schema)


def extract(plan: ExtractPlan, given_up: Event | None = None) -> ExtractedTables:
    """The tables of *plan*, read by this process. Raises as `read_plan`, and CancelledError once *given_up* is set."""
    extraction = read_plan(plan, ThisProcess(given_up=given_up or Event()))
    messages = pa.concat_tables([extraction.messages, extraction.arrivals])
    return ExtractedTables(messages=messages, streams=extraction.streams)


def to_server_clock(moment_ns: int, cuts: Sequence[StreamCut]) -> int:
    """Convert *moment_ns* of this machine's clock, which may be wrong, to the servers'; *cuts* were taken just now."""
    told = [item.cut_at_ns for item in cuts if item.error is None]
    ahead = median_low(told) - time.time_ns() if told else 0
    return moment_ns + ahead if abs(ahead) > stream_cuts.SKEW_NS else moment_ns


def _ask_for_recent(cut: StreamCut, access: Access, since_ns: int) -> StreamCut:
    """The part of *cut* stored since *since_ns*; of a reader, its copies of that, which another server has stored."""
    if cut.error is not None:
        return cut
    # The clock of a reader's server may be behind that of the origin's.
    stored_ns = since_ns if is_origin(cut.stream_ref) else since_ns - stream_cuts.MAX_SKEW_NS
    recent = stream_cuts.ask_for_period(cut, access, since_ns=stored_ns)
    # What arrives late of an origin that has written nothing since is older, too.
    first = recent.first_seq if recent.messages else cut.last_seq + 1
    return replace(recent, first_seq=first, messages=cut.messages if recent.messages else 0)


def with_planned_limits(cut: StreamCut, planned: Mapping[str, int]) -> StreamCut:
    """
    *cut* without the limits of a reader that are not *planned*; limits below the plan are raised to it.

    They removed messages that the topology says the reader has, so they do not excuse missing messages.
    """
    if is_origin(cut.stream_ref) or cut.limits is None:
        return cut
    limits = dict(cut.limits)
    for name in _REMOVING & limits.keys():
        if name in planned:
            limits[name] = max(limits[name], planned[name])
        else:
            del limits[name]
    return replace(cut, limits=limits)


def require_readable(cuts: list[StreamCut]) -> list[StreamCut]:
    """Return *cuts* if any stream can be read; otherwise raise NotReachableError with the reasons."""
    if not cuts or not all(item.error for item in cuts):
        return cuts
    if all(item.error == ABSENT for item in cuts):
        raise NotReachableError(
            f"none of the {len(cuts)} streams exist",
            hint="`vstream apply` creates them. Is this the right topology, account and lab?",
        )
    raise NotReachableError(f"no stream can be read: {cuts[0].error}", hint=choose_hint(cuts[0].error or ""))


def stream_row(
    cut: StreamCut, read_in_ns: int = 0, arrivals: int = 0, later: StreamCut | None = None
) -> tuple[Any, ...]:
    """Convert *cut* to a row of `schema.STREAMS`; its messages were read by *read_in_ns* after it, as was *later*."""
    ref = cut.stream_ref
    state = (cut.first_seq, cut.last_seq, cut.messages, cut.num_deleted) if cut.error is None else (None,) * 4
    times = cut.cut_at_ns, cut.cut_at_ns + read_in_ns
    sources = [(cursor.origin, cursor.last_seq) for cursor in cut.sources]
    limits = None if cut.limits is None else _limits_in_reach(cut, cut.limits, later or cut)
    told = cut.server_version, cut.path, cut.error, sources, limits, _identity(cut), cut.mirror, cut.transform
    return ref.virtual, ref.stream, ref.region, ref.role, *state, *times, arrivals, *told


def _limits_in_reach(cut: StreamCut, limits: Mapping[str, int], later: StreamCut) -> dict[str, int]:
    """*limits* of *cut* without those that *later* had removed nothing of it, and with what they have begun to remove."""
    if later is not cut:
        # Who follows has read only what *later* still has: what came after the cut may have removed the first ones.
        number = limits.get("max_msgs", later.last_seq)
        is_by_number = max(0, cut.last_seq - number) < cut.first_seq - 1 <= later.last_seq - number
        has_lost = later.first_seq > max(1, cut.first_seq) or is_by_number
        began = {HAS_HOLES: later.last_seq > later.messages, LOST_OLDEST: has_lost}
        limits = {**limits, **{name: 1 for name, has_begun in began.items() if has_begun}}
    if cut.path == CAPTURE or not _SUDDEN.isdisjoint(limits):
        return dict(limits)
    # It never had so many messages, is not a quarter full, or is a later part, with older messages still before it.
    reached = {"max_msgs": later.last_seq, "max_bytes": 4 * later.bytes + _MAX_MESSAGE_BYTES}
    if later.first_seq < cut.first_seq and later.messages and not is_origin(cut.stream_ref):
        reached = dict.fromkeys(SIZES, 0)
    elif _is_raised(cut, limits, later):
        del reached["max_msgs"]
    return {name: limit for name, limit in limits.items() if name not in reached or limit < reached[name]}


def _is_raised(cut: StreamCut, limits: Mapping[str, int], later: StreamCut) -> bool:
    """Whether `max_msgs` alone may have removed the first messages of *cut* when it was smaller; a mirror may begin late."""
    is_alone = _REMOVING & limits.keys() == {"max_msgs"} and cut.mirror is None
    return is_alone and cut.first_seq == later.first_seq > limits.get("first_seq", 1)


def _identity(cut: StreamCut) -> str | None:
    """The stream's identity; empty if restored from a backup: readers then see a new stream with old messages."""
    if cut.is_restored:
        return ""
    return identity_of(cut.created) if cut.created else None


def identity_of(created: str) -> str:
    """
    The identity that servers since 2.15 write into headers, computed from the *created* time of STREAM.INFO.

    Source: `server/stream.go` (identity), `server/events.go` (getHash).
    """
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in sha256(created.encode()).digest()[:_NAME_LENGTH])
