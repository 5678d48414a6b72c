"""The tables `messages` and `streams`: read by tasks of Spark from servers, or by this process; written, and read back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from vstream.audit.connector import register
from vstream.audit.connector.options import DEFAULT_TASK_ROWS
from vstream.audit.connector.reading import make_group_reader
from vstream.audit.connector.spark_types import make_arrow_schema
from vstream.audit.connector.values import Access, ReadSnapshot, ReadTask, group_tasks, split_tasks
from vstream.audit.extract import server_access
from vstream.audit.extract.extract_plan import ExtractPlan
from vstream.audit.extract.extraction import ArrowTables, read_plan
from vstream.audit.request import uri_of
from vstream.audit.spark.local_frames import from_arrow, make_table
from vstream.audit.spark.session import is_local
from vstream.audit.spark.spark_errors import find_cause_line, is_damaged_file, suggest_rebuild
from vstream.audit.tables import inventory
from vstream.audit.tables.schema import MESSAGES, STREAMS, make_schema
from vstream.errors import VstreamError
from vstream.value_class import value_class

FORMAT = 5
_STATE_WRITING = "writing"
_STATE_COMPLETE = "complete"
_STATE_SCHEMA = make_schema("format int, state string, messages bigint")
_MIN_TASK_ROWS = 20_000
"""Minimum number of messages in a task."""


@value_class
class AuditTables:
    """What is judged: DataFrames of `schema.MESSAGES` and `schema.STREAMS`."""

    messages: DataFrame
    streams: DataFrame


def to_spark(spark: SparkSession, extracted: ArrowTables) -> AuditTables:
    """Convert tables that were extracted without Spark to DataFrames."""
    return AuditTables(
        messages=from_arrow(spark, extracted.messages, MESSAGES), streams=make_table(spark, extracted.streams, STREAMS)
    )


def extract_tables(spark: SparkSession, plan: ExtractPlan, scratch: Path, uri: str | None = None) -> AuditTables:
    """
    The tables of *plan*, whose messages tasks of Spark read from servers once.

    They are written below *uri* (as `write_tables` does), if that is given, else to where Spark reads them soonest.
    *scratch* holds the credentials for executors. Even if only some subjects are read, `streams` counts all messages.
    Raises as `extraction.read_plan`.
    """
    if uri is not None:
        _begin_tables(spark, uri)
        written = read_plan(plan, SparkFiles(spark=spark, scratch=scratch, uri=f"{uri}/messages"))
        if written.arrivals.num_rows:
            from_arrow(spark, written.arrivals, MESSAGES).write.mode("append").parquet(f"{uri}/messages")
        _complete_tables(uri, make_table(spark, written.streams, STREAMS))
        return read_tables(spark, uri)
    sink: type[ScratchFiles | ExecutorMemory] = ScratchFiles if is_local(spark) else ExecutorMemory
    extraction = read_plan(plan, sink(spark=spark, scratch=scratch))
    messages = add_arrivals(extraction.messages, extraction.arrivals)
    return AuditTables(messages=messages, streams=make_table(spark, extraction.streams, STREAMS))


@value_class
class ScratchFiles:
    """
    Files in *scratch* on this machine, which Python writes.

    It takes a third of the time of passing rows to Java, which would write them.
    """

    spark: SparkSession
    scratch: Path

    def load(self, plan: ExtractPlan) -> DataFrame:
        """The messages of *plan*, as read from the files."""
        root = self.scratch / "messages"
        # Tasks of a first try that failed may go on for a while: they find nowhere to write.
        shutil.rmtree(root, ignore_errors=True)
        directory = root / str(uuid4())
        directory.mkdir(parents=True)
        _read_groups(self.spark, _plan_groups(self.spark, plan.parts, plan.access), MESSAGES, directory).count()
        return self.spark.read.schema(MESSAGES).parquet(uri_of(str(directory)))


@value_class
class ExecutorMemory:
    """The memory of the executors of a cluster, which get the credentials in *scratch*."""

    spark: SparkSession
    scratch: Path

    def load(self, plan: ExtractPlan) -> DataFrame:
        """The messages of *plan*, as they are in memory."""
        messages = _read_by_executors(self.spark, plan, self.scratch).persist()
        messages.count()
        return messages


@value_class
class SparkFiles:
    """Files at *uri*, any place that Spark can write to; executors get the credentials in *scratch*."""

    spark: SparkSession
    scratch: Path
    uri: str

    def load(self, plan: ExtractPlan) -> None:
        """Replace the files by the messages of *plan*."""
        _read_by_executors(self.spark, plan, self.scratch).write.mode("overwrite").parquet(self.uri)


def _read_by_executors(spark: SparkSession, plan: ExtractPlan, scratch: Path) -> DataFrame:
    """A lazy DataFrame of the messages of *plan*, read with the credentials that executors are sent from *scratch*."""
    access = plan.access if is_local(spark) else server_access.ship_to_executors(spark, plan.access, scratch)
    return read_live_messages(spark, plan.parts, access)


def add_arrivals(messages: DataFrame, arrivals: pa.Table) -> DataFrame:
    """*messages* with further ones (`schema.MESSAGES`)."""
    return (
        messages.unionByName(from_arrow(messages.sparkSession, arrivals, MESSAGES)) if arrivals.num_rows else messages
    )


def read_live_messages(
    spark: SparkSession,
    snapshots: Sequence[ReadSnapshot],
    access: Mapping[str, Access],
    columns: StructType = MESSAGES,
) -> DataFrame:
    """
    A lazy DataFrame of the messages of *snapshots*, with enough tasks to keep all cores busy.

    Every action reads the streams again, up to the same snapshot, and gets the messages that are still stored then.
    """
    return _read_groups(spark, _plan_groups(spark, snapshots, access), columns)


def _plan_groups(
    spark: SparkSession, snapshots: Sequence[ReadSnapshot], access: Mapping[str, Access]
) -> list[tuple[ReadTask, ...]]:
    register(spark)
    cores = 2 if not hasattr(spark, "_jvm") else spark.sparkContext.defaultParallelism
    total = sum(snapshot.messages for snapshot in snapshots if snapshot.is_readable)
    # A few tasks for each core even out what is slower than the rest.
    rows = max(_MIN_TASK_ROWS, min(DEFAULT_TASK_ROWS, -(-total // (4 * cores))))
    return group_tasks(split_tasks(snapshots, access, rows=rows), rows=rows)


def _read_groups(
    spark: SparkSession, groups: Sequence[Sequence[ReadTask]], columns: StructType, directory: Path | None = None
) -> DataFrame:
    # The data source `jetstream` would be planned in processes of its own.
    numbers = spark.range(0, len(groups), 1, max(1, len(groups)))
    return numbers.mapInArrow(make_group_reader(groups, make_arrow_schema(columns), directory), columns)


def write_tables(tables: AuditTables, uri: str) -> None:
    """
    Write *tables* as Parquet below *uri*, which is any place that Spark can write to. Replaces tables there.

    Each file of `messages` contains a range of one stream, or some small ones, so that readers can skip files by
    their statistics. Until everything is written, `read_tables` refuses the tables. Results that later
    stages computed from the replaced messages are not read again (`TableStore.read_earlier`).
    """
    _begin_tables(tables.messages.sparkSession, uri)
    tables.messages.write.mode("overwrite").parquet(f"{uri}/messages")
    _complete_tables(uri, tables.streams)


def store_tables(tables: AuditTables, uri: str | None) -> AuditTables:
    """*tables*, written to *uri* and read back from there; unchanged without one."""
    if uri is None:
        return tables
    write_tables(tables, uri)
    return read_tables(tables.messages.sparkSession, uri)


def _begin_tables(spark: SparkSession, uri: str) -> None:
    """Note that the tables at *uri* are incomplete from now on."""
    _write_state(spark, uri, _STATE_WRITING)
    inventory.clear(spark, uri)


def _complete_tables(uri: str, streams: DataFrame) -> None:
    """Write *streams* to the tables at *uri*, whose messages have been written."""
    spark = streams.sparkSession
    streams.coalesce(1).write.mode("overwrite").parquet(f"{uri}/streams")
    _write_state(spark, uri, _STATE_COMPLETE, messages=spark.read.parquet(f"{uri}/messages").count())


def read_tables(spark: SparkSession, uri: str) -> AuditTables:
    """Read what `write_tables` wrote. Raises VstreamError if there are no tables, or if they are incomplete."""
    try:
        state = spark.read.schema(_STATE_SCHEMA).json(f"{uri}/state").collect()
    except Exception as error:
        why = str(error)
        if "PATH_NOT_FOUND" not in why:
            raise VstreamError(f"`{uri}` cannot be read: {find_cause_line(why)}") from error
        raise VstreamError(
            f"`{uri}` holds no tables of an audit", hint="`vstream audit --tables` writes them; is the address right?"
        ) from error
    if [(item.format, item.state) for item in state] != [(FORMAT, _STATE_COMPLETE)]:
        raise VstreamError(f"the tables in `{uri}` are incomplete or of another version", hint="extract them again")
    messages = read_checked(spark, f"{uri}/messages", MESSAGES)
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


def read_checked(spark: SparkSession, place: str, schema: StructType) -> DataFrame:
    """
    Read the table at *place*, which must have the columns of *schema*.

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
    return spark.read.schema(schema).parquet(place)


def _write_state(spark: SparkSession, uri: str, state: str, *, messages: int | None = None) -> None:
    values = zip(_STATE_SCHEMA.fields, (FORMAT, state, messages), strict=True)
    columns = [F.lit(value).cast(item.dataType).alias(item.name) for item, value in values]
    spark.range(1).select(*columns).write.mode("overwrite").json(f"{uri}/state")
