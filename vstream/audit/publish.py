"""Results of an audit as tables of a catalog, where others query them: Delta Lake, Iceberg, or what the cluster has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vstream.audit import classify, client_journal, delays, keys
from vstream.audit.local_frames import make_table
from vstream.audit.scratch import is_scratch
from vstream.audit.session import is_local
from vstream.audit.spark_errors import explain_spark_errors
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from vstream.audit.table_store import TableStore

RESULTS: Final[Mapping[str, StructType]] = {
    "faults": classify.FAULTS,
    "delays": delays.DELAYS,
    "settling": delays.SETTLING,
    "pairs": delays.PAIRS,
    "disputes": keys.DISPUTES,
    "conflicts": keys.CONFLICTS,
    "twins": keys.TWINS,
    "answers": client_journal.ANSWERS,
}
"""The tables that say what was found; the others are steps on the way."""


_TRIED: Final = "vstream_audit_tried"


def check_catalog(spark: SparkSession, into: str, kind: str) -> None:
    """
    Write and drop an empty table in *into*, as `publish` will write: an audit may take an hour, and needs somewhere to go.

    Raises VstreamError with what Spark says if there is no such format or schema, or no right to write there; and where
    the schema is of a session of ours (`session`), whose catalog and files are gone when it ends.
    """
    with explain_spark_errors():
        make_table(spark, [], classify.FAULTS).write.format(kind).mode("overwrite").saveAsTable(f"{into}.{_TRIED}")
        place = _table_location(spark, f"{into}.{_TRIED}") if is_local(spark) else ""
        spark.sql(f"DROP TABLE {into}.{_TRIED}")
    if is_scratch(place):
        raise VstreamError(
            f"tables in `{into}` would be gone when the audit ends: this Spark has no catalog that lasts",
            hint="`--master` or `--remote` names a cluster that has one; `--tables DIR` keeps the tables as files",
        )


def _table_location(spark: SparkSession, name: str) -> str:
    """The URI of the table *name*, empty for one that has none."""
    told = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Location'").collect()
    return told[0].data_type if told else ""


def publish(shelf: TableStore, into: str, kind: str) -> None:
    """
    Write the results on *shelf* into the catalog's schema *into*, in the place of those of an earlier audit.

    What this audit had nothing to say of becomes an empty table. *kind* is the name of a format that the
    cluster has: `delta`, `iceberg`, `parquet`. Raises VstreamError with what Spark says if there is no such
    format or schema.
    """
    with explain_spark_errors():
        for name, schema in RESULTS.items():
            rows = shelf.table(name) if shelf.has(name) else make_table(shelf.spark, [], schema)
            rows.write.format(kind).mode("overwrite").saveAsTable(f"{into}.{name}")
