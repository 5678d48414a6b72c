"""The PySpark data source `jetstream`: what Spark calls, on the driver and on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructField, StructType

from vstream.audit.connector import stream_snapshots
from vstream.audit.connector.options import (
    Options,
    is_catalog_table,
    parse_options,
    parse_write_options,
    without_catalog_properties,
)
from vstream.audit.connector.pushdown import Bounds, push_filters
from vstream.audit.connector.reading import read_ranges
from vstream.audit.connector.spark_types import COLUMNS, ReadPartition, find_columns, make_arrow_schema
from vstream.audit.connector.streaming import JetStreamStreamReader
from vstream.audit.connector.values import Access, ReadSnapshot, StreamRef, group_tasks, split_tasks
from vstream.audit.connector.writing import JetStreamStreamWriter, JetStreamWriter
from vstream.errors import VstreamError

NAME = "jetstream"
_OPTIONS = "jetstream.options"
"""Key in the metadata of the first column: the options of a table in Spark's catalog."""


class JetStreamDataSource(DataSource):
    """Streams of NATS JetStream as tables. docs/spark-connector.md describes the options."""

    @classmethod
    def name(cls) -> str:
        """The name to use in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """The default columns, which `.schema(...)` overrides."""
        options = parse_options(self.options)
        asked = {"headers": options.headers, "payload": options.payload}
        usual = [*COLUMNS.names, *(name for name, is_asked in asked.items() if is_asked)]
        first, *rest = find_columns(options.columns or usual)
        if is_catalog_table(self.options):
            # Spark (4.3 at least) shows a table's options to whoever makes its schema, and not to whoever reads it.
            metadata = {_OPTIONS: without_catalog_properties(self.options)}
            first = StructField(first.name, first.dataType, nullable=first.nullable, metadata=metadata)
        return StructType([first, *rest])

    def reader(self, schema: StructType) -> JetStreamReader:
        """The reader of a batch query."""
        options = parse_options({**_options_of_table(schema), **self.options})
        return (FilteringReader if options.pushdown else JetStreamReader)(schema, options)

    def streamReader(self, schema: StructType) -> JetStreamStreamReader:
        """The reader of a streaming query."""
        return JetStreamStreamReader(schema, parse_options({**_options_of_table(schema), **self.options}))

    def writer(self, schema: StructType, overwrite: bool) -> JetStreamWriter:
        """The writer of a batch. Raises VstreamError if rows of *schema* cannot be written, or for *overwrite*."""
        _require_append(overwrite)
        return JetStreamWriter(schema, parse_write_options({**_options_of_table(schema), **self.options}))

    def streamWriter(self, schema: StructType, overwrite: bool) -> JetStreamStreamWriter:
        """The writer of a streaming query; raises as `writer`."""
        _require_append(overwrite)
        return JetStreamStreamWriter(schema, parse_write_options(self.options))


class JetStreamReader(DataSourceReader):
    """Plans ranges of sequences on the driver, and reads them on executors."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = make_arrow_schema(schema)
        self._options = options
        self._bounds = Bounds(
            first=options.start_seq,
            last=options.end_seq,
            since_ns=options.since_ns,
            until_ns=options.until_ns,
            subjects=options.subjects,
        )

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges up to the snapshot. Raises VstreamError if a stream cannot be read."""
        options = self._options
        access = {item.region: options.access for item in options.stream_refs}
        whole = take_readable(options.stream_refs, options.access, options.read_by)
        snapshots = [_ask_for_part(item, options.access, self._bounds) for item in whole]
        result = split_tasks(snapshots, access, rows=options.rows_per_task, subjects=self._bounds.subjects)
        return [ReadPartition(group) for group in group_tasks(result, rows=options.rows_per_task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the messages of its ranges."""
        # Spark asks for a partition without a value where there is none.
        return read_ranges(partition.ranges, self._schema) if isinstance(partition, ReadPartition) else iter(())


class FilteringReader(JetStreamReader):
    """
    A reader that accepts filters from Spark (filter pushdown).

    Off by default: Spark (at least 4.3.0) keeps the filters that one query has pushed down
    for every later use of the same DataFrame, and in a query that uses it twice applies the
    filters of one use to both. With this option, use a DataFrame only once.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Narrow the ranges by *filters*, and return the filters that Spark still has to apply."""
        self._bounds, rest = push_filters(filters, self._bounds)
        return rest


def _require_append(overwrite: bool) -> None:
    if overwrite:
        raise VstreamError("rows are appended to a stream, and replace nothing", hint='use mode("append")')


def _options_of_table(schema: StructType) -> dict[str, str]:
    metadata = schema.fields[0].metadata if schema.fields else {}
    return dict((metadata or {}).get(_OPTIONS, {}))


def take_readable(streams: Sequence[StreamRef], access: Access, path: str | None) -> list[ReadSnapshot]:
    """Like `take_snapshots`, for one place. Raises VstreamError if any of the streams cannot be read."""
    snapshots = stream_snapshots.take_snapshots(streams, {item.region: access for item in streams}, path=path)
    for entry in snapshots:
        if entry.error:
            raise VstreamError(f"stream `{entry.stream_ref.stream}` cannot be read: {entry.error}")
    return snapshots


def _ask_for_part(snapshot: ReadSnapshot, access: Access, bounds: Bounds) -> ReadSnapshot:
    """The part of *snapshot* within *bounds*; it has nothing to read if nothing is left."""
    is_out = bounds.streams is not None and snapshot.stream_ref.stream not in bounds.streams
    if is_out or (bounds.regions is not None and snapshot.stream_ref.region not in bounds.regions):
        return replace(snapshot, messages=0)
    clipped = snapshot.clip(first=bounds.first, last=bounds.last)
    return stream_snapshots.ask_for_period(clipped, access, since_ns=bounds.since_ns, until_ns=bounds.until_ns)
