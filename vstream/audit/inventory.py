"""
The files of the tables at a place.

A table that is not listed was being written when an audit ended, or belongs to earlier messages. One with other files
has lost some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from vstream.audit.local_frames import make_table
from vstream.audit.spark_errors import error_line
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pyspark.sql import SparkSession

_FILES: Final = StructType(
    [
        StructField("name", StringType()),
        StructField("files", ArrayType(StringType())),
        StructField("number", LongType()),
    ]
)
"""*number* rises: of two rows with one name, the higher one counts."""


def clear(spark: SparkSession, uri: str) -> None:
    """Forget all tables below *uri*."""
    make_table(spark, [], _FILES).write.mode("overwrite").json(f"{uri}/files")


def add(spark: SparkSession, uri: str, tables: Mapping[str, Sequence[str]]) -> None:
    """
    Record the files of *tables* below *uri*.

    A file is added, and none replaced: whatever ends this process, it leaves what was known.
    """
    number = max((row.number or 0 for row in _rows(spark, uri)), default=0) + 1
    rows = make_table(spark, [(name, list(files), number) for name, files in sorted(tables.items())], _FILES)
    rows.coalesce(1).write.mode("append").json(f"{uri}/files")


def known_files(spark: SparkSession, uri: str) -> dict[str, list[str]]:
    """Files by table; empty if nothing is there. Raises VstreamError if the list cannot be read."""
    return {row.name: row.files for row in sorted(_rows(spark, uri), key=lambda item: item.number or 0)}


def _rows(spark: SparkSession, uri: str) -> list[Any]:
    try:
        rows = spark.read.schema(_FILES).json(f"{uri}/files").collect()
    except Exception as error:
        why = str(error)
        if "PATH_NOT_FOUND" in why:
            return []
        raise VstreamError(
            f"`{uri}/files` cannot be read: {error_line(why)}", hint="extract the tables again"
        ) from error
    return [row for row in rows if row.name is not None and row.files is not None]
