"""Judge: compare what clients were told with what is stored. Unanswered publishes are neither lost nor failed."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from vstream.audit.connector.stream_snapshots import SKEW_NS
from vstream.audit.finding_kinds import FindingKind
from vstream.audit.reconcile.classify import DIFFERENCES
from vstream.audit.spark.local_frames import make_table
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.stream_facts import StreamFacts
from vstream.capture.digest import to_signed_int64
from vstream.capture.records import OperationKind, OperationOutcome
from vstream.capture.store import Capture

JOURNAL = make_schema("""
    virtual string not null, region string not null, outcome string not null, origin string, origin_seq bigint,
    digest bigint, sent_ns bigint not null
""")
"""
Columns of JOURNAL, one row for each publish. *outcome* is a value of `capture.records.OperationOutcome`, *origin*
and *origin_seq* are those of the acknowledgement, *digest* is computed as in `messages`. *sent_ns* is in nanoseconds
since 1970.
"""

PUBLISH_OUTCOMES = make_schema("""
    virtual string not null, region string not null, outcome string not null, publishes bigint not null,
    stored bigint not null
""")
"""By region and outcome: the number of publishes, and of those whose payload is stored anywhere."""


def make_journal_table(spark: SparkSession, capture: Capture) -> DataFrame:
    """The publishes of *capture*, as a DataFrame of JOURNAL."""
    wall = capture.manifest().wall
    rows = []
    for operation in capture.operations():
        if operation.kind is OperationKind.PUBLISH:
            rows.append(
                (
                    operation.stream,
                    operation.region,
                    operation.outcome.value,
                    operation.acked_by,
                    operation.seq if operation.acked_by is not None else None,
                    to_signed_int64(operation.digest) if operation.digest else None,
                    wall + operation.sent,
                )
            )
    return make_table(spark, rows, JOURNAL)


def count_outcomes(journal: DataFrame, copies: DataFrame) -> DataFrame:
    """Count the publishes of `journal` by region and outcome, as a DataFrame of PUBLISH_OUTCOMES."""
    stored = copies.select("virtual", "digest").distinct().withColumn("is_stored", F.lit(True))
    return (
        journal.join(stored, ["virtual", "digest"], how="left")
        .groupBy("virtual", "region", "outcome")
        .agg(F.count(F.lit(1)).alias("publishes"), F.count("is_stored").alias("stored"))
    )


def find_broken_promises(journal: DataFrame, copies: DataFrame, facts: StreamFacts) -> DataFrame:
    """DIFFERENCES that only the journal shows: acknowledged but missing, overwritten, refused but stored, or never sent."""
    return (
        _find_lost_or_overwritten(journal, copies, facts)
        .unionByName(_find_refused(journal, copies))
        .unionByName(_find_unpublished(journal, copies))
    )


def _find_lost_or_overwritten(journal: DataFrame, copies: DataFrame, facts: StreamFacts) -> DataFrame:
    message = ["virtual", "origin", "origin_seq"]
    acked = journal.where((F.col("outcome") == OperationOutcome.OK.value) & F.col("origin").isNotNull())
    stored = (
        copies.where(F.col("former") == "")
        .join(acked.select(*message).distinct(), message, how="left_semi")
        .groupBy(*message)
        .agg(
            F.min(F.when(F.col("is_origin"), F.col("digest"))).alias("own"),
            F.collect_set(F.when(~F.col("is_origin"), F.col("digest"))).alias("theirs"),
        )
    )
    everywhere = copies.select("virtual", "digest").distinct().withColumn("is_stored", F.lit(True))
    # Where limits remove messages from origin and readers, nothing says whether they were there.
    forgets = facts.expected.groupBy("virtual", "origin").agg(
        F.bool_or(F.col("may_lose_oldest") | F.col("may_lose_any") | F.col("keeps").isNotNull()).alias("forgets")
    )
    seq = F.col("origin_seq")
    # A message that was sent later than `max_age` ago has not been removed for its age.
    is_old = F.coalesce(F.col("sent_ns") - SKEW_NS + F.col("origin_max_age") <= F.col("origin_read_ns"), F.lit(True))
    may_be_gone = F.when(seq < F.col("origin_first"), F.col("origin_may_lose_oldest") & is_old).otherwise(
        F.col("origin_may_lose_any")
    )
    is_nowhere = F.col("own").isNull() & (F.size(F.coalesce("theirs", F.array())) == 0)
    is_forgotten = F.coalesce(may_be_gone & F.col("forgets"), F.lit(False))
    # A stream that acknowledges for a virtual stream without being one of its origins has taken messages that belong there.
    is_astray = F.col("is_known").isNull() & F.col("is_stored").isNull()
    kind = F.when(
        is_astray | (is_nowhere & F.col("origin_last").isNotNull() & ~is_forgotten), F.lit(FindingKind.ACKED_LOST)
    ).when(F.col("own") != F.col("sent_digest"), F.lit(FindingKind.OVERWRITTEN))
    return _as_differences(
        acked.withColumnRenamed("digest", "sent_digest")
        .join(stored, message, how="left")
        .join(everywhere.withColumnRenamed("digest", "sent_digest"), ["virtual", "sent_digest"], how="left")
        .join(F.broadcast(facts.origins.withColumn("is_known", F.lit(True))), ["virtual", "origin"], how="left")
        .join(F.broadcast(forgets), ["virtual", "origin"], how="left")
        .withColumns({"kind": kind, "stream": F.col("origin"), "time_ns": F.col("sent_ns")})
        .where(F.col("kind").isNotNull())
    )


def _find_refused(journal: DataFrame, copies: DataFrame) -> DataFrame:
    refused = journal.where(F.col("outcome") == OperationOutcome.REJECTED.value).select("virtual", "digest").distinct()
    return _as_differences(
        copies.where("is_origin")
        .join(refused, ["virtual", "digest"], how="left_semi")
        .withColumn("kind", F.lit(FindingKind.REFUSED_STORED))
    )


def _find_unpublished(journal: DataFrame, copies: DataFrame) -> DataFrame:
    told = journal.groupBy("virtual").agg(F.count("digest").alias("known"), F.count(F.lit(1)).alias("all"))
    complete = told.where(F.col("known") == F.col("all")).select("virtual")
    return _as_differences(
        copies.where("is_origin")
        .join(F.broadcast(complete), ["virtual"], how="left_semi")
        .join(journal.select("virtual", "digest"), ["virtual", "digest"], how="left_anti")
        .withColumn("kind", F.lit(FindingKind.UNPUBLISHED))
    )


def _as_differences(rows: DataFrame) -> DataFrame:
    return rows.withColumns(
        {
            "former": F.lit(""),
            "seq": F.col("origin_seq"),
            "number": F.lit(1).cast("bigint"),
            **({} if "key" in rows.columns else {"key": F.lit(None).cast("string")}),
        }
    ).select(*DIFFERENCES.names)
