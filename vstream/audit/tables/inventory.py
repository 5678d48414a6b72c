"""
The list of files of each stored table.

A table that is not listed was being written when an audit was stopped, or belongs to earlier messages. If the files of
a table differ from the list, it is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, StringType

from vstream.audit.spark.local_frames import make_table
from vstream.audit.spark.spark_errors import find_cause_line
from vstream.audit.tables.schema import make_schema
from vstream.errors import VstreamError

_FILES: Final = make_schema("name string, files files, number bigint", files=ArrayType(StringType()))
"""Columns of the list. If a table is listed twice, the row with the higher *number* counts."""


def clear(spark: SparkSession, uri: str) -> None:
    """Remove all tables below *uri* from the list."""
    make_table(spark, [], _FILES).write.mode("overwrite").json(f"{uri}/files")


def add(spark: SparkSession, uri: str, tables: Mapping[str, Sequence[str]]) -> None:
    """
    Add the files of *tables* to the list below *uri*.

    This adds a file and replaces none: if the process is killed, the old list stays valid.
    """
    number = max((row.number or 0 for row in _rows(spark, uri)), default=0) + 1
    rows = make_table(spark, [(name, list(files), number) for name, files in sorted(tables.items())], _FILES)
    rows.coalesce(1).write.mode("append").json(f"{uri}/files")


def list_known_files(spark: SparkSession, uri: str) -> dict[str, list[str]]:
    """The listed files by table; empty if there is no list. Raises VstreamError if the list cannot be read."""
    return {row.name: row.files for row in sorted(_rows(spark, uri), key=lambda item: item.number or 0)}


def _rows(spark: SparkSession, uri: str) -> list[Any]:
    try:
        rows = spark.read.schema(_FILES).json(f"{uri}/files").collect()
    except Exception as error:
        why = str(error)
        if "PATH_NOT_FOUND" in why:
            return []
        raise VstreamError(
            f"`{uri}/files` cannot be read: {find_cause_line(why)}", hint="extract the tables again"
        ) from error
    return [row for row in rows if row.name is not None and row.files is not None]
