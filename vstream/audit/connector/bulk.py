"""
Split a whole buffer into messages with Arrow, at the lowest cost per message.

Only for buffers with messages of one consumer and nothing else, as nearly all are;
the reader parses other buffers message by message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vstream.audit.connector.columns import (
    MSG_ID_LINE,
    RAW,
    ROLLUP_LINE,
    SOURCE_LINE,
    TTL_LINE,
    Block,
    decode_text,
    digest_payloads,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from vstream.audit.connector.columns import MessageColumns

_CRLF = b"\r\n"
_MAX_NUMBERS_BYTES = 160
"""Maximum number of bytes in the rest of a message's line: four numbers, a random token, two lengths."""
_WORD_WITH_HEADERS = b"HMSG"
_WORD_WITHOUT_HEADERS = b"MSG"


def parse_block(line: bytes, pieces: Sequence[bytes], columns: MessageColumns) -> Block | None:
    """
    The messages in *pieces*, with the fields of *columns*; None if there is anything else between them.

    A piece is what follows the constant part of a message's line: the numbers of its
    reply subject, its lengths, the message, and the beginning of the next line. *line* is
    the beginning of the first one.
    """
    try:
        return _block(line, pieces, columns)
    except pa.ArrowInvalid:
        # A part or a number that should be there is not.
        return None


def _block(line: bytes, pieces: Sequence[bytes], columns: MessageColumns) -> Block | None:
    # Arrow takes apart the few bytes around messages. It would move the messages themselves at every step.
    numbers, _ = _split_once(pa.array([piece[:_MAX_NUMBERS_BYTES] for piece in pieces], pa.binary()), _CRLF)
    tokens = pc.split_pattern(numbers, b".", max_splits=3)
    has_headers, header_sizes, sizes = _lengths(pc.list_element(tokens, 3))
    starts = pc.binary_length(numbers).to_numpy() + len(_CRLF)
    bodies, ends = (starts + header_sizes).tolist(), (starts + sizes).tolist()
    after = pa.array([item[end:] for item, end in zip(pieces, ends, strict=True)], pa.binary())
    remainder, begun = _split_once(after, _CRLF, reverse=True)
    if pc.max(pc.binary_length(remainder)).as_py():
        return None
    verb, subject = _split_once(pa.concat_arrays([pa.array([line], pa.binary()), begun.slice(0, len(begun) - 1)]), b" ")
    if not pc.all(pc.equal(verb, pc.if_else(has_headers, _WORD_WITH_HEADERS, _WORD_WITHOUT_HEADERS))).as_py():
        return None
    nulls = pa.nulls(len(pieces), pa.string())
    header, (source, msg_id, ttl, rollup) = None, (nulls,) * 4
    if header_sizes.any():
        blocks = [item[start:body] for item, start, body in zip(pieces, starts.tolist(), bodies, strict=True)]
        header = pa.array(blocks, pa.binary())
        source, msg_id, ttl, rollup = parse_headers(header)
    arrays = {
        "seq": _number(pc.list_element(tokens, 0), pa.int64()),
        "time_ns": _number(pc.list_element(tokens, 2), pa.int64()),
        "subject": decode_text(subject),
        "msg_id": msg_id,
        "source": source,
        "ttl": ttl,
        "rollup": rollup,
        "size": pa.array(sizes - header_sizes),
    }
    payloads = [item[body:end] for item, body, end in zip(pieces, bodies, ends, strict=True)]
    if columns.wants_digest:
        arrays["digest"] = digest_payloads(payloads)
    if columns.wants_headers:
        none = pa.scalar(None, pa.binary())
        arrays["headers"] = (
            pa.nulls(len(pieces), pa.binary()) if header is None else pc.if_else(has_headers, header, none)
        )
    if columns.wants_payload:
        arrays["payload"] = pa.array(payloads, pa.binary())
    return pa.RecordBatch.from_arrays(list(arrays.values()), schema=pa.schema([RAW[name] for name in arrays]))


def _lengths(stated: pa.Array) -> tuple[pa.Array, NDArray[np.int32], NDArray[np.int32]]:
    """
    From the ends of lines: whether there are headers, their length, and the length with the payload.

    A line ends with the number of pending messages, the length of the headers if there are any, and the total length.
    """
    parts = pc.split_pattern(stated, b" ", max_splits=2, reverse=True)
    has_headers = pc.equal(pc.list_value_length(parts), 3)
    item = _number(pc.list_element(parts, 1), pa.int32()).to_numpy()
    if not pc.any(has_headers).as_py():
        return has_headers, np.zeros_like(item), item
    last = parts.flatten().take(pa.array(parts.offsets.to_numpy()[1:] - 1))
    header_sizes = np.where(has_headers.to_numpy(zero_copy_only=False), item, np.int32(0))
    return has_headers, header_sizes, _number(last, pa.int32()).to_numpy()


def _split_once(values: pa.Array, pattern: bytes, *, reverse: bool = False) -> tuple[pa.Array, pa.Array]:
    """Split each value at the first *pattern*, with *reverse* at the last. Raises ArrowInvalid if there is none."""
    parts = pc.split_pattern(values, pattern, max_splits=1, reverse=reverse)
    return pc.list_element(parts, 0), pc.list_element(parts, 1)


def parse_headers(header: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """The headers for source, message id, time to live and roll-up in each header block."""
    # What a read stream has, unless its messages have headers of their own. Short patterns are sooner found.
    lines = pc.split_pattern(header, _CRLF, max_splits=3)
    if pc.all(pc.equal(pc.list_value_length(lines), 4)).as_py():
        named, after = pc.list_element(lines, 1), pc.list_element(lines, 2)
        if pc.all(pc.and_(pc.starts_with(named, SOURCE_LINE[1:]), pc.equal(pc.binary_length(after), 0))).as_py():
            _, source = _split_once(named, b":")
            nulls = pa.nulls(len(header), pa.string())
            return pc.ascii_trim_whitespace(decode_text(source)), nulls, nulls, nulls
    msg_id, ttl, rollup = (_header_value(header, name) for name in (MSG_ID_LINE, TTL_LINE, ROLLUP_LINE))
    return _last_header_value(header, SOURCE_LINE), msg_id, ttl, rollup


def _header_value(header: pa.Array, name: bytes) -> pa.Array:
    """The value of one header in each block, null if missing."""
    # With another one at the end, it is everywhere: what is between the first and an end of line is its value.
    _, after = _split_once(pc.binary_join_element_wise(header, name + b"\r", b""), name)
    value, rest = _split_once(after, b"\r")
    result = pc.if_else(pc.equal(pc.binary_length(rest), 0), pa.scalar(None, pa.binary()), value)
    return pc.ascii_trim_whitespace(decode_text(result))


def _last_header_value(header: pa.Array, name: bytes) -> pa.Array:
    """As `_header_value`, of the last header *name*: what a server adds stands behind what a client sent."""
    # With another one in front, which has no value, it is everywhere.
    _, after = _split_once(pc.binary_join_element_wise(name + b"\r", header, b""), name, reverse=True)
    value, _ = _split_once(after, b"\r")
    result = pc.if_else(pc.equal(pc.binary_length(value), 0), pa.scalar(None, pa.binary()), value)
    return pc.ascii_trim_whitespace(decode_text(result))


def _number(digits: pa.Array, kind: pa.DataType) -> pa.Array:
    return digits.cast(pa.string()).cast(kind)
