"""
The tables `messages` and `streams`, from servers or from a capture.

DataFrames from servers are lazy: every action reads the streams again, up to the same cut, and gets the messages that
are still stored then. Write them to files first (`write_tables`), and judge the files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from vstream.audit import inventory, server_access
from vstream.audit.extract import Arrivals, ExtractedTables, ExtractPlan, read_since_cuts
from vstream.audit.local_frames import from_arrow, make_table
from vstream.audit.request import HERE
from vstream.audit.schema import HEADERS, MESSAGES, PAYLOAD, STREAMS, make_schema
from vstream.audit.session import is_local
from vstream.audit.source import register
from vstream.audit.source.options import ROWS
from vstream.audit.source.reading import make_group_reader
from vstream.audit.source.spark_types import make_arrow_schema
from vstream.audit.source.values import Access, ReadTask, StreamCut, group_tasks, split_tasks
from vstream.audit.spark_errors import find_cause_line, is_damaged_file, suggest_rebuild
from vstream.errors import VstreamError
from vstream.value_class import value_class

FORMAT = 4
_WRITING = "writing"
_COMPLETE = "complete"
_STATE = make_schema("format int, state string, messages bigint")
_ROWS_AT_LEAST = 20_000
"""Minimum number of messages in a task."""


@value_class
class AuditTables:
    """The result of an extraction: DataFrames of `schema.MESSAGES` and `schema.STREAMS`."""

    messages: DataFrame
    streams: DataFrame
    plan: ExtractPlan | None = field(default=None, repr=False)
    """What reading *messages* reads from servers; None for other tables."""
    groups: tuple[tuple[ReadTask, ...], ...] = field(default=(), repr=False)
    """What tasks of Spark read for all of *messages*, on this machine; empty for other tables."""

    def finish_reading(self) -> tuple[pa.Table, DataFrame]:
        """When *messages* were just read: further ones, which came meanwhile (`read_since_cuts`), and `streams`."""
        schema, spark = to_arrow_schema(self.messages.schema), self.messages.sparkSession
        if self.plan is None:
            return schema.empty_table(), self.streams
        arrivals = read_since_cuts(self.plan, schema)
        return pa.Table.from_batches(arrivals.batches, schema), make_table(
            spark, self.plan.stream_rows(arrivals), STREAMS
        )


def read_live_tables(
    spark: SparkSession, plan: ExtractPlan, scratch: Path, *, headers: bool = False, payload: bool = False
) -> AuditTables:
    """
    The messages *plan*, as DataFrames that executors read from the servers.

    Even if only some subjects are read, `streams` counts all messages. *scratch* holds
    the credentials for executors and must exist until the tables are read.
    """
    columns = StructType([*MESSAGES.fields, *([HEADERS] if headers else []), *([PAYLOAD] if payload else [])])
    register(spark)
    access = plan.access if is_local(spark) else server_access.ship_to_executors(spark, plan.access, scratch)
    groups = _plan_groups(spark, plan.read, access)
    return AuditTables(
        messages=_read_groups(spark, groups, columns),
        streams=make_table(spark, plan.stream_rows(Arrivals([], {})), STREAMS),
        plan=plan,
        groups=tuple(groups) if is_local(spark) else (),
    )


def to_spark(spark: SparkSession, extracted: ExtractedTables) -> AuditTables:
    """Convert tables that were extracted without Spark to DataFrames."""
    return AuditTables(
        messages=from_arrow(spark, extracted.messages, MESSAGES), streams=make_table(spark, extracted.streams, STREAMS)
    )


def read_live_messages(
    spark: SparkSession, cuts: Sequence[StreamCut], access: Mapping[str, Access], columns: StructType = MESSAGES
) -> DataFrame:
    """A lazy DataFrame of the messages of *cuts*, with enough tasks to keep all cores busy."""
    return _read_groups(spark, _plan_groups(spark, cuts, access), columns)


def _plan_groups(
    spark: SparkSession, cuts: Sequence[StreamCut], access: Mapping[str, Access]
) -> list[tuple[ReadTask, ...]]:
    cores = 2 if not hasattr(spark, "_jvm") else spark.sparkContext.defaultParallelism
    total = sum(cut.messages for cut in cuts if cut.is_readable)
    # A few tasks for each core even out what is slower than the rest.
    rows = max(_ROWS_AT_LEAST, min(ROWS, -(-total // (4 * cores))))
    return group_tasks(split_tasks(cuts, access, rows=rows), rows=rows)


def _read_groups(
    spark: SparkSession, groups: Sequence[Sequence[ReadTask]], columns: StructType, directory: Path | None = None
) -> DataFrame:
    # The data source `jetstream` would be planned in processes of its own.
    numbers = spark.range(0, len(groups), 1, max(1, len(groups)))
    return numbers.mapInArrow(make_group_reader(groups, make_arrow_schema(columns), directory), columns)


def virtual_names(tables: AuditTables) -> set[str]:
    """The names of the virtual streams in *tables*."""
    return {item.virtual for item in tables.streams.select("virtual").distinct().collect()}


def select_virtuals(tables: AuditTables, virtuals: Sequence[str]) -> AuditTables:
    """The rows of *tables* about *virtuals*."""
    requested = F.col("virtual").isin(list(virtuals))
    return AuditTables(messages=tables.messages.where(requested), streams=tables.streams.where(requested))


def write_tables(tables: AuditTables, uri: str) -> None:
    """
    Write *tables* as Parquet below *uri*, which is any place that Spark can write to. Replaces tables there.

    Each file of `messages` contains a range of one stream, or some small ones, so that readers can skip files by
    their statistics. Until everything is written, `read_tables` refuses the tables. Results that later
    stages computed from the replaced messages are not read again (`TableStore.read_earlier`).
    """
    spark = tables.messages.sparkSession
    _write_state(spark, uri, _WRITING)
    inventory.clear(spark, uri)
    tables.messages.write.mode("overwrite").parquet(f"{uri}/messages")
    arrivals, streams = tables.finish_reading()
    if arrivals.num_rows:
        from_arrow(spark, arrivals, tables.messages.schema).write.mode("append").parquet(f"{uri}/messages")
    streams.coalesce(1).write.mode("overwrite").parquet(f"{uri}/streams")
    _write_state(spark, uri, _COMPLETE, messages=spark.read.parquet(f"{uri}/messages").count())


def materialize(tables: AuditTables, uri: str) -> AuditTables:
    """
    Read the messages of *tables* once into files at *uri*, and return tables that read these files.

    For a single audit, which writes and reads them itself. Skips the completeness marks and checks of `write_tables`,
    which are Spark jobs that cost a small audit seconds.
    """
    messages, spark = tables.messages, tables.messages.sparkSession
    if tables.groups:
        # Tasks of a first try that failed may go on for a while: they find nowhere to write.
        shutil.rmtree(uri.removeprefix(HERE), ignore_errors=True)
        uri = f"{uri}/{uuid4()}"
        path = Path(uri.removeprefix(HERE))
        path.mkdir(parents=True)
        # A third of what it takes to pass rows to Java, which would write them.
        _read_groups(spark, tables.groups, messages.schema, path).count()
    else:
        messages.write.mode("overwrite").parquet(uri)
    result = spark.read.schema(messages.schema).parquet(uri)
    arrivals, streams = tables.finish_reading()
    return AuditTables(messages=_add_rows(result, arrivals), streams=streams)


def cache_messages(tables: AuditTables) -> AuditTables:
    """Read the messages of *tables* once into the memory of executors, and return these tables."""
    messages = tables.messages.persist()
    messages.count()
    arrivals, streams = tables.finish_reading()
    return AuditTables(messages=_add_rows(messages, arrivals), streams=streams)


def _add_rows(messages: DataFrame, rows: pa.Table) -> DataFrame:
    return messages.unionByName(from_arrow(messages.sparkSession, rows, messages.schema)) if rows.num_rows else messages


def read_tables(spark: SparkSession, uri: str) -> AuditTables:
    """Read what `write_tables` wrote. Raises VstreamError if there are no tables, or if they are incomplete."""
    try:
        state = spark.read.schema(_STATE).json(f"{uri}/state").collect()
    except Exception as error:
        why = str(error)
        if "PATH_NOT_FOUND" not in why:
            raise VstreamError(f"`{uri}` cannot be read: {find_cause_line(why)}") from error
        raise VstreamError(
            f"`{uri}` holds no tables of an audit", hint="`vstream audit --tables` writes them; is the address right?"
        ) from error
    if [(item.format, item.state) for item in state] != [(FORMAT, _COMPLETE)]:
        raise VstreamError(f"the tables in `{uri}` are incomplete or of another version", hint="extract them again")
    messages = read_checked(spark, f"{uri}/messages", MESSAGES, optional=(HEADERS, PAYLOAD))
    # What a file had that is gone now would be taken for lost in its region.
    rows, written = messages.count(), state[0].messages
    if rows != written:
        raise VstreamError(
            f"the table `{uri}/messages` has {rows:,} rows, but {written:,} were written: a file is missing or was added",
            hint="extract the tables again",
        )
    return AuditTables(messages=messages, streams=read_checked(spark, f"{uri}/streams", STREAMS))


def count_extracted(directory: Path) -> int | None:
    """The number of messages that `write_tables` wrote to the local *directory*; None if only Spark could tell."""
    try:
        # One row, in one of the files of all tasks.
        written = "".join(item.read_text(encoding="utf-8") for item in (directory / "state").glob("part-*.json"))
        return int(json.loads(written)["messages"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_checked(
    spark: SparkSession, place: str, schema: StructType, optional: Sequence[StructField] = ()
) -> DataFrame:
    """
    Read the table at *place*, which must have the columns of *schema*, and may lack the *optional* ones.

    Spark would read a missing column as null, and all messages would look alike.
    Raises VstreamError if there is no table or its columns differ, and Spark's own error for a damaged file.
    """
    name = place.rpartition("/")[2]
    try:
        result = {field.name: field.dataType for field in spark.read.parquet(place).schema.fields}
    except Exception as error:
        if is_damaged_file(error):
            raise
        raise VstreamError(f"there is no table `{place}`", hint=suggest_rebuild(name)) from error
    for entry in schema.fields:
        if entry.name not in result:
            raise VstreamError(f"the table `{place}` has no column `{entry.name}`", hint=suggest_rebuild(name))
        if result[entry.name].simpleString() != entry.dataType.simpleString():
            kinds = f"{result[entry.name].simpleString()}, not {entry.dataType.simpleString()}"
            raise VstreamError(f"column `{entry.name}` of the table `{place}` is {kinds}", hint=suggest_rebuild(name))
    more = [item for item in optional if item.name in result]
    return spark.read.schema(StructType([*schema.fields, *more])).parquet(place)


def _write_state(spark: SparkSession, uri: str, state: str, *, messages: int | None = None) -> None:
    values = zip(_STATE.fields, (FORMAT, state, messages), strict=True)
    columns = [F.lit(value).cast(item.dataType).alias(item.name) for item, value in values]
    spark.range(1).select(*columns).write.mode("overwrite").json(f"{uri}/state")
