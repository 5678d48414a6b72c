"""Tables on the driver: made or collected there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def make_table(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """
    *rows* as a table that Spark knows the size of, and need not compute.

    Of Python's own rows, which `createDataFrame` takes too, it takes Spark seconds to learn how to read them.
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
    """*rows* as a table that Spark knows the size of, and need not compute."""
    return spark.createDataFrame(rows.select(schema.names).cast(to_arrow_schema(schema)), schema)


def collect_arrow(rows: DataFrame) -> pa.Table:
    """*rows* on the driver. Spark may leave null types where there are no rows, so that the schema says what they are."""
    return rows.toArrow().cast(to_arrow_schema(rows.schema))
