"""
Stage 1 without Spark: what to read, and a few messages of it in Arrow format.

Executors read the rest (`frames`). This process can read its part while Spark starts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import takewhile
from statistics import median_low
from string import ascii_lowercase, ascii_uppercase, digits
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from vstream.audit import ship_credentials as reaching
from vstream.audit.cut import OLDEST_FIRST, SKEW_NS, is_origin
from vstream.audit.daemon_executor import DaemonExecutor
from vstream.audit.sample import sample_subjects
from vstream.audit.schema import MESSAGES
from vstream.audit.source import cut, reading
from vstream.audit.source.datasource import narrow_cut
from vstream.audit.source.pushdown import Bounds
from vstream.audit.source.values import ABSENT, StreamRef, split_tasks
from vstream.errors import NotReachableError, VstreamError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from vstream.audit.source.values import Access, ReadTask, StreamCut
    from vstream.topology.bundle import RenderedStream
    from vstream.topology.model import Endpoint

_REMOVING: Final = OLDEST_FIRST | {"max_msgs_per_subject", "retention"}
FEW: Final = 200_000
"""Number of messages that this process has read before Spark has started."""
_BEHIND_NS: Final = 5 * 10**9
"""Nanoseconds that a reader's clock may be behind that of the server where a message was written."""
_ROWS: Final = 20_000
"""Messages that one thread reads at once."""
_THREADS: Final = 8
"""Threads; they mostly wait for servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractPlan:
    """What to read."""

    cuts: tuple[StreamCut, ...]
    """All streams, including those that do not answer."""
    read: tuple[StreamCut, ...]
    """Streams whose messages are read, and which messages."""
    access: Mapping[str, Access]
    """By region."""

    @property
    def messages(self) -> int:
        """Number of messages to read."""
        return sum(item.messages for item in self.read if item.is_readable)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedTables:
    """The tables `messages` (of `schema.MESSAGES`) and `streams` (rows of `schema.STREAMS`), before Spark has them."""

    messages: pa.Table
    streams: Sequence[tuple[Any, ...]]


def plan_extraction(
    streams: Sequence[RenderedStream],
    endpoints: Mapping[str, Endpoint],
    scratch: Path,
    *,
    path: str | None = None,
    since_ns: int | None = None,
    subjects: int | None = None,
) -> ExtractPlan:
    """
    What there is to read of *streams* at this moment, write streams looked at first.

    A stream that cannot be asked is among the cuts with its error. With *since_ns* (nanoseconds
    since 1970 by this machine's clock) streams are read from the first message stored then. With
    *subjects*, so many subjects of each virtual stream are read, chosen at random.
    *scratch* holds secrets for as long as streams are read. Raises NotReachableError if
    no stream at all can be read, VstreamError for a credential that is missing.
    """
    requested = [StreamRef.of(stream) for stream in streams]
    access = reaching.resolve_access(requested, endpoints, scratch)
    cuts = take_planned_cuts(streams, access, path=path)
    if since_ns is not None:
        told_ns = tell_by_servers(since_ns, cuts)
        cuts = [_since(item, access[item.stream_ref.region], told_ns) for item in cuts]
    read = cuts if subjects is None else sample_subjects(cuts, streams, access, number=subjects).cuts
    return ExtractPlan(cuts=tuple(cuts), read=tuple(read), access=access)


def take_planned_cuts(
    streams: Sequence[RenderedStream], access: Mapping[str, Access], *, path: str | None = None
) -> list[StreamCut]:
    """What *streams* hold at this moment, and what the topology lets remove messages. Raises as `plan_extraction`."""
    planned = {stream.config.name: cut.find_limits(stream.config.fields) for stream in streams}
    cuts = require_readable(cut.take_cuts([StreamRef.of(stream) for stream in streams], access, path=path))
    return [with_planned_limits(item, planned[item.stream_ref.stream]) for item in cuts]


def extract(wanted: ExtractPlan, given_up: Event | None = None) -> ExtractedTables:
    """
    All messages of *wanted*, in memory: about a hundred bytes for each.

    Once *given_up* is set, nobody wants them any more. Raises VstreamError if a stream cannot be read to its end.
    """
    is_over = given_up or Event()
    schema = to_arrow_schema(MESSAGES)
    jobs = split_tasks(wanted.read, wanted.access, rows=_ROWS)

    def batches(job: ReadTask) -> list[pa.RecordBatch]:
        return list(takewhile(lambda _: not is_over.is_set(), reading.read_range(job, schema)))

    threads = DaemonExecutor(_THREADS)
    begun = [threads.submit(batches, job) for job in jobs]
    try:
        result = [batch for item in begun for batch in item.result()]
    except NotReachableError as error:
        # Others could be read: it is not that there is nothing to audit.
        raise VstreamError(error.message, hint=error.hint) from error
    finally:
        is_over.set()
        threads.shutdown(wait=False, cancel_futures=True)
    return ExtractedTables(
        messages=pa.Table.from_batches(result, schema), streams=[stream_row(item) for item in wanted.cuts]
    )


def tell_by_servers(moment_ns: int, cuts: Sequence[StreamCut]) -> int:
    """A moment of this machine's clock as servers tell it, which were asked just now: the clock here may be wrong."""
    told = [item.cut_at_ns for item in cuts if item.error is None]
    ahead = median_low(told) - time.time_ns() if told else 0
    return moment_ns + ahead if abs(ahead) > SKEW_NS else moment_ns


def _since(one: StreamCut, access: Access, since_ns: int) -> StreamCut:
    """What *one* has stored since a moment, with what is before it in readers: their clocks may be behind."""
    if one.error is not None:
        return one
    narrow = narrow_cut(one, access, Bounds(since_ns=since_ns if is_origin(one.stream_ref) else since_ns - _BEHIND_NS))
    # What arrives late of an origin that has written nothing since is older, too.
    first = narrow.first_seq if narrow.messages else one.last_seq + 1
    return without_limits(replace(narrow, first_seq=first, messages=one.messages if narrow.messages else 0), one)


def without_limits(narrow: StreamCut, one: StreamCut) -> StreamCut:
    """
    *narrow*, which begins later than *one* does, without limits that have taken nothing from it.

    Those that take the oldest messages first have not come to it while there are older ones.
    """
    if is_origin(one.stream_ref) or one.limits is None or not one.messages or one.first_seq >= narrow.first_seq:
        return narrow
    return replace(narrow, limits={name: limit for name, limit in one.limits.items() if name not in OLDEST_FIRST})


def with_planned_limits(one: StreamCut, planned: Mapping[str, int]) -> StreamCut:
    """
    *one* without limits of a reader that are not *planned*, or are narrower than that.

    They have removed what the topology says is there: nothing explains that it is missing.
    """
    if is_origin(one.stream_ref) or one.limits is None:
        return one
    limits = dict(one.limits)
    for name in _REMOVING & limits.keys():
        if name in planned:
            limits[name] = max(limits[name], planned[name])
        else:
            del limits[name]
    return replace(one, limits=limits)


def require_readable(cuts: list[StreamCut]) -> list[StreamCut]:
    """*cuts*, if any stream can be read. Otherwise raises NotReachableError with the reasons."""
    if not cuts or not all(item.error for item in cuts):
        return cuts
    if all(item.error == ABSENT for item in cuts):
        raise NotReachableError(
            f"none of the {len(cuts)} streams exist",
            hint="`vstream apply` creates them; or is this another topology's account or lab?",
        )
    raise NotReachableError(f"no stream can be read: {cuts[0].error}", hint="are the servers running?")


def stream_row(one: StreamCut) -> tuple[Any, ...]:
    """*one* as a row of `schema.STREAMS`."""
    requested = one.stream_ref
    is_read = one.error is None
    return (
        requested.virtual,
        requested.stream,
        requested.region,
        requested.role,
        one.first_seq if is_read else None,
        one.last_seq if is_read else None,
        one.messages if is_read else None,
        one.num_deleted if is_read else None,
        one.cut_at_ns,
        one.server_version,
        one.path,
        one.error,
        [(cursor.origin, cursor.last_seq) for cursor in one.sources],
        None if one.limits is None else dict(one.limits),
        _identity(one),
        one.mirror,
        one.transform,
    )


_ALPHABET: Final = digits + ascii_uppercase + ascii_lowercase
_LENGTH: Final = 8


def _identity(one: StreamCut) -> str | None:
    """To readers, a stream from a backup is another one than that which they took from before; its messages are the same."""
    if one.is_restored:
        return ""
    return identity_of(one.created) if one.created else None


def identity_of(created: str) -> str:
    """
    The identity of a stream that STREAM.INFO says was *created* then, as servers since 2.15 write it into headers.

    Source: `server/stream.go` (identity), `server/events.go` (getHash).
    """
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in sha256(created.encode()).digest()[:_LENGTH])
