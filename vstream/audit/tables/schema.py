"""
The tables that the extraction writes and all later stages read.

`messages` has one row for each stored message of each physical stream. `streams` has one
row for each physical stream: its snapshot, up to which it was read. Sequences are assumed to be
below 2^63.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_TYPES = {
    "string": StringType(),
    "bigint": LongType(),
    "boolean": BooleanType(),
    "double": DoubleType(),
    "int": IntegerType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}


def make_schema(columns: str, **types: DataType) -> StructType:
    """A schema from text such as `virtual string not null, seq bigint`, in which *types* may be named as well."""
    fields = []
    for column in columns.split(","):
        name, kind, *is_required = column.split()
        fields.append(StructField(name, {**_TYPES, **types}[kind], nullable=not is_required))
    return StructType(fields)


MESSAGES = make_schema("""
    virtual string not null, stream string not null, region string not null, role string not null,
    seq bigint not null, time_ns bigint not null, subject string not null, msg_id string, source string, ttl string,
    rollup string, size int not null, digest bigint not null
""")
"""
Columns of `messages`. *virtual* is the virtual stream, *stream* the physical one, *role* a value of
`vstream.topology.model.Role`. *seq* is the sequence in *stream*, *time_ns* the time when it was stored there, by the
server's clock, in nanoseconds since 1970. *msg_id*, *source*, *ttl* and *rollup* are the unchanged headers
`Nats-Msg-Id`, `Nats-Stream-Source`, `Nats-TTL` and `Nats-Rollup`, the last one null in captures. *size* is the payload's size in bytes, *digest* is the payload's digest
(`vstream.capture.digest`), equal for every way of reading, captures included.
"""

STREAMS = make_schema(
    """
    virtual string not null, stream string not null, region string not null, role string not null, first_seq bigint,
    last_seq bigint, messages bigint, num_deleted bigint, snapshot_ns bigint not null, read_at_ns bigint not null,
    arrivals bigint not null, server_version string, path string, error string, sources sources not null, limits limits, identity string, mirror string, transform transform
    """,
    sources=ArrayType(make_schema("origin string not null, last_seq bigint"), containsNull=False),
    limits=MapType(StringType(), LongType(), valueContainsNull=False),
    transform=make_schema("src string not null, dest string not null"),
)
"""
Columns of `streams`. Every expected stream has a row. *first_seq* to *last_seq* is its content at *snapshot_ns* (its
server's clock, nanoseconds since 1970): `messages` has everything in that range that was still stored when it was read,
by *read_at_ns* of the same clock. Beyond it, `messages` has the *arrivals*, which came meanwhile to a stream that removes
messages for newer ones of their subject, and show what was replaced (`extraction.read_plan`). *error* says why a stream could not be read; then the columns before it are null, and `messages`
has no rows of it. *path* says how it was read: `consumer`, `direct` or `capture`. *sources* are the cursors of a stream
that sources others; *last_seq* in them is null if unknown, as servers before 2.15 do not report it, and 0 if nothing was
sourced yet.

Settings that may explain a difference; null if unknown. *limits* contains `max_age`, `max_msgs_per_subject`, and `max_msgs`
and `max_bytes` if in reach, if they are set (an empty map: nothing was removed automatically); a lone `max_msgs` also if the
first messages are gone: it may have been smaller. It contains `duplicate_window`, 0 if off, absent if unknown; and as 1 `allow_msg_ttl`, `allow_rollup_hdrs`, `retention` if it is not `limits`, and
`allow_msg_counter`, whose messages have a different payload in each stream. *identity* is the value that servers since
2.15 write into the header of messages sourced from the stream (`identity_of`), empty if it is from a backup: then all
are its own. *mirror* is the stream that it mirrors, *transform* its own `subject_transform`.
"""
