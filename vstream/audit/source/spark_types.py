"""The columns of streams as tables, and the partitions that Spark passes to tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from vstream.audit.source.values import ReadTask
from vstream.errors import VstreamError

COLUMNS = StructType(
    [
        StructField("stream", StringType(), nullable=False),
        StructField("region", StringType(), nullable=False),
        StructField("seq", LongType(), nullable=False),
        StructField("time", TimestampType(), nullable=False),
        StructField("time_ns", LongType(), nullable=False),
        StructField("subject", StringType(), nullable=False),
        StructField("msg_id", StringType(), nullable=True),
        StructField("source", StringType(), nullable=True),
        StructField("size", IntegerType(), nullable=False),
        StructField("digest", LongType(), nullable=False),
    ]
)
"""The default columns."""
MORE_COLUMNS = [
    StructField("headers", BinaryType(), nullable=True),
    StructField("payload", BinaryType(), nullable=False),
    StructField("ttl", StringType(), nullable=True),
    StructField("rollup", StringType(), nullable=True),
    StructField("virtual", StringType(), nullable=False),
    StructField("role", StringType(), nullable=False),
]
"""Columns that are read only on request."""
_KNOWN = {column.name: column for column in [*COLUMNS.fields, *MORE_COLUMNS]}


@dataclass(slots=True)
class ReadPartition(InputPartition):
    """One task."""

    ranges: tuple[ReadTask, ...]
    """One; or many, of small streams in one region."""
    is_whole: bool = False
    """Whether the only range had a message at each sequence, so that fewer rows mean loss; for queries that fail on loss."""


def find_columns(names: Sequence[str]) -> list[StructField]:
    """The columns with *names*. Raises VstreamError for an unknown name."""
    for name in names:
        if name not in _KNOWN:
            raise VstreamError(f"there is no column `{name}`", hint=f"columns: {', '.join(_KNOWN)}")
    return [_KNOWN[name] for name in names]


def make_arrow_schema(schema: StructType) -> pa.Schema:
    """Convert *schema* to Arrow. Raises VstreamError for a column that does not exist or has another type."""
    for field in schema.fields:
        kind = _KNOWN.get(field.name)
        if kind is None or kind.dataType != field.dataType:
            raise VstreamError(
                f"there is no column `{field.name}` of type {field.dataType.simpleString()}",
                hint=f"`{field.name}` is {kind.dataType.simpleString()}" if kind else f"columns: {', '.join(_KNOWN)}",
            )
    return to_arrow_schema(schema, timezone="UTC")
