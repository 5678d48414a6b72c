"""The columns of streams as tables, and the partitions that Spark passes to tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from vstream.audit.connector.values import ReadTask
from vstream.audit.tables.schema import make_schema
from vstream.errors import VstreamError

COLUMNS = make_schema("""
    stream string not null, region string not null, seq bigint not null, time timestamp not null,
    time_ns bigint not null, subject string not null, msg_id string, source string, size int not null,
    digest bigint not null
""")
"""The default columns."""
MORE_COLUMNS = make_schema("""
    headers binary, payload binary not null, ttl string, rollup string, virtual string not null, role string not null
""")
"""Columns that are read only on request."""
_KNOWN = {column.name: column for column in [*COLUMNS.fields, *MORE_COLUMNS.fields]}


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
