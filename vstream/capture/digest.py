"""
Payload digests of captures and audits: 64 bits that tell two payloads apart.

XXH64 with the seed of Spark's own function, so that people can compare with their own tables: `xxhash64(payload)` in
SQL gives the same number. It misses damage with probability 2⁻⁶⁴. It is no signature: anyone can construct two payloads
with one digest.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from xxhash import xxh64_digest, xxh64_hexdigest

_HASH_SEED = 42
_SIGN_BIT = 1 << 63


def digest(payload: bytes) -> str:
    """The digest of *payload* in 16 hexadecimal digits, as captures store it."""
    return xxh64_hexdigest(payload, _HASH_SEED)


def to_signed_int64(text: str) -> int:
    """A hexadecimal digest as the signed number that tables store."""
    return (int(text, 16) ^ _SIGN_BIT) - _SIGN_BIT


def digest_all(payloads: Iterable[bytes]) -> bytes:
    """The digests of *payloads*, eight bytes each, big-endian."""
    return b"".join(map(xxh64_digest, payloads, repeat(_HASH_SEED)))
