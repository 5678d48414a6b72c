"""
What captures and audits keep of a payload: 64 bits that tell two payloads apart.

XXH64 with the seed of Spark's own function, so that people can compare with tables of
theirs: `xxhash64(payload)` in SQL is the same number. It finds damage, with 2⁻⁶⁴ of
missing one. Whoever wants to can make two payloads of one digest: it is no signature.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from xxhash import xxh64_digest, xxh64_hexdigest

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEED = 42
_SIGN = 1 << 63


def digest(payload: bytes) -> str:
    """The digest of *payload*, in 16 hexadecimal digits, as captures have it."""
    return xxh64_hexdigest(payload, _SEED)


def to_signed_int64(text: str) -> int:
    """A digest in hexadecimal as the signed number that it is in tables."""
    return (int(text, 16) ^ _SIGN) - _SIGN


def digest_all(payloads: Iterable[bytes]) -> bytes:
    """The digests of *payloads*, eight bytes each, big-endian."""
    return b"".join(map(xxh64_digest, payloads, repeat(_SEED)))
