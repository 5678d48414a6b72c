"""
The messages of a whole buffer, taken apart by Arrow: what costs least for each message.

Only for buffers that hold messages of one consumer and nothing else, as nearly all do;
whoever reads goes over the others message by message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from vstream.audit.source.columns import RAW, Block, digests, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.audit.source.columns import Columns

_CRLF = b"\r\n"
_BLANK_LINE = b"\r\n\r\n"
_SOURCE = b"\nNats-Stream-Source:"
_MSG_ID = b"\nNats-Msg-Id:"
_WITH_HEADERS = b"HMSG"
_WITHOUT = b"MSG"


def block(line: bytes, pieces: Sequence[bytes], columns: Columns) -> Block | None:
    """
    The messages that *pieces* hold, with the fields that *columns* wants; None if there is anything else between them.

    A piece is what follows the constant part of a message's line: the numbers of its
    reply subject, its lengths, the message, and how the next line begins. *line* is
    how the first one begins.
    """
    try:
        return _block(line, pieces, columns)
    except pa.ArrowInvalid:
        # A part or a number that should be there is not.
        return None


def _block(line: bytes, pieces: Sequence[bytes], columns: Columns) -> Block | None:
    numbers = pc.split_pattern(pa.array(pieces, pa.binary()), b".", max_splits=3)
    lengths, rest = _two(pc.list_element(numbers, 3), _CRLF)
    whole, begun = _two(rest, _CRLF, reverse=True)
    stated = pc.list_element(pc.split_pattern(lengths, b" ", max_splits=1, reverse=True), 1)
    if not pc.all(pc.equal(pc.binary_length(whole), _number(stated, pa.int32()))).as_py():
        return None
    verb, subject = _two(pa.concat_arrays([pa.array([line], pa.binary()), begun.slice(0, len(begun) - 1)]), b" ")
    has_headers = pc.equal(verb, _WITH_HEADERS)
    if not pc.all(pc.or_(has_headers, pc.equal(verb, _WITHOUT))).as_py():
        return None
    header, source, msg_id, payload = _apart(whole, has_headers, wants_headers=columns.wants_headers)
    arrays = {
        "seq": _number(pc.list_element(numbers, 0), pa.int64()),
        "time_ns": _number(pc.list_element(numbers, 2), pa.int64()),
        "subject": text(subject),
        "msg_id": msg_id,
        "source": source,
        "size": pc.binary_length(payload),
    }
    if columns.wants_digest:
        arrays["digest"] = digests(payload.to_pylist())
    if columns.wants_headers:
        arrays["headers"] = header
    if columns.wants_payload:
        arrays["payload"] = payload
    return pa.RecordBatch.from_arrays(list(arrays.values()), schema=pa.schema([RAW[name] for name in arrays]))


def _two(values: pa.Array, pattern: bytes, *, reverse: bool = False) -> tuple[pa.Array, pa.Array]:
    """Both sides of the first, or else the last, *pattern* in each. Raises ArrowInvalid where there is none."""
    parts = pc.split_pattern(values, pattern, max_splits=1, reverse=reverse)
    return pc.list_element(parts, 0), pc.list_element(parts, 1)


def _apart(
    whole: pa.Array, has_headers: pa.Array, *, wants_headers: bool
) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """Header blocks (all null unless they are wanted), what they say of source and id, and payloads."""
    blocks, none = pa.nulls(len(whole), pa.binary()), pa.nulls(len(whole), pa.string())
    if not pc.any(has_headers).as_py():
        return blocks, none, none, whole
    is_all = pc.all(has_headers).as_py()
    if is_all and not wants_headers:
        # What a read stream has, unless its messages have headers of their own. Short patterns are sooner found.
        lines = pc.split_pattern(whole, _CRLF, max_splits=3)
        if pc.all(pc.equal(pc.list_value_length(lines), 4)).as_py():
            named, after = pc.list_element(lines, 1), pc.list_element(lines, 2)
            if pc.all(pc.and_(pc.starts_with(named, _SOURCE[1:]), pc.equal(pc.binary_length(after), 0))).as_py():
                _, source = _two(named, b":")
                return blocks, pc.ascii_trim_whitespace(text(source)), none, pc.list_element(lines, 3)
    if not is_all:
        whole = pc.if_else(has_headers, whole, pc.binary_join_element_wise(_BLANK_LINE, whole, b""))
    header, payload = _two(whole, _BLANK_LINE)
    if wants_headers:
        ended = pc.binary_join_element_wise(header, _BLANK_LINE, b"")
        blocks = pc.if_else(has_headers, ended, pa.scalar(None, pa.binary()))
    return blocks, _value(header, _SOURCE), _value(header, _MSG_ID), payload


def _value(header: pa.Array, name: bytes) -> pa.Array:
    """The values of one header, null where it is not."""
    # With another one at the end, it is everywhere: what is between the first and an end of line is its value.
    _, after = _two(pc.binary_join_element_wise(header, b"\r" + name + b"\r", b""), name)
    value, rest = _two(after, b"\r")
    found = pc.if_else(pc.equal(pc.binary_length(rest), 0), pa.scalar(None, pa.binary()), value)
    return pc.ascii_trim_whitespace(text(found))


def _number(digits: pa.Array, kind: pa.DataType) -> pa.Array:
    return digits.cast(pa.string()).cast(kind)
