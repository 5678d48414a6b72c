"""
CRC-32C of whole buffers, by numpy: no dependency has it, and byte by byte Python needs a hundred times as long.

The buffer is cut into lanes of equal length, which are gone over side by side, and
joined two by two: what zeros behind a lane do to its sum is linear, and in a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_POLYNOMIAL: Final = np.uint32(0x82F63B78)
"""Castagnoli's, its lowest power first."""
_LANE: Final = 64
"""Bytes."""
_ALL: Final = 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """The CRC-32C (RFC 3720, appendix B.4) of *data*."""
    if len(data) < 4:  # noqa: PLR2004 - bytes of the sum
        return _bytewise(data)
    lanes = 1 << ((len(data) - 1) // _LANE).bit_length()
    padded = np.zeros(lanes * _LANE, np.uint8)
    own = padded[len(padded) - len(data) :]
    own[:] = np.frombuffer(data, np.uint8)
    # Zeros in front change nothing if the sum begins with 0; that it begins with ones is the same as this.
    own[:4] ^= 0xFF
    sums = np.zeros(lanes, np.uint32)
    for words in np.ascontiguousarray(padded.view("<u2").reshape(lanes, _LANE // 2).T):
        # Numbers of 16 bits are all in the table, so that it need not be asked whether one is not.
        sums = _OF_TWO.take(sums.astype(np.uint16) ^ words, mode="clip") ^ (sums >> 16)
    for tables in _BEHIND[: lanes.bit_length() - 1]:
        sums = _followed(tables, sums[0::2]) ^ sums[1::2]
    return int(sums[0]) ^ _ALL


def _bytewise(data: bytes) -> int:
    found = _ALL
    for byte in data:
        found = int(_OF_ONE[(found ^ byte) & 0xFF]) ^ (found >> 8)
    return found ^ _ALL


def _followed(tables: NDArray[np.uint32], sums: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """What becomes of *sums* behind which there are as many zeros as *tables* are for."""
    found: NDArray[np.uint32] = tables[0].take(sums.astype(np.uint8), mode="clip")
    for place in (1, 2, 3):
        found = found ^ tables[place].take((sums >> (8 * place)).astype(np.uint8), mode="clip")
    return found


def _next(sums: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """What becomes of *sums* behind which there is one zero."""
    return _OF_ONE.take(sums.astype(np.uint8)) ^ (sums >> np.uint32(8))


def _one() -> NDArray[np.uint32]:
    found: NDArray[np.uint32] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        found = (found >> np.uint32(1)) ^ np.where(found & np.uint32(1), _POLYNOMIAL, np.uint32(0))
    return found


def _behind() -> list[NDArray[np.uint32]]:
    """Tables for one lane of zeros, two, four, …: up to the longest buffer that anybody has."""
    table: NDArray[np.uint32] = (np.arange(256) << np.array([[0], [8], [16], [24]])).astype(np.uint32)
    for _ in range(_LANE):
        table = _next(table)
    found = [table]
    for _ in range(24):
        found.append(_followed(found[-1], found[-1]))
    return found


_OF_ONE: Final = _one()
_OF_TWO: Final = _next(_next(np.arange(1 << 16, dtype=np.uint32)))
_BEHIND: Final = _behind()
