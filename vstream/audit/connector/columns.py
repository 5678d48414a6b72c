"""Stored messages as columns: convert what was on the wire to the columns that Spark requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vstream.errors import VstreamError
from vstream.jetstream.answers import convert_malformed_errors

try:
    from vstream.capture.digest import digest_all
except ImportError:  # an executor may lack xxhash
    digest_all = None  # type: ignore[assignment]
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vstream.audit.connector.values import StreamRef

BATCH_ROWS = 131_072
"""Number of rows in a batch: with more, the results of a step leave the CPU cache before the next step."""
Block: TypeAlias = pa.RecordBatch
"""Messages of one stream in the order of sequences, with the requested fields of RAW."""
RAW: Mapping[str, pa.Field] = {
    "seq": pa.field("seq", pa.int64()),
    "time_ns": pa.field("time_ns", pa.int64()),
    "subject": pa.field("subject", pa.string()),
    "msg_id": pa.field("msg_id", pa.string()),
    "source": pa.field("source", pa.string()),
    "ttl": pa.field("ttl", pa.string()),
    "rollup": pa.field("rollup", pa.string()),
    "size": pa.field("size", pa.int32()),
    "digest": pa.field("digest", pa.int64()),
    "headers": pa.field("headers", pa.binary()),
    "payload": pa.field("payload", pa.binary()),
}


SOURCE_LINE = b"\nNats-Stream-Source:"  # behind a line of a client that servers of 2.10 have cut
MSG_ID_LINE = b"\r\nNats-Msg-Id:"
TTL_LINE = b"\r\nNats-TTL:"
ROLLUP_LINE = b"\r\nNats-Rollup:"
_OF_STREAMS = ("stream", "region", "virtual", "role")
"""Columns that all messages of a stream have in common."""
_LISTS = ("subjects", "seqs", "times", "msg_ids", "sources", "ttls", "rollups", "headers", "payloads")


@dataclass(slots=True)
class MessageColumns:
    """
    Messages of one stream while they are parsed: finished blocks, followed by one list per field, as on the wire.

    Sequences are decimal digits, times are nanoseconds or RFC 3339.
    """

    wants_digest: bool = True
    wants_headers: bool = False
    wants_payload: bool = False
    subjects: list[bytes] = field(default_factory=list)
    seqs: list[bytes] = field(default_factory=list)
    times: list[bytes] = field(default_factory=list)
    msg_ids: list[bytes | None] = field(default_factory=list)
    sources: list[bytes | None] = field(default_factory=list)
    ttls: list[bytes | None] = field(default_factory=list)
    rollups: list[bytes | None] = field(default_factory=list)
    headers: list[bytes | None] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    @classmethod
    def of(cls, schema: pa.Schema) -> MessageColumns:
        """Empty columns for the fields of *schema*."""
        names = set(schema.names)
        return cls("digest" in names, "headers" in names, "payload" in names)

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self.seqs) + sum(int(block.num_rows) for block in self.blocks)

    def empty_copy(self) -> MessageColumns:
        """Empty columns for the same fields."""
        return MessageColumns(self.wants_digest, self.wants_headers, self.wants_payload)

    def add(self, block: Block) -> None:
        """Append a block of the same fields."""
        self.blocks = [*self._flush(), block]
        for name in _LISTS:
            setattr(self, name, [])

    def extend(self, parsed: MessageColumns) -> None:
        """Append the messages of *parsed*, which has no blocks."""
        for name in _LISTS:
            getattr(self, name).extend(getattr(parsed, name))

    def block(self) -> Block:
        """All messages as one block. Raises MalformedAnswerError if a sequence or a time is none."""
        with convert_malformed_errors("the stream that is read"):
            blocks = self._flush()
        if len(blocks) == 1:
            return blocks[0]
        table = pa.Table.from_batches(blocks, self._schema).combine_chunks()
        return (table.to_batches() or [pa.RecordBatch.from_pylist([], self._schema)])[0]

    @property
    def _schema(self) -> pa.Schema:
        wants = {"digest": self.wants_digest, "headers": self.wants_headers, "payload": self.wants_payload}
        return pa.schema([item for name, item in RAW.items() if wants.get(name, True)])

    def _flush(self) -> list[Block]:
        """All messages as a list of blocks."""
        if not self.seqs:
            return self.blocks
        arrays = {
            "seq": pa.array(self.seqs, pa.binary()).cast(pa.string()).cast(pa.int64()),
            "time_ns": _nanoseconds(self.times),
            "subject": decode_text(pa.array(self.subjects, pa.binary())),
            "msg_id": _value(self.msg_ids),
            "source": _value(self.sources),
            "ttl": _value(self.ttls),
            "rollup": _value(self.rollups),
            "size": pa.array(map(len, self.payloads), pa.int32()),
        }
        if self.wants_digest:
            arrays["digest"] = digest_payloads(self.payloads)
        if self.wants_headers:
            arrays["headers"] = pa.array(self.headers, pa.binary())
        if self.wants_payload:
            arrays["payload"] = pa.array(self.payloads, pa.binary())
        return [*self.blocks, pa.RecordBatch.from_arrays(list(arrays.values()), schema=self._schema)]


def truncate_at(block: Block, seq: int) -> Block:
    """The messages of *block* with sequences up to *seq*."""
    if not block.num_rows or block["seq"][-1].as_py() <= seq:
        return block
    return block.slice(0, pc.sum(pc.less_equal(block["seq"], seq)).as_py())


def filter_subjects(block: Block, subjects: re.Pattern[str]) -> Block:
    """The messages of *block* on *subjects*."""
    return block.filter(
        pa.array([subjects.fullmatch(item) is not None for item in block["subject"].to_pylist()], pa.bool_())
    )


def make_batch(schema: pa.Schema, block: Block, runs: Sequence[tuple[StreamRef, int]]) -> pa.RecordBatch:
    """*block* as a record batch of *schema*. *runs*: whose messages these are, and how many, one after the other."""
    constants = {name: [getattr(stream, name) for stream, _ in runs] for name in _OF_STREAMS}
    places = np.repeat(np.arange(len(runs)), [count for _, count in runs])

    def array(name: str, kind: pa.DataType) -> pa.Array:
        if name in constants:
            return pa.array(constants[name], kind).take(pa.array(places))
        if name == "time":
            # Spark's timestamps have microseconds; the rest is cut off, not rounded.
            return block["time_ns"].cast(pa.timestamp("ns", "UTC")).cast(kind, safe=False)
        return block[name].cast(kind)

    return pa.RecordBatch.from_arrays([array(item.name, item.type) for item in schema], schema=schema)


def _nanoseconds(times: list[bytes]) -> pa.Array:
    result = pa.array(times, pa.binary()).cast(pa.string())
    return (result.cast(pa.timestamp("ns", "UTC")) if times and b"-" in times[0] else result).cast(pa.int64())


def decode_text(values: pa.Array) -> pa.Array:
    """Decode UTF-8; invalid bytes are escaped, so that texts that differ stay different."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if value is None else value.decode(errors="backslashreplace") for value in values.to_pylist()],
            pa.string(),
        )


def _value(values: list[bytes | None]) -> pa.Array:
    """The values of a header, without surrounding spaces."""
    return pc.ascii_trim_whitespace(decode_text(pa.array(values, pa.binary())))


def digest_payloads(payloads: list[bytes]) -> pa.Array:
    """The digest of each payload, as a signed number. Raises VstreamError if xxhash is not installed."""
    if digest_all is None:
        raise VstreamError("digests of payloads need xxhash on the machine that reads", hint="pip install xxhash")
    return pa.array(np.frombuffer(digest_all(payloads), ">i8").astype("i8"))


def combine_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine *batches* into larger ones, which cost less per row."""
    waiting: list[pa.RecordBatch] = []
    for batch in chain(batches, [None]):
        if waiting and (batch is None or sum(each.num_rows for each in waiting) >= BATCH_ROWS):
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting = []
        if batch is not None:
            waiting.append(batch)
