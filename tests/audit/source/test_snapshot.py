"""Snapshots without a server: S2, its checksums, and archives of messages, against encoders that do just what is written."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vstream.audit.source import bysnapshot, s2
from vstream.audit.source.client import RetryableError
from vstream.audit.source.columns import MessageColumns
from vstream.audit.source.crc32c import crc32c
from vstream.audit.source.cut import choose_path
from vstream.audit.source.datasource import COLUMNS, JetStreamStreamReader
from vstream.audit.source.natsarc import MAGIC, Archive, DamagedArchiveError
from vstream.audit.source.options import parse_options
from vstream.audit.source.values import DIRECT, SNAPSHOT, Access, ReadTask, StreamRef
from vstream.errors import VstreamError

NAME = b"\xff\x06\x00\x00S2sTwO"
COPIES = st.tuples(st.sampled_from(["near", "far", "farther"]), st.integers(1, 1 << 20), st.integers(0, 63))
ELEMENTS = st.lists(
    st.one_of(
        st.tuples(st.just("literal"), st.binary(min_size=1, max_size=300), st.just(0)),
        COPIES,
        st.tuples(
            st.just("repeat"), st.sampled_from([4, 5, 7, 8, 9, 64, 263, 264, 4_000, 65_795, 65_796, 70_000]), st.just(0)
        ),
    ),
    max_size=30,
)


def encoded(elements: list[tuple[Any, Any, int]]) -> tuple[bytes, bytes]:
    """A block of S2 that has *elements*, as far as they are possible, and what it holds."""
    held, found, offset = bytearray(), b"", 0
    for kind, value, more in elements:
        length = value
        if kind == "literal":
            found += literal(value)
            held += value
            continue
        if kind == "repeat":
            found += repeated(length) if offset else b""
        elif held:
            offset = min(value, {"near": 2047, "far": 65_535, "farther": 1 << 20}[kind], len(held))
            length = 4 + more % 8 if kind == "near" else more + 1
            found += copied(kind, offset, length)
        for _ in range(length if offset else 0):
            held.append(held[-offset])
    return number(len(held)) + found, bytes(held)


def literal(value: bytes) -> bytes:
    size = len(value) - 1
    if size < 60:
        return bytes([size << 2]) + value
    return (bytes([60 << 2, size]) if size < 256 else b"\xf4" + size.to_bytes(2, "little")) + value


def copied(kind: str, offset: int, length: int) -> bytes:
    if kind == "near":
        return bytes([offset >> 8 << 5 | length - 4 << 2 | 1, offset & 0xFF])
    size = 2 if kind == "far" else 4
    return bytes([length - 1 << 2 | (2 if kind == "far" else 3)]) + offset.to_bytes(size, "little")


def repeated(length: int) -> bytes:
    if length <= 8:
        return bytes([length - 4 << 2 | 1, 0])
    for code, size, least, end in ((5, 1, 8, 264), (6, 2, 260, 65_796), (7, 3, 65_540, 1 << 24)):
        if length < end:
            return bytes([code << 2 | 1, 0]) + (length - least).to_bytes(size, "little")
    raise AssertionError(length)


def number(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def framed(kind: int, body: bytes, held: bytes) -> bytes:
    crc = bitwise(held)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return bytes([kind]) + (len(body) + 4).to_bytes(3, "little") + masked.to_bytes(4, "little") + body


def bitwise(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def in_pieces(data: bytes, seed: int = 0) -> Iterator[bytes]:
    choose, position = random.Random(seed), 0
    while position < len(data):
        end = position + choose.choice([1, 30, 100, 1_000, 5_000])
        yield data[position:end]
        position = end


@given(ELEMENTS)
def test_a_block_of_s2_holds_what_its_elements_say(elements: list[tuple[Any, Any, int]]) -> None:
    block, held = encoded(elements)
    assert s2.block(block) == held


@pytest.mark.parametrize("size", [*range(10), 63, 64, 65, 127, 128, 129, 255, 1000, 4097, 20_000])
def test_checksums_are_those_of_the_polynomial(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32c(data) == bitwise(data)
    assert crc32c(b"123456789") == 0xE3069283  # as the standard has it


@given(ELEMENTS, st.integers(0, 1 << 30))
def test_a_damaged_block_is_refused_or_as_it_was(elements: list[tuple[Any, Any, int]], place: int) -> None:
    block, held = encoded([("literal", b"something", 0), *elements, ("literal", b"the end", 0)])
    held = held[:3000]
    stream = bytearray(NAME + framed(1, held, held) + framed(0, *encoded([("literal", b"x" * 200, 0)])))
    before = b"".join(s2.content([bytes(stream)]))
    stream[place % len(stream)] ^= 1 << place % 8
    with suppress(s2.DamagedError, RetryableError):
        assert b"".join(s2.content(in_pieces(bytes(stream), place))) == before
    damaged = bytearray(block)
    damaged[place % len(damaged)] ^= 1 << place % 8
    with suppress(s2.DamagedError):
        s2.block(bytes(damaged))


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (b"\xff\x06\x00\x00sNaPpY", "has another name"),
        (framed(1, b"x", b"x"), "does not begin with its name"),
        (NAME + b"\x02\x01\x00\x00x", "blocks of kind 0x02 are not known"),
        (NAME + b"\x00\xff\xff\xff", "a block of 16777215 bytes is none"),
        (NAME + framed(0, number(1 << 30), b""), "says that it holds 1073741824 bytes"),
        (NAME + framed(0, b"\xff\xff\xff\xff\xff\xff", b""), "does not say how much"),
        (NAME + framed(0, number(5) + b"\x01\x00", b""), "copies from nowhere"),
        (NAME + framed(0, number(5) + b"\x00a\x1d\x00\xff\xff\xff", b""), "copies from nowhere"),
        (NAME + framed(0, number(9) + b"\x00a\x01\x01\x1d\x00\xff\xff\xff", b""), "holds more than it says"),
        (NAME + framed(0, number(9) + b"\x10a", b""), "ends within an element"),
        (NAME + framed(0, number(9) + b"\x00a", b""), "is damaged"),
        (NAME + framed(0, number(1) + b"\x00a", b"b"), "checksum"),
    ],
)
def test_what_is_no_s2_says_why(stream: bytes, said: str) -> None:
    with pytest.raises(s2.DamagedError, match=said):
        list(s2.content([stream]))


def test_what_may_be_skipped_is_and_an_end_within_a_block_is_none() -> None:
    stream = NAME + b"\xfe\x03\x00\x00abc" + framed(1, b"one", b"one") + NAME + framed(1, b"two", b"two")
    assert list(s2.content(in_pieces(stream))) == [b"one", b"two"]
    for end in range(len(stream) - 1, len(stream) - 10, -1):
        with pytest.raises(RetryableError, match="ends too early"):
            list(s2.content([stream[:end]]))


MESSAGES = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.one_of(st.integers(-(1 << 62), 1 << 62), st.integers(1_600_000_000 * 10**9, 1_800_000_000 * 10**9)),
        st.text("ab.é", min_size=1, max_size=200),
        st.one_of(st.just(b""), st.just(b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n")),
        st.binary(max_size=300),
    ),
    max_size=20,
)


def entry(name: bytes, time: int, seq: int, headers: bytes, payload: bytes) -> bytes:
    zigzag = time << 1 ^ time >> 63
    numbers = (len(name), zigzag, seq, len(headers), len(payload))
    return b"".join(map(number, numbers)) + name + headers + payload


def archived(messages: list[tuple[int, int, str, bytes, bytes]]) -> tuple[bytes, list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    seq = 126
    found = b""
    for step, time, subject, headers, payload in messages:
        seq += step
        found += entry(subject.encode(), time, seq, headers, payload)
        rows.append(
            {
                "seq": seq,
                "time_ns": time,
                "subject": subject,
                "msg_id": "x" if headers else None,
                "source": None,
                "size": len(payload),
                "headers": headers or None,
                "payload": payload,
            }
        )
    state = json.dumps({"first_seq": 127, "last_seq": seq, "messages": len(rows)}).encode()
    return MAGIC + entry(b"state.json", 5, 0, b"", state) + found + entry(b"", 0, 0, b"", b""), rows


def rows_of(archive: Archive) -> list[dict[str, Any]]:
    like = MessageColumns(wants_digest=False, wants_headers=True, wants_payload=True)
    return [row for _, found in archive.read() for row in found.block(like).to_pylist()]


@given(MESSAGES, st.integers(0, 1 << 30))
def test_an_archive_holds_its_messages(messages: list[tuple[int, int, str, bytes, bytes]], seed: int) -> None:
    data, rows = archived(messages)
    archive = Archive(in_pieces(data, seed))
    assert rows_of(archive) == rows
    assert archive.is_whole
    # Without its end it is none, wherever it stops.
    with pytest.raises(RetryableError, match="ends too early"):
        rows_of(Archive(in_pieces(data[: seed % len(data)], seed)))


@given(MESSAGES, st.integers(0, 1 << 30))
def test_a_damaged_archive_is_an_error_of_ours_or_holds_as_many_messages(
    messages: list[tuple[int, int, str, bytes, bytes]], place: int
) -> None:
    data = bytearray(archived(messages)[0])
    data[place % len(data)] ^= 1 << place % 8
    try:
        rows = rows_of(Archive([bytes(data)]))
    except VstreamError:
        return
    # What is inside of a message has no checksum in the archive; S2 around it has.
    assert len(rows) == len(messages)


STATE = entry(b"state.json", 5, 0, b"", b'{"first_seq": 1, "last_seq": 2, "messages": 2}')
ONE, TWO, THREE = (entry(b"a", 10**18, seq, b"", b"x") for seq in (1, 2, 3))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"x" * 600, "no archive of messages"),
        (MAGIC + ONE + TWO, "does not begin with what its stream holds"),
        (MAGIC + entry(b"state.json", 5, 0, b"", b"[]") + ONE, "does not say what its stream holds"),
        (MAGIC + STATE + TWO + ONE, "not in their order"),
        (MAGIC + STATE + ONE + ONE, "not in their order"),
        (MAGIC + STATE + ONE + TWO + THREE, "not in their order"),
        (
            MAGIC + STATE + number(1) + number(1) + number(1) + number(0) + number(1 << 40) + b"a",
            "longer than messages",
        ),
        (MAGIC + STATE + b"\xff" * 30, "a number of an archive has no end"),
        (MAGIC + STATE + b"\x01" + number(1 << 61) + b"\xff" * 11 + b"\x00" * 30, "a number of an archive has no end"),
    ],
)
def test_what_is_no_archive_says_why(data: bytes, said: str) -> None:
    with pytest.raises(DamagedArchiveError, match=said):
        rows_of(Archive([data]))


def parts_of(monkeypatch: pytest.MonkeyPatch, data: bytes, *, last: int, deleted_since: int = 0) -> list[list[int]]:
    """The sequences that are read up to *last* of an archive of these bytes, of whose stream so much has gone since."""
    monkeypatch.setattr(bysnapshot, "_chunks", lambda *_: iter([NAME + framed(1, data, data)]))
    monkeypatch.setattr(bysnapshot, "_deleted_since", lambda *_: deleted_since)
    wanted = StreamRef(stream="foo", region="", virtual="foo", role="")
    job = ReadTask(stream_ref=wanted, access=Access(), path=SNAPSHOT, first=1, last=last, mean_size=1)
    return [one["seq"].to_pylist() for one in bysnapshot.parts(None, job, 1, MessageColumns())]  # type: ignore[arg-type]


def test_as_many_messages_have_to_come_as_the_stream_had(monkeypatch: pytest.MonkeyPatch) -> None:
    end = entry(b"", 0, 0, b"", b"")
    assert parts_of(monkeypatch, MAGIC + STATE + ONE + TWO + end, last=2) == [[1, 2]]
    assert parts_of(monkeypatch, MAGIC + STATE + ONE + TWO + end, last=1) == [[1]]
    said = "holds 1 messages, which are not as many as the stream has"
    for data in (ONE + end, TWO, TWO + end):
        with pytest.raises(RetryableError, match=said):
            parts_of(monkeypatch, MAGIC + STATE + data, last=2)
        assert parts_of(monkeypatch, MAGIC + STATE + data, last=2, deleted_since=1) in ([[1]], [[2]])
    fewer = entry(b"state.json", 5, 0, b"", b'{"first_seq": 1, "last_seq": 2, "messages": 1}')
    assert parts_of(monkeypatch, MAGIC + fewer + ONE + end, last=2) == [[1]]
    with pytest.raises(RetryableError, match="holds 2 messages, which are not as many"):
        parts_of(monkeypatch, MAGIC + fewer + ONE + TWO + end, last=2, deleted_since=9)


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_snapshot_is_read_where_servers_send_archives_and_only_where_it_is_asked_for(storage: str) -> None:
    config = {"retention": "workqueue", "storage": storage}
    assert choose_path(config, "2.15.1", SNAPSHOT, has_leader=False, is_hidden=False) == (SNAPSHOT, None)
    hidden = "a snapshot is not read out of an account or a domain of its own"
    assert choose_path(config, "2.15.1", SNAPSHOT, has_leader=True, is_hidden=True) == (None, hidden)
    path, why = choose_path(config, "2.14.6", SNAPSHOT, has_leader=True, is_hidden=False)
    assert path is None
    assert why is not None
    assert "2.14.6 is a copy of its files" in why
    assert choose_path(config, "2.15.1", None, has_leader=True, is_hidden=False)[0] is None
    assert choose_path({"allow_direct": True}, "2.15.1", None, has_leader=False, is_hidden=False) == (DIRECT, None)


def test_a_streaming_query_reads_no_snapshots() -> None:
    options = parse_options({"servers": "nats://127.0.0.1:1", "stream": "foo", "path": SNAPSHOT})
    with pytest.raises(VstreamError, match="a streaming query reads no snapshots"):
        JetStreamStreamReader(COLUMNS, options)
