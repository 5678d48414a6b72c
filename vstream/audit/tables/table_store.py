"""Storage for the tables of an audit, between stages and between audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from vstream.audit.judge import client_journal, delays, keys
from vstream.audit.reconcile import classify
from vstream.audit.scratch import is_scratch
from vstream.audit.spark.local_frames import make_table
from vstream.audit.spark.session import is_local
from vstream.audit.spark.spark_errors import convert_spark_errors, suggest_rebuild
from vstream.audit.tables import inventory
from vstream.audit.tables.audit_tables import read_checked
from vstream.errors import VstreamError

RESULTS: Final[Mapping[str, StructType]] = {
    "differences": classify.DIFFERENCES,
    "delays": delays.DELAYS,
    "recovery": delays.RECOVERY,
    "order_differences": delays.ORDER_DIFFERENCES,
    "diverged_keys": keys.DIVERGED_KEYS,
    "conflicts": keys.CONFLICTS,
    "shared_ids": keys.SHARED_IDS,
    "publish_outcomes": client_journal.PUBLISH_OUTCOMES,
}
"""The tables with results; the others are intermediate."""
_TRIED: Final = "vstream_audit_tried"


class TableStore:
    """
    Stores the tables of an audit below *uri*, in any file system of Spark, or in Spark's memory.

    *earlier* is the URI of the tables of an earlier audit, by default *uri*.
    If *virtuals* are given, only the rows about these are read from them.
    """

    def __init__(
        self, spark: SparkSession, uri: str | None = None, *, earlier: str | None = None, virtuals: Sequence[str] = ()
    ) -> None:
        self.spark = spark
        self._uri = uri
        self._earlier = earlier or uri
        self._virtuals = list(virtuals)
        self._held: dict[str, DataFrame] = {}
        self._written: dict[str, list[str]] = {}
        self._known: dict[str, list[str]] | None = None

    def keep(self, name: str, rows: DataFrame, schema: StructType, *, on_driver: bool = False) -> DataFrame:
        """Compute *rows*, store them as *name*, and return the stored table. *on_driver*: rows stay on the driver."""
        rows = rows.select(*schema.names)
        if self._uri is None:
            stored = rows if on_driver else rows.persist()
        else:
            place = f"{self._uri}/{name}"
            rows.write.mode("overwrite").parquet(place)
            written = self.spark.read.schema(schema).parquet(place)
            self._written[name] = _files(written)
            stored = rows if on_driver else written
        self._held[name] = stored
        return stored

    def seal(self) -> None:
        """Record the files of the tables written since the last call: only recorded tables can be read again."""
        written = {}
        while self._written:  # other threads may be writing
            name, files = self._written.popitem()
            written[name] = files
        if written and self._uri is not None:
            inventory.add(self.spark, self._uri, written)

    def has(self, name: str) -> bool:
        """Whether this audit has computed the table *name*."""
        return name in self._held

    def table(self, name: str) -> DataFrame:
        """The table *name* of this audit. Raises KeyError if it was not computed."""
        return self._held[name]

    def files(self, name: str) -> Sequence[str] | None:
        """The files of the table *name*, which may have rows of other virtual streams; None if it is in memory."""
        place = self._uri if name in self._held else self._earlier
        return None if place is None else self.spark.read.parquet(f"{place}/{name}").inputFiles()

    def read_earlier(self, name: str, schema: StructType) -> DataFrame:
        """The table *name* of an earlier audit. Raises VstreamError if it is missing, incomplete or changed."""
        rows = read_checked(self.spark, f"{self._earlier}/{name}", schema)
        if self._known is None:
            self._known = inventory.list_known_files(self.spark, self._earlier) if self._earlier is not None else {}
        if name not in self._known:
            raise VstreamError(
                f"the table `{self._earlier}/{name}` is not in the list `files`: the audit was stopped early, or the list is damaged",
                hint=suggest_rebuild(name),
            )
        if _files(rows) != self._known[name]:
            raise VstreamError(
                f"the table `{self._earlier}/{name}` has files other than those written", hint=suggest_rebuild(name)
            )
        if self._virtuals and "virtual" in schema.names:
            rows = rows.where(F.col("virtual").isin(self._virtuals))
        return rows


def _files(rows: DataFrame) -> list[str]:
    """The names of the files that *rows* are read from."""
    return sorted(PurePosixPath(urlsplit(inputFile).path).name for inputFile in rows.inputFiles())


def try_publishing(spark: SparkSession, into: str, kind: str) -> None:
    """
    Write and drop an empty table in the schema *into*, to find out before a long audit whether `publish_results` can write.

    Raises VstreamError with Spark's message if the format or the schema does not exist or cannot be written, and if
    the schema belongs to a local session (`session`), whose catalog and files are removed at its end.
    """
    with convert_spark_errors():
        make_table(spark, [], classify.DIFFERENCES).write.format(kind).mode("overwrite").saveAsTable(f"{into}.{_TRIED}")
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


def publish_results(store: TableStore, into: str, kind: str) -> None:
    """
    Write the results in *store* into the catalog's schema *into*, replacing those of an earlier audit.

    A result that this audit did not compute becomes an empty table. *kind* is a table format of the
    cluster: `delta`, `iceberg` or `parquet`. Raises VstreamError with Spark's message if the format or schema
    does not exist.
    """
    with convert_spark_errors():
        for name, schema in RESULTS.items():
            rows = store.table(name) if store.has(name) else make_table(store.spark, [], schema)
            rows.write.format(kind).mode("overwrite").saveAsTable(f"{into}.{name}")
