"""The PySpark data source `jetstream`: what Spark calls, on the driver and on executors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from vstream.audit.source import cut
from vstream.audit.source.client import connect
from vstream.audit.source.options import is_catalog_table, parse_options, without_catalog_properties
from vstream.audit.source.pushdown import Bounds, push_filters
from vstream.audit.source.reading import read_range
from vstream.audit.source.values import CONSUMER, ReadPlan, ReadTask, split_tasks
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from vstream.audit.source.client import Client
    from vstream.audit.source.options import Options
    from vstream.audit.source.values import Access, StreamCut, StreamRef

NAME = "jetstream"
_OPTIONS = "jetstream.options"
"""In the metadata of the first column: the options of a table in Spark's catalog."""
_CLOCKS = 5 * 10**9
"""Nanoseconds by which clocks of servers that led a stream one after the other may differ."""
COLUMNS = StructType(
    [
        StructField("stream", StringType(), nullable=False),
        StructField("region", StringType(), nullable=False),
        StructField("seq", LongType(), nullable=False),
        StructField("time", TimestampType(), nullable=False),
        StructField("time_ns", LongType(), nullable=False),
        StructField("subject", StringType(), nullable=False),
        StructField("msg_id", StringType(), nullable=True),
        StructField("source", StringType(), nullable=True),
        StructField("size", IntegerType(), nullable=False),
        StructField("digest", LongType(), nullable=False),
    ]
)
"""What is read if nobody says otherwise."""
_MORE = [
    StructField("headers", BinaryType(), nullable=True),
    StructField("payload", BinaryType(), nullable=False),
    StructField("ttl", StringType(), nullable=True),
    StructField("virtual", StringType(), nullable=False),
    StructField("role", StringType(), nullable=False),
]
_KNOWN = {column.name: column.dataType for column in [*COLUMNS.fields, *_MORE]}


@dataclass(slots=True)
class ReadPartition(InputPartition):
    """One task."""

    range: ReadTask


class JetStreamDataSource(DataSource):
    """Streams of NATS JetStream as tables. docs/spark-source.md says what can be set."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """The columns, unless `.schema(...)` has asked for others."""
        options = parse_options(self.options)
        asked = {"headers": options.headers, "payload": options.payload}
        first, *rest = [*COLUMNS.fields, *(column for column in _MORE if asked.get(column.name))]
        if is_catalog_table(self.options):
            # Spark (4.3 at least) shows a table's options to whoever makes its schema, and not to whoever reads it.
            metadata = {_OPTIONS: without_catalog_properties(self.options)}
            first = StructField(first.name, first.dataType, nullable=first.nullable, metadata=metadata)
        return StructType([first, *rest])

    def reader(self, schema: StructType) -> JetStreamReader:
        """For a batch query."""
        options = parse_options({**_options_of_table(schema), **self.options})
        return (FilteringReader if options.pushdown else JetStreamReader)(schema, options)

    def streamReader(self, schema: StructType) -> JetStreamStreamReader:
        """For a streaming query."""
        return JetStreamStreamReader(schema, parse_options({**_options_of_table(schema), **self.options}))


class JetStreamReader(DataSourceReader):
    """Plans ranges on the driver, reads them on executors."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = _arrow(schema)
        self._options = options
        self._bounds = Bounds(
            first=options.start_seq,
            last=options.end_seq,
            since_ns=options.since_ns,
            until_ns=options.until_ns,
            subjects=options.subjects,
        )

    def partitions(self) -> Sequence[InputPartition]:
        """The cut, in ranges. Raises VstreamError if a stream cannot be read."""
        options = self._options
        plan = options.plan or ReadPlan(
            access={item.region: options.access for item in options.stream_ref},
            cuts=tuple(take_readable(options.stream_ref, options.access, options.read_by)),
        )
        cuts = [
            narrow_cut(item, plan.access[item.stream_ref.region], self._bounds) for item in plan.cuts if not item.error
        ]
        result = split_tasks(cuts, plan.access, rows=options.rows_per_task, subjects=self._bounds.subjects)
        return [ReadPartition(item) for item in result]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the messages of one range."""
        # Spark asks for a partition without a value where there is none.
        return read_range(partition.range, self._schema) if isinstance(partition, ReadPartition) else iter(())


class FilteringReader(JetStreamReader):
    """
    The same, and takes filters from Spark.

    Not for everybody: Spark (4.3.0 at least) keeps the filters that one query has
    handed over for every later use of the same DataFrame, and in a query that uses it
    twice gives one's filters to both. Those who ask for it use a DataFrame once.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Take what narrows the ranges; returns what Spark still has to filter."""
        self._bounds, rest = push_filters(filters, self._bounds)
        return rest


class JetStreamStreamReader(DataSourceStreamReader):
    """Follows streams: an offset is the last sequence that was read, for each."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = _arrow(schema)
        self._options = options
        if options.since_ns or options.until_ns or options.end_seq:
            raise VstreamError(
                "a streaming query has no since, until or end_seq", hint="use start, start_seq, and filters"
            )
        plan = options.plan
        self._wanted = tuple(item.stream_ref for item in plan.cuts) if plan else options.stream_ref
        self._access = plan.access if plan else {item.region: options.access for item in options.stream_ref}
        self._cuts: dict[str, StreamCut] = {}

    def initialOffset(self) -> dict[str, int]:
        """Before the first message that is wanted."""
        self._look()
        if self._options.start == "latest":
            return {key: item.last_seq for key, item in self._cuts.items()}
        start = self._options.start_seq or 1
        return {key: max(item.first_seq, start, 1) - 1 for key, item in self._cuts.items()}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: ARG002 - Spark's signature
        """The cut of this moment. A stream that cannot be asked stays where it was."""
        self._look()
        most = self._options.rows_per_batch
        result = dict(start or {})
        for key, item in self._cuts.items():
            before = result.get(key, max(item.first_seq, 1) - 1)
            last = max(item.last_seq, before)
            result[key] = min(last, max(before, item.first_seq - 1) + most) if most else last
        return result

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """What came between two offsets, in ranges."""
        if any(key not in self._cuts for key in end):
            self._look()
        cuts = []
        for key, last in end.items():
            entry = self._cuts.get(key)
            if entry is None or entry.error:
                if last > start.get(key, 0):
                    raise VstreamError(
                        f"stream `{key}` cannot be read: {entry.error if entry else 'it is not asked for'}"
                    )
                continue
            first = max(start.get(key, 0) + 1, entry.first_seq)
            if first <= last:
                rows = min(entry.messages, last - first + 1)
                cuts.append(
                    replace(
                        entry,
                        first_seq=first,
                        last_seq=last,
                        messages=max(1, rows),
                        bytes=entry.bytes * rows // max(1, entry.messages),
                    )
                )
        options = self._options
        result = split_tasks(cuts, self._access, rows=options.rows_per_task, subjects=options.subjects)
        return [ReadPartition(item) for item in result] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the messages of one range."""
        return read_range(partition.range, self._schema) if isinstance(partition, ReadPartition) else iter(())

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept on servers."""

    def _look(self) -> None:
        """A new cut. Raises VstreamError for a stream that could never be asked."""
        for take_cut in cut.take_cuts(self._wanted, self._access, path=self._options.read_by):
            key = _key(take_cut.stream_ref)
            if not take_cut.error:
                self._cuts[key] = take_cut
            elif key not in self._cuts:
                raise VstreamError(f"stream `{take_cut.stream_ref.stream}` cannot be read: {take_cut.error}")


def _options_of_table(schema: StructType) -> dict[str, str]:
    metadata = schema.fields[0].metadata if schema.fields else {}
    return dict((metadata or {}).get(_OPTIONS, {}))


def take_readable(wanted: Sequence[StreamRef], access: Access, path: str | None) -> list[StreamCut]:
    """As `cut.take` at one place, and raises VstreamError if any of the streams cannot be read."""
    cuts = cut.take_cuts(wanted, {item.region: access for item in wanted}, path=path)
    for entry in cuts:
        if entry.error:
            raise VstreamError(f"stream `{entry.stream_ref.stream}` cannot be read: {entry.error}")
    return cuts


def narrow_cut(one: StreamCut, access: Access, bounds: Bounds) -> StreamCut:
    """What *bounds* leave of *one*; nothing to read if that is nothing."""
    if (bounds.streams is not None and one.stream_ref.stream not in bounds.streams) or (
        bounds.regions is not None and one.stream_ref.region not in bounds.regions
    ):
        return replace(one, messages=0)
    first = max(one.first_seq, bounds.first or 0)
    last = one.last_seq if bounds.last is None else min(one.last_seq, bounds.last)
    if one.is_readable and (bounds.since_ns is not None or bounds.until_ns is not None):
        with connect(access) as client:
            if bounds.since_ns is not None:
                first = max(first, _sequence_at(client, access, one, max(0, bounds.since_ns - _CLOCKS)))
            if bounds.until_ns is not None:
                last = min(last, _sequence_at(client, access, one, max(0, bounds.until_ns + 1 + _CLOCKS)) - 1)
    span, whole = last - first + 1, one.last_seq - one.first_seq + 1
    if span <= 0 or not one.is_readable:
        return replace(one, messages=0)
    # A guess: it decides on the number of tasks and nothing else.
    part = min(one.messages, span) if span < whole else one.messages
    return replace(one, first_seq=first, last_seq=last, messages=part, bytes=max(1, one.bytes * part // one.messages))


def _sequence_at(client: Client, access: Access, one: StreamCut, moment_ns: int) -> int:
    """What is read without a meta leader cannot be asked by a consumer either."""
    if one.path != CONSUMER:
        return cut.bisect_sequence_at(client, access, one, moment_ns)
    return cut.sequence_at(client, access.of(one.stream_ref.stream), one.stream_ref.name, moment_ns)


def _key(one: StreamRef) -> str:
    return f"{one.region}/{one.stream}" if one.region else one.stream


def _arrow(schema: StructType) -> pa.Schema:
    """*schema* as Arrow's. Raises VstreamError for a column that there is none of, or of another type."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - slow to import

    for field in schema.fields:
        kind = _KNOWN.get(field.name)
        if kind != field.dataType:
            raise VstreamError(
                f"there is no column `{field.name}` of type {field.dataType.simpleString()}",
                hint=f"`{field.name}` is {kind.simpleString()}" if kind else f"columns: {', '.join(_KNOWN)}",
            )
    return to_arrow_schema(schema, timezone="UTC")
