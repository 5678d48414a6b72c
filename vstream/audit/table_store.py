"""Where tables of an audit are kept from one stage to the next, and from one audit to the next."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark.sql import functions as F

from vstream.audit import inventory
from vstream.audit.frames import read_checked
from vstream.audit.spark_errors import rebuild_hint
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class TableStore:
    """
    Where tables of an audit are kept: below *uri*, which any Spark file system can be, or in Spark's memory.

    *reads* is where those are that an earlier audit kept; without it, they are below *uri*.
    Of these, only what is about *virtuals* is read, if some are named.
    """

    def __init__(
        self, spark: SparkSession, uri: str | None = None, *, reads: str | None = None, virtuals: Sequence[str] = ()
    ) -> None:
        self.spark = spark
        self._uri = uri
        self._reads = reads or uri
        self._virtuals = list(virtuals)
        self._held: dict[str, DataFrame] = {}
        self._written: dict[str, list[str]] = {}
        self._known: dict[str, list[str]] | None = None

    def keep(self, name: str, rows: DataFrame, schema: StructType, *, is_here: bool = False) -> DataFrame:
        """Compute *rows* once, and give back what is kept of them under *name*; those that are on the driver stay there."""
        rows = rows.select(*schema.names)
        if self._uri is None:
            stored = rows if is_here else rows.persist()
        else:
            place = f"{self._uri}/{name}"
            rows.write.mode("overwrite").parquet(place)
            written = self.spark.read.schema(schema).parquet(place)
            self._written[name] = _files(written)
            stored = rows if is_here else written
        self._held[name] = stored
        return stored

    def seal(self) -> None:
        """Keep of which files the tables are that were written since the last time: only these can be read again."""
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
        """The files that hold the table *name*, and perhaps rows of other virtual streams; None where it is in memory."""
        place = self._uri if name in self._held else self._reads
        return None if place is None else self.spark.read.parquet(f"{place}/{name}").inputFiles()

    def read(self, name: str, schema: StructType) -> DataFrame:
        """The table *name* as an earlier audit kept it, all of it. Raises VstreamError if it is not there."""
        rows = read_checked(self.spark, f"{self._reads}/{name}", schema)
        if self._known is None:
            self._known = inventory.known_files(self.spark, self._reads) if self._reads is not None else {}
        if name not in self._known:
            raise VstreamError(
                f"the table `{self._reads}/{name}` is not among its `files`: the audit was ended, or that is damaged",
                hint=rebuild_hint(name),
            )
        if _files(rows) != self._known[name]:
            raise VstreamError(
                f"the table `{self._reads}/{name}` has other files than were written", hint=rebuild_hint(name)
            )
        if self._virtuals and "virtual" in schema.names:
            rows = rows.where(F.col("virtual").isin(self._virtuals))
        return rows


def _files(rows: DataFrame) -> list[str]:
    """The names of the files that *rows* are read from."""
    return sorted(PurePosixPath(urlsplit(inputFile).path).name for inputFile in rows.inputFiles())
