"""The tokens of operator mode (jwt/v2): a header, claims and a signature, each in base64."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from vstream.errors import VstreamError
from vstream.syntax.document import Json
from vstream.topology.signing import user_key

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_SIGNATURE_BYTES = 64
_PREFIXES = {"operator": 14 << 3, "signer": 14 << 3}
_USER_PREFIX_BYTE = 20 << 3
_ACCOUNT_PREFIX_BYTE = 0


def encode(claims: Mapping[str, Json], issuer: str, signature: Callable[[bytes], bytes]) -> str:
    """*claims* as a token of *issuer*. The same claims give the same token."""
    body = {**claims, "iss": issuer}
    body["jti"] = _encode_base32(hashlib.sha256(_encode_json(body)).digest())
    signed = f"{_encode_base64(_encode_json(_HEADER))}.{_encode_base64(_encode_json(body))}"
    return f"{signed}.{_encode_base64(signature(signed.encode()))}"


def decode(token: str) -> dict[str, Any]:
    """The claims of *token*, whoever signed it. Raises VstreamError if it is not a token."""
    try:
        _, body, _ = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except ValueError:
        claims = None
    if not isinstance(claims, dict):
        raise VstreamError("this is not a signed token")
    return claims


class Unsigned:
    """A Signer without keys, for looking at rendered files: no server accepts what it signs."""

    def public_key(self, name: str) -> str:
        """As Signer: made from *name* alone, and of the right form, though nobody has the key to it."""
        prefix = _USER_PREFIX_BYTE if name.startswith(user_key("")) else _PREFIXES.get(name, _ACCOUNT_PREFIX_BYTE)
        key = bytes([prefix]) + hashlib.sha256(f"no key: {name}".encode()).digest()
        return _encode_base32(key + binascii.crc_hqx(key, 0).to_bytes(2, "little"))

    def sign(self, claims: dict[str, Json], name: str) -> str:
        """As Signer, with a signature of zeros."""
        return encode(claims, self.public_key(name), lambda _: bytes(_SIGNATURE_BYTES))


def _encode_json(value: Mapping[str, Json]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _encode_base32(data: bytes) -> str:
    return base64.b32encode(data).rstrip(b"=").decode()
