"""
The tables `messages` and `streams`, from servers, from a capture, or from a snapshot of them.

DataFrames from servers are lazy: every action on them reads the streams again, up to
the same cut, and finds what of it is still stored then. Write them down first
(`write_tables`), and judge that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from vstream.audit import access as reaching
from vstream.audit.cut import OLDEST_FIRST, is_origin
from vstream.audit.failure import is_damage, said
from vstream.audit.identity import identity_of
from vstream.audit.sample import sample
from vstream.audit.schema import HEADERS, MESSAGES, PAYLOAD, STREAMS
from vstream.audit.session import is_local
from vstream.audit.source import cut
from vstream.audit.source.datasource import NAME, narrowed
from vstream.audit.source.options import ROWS
from vstream.audit.source.pushdown import Bounds
from vstream.audit.source.values import ABSENT, Plan, Wanted, encode
from vstream.errors import NotReachableError, VstreamError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from vstream.audit.source.values import Access, Cut
    from vstream.model.artifacts import PhysicalStream
    from vstream.model.topology import Endpoint

FORMAT = 2
_WRITING = "writing"
_COMPLETE = "complete"
_STATE = StructType(
    [StructField("format", IntegerType()), StructField("state", StringType()), StructField("messages", LongType())]
)
_BEHIND_NS = 5 * 10**9
"""How far the clock of a reader's server may be behind that of the server where a message was written."""
_ROWS_AT_LEAST = 20_000
"""Messages that are worth a task of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What extraction gives: DataFrames of `schema.MESSAGES` and `schema.STREAMS`."""

    messages: DataFrame
    streams: DataFrame


def live(
    spark: SparkSession,
    streams: Sequence[PhysicalStream],
    endpoints: Mapping[str, Endpoint],
    scratch: Path,
    *,
    path: str | None = None,
    since_ns: int | None = None,
    subjects: int | None = None,
    headers: bool = False,
    payload: bool = False,
) -> Tables:
    """
    What servers hold of *streams* at this moment, write streams looked at first.

    A stream that cannot be asked is in `streams` with its error. With *since_ns*
    (nanoseconds since 1970) streams are read from the first message stored then, and
    `streams` says so in `first_seq`. With *subjects*, so many subjects of each virtual
    stream are read, chosen by chance, and `streams` counts all messages as ever. *scratch* holds secrets for as long as the tables are read. Raises
    NotReachableError if no stream at all can be read, VstreamError for a credential
    that is missing.
    """
    wanted = [
        Wanted(stream=one.config.name, region=one.region, virtual=one.virtual, role=one.role.value) for one in streams
    ]
    access = reaching.places(wanted, endpoints, scratch)
    cuts = some(cut.take(wanted, access, path=path))
    if since_ns is not None:
        cuts = [_since(one, access[one.wanted.region], since_ns) for one in cuts]
    read = cuts if subjects is None else sample(cuts, streams, access, number=subjects).cuts
    columns = StructType([*MESSAGES.fields, *([HEADERS] if headers else []), *([PAYLOAD] if payload else [])])
    return Tables(
        messages=messages(
            spark, read, access if is_local(spark) else reaching.shipped(spark, access, scratch), columns
        ),
        streams=spark.createDataFrame([row(one) for one in cuts], STREAMS),
    )


def _since(one: Cut, access: Access, since_ns: int) -> Cut:
    """What *one* has stored since a moment, with what is before it in readers: their clocks may be behind."""
    if one.error is not None:
        return one
    narrow = narrowed(one, access, Bounds(since_ns=since_ns if is_origin(one.wanted) else since_ns - _BEHIND_NS))
    # What arrives late of an origin that has written nothing since is older, too.
    first = narrow.first_seq if narrow.messages else one.last_seq + 1
    return unlimited(replace(narrow, first_seq=first, messages=one.messages if narrow.messages else 0), one)


def unlimited(narrow: Cut, one: Cut) -> Cut:
    """
    *narrow*, which begins later than *one* does, without limits that have taken nothing from it.

    Those that take the oldest messages first have not come to it while there are older ones.
    """
    if is_origin(one.wanted) or one.limits is None or not one.messages or one.first_seq >= narrow.first_seq:
        return narrow
    return replace(narrow, limits={name: some for name, some in one.limits.items() if name not in OLDEST_FIRST})


def stored(streams: Sequence[PhysicalStream], endpoints: Mapping[str, Endpoint], scratch: Path) -> int:
    """
    How many messages *streams* hold now, those that can be asked; needs no Spark.

    Raises NotReachableError if none of them can be.
    """
    wanted = [
        Wanted(stream=one.config.name, region=one.region, virtual=one.virtual, role=one.role.value) for one in streams
    ]
    access = reaching.places(wanted, endpoints, scratch)
    return sum(one.messages for one in some(cut.take(wanted, access)))


def some(cuts: list[Cut]) -> list[Cut]:
    """*cuts*, if any of them is one. Raises NotReachableError if no stream at all can be read, and says why."""
    if not cuts or not all(one.error for one in cuts):
        return cuts
    if all(one.error == ABSENT for one in cuts):
        raise NotReachableError(
            f"none of the {len(cuts)} streams exists",
            hint="`vstream apply` creates them; or is this another topology's account or lab?",
        )
    raise NotReachableError(f"no stream can be read: {cuts[0].error}", hint="are the servers running?")


def messages(
    spark: SparkSession, cuts: Sequence[Cut], access: Mapping[str, Access], columns: StructType = MESSAGES
) -> DataFrame:
    """The messages of *cuts*, in as many tasks as keep all cores busy."""
    cores = 2 if not hasattr(spark, "_jvm") else spark.sparkContext.defaultParallelism
    total = sum(one.messages for one in cuts if one.is_readable)
    # A few tasks for each core even out what is slower than the rest.
    rows = max(_ROWS_AT_LEAST, min(ROWS, -(-total // (4 * cores))))
    used = {one.wanted.region for one in cuts}
    plan = Plan(access={region: one for region, one in access.items() if region in used}, cuts=tuple(cuts))
    reader = spark.read.schema(columns).format(NAME)
    return reader.option("plan", encode(plan)).option("rows_per_task", str(rows)).load()


def row(one: Cut) -> tuple[Any, ...]:
    """*one* as a row of `schema.STREAMS`."""
    wanted = one.wanted
    is_read = one.error is None
    return (
        wanted.virtual,
        wanted.stream,
        wanted.region,
        wanted.role,
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
        identity_of(one.created) if one.created else None,
        one.mirror,
        one.transform,
    )


def virtuals(tables: Tables) -> set[str]:
    """The virtual streams that *tables* are about."""
    return {one.virtual for one in tables.streams.select("virtual").distinct().collect()}


def only(tables: Tables, virtuals: Sequence[str]) -> Tables:
    """What *tables* say of some virtual streams."""
    wanted = F.col("virtual").isin(list(virtuals))
    return Tables(messages=tables.messages.where(wanted), streams=tables.streams.where(wanted))


def write_tables(tables: Tables, uri: str) -> None:
    """
    Write *tables* as Parquet below *uri*, any place that Spark can write to, over what was there.

    Each file of `messages` holds a range of one stream, so that its statistics tell
    readers what they can skip. Until everything is written, `read_tables` refuses it.
    """
    spark = tables.messages.sparkSession
    _mark(spark, uri, _WRITING)
    tables.messages.write.mode("overwrite").parquet(f"{uri}/messages")
    tables.streams.coalesce(1).write.mode("overwrite").parquet(f"{uri}/streams")
    _mark(spark, uri, _COMPLETE, messages=spark.read.parquet(f"{uri}/messages").count())


def held(tables: Tables, uri: str) -> Tables:
    """
    *tables* whose messages were read once, and are in files at *uri* from now on.

    For one audit, which writes and reads them itself: nothing is marked and nothing checked as in `write_tables`,
    which are jobs of Spark's that take a small audit seconds.
    """
    messages = tables.messages
    messages.write.mode("overwrite").parquet(uri)
    return replace(tables, messages=messages.sparkSession.read.schema(messages.schema).parquet(uri))


def read_tables(spark: SparkSession, uri: str) -> Tables:
    """What `write_tables` wrote. Raises VstreamError if there is nothing, or if it is not complete any more."""
    try:
        state = spark.read.schema(_STATE).json(f"{uri}/state").collect()
    except Exception as error:
        why = str(error)
        if "PATH_NOT_FOUND" not in why:
            raise VstreamError(f"`{uri}` cannot be read: {said(why)}") from error
        raise VstreamError(
            f"`{uri}` holds no tables of an audit", hint="`vstream audit --tables` writes them; is the address right?"
        ) from error
    if [(one.format, one.state) for one in state] != [(FORMAT, _COMPLETE)]:
        raise VstreamError(f"the tables in `{uri}` are not complete, or of another version", hint="extract them again")
    messages = checked(spark, f"{uri}/messages", MESSAGES, optional=(HEADERS, PAYLOAD))
    # What a file had that is gone now would be taken for lost in its region.
    rows, written = messages.count(), state[0].messages
    if rows != written:
        raise VstreamError(
            f"the table `{uri}/messages` has {rows:,} rows, and had {written:,} when it was written: a file is missing, or there is another",
            hint="extract the tables again",
        )
    return Tables(messages=messages, streams=checked(spark, f"{uri}/streams", STREAMS))


def checked(spark: SparkSession, place: str, schema: StructType, optional: Sequence[StructField] = ()) -> DataFrame:
    """
    The table at *place*, which must have the columns of *schema*, and may have the *optional* ones.

    Spark would read a column that is not there as null, and all messages would be alike.
    Raises VstreamError if there is no table, or another one; of a file that is damaged, Spark's own error.
    """
    try:
        found = {one.name: one.dataType for one in spark.read.parquet(place).schema.fields}
    except Exception as error:
        if is_damage(error):
            raise
        raise VstreamError(f"there is no table `{place}`", hint="begin at an earlier stage with `--from`") from error
    for one in schema.fields:
        if one.name not in found:
            raise VstreamError(f"the table `{place}` has no column `{one.name}`", hint="extract the tables again")
        if found[one.name].simpleString() != one.dataType.simpleString():
            kinds = f"{found[one.name].simpleString()}, not {one.dataType.simpleString()}"
            raise VstreamError(
                f"column `{one.name}` of the table `{place}` is {kinds}", hint="extract the tables again"
            )
    more = [one for one in optional if one.name in found]
    return spark.read.schema(StructType([*schema.fields, *more])).parquet(place)


def _mark(spark: SparkSession, uri: str, state: str, *, messages: int | None = None) -> None:
    told = [
        F.lit(value).cast(one.dataType).alias(one.name)
        for one, value in zip(_STATE.fields, (FORMAT, state, messages), strict=True)
    ]
    spark.range(1).select(*told).write.mode("overwrite").json(f"{uri}/state")
