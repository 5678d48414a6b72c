"""
Streams that are compressed with S2, which is what servers send snapshots in.

S2 is Snappy with larger blocks and one thing more: a copy of offset 0 repeats the
offset of the copy before it, and may be long (README of github.com/klauspost/compress,
directory s2; google/snappy, format_description.txt and framing_format.txt). Blocks are
rewritten as plain Snappy, which Arrow decodes: what costs here is to find where each
element of a block begins, in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from vstream.audit.source.client import RetryableError
from vstream.audit.source.crc32c import crc32c
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

MOST: Final = 4 << 20
"""Bytes that one block may hold."""
_IDENTIFIER: Final = b"S2sTwO"
_COMPRESSED, _UNCOMPRESSED, _STREAM, _SKIPPABLE = 0x00, 0x01, 0xFF, 0x80
_CHECKSUM: Final = 4
_MASK: Final = 0xA282EAD8
_COPY: Final = 64
"""Bytes that one copy of plain Snappy has at most."""
_FOUR: Final = 5
"""Bytes of a copy whose offset has four."""
_LITERAL: Final = 60
"""Lengths of literals from here on say how many bytes the length has."""


class DamagedError(VstreamError):
    """Something that is no S2, or not what its checksum says."""


def content(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """
    What a stream holds whose bytes come in *pieces* of any size: a block at a time, 4 MiB at most.

    Raises DamagedError, and Again where it ends in the middle of a block.
    """
    source = _Source(iter(pieces))
    begun = False
    while head := source.take(4, or_end=True):
        kind, size = head[0], int.from_bytes(head[1:], "little")
        if not begun and kind != _STREAM:
            raise DamagedError("this is no stream of S2: it does not begin with its name")
        begun = True
        if kind in {_COMPRESSED, _UNCOMPRESSED}:
            if not _CHECKSUM < size <= MOST + MOST // 4:
                raise DamagedError(f"a block of {size} bytes is none of S2")
            body = source.take(size)
            found = _checked(body, body[_CHECKSUM:] if kind == _UNCOMPRESSED else block(body[_CHECKSUM:]))
            yield found
        elif kind == _STREAM:
            if source.take(size) != _IDENTIFIER:
                raise DamagedError("this is no stream of S2: it has another name")
        elif kind >= _SKIPPABLE:
            source.take(size)
        else:
            raise DamagedError(f"blocks of kind {kind:#04x} are not known")


def _checked(body: bytes, found: bytes) -> bytes:
    crc = crc32c(found)
    if ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF != int.from_bytes(body[:_CHECKSUM], "little"):
        raise DamagedError("the checksum of a block is another one")
    return found


class _Source:
    """Bytes out of pieces of any size."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def take(self, size: int, *, or_end: bool = False) -> bytes:
        parts, length = [self._rest], len(self._rest)
        while length < size:
            piece = next(self._pieces, None)
            if piece is None:
                if or_end and not length:
                    return b""
                raise RetryableError("the snapshot ends too early")
            parts.append(piece)
            length += len(piece)
        data = b"".join(parts)
        self._rest = data[size:]
        return data[:size]


def block(data: bytes) -> bytes:
    """What one block holds. Raises DamagedError."""
    size, begin = _length(data)
    if size > MOST:
        raise DamagedError(f"a block of S2 says that it holds {size} bytes")
    try:
        return _SNAPPY.decompress(_plain(data, begin), size, asbytes=True)  # type: ignore[no-any-return]
    except (pa.ArrowException, IndexError, OSError):
        raise DamagedError("a block of S2 is damaged") from None


def _length(data: bytes) -> tuple[int, int]:
    """What a block says that it holds, and where its elements begin."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follow
            return size, place + 1
    raise DamagedError("a block of S2 does not say how much it holds")


def _starts(data: bytes, position: int) -> list[int]:
    """Where elements begin."""
    starts: list[int] = []
    add, sizes, end = starts.append, data.translate(_SIZES), len(data)
    while position < end:
        add(position)
        if size := sizes[position]:
            position += size
            continue
        tag = data[position]
        if tag & 3 == 0:
            more = (tag >> 2) - _LITERAL + 1
            position += 2 + more + int.from_bytes(data[position + 1 : position + 1 + more], "little")
        else:
            # A short copy, or a repetition whose length has some bytes.
            position += 2 if data[position + 1] else (tag >> 2) - 2
    if position != end:
        raise DamagedError("a block of S2 ends within an element")
    return starts


def _plain(data: bytes, begin: int) -> bytes | NDArray[np.uint8]:
    """*data* with a copy, or several, in the place of each repetition."""
    places = np.array(_starts(data, begin), np.int64)
    content = np.frombuffer(data + bytes(4), np.uint8)
    kinds = content[places] & 3
    places, kinds = places[kinds > 0], kinds[kinds > 0]
    tags, *follow = (content[places + number].astype(np.int64) for number in range(5))
    offsets = np.where(
        kinds == 1,
        (tags >> 5) << 8 | follow[0],
        follow[0] | follow[1] << 8 | np.where(kinds == 3, follow[2] << 16 | follow[3] << 24, 0),  # noqa: PLR2004
    )
    repeats = np.flatnonzero(offsets == 0)
    if not len(repeats):
        return data
    if repeats[0] == 0 or (kinds[repeats] != 1).any():
        raise DamagedError("a block of S2 copies from nowhere")
    before = np.maximum.accumulate(np.where(offsets > 0, np.arange(len(offsets)), 0))
    stated = tags[repeats] >> 2
    one, two, three = (number[repeats] for number in follow[1:])
    lengths = np.choose(
        np.maximum(stated, 4) - 4,
        [stated + 4, 8 + one, 260 + (one | two << 8), 65_540 + (one | two << 8 | three << 16)],
    )
    return _replaced(
        content[: len(data)], places[repeats], 2 + np.maximum(stated - 4, 0), offsets[before[repeats]], lengths
    )


def _replaced(
    data: NDArray[np.uint8],
    places: NDArray[np.int64],
    sizes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """*data* with copies of *offsets* and *lengths* at *places*, where elements of *sizes* bytes are now."""
    if lengths.sum() > MOST:
        raise DamagedError("a block of S2 holds more than it says")
    counts = -(-lengths // _COPY)
    which = np.repeat(np.arange(len(places)), counts)
    ends = np.cumsum(counts)
    copied = np.full(len(which), _COPY)
    copied[ends - 1] = lengths - _COPY * (counts - 1)
    copies = np.empty((len(which), _FOUR), np.uint8)
    copies[:, 0] = (copied - 1) << 2 | 3
    for number in range(4):
        copies[:, 1 + number] = offsets[which] >> 8 * number & 0xFF
    grown = np.cumsum(_FOUR * counts - sizes)
    at = (places - np.cumsum(sizes) + sizes)[which] + _FOUR * np.arange(len(which))
    found = np.empty(len(data) + int(grown[-1]), np.uint8)
    slots = at[:, None] + np.arange(_FOUR)
    is_old, is_kept = np.ones(len(found), np.bool_), np.ones(len(data), np.bool_)
    is_old[slots] = False
    for number in range(_FOUR):
        is_kept[(places + number)[sizes > number]] = False
    found[is_old] = data[is_kept]
    found[slots] = copies
    return found


def _size(tag: int) -> int:
    """Bytes of the element that begins with *tag*; 0 where it does not say."""
    kind, rest = tag & 3, tag >> 2
    if kind == 0:
        return rest + 2 if rest < _LITERAL else 0
    if kind == 1:
        return 2 if not 5 <= rest <= 7 else 0  # noqa: PLR2004 - lengths that follow
    return 3 if kind == 2 else _FOUR  # noqa: PLR2004 - bytes of the offset


_SIZES: Final = bytes(_size(tag) for tag in range(256))
_SNAPPY: Final = pa.Codec("snappy")
