"""Small tables that are created or collected on the driver."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def make_table(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """
    A local DataFrame of *rows*; Spark knows its size and need not compute it.

    `createDataFrame` with Python rows would work too, but takes Spark seconds.
    """
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
    arrow = to_arrow_schema(schema)
    arrays = []
    for column, field in zip(columns, arrow, strict=True):
        arrays.append(
            pa.array([list(item.items()) if isinstance(item, dict) else item for item in column], type=field.type)
        )
    return from_arrow(spark, pa.Table.from_arrays(arrays, schema=arrow), schema)


def from_arrow(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """A local DataFrame of an Arrow table; Spark knows its size and need not compute it."""
    return spark.createDataFrame(rows.select(schema.names).cast(to_arrow_schema(schema)), schema)


def select_virtuals(rows: DataFrame, virtuals: Collection[str] | None) -> DataFrame:
    """The rows of *rows* about *virtuals*, or all."""
    return rows if virtuals is None else rows.where(F.col("virtual").isin(sorted(virtuals)))


def make_local(rows: DataFrame, schema: StructType) -> DataFrame:
    """*rows*, computed, as a local DataFrame: the plan of another would be analysed again with each step built on it."""
    return from_arrow(rows.sparkSession, collect_arrow(rows.select(*schema.names)), schema)


def plain_rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows of *table* as tuples, at a fraction of what `collect` takes."""
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def collect_arrow(rows: DataFrame) -> pa.Table:
    """Collect *rows* on the driver, with the types of the schema: without rows, Spark may return null types."""
    return rows.toArrow().cast(to_arrow_schema(rows.schema))
