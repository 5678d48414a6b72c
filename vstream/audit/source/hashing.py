"""Hashes of whole columns, the same in every process: they tell columns apart, and keep no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BASE: Final = 0xD6E8FEB86659FD93
_INVERSE: Final = pow(_BASE, -1, 1 << 64)
_ABSENT: Final = np.uint64(0xA0761D6478BD642F)
"""What stands for a null."""
_BYTES: Final = 1 << 20
"""Bytes of text that are looked at together."""


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each value so that all its bits depend on each other (the last step of SplitMix64)."""
    values = values ^ (values >> np.uint64(30))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


class TextHashes:
    """A hash of each text, and one number for null; of dictionary arrays that share one, each text is looked at once."""

    def __init__(self) -> None:
        self._dictionary: pa.Array | None = None
        self._known = np.empty(0, np.uint64)

    def of(self, column: pa.Array) -> NDArray[np.uint64]:
        """The hashes of *column*."""
        if pa.types.is_dictionary(column.type):
            existing = self._of_dictionary(column.dictionary)
            return existing[column.indices.fill_null(len(existing) - 1).to_numpy()]  # type: ignore[no-any-return]
        result = _hashes(column)
        if column.null_count:
            result[column.is_null().to_numpy(zero_copy_only=False)] = _ABSENT
        return result

    def _of_dictionary(self, texts: pa.Array) -> NDArray[np.uint64]:
        # To compare texts takes a fortieth of the time.
        if self._dictionary is None or not texts.equals(self._dictionary):
            self._dictionary, self._known = texts, np.append(_hashes(texts), _ABSENT)
        return self._known


def _hashes(texts: pa.Array) -> NDArray[np.uint64]:
    """
    A polynomial of the bytes of each text, modulo 2⁶⁴, by differences of one running sum.

    What was summed up before a text began is taken away, and the power that it began with divided out.
    """
    texts = texts.cast(pa.large_binary())
    _, places, data = texts.buffers()
    result = np.full(len(texts), _ABSENT)
    if data is None or not len(texts):
        return result
    ends = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8)
    begin = 0
    while begin < len(texts):
        # At least one text, however long it is.
        end = max(begin + 1, int(np.searchsorted(ends, ends[begin] + _BYTES, side="right")) - 1)
        end = min(end, len(texts))
        result[begin:end] = _hash_block(content[ends[begin] : ends[end]], ends[begin : end + 1] - ends[begin])
        begin = end
    return result


def _hash_block(content: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.uint64]:
    powers, inverses = _powers(len(content) + 1)
    sums = np.zeros(len(content) + 1, np.uint64)
    np.cumsum(_OF_BYTE[content] * powers[: len(content)], out=sums[1:])
    lengths = np.diff(ends).view(np.uint64)
    return mix((sums[ends[1:]] - sums[ends[:-1]]) * inverses[ends[:-1]] + lengths)


def _powers(count: int) -> Any:
    """The first powers of _BASE and of its inverse."""
    if len(_POWERS[0]) < count:
        for place, base in enumerate((_BASE, _INVERSE)):
            factors = np.full(max(count, _BYTES + 1), base, np.uint64)
            factors[0] = 1
            _POWERS[place] = np.multiply.accumulate(factors)
    return _POWERS


_POWERS: Final[list[NDArray[np.uint64]]] = [np.ones(1, np.uint64), np.ones(1, np.uint64)]
_OF_BYTE: Final = mix(np.arange(1, 257, dtype=np.uint64) * np.uint64(_BASE)) | np.uint64(1)
