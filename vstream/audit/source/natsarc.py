"""
Archives of messages, which is what servers from 2.15 on put into snapshots and take back from backups.

The form is `NATSARC1` (nats-server, server/archive/archive.go and server/stream_backup.go):
entry after entry, each of five numbers with seven bits in a byte, the lowest first
(length of the name, nanoseconds in zigzag, sequence, length of headers, length of the
payload), then name, headers, payload. A message's name is its subject. What has no
sequence is no message: `state.json` comes first, and an entry without a name is the end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from vstream.audit.source import bulk
from vstream.audit.source.client import RetryableError
from vstream.audit.source.columns import RAW, Block, MessageColumns, decode_text, digest_payloads
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

MAGIC: Final = b"NATSARC1"
_MOST: Final = 128 << 20
"""Bytes of one entry: a message has 64 MiB at most."""
_STATE: Final = b"state.json"
_MORE: Final = 0x80
"""The bit of a byte that says that the number goes on."""
_NINE: Final = 0x8080808080808080
"""These bits in eight bytes, behind which nanoseconds end that are of our time."""
_LONGEST: Final = 10
"""Bytes of a number."""


class DamagedArchiveError(VstreamError):
    """Something that is no archive."""


@dataclass(frozen=True, slots=True)
class State:
    """What the stream held when the archive was begun."""

    first_seq: int
    last_seq: int
    messages: int


@dataclass(slots=True)
class Messages:
    """Messages side by side in *content*: where each part of them begins."""

    content: bytes
    times: list[int] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    """Where sequences end."""
    subjects: list[int] = field(default_factory=list)
    headers: list[int] = field(default_factory=list)
    payloads: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        """How many."""
        return len(self.ends)

    def sliced(self, begin: int, end: int) -> Messages:
        """Some of them."""
        return Messages(self.content, *(getattr(self, name)[begin:end] for name in Messages.__slots__[1:]))

    def sequences(self) -> NDArray[np.int64]:
        """Their sequences."""
        return _numbers(self.content, self.seqs, self.lengths).view(np.int64)

    def block(self, columns: MessageColumns) -> Block:
        """All of them, with the fields that *columns* wants."""
        content = self.content
        payloads = [content[begin:end] for begin, end in zip(self.payloads, self.ends, strict=True)]
        subjects = [content[begin:end] for begin, end in zip(self.subjects, self.headers, strict=True)]
        header, nothing = pa.nulls(len(self), pa.binary()), pa.nulls(len(self), pa.string())
        source, msg_id = nothing, nothing
        if self.headers != self.payloads:
            bounds = zip(self.headers, self.payloads, strict=True)
            header = pa.array([content[begin:end] if end > begin else None for begin, end in bounds], pa.binary())
            source, msg_id = bulk.parse_headers(header)
        times = _numbers(content, self.times, self.seqs)
        arrays = {
            "seq": pa.array(self.sequences()),
            "time_ns": pa.array((times >> np.uint64(1)).view(np.int64) ^ -(times & np.uint64(1)).view(np.int64)),
            "subject": decode_text(pa.array(subjects, pa.binary())),
            "msg_id": msg_id,
            "source": source,
            "size": pa.array(map(len, payloads), pa.int32()),
        }
        if columns.wants_digest:
            arrays["digest"] = digest_payloads(payloads)
        if columns.wants_headers:
            arrays["headers"] = header
        if columns.wants_payload:
            arrays["payload"] = pa.array(payloads, pa.binary())
        return pa.RecordBatch.from_arrays(list(arrays.values()), schema=pa.schema([RAW[name] for name in arrays]))


class Archive:
    """
    One archive, whose bytes come in *pieces* of any size.

    *is_whole* is known with the last messages.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self.is_whole = False

    def read(self) -> Iterator[tuple[State, Messages]]:
        """
        The messages, by sequence, as many at a time as have come; at the end, perhaps none.

        Raises DamagedArchiveError, and Again if it has no end.
        """
        data = self._joined(b"", len(MAGIC))
        if not data.startswith(MAGIC):
            raise DamagedArchiveError(
                "what has come is no archive of messages",
                hint="is the stream's leader a nats-server before 2.15? path=consumer reads it",
            )
        state, position, last = None, len(MAGIC), 0
        while not self.is_whole:
            found, others, position, needed = _walk(data, position)
            for name, content in others:
                if name == _STATE and state is None:
                    state = _state(content)
                self.is_whole = self.is_whole or not name
            if len(found) or self.is_whole:
                if state is None:
                    raise DamagedArchiveError("an archive of messages does not begin with what its stream holds")
                seqs = found.sequences()
                if (np.diff(seqs, prepend=last) <= 0).any() or (len(seqs) and seqs[-1] > state.last_seq):
                    raise DamagedArchiveError("messages of an archive are not in their order")
                last = int(seqs[-1]) if len(seqs) else last
                yield state, found
            if not self.is_whole:
                data, position = self._joined(data[position:], needed), 0

    def _joined(self, rest: bytes, needed: int) -> bytes:
        """*rest* and what follows it, at least *needed* bytes."""
        parts, length = [rest], len(rest)
        while length < needed:
            piece = next(self._pieces, None)
            if piece is None:
                raise RetryableError("the snapshot ends too early")
            parts.append(piece)
            length += len(piece)
        return b"".join(parts)


def _state(content: bytes) -> State:
    try:
        said = json.loads(content)
        return State(int(said["first_seq"]), int(said["last_seq"]), int(said["messages"]))
    except (ValueError, TypeError, KeyError):
        raise DamagedArchiveError("an archive of messages does not say what its stream holds") from None


def _walk(  # noqa: C901 - calls would cost more than what they did
    data: bytes, position: int
) -> tuple[Messages, list[tuple[bytes, bytes]], int, int]:
    """
    The entries of *data* from *position* on that are complete: messages, and names and contents of others.

    Returns also where the first one begins that is not, and how many bytes there have to be from there on to know more.
    """
    found, others, size = Messages(data), [], len(data)
    adds = tuple(getattr(found, name).append for name in Messages.__slots__[1:])
    add_time, add_seq, add_length, add_subject, add_header, add_payload, add_end = adds
    needed = size - position + 1
    try:
        while True:
            name, time = data[position], position + 1
            if name >= _MORE:
                name, time = _number(data, position)
            seq = time + 9
            if int.from_bytes(data[time : seq - 1], "little") & _NINE != _NINE or data[seq - 1] >= _MORE:
                _, seq = _number(data, time)
            at = seq
            while data[at] >= _MORE:
                at += 1
            length = at = at + 1
            header, at = data[at], at + 1
            if header >= _MORE:
                header, at = _number(data, length)
            before = at
            payload, at = data[at], at + 1
            if payload >= _MORE:
                payload, at = _number(data, before)
            headers = at + name
            payloads = headers + header
            end = payloads + payload
            if end > size:
                needed = end - position
                if needed > _MOST:
                    raise DamagedArchiveError(f"an entry of {needed} bytes is longer than messages are")
                break
            if length - seq == 1 and not data[seq]:
                others.append((data[at:headers], data[payloads:end]))
            else:
                add_time(time)
                add_seq(seq)
                add_length(length)
                add_subject(at)
                add_header(headers)
                add_payload(payloads)
                add_end(end)
            position = end
            needed = size - position + 1
    except IndexError:
        # The end of *data*, in the middle of a number.
        pass
    return found, others, position, needed


def _number(data: bytes, position: int) -> tuple[int, int]:
    """The number at *position*, and where it ends. Raises IndexError if its end is missing."""
    found = 0
    for place in range(_LONGEST):
        byte = data[position + place]
        found |= (byte & 0x7F) << 7 * place
        if byte < _MORE:
            return found, position + place + 1
    raise DamagedArchiveError("a number of an archive has no end")


def _numbers(content: bytes, begins: list[int], ends: list[int]) -> NDArray[np.uint64]:
    """The numbers between *begins* and *ends*."""
    places = np.array(begins, np.int64)
    lengths = np.array(ends, np.int64) - places
    if len(lengths) and lengths.max() > _LONGEST:
        raise DamagedArchiveError("a number of an archive has no end")
    octets = np.frombuffer(content, np.uint8)
    found = np.zeros(len(places), np.uint64)
    for place in range(int(lengths.max(initial=0))):
        # Where a number is shorter, the byte is of something else.
        some = octets[np.minimum(places + place, len(octets) - 1)].astype(np.uint64) & np.uint64(0x7F)
        found |= np.where(lengths > place, some << np.uint64(7 * place), np.uint64(0))
    return found
