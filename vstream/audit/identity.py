"""How servers tell a stream from another one that had its name before."""

from __future__ import annotations

from hashlib import sha256
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Final

_ALPHABET: Final = digits + ascii_uppercase + ascii_lowercase
_LENGTH: Final = 8


def identity_of(created: str) -> str:
    """
    The identity of a stream that STREAM.INFO says was *created* then, as servers since 2.15 write it into headers.

    Source: `server/stream.go` (identity), `server/events.go` (getHash).
    """
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in sha256(created.encode()).digest()[:_LENGTH])
