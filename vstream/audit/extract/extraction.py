"""
Read the messages of a plan into a sink, and then what came meanwhile.

A sink (`MessageSink`) is the memory of this process, which can take few messages while Spark starts, or a place of Spark
(`audit_tables`, `state`, `follow`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from threading import Event
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from vstream.audit.connector import reading, stream_snapshots
from vstream.audit.connector.values import ReadSnapshot, ReadTask, StreamRef, group_tasks, split_tasks
from vstream.audit.extract.extract_plan import ExtractPlan
from vstream.audit.extract.stream_rows import make_stream_row
from vstream.audit.spark.daemon_threads import DaemonExecutor
from vstream.audit.tables.schema import MESSAGES
from vstream.audit.tables.stream_settings import is_origin
from vstream.errors import NotReachableError, VstreamError
from vstream.topology.stream_limits import REPLACING, SIZES
from vstream.value_class import value_class

_TASK_ROWS: Final = 20_000
"""Messages in one task of a thread."""
_THREAD_COUNT: Final = 8
"""Number of threads; they mostly wait for servers."""
MessagesT = TypeVar("MessagesT")
MessagesT_co = TypeVar("MessagesT_co", covariant=True)


class MessageSink(Protocol[MessagesT_co]):
    """What the messages of a plan are loaded into."""

    def load(self, plan: ExtractPlan) -> MessagesT_co:
        """Load all messages of *plan*, each stream up to its snapshot. Returns where they are then."""


@value_class
class Extraction(Generic[MessagesT]):
    """What was read by *plan*."""

    plan: ExtractPlan
    messages: MessagesT
    """Those up to the snapshots, as the sink has them."""
    arrivals: pa.Table
    """Further ones (`schema.MESSAGES`), which came meanwhile to streams that replace messages."""
    later: Mapping[StreamRef, ReadSnapshot]
    """Snapshots from after the reading, of the streams that have gone on removing messages."""
    read_in_ns: int
    """How long after the snapshots everything had been read."""

    @property
    def streams(self) -> list[tuple[Any, ...]]:
        """The rows of `schema.STREAMS`."""
        counts, rows = Counter(self.arrivals["stream"].to_pylist()), []
        for item in self.plan.snapshots:
            ref = item.stream_ref
            rows.append(make_stream_row(item, self.read_in_ns, counts[ref.stream], self.later.get(ref)))
        return rows


@value_class
class ArrowTables:
    """The tables `messages` (`schema.MESSAGES`, Arrow) and `streams` (rows of `schema.STREAMS`), not yet in Spark."""

    messages: pa.Table
    streams: Sequence[tuple[Any, ...]]


def read_plan(plan: ExtractPlan, sink: MessageSink[MessagesT], limits: frozenset[str] = SIZES) -> Extraction[MessagesT]:
    """
    Read all messages of *plan* into *sink*, and then what came meanwhile, before its limits remove it.

    Streams with any of *limits* are asked again: they may have reached them since. Raises VstreamError if a stream
    cannot be asked or read to its end.
    """
    try:
        messages = sink.load(plan)
        later = _ask_again(plan, limits)
        arrivals = _read_arrivals(plan, later)
    except NotReachableError as error:
        # Others could be read, so there is something to audit.
        raise VstreamError(error.message, hint=error.hint) from error
    read_in_ns = round((time.monotonic() - plan.asked_at) * 1e9)
    return Extraction(plan=plan, messages=messages, arrivals=arrivals, later=later, read_in_ns=read_in_ns)


def _ask_again(plan: ExtractPlan, limits: frozenset[str]) -> dict[StreamRef, ReadSnapshot]:
    """New snapshots of the streams of *plan* that have any of *limits*, or replace messages. Raises VstreamError without one."""
    parts = (item for item in plan.parts if item.error is None and (REPLACING | limits) & (item.limits or {}).keys())
    snapshots = stream_snapshots.take_snapshots([item.stream_ref for item in parts], plan.access)
    for item in snapshots:
        if item.error is not None:
            raise VstreamError(f"stream `{item.stream_ref.stream}` could not be asked again: {item.error}")
    return {item.stream_ref: item for item in snapshots}


def _read_arrivals(plan: ExtractPlan, later: Mapping[StreamRef, ReadSnapshot]) -> pa.Table:
    """
    What came to readers that keep the last messages of subjects alone, between the snapshots of *plan* and *later* ones.

    Such a reader has gone on removing messages, for newer ones that its snapshot does not have. They are read until none is
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
class ProcessMemory:
    """The memory of this process: about a hundred bytes for each message. Ends early once *is_stopped* is set."""

    is_stopped: Event

    def load(self, plan: ExtractPlan) -> pa.Table:
        """The messages of *plan* (`schema.MESSAGES`). Raises CancelledError if they are not wanted any more."""
        groups = group_tasks(split_tasks(plan.parts, plan.access, rows=_TASK_ROWS), rows=_TASK_ROWS)
        is_over, schema = Event(), to_arrow_schema(MESSAGES)

        def read_group(tasks: Sequence[ReadTask]) -> list[pa.RecordBatch]:
            batches = []
            for batch in reading.read_ranges(tasks, schema):
                if is_over.is_set() or self.is_stopped.is_set():
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
        if self.is_stopped.is_set():
            raise CancelledError
        return pa.Table.from_batches(batches, schema)


def read_in_process(plan: ExtractPlan, is_stopped: Event | None = None) -> ArrowTables:
    """The tables of *plan*, read by this process. Raises as `read_plan`, and CancelledError once *is_stopped* is set."""
    extraction = read_plan(plan, ProcessMemory(is_stopped=is_stopped or Event()))
    messages = pa.concat_tables([extraction.messages, extraction.arrivals])
    return ArrowTables(messages=messages, streams=extraction.streams)
