"""Load secrets only where they are used: from files and environment variables of the machine that reads."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
from dataclasses import field, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pyspark import SparkFiles

from vstream.audit.connector.values import Access
from vstream.credentials import make_tls_context, read_credentials, read_secret_variable, read_seed
from vstream.errors import VstreamError
from vstream.topology.accounts import inbox_of
from vstream.topology.model import Endpoint
from vstream.value_class import value_class

try:
    from nacl.signing import SigningKey
except ImportError:  # an executor may lack it
    SigningKey = None  # type: ignore[assignment,misc]

_CONTEXT = (
    ("creds", "creds"),
    ("nkey", "nkey"),
    ("user", "user"),
    ("tls_ca", "ca"),
    ("tls_cert", "cert"),
    ("tls_key", "key"),
    ("inbox", "inbox_prefix"),
)
"""Our field names, and those of a nats CLI context."""


@value_class
class Login:
    """The secrets for a connection. Exists only in the process that connects."""

    servers: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    jwt: str | None = field(default=None, repr=False)
    seed: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    inbox: str

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint: the addresses, and whether there is a login."""
        nkey = None if self.seed is None else "as a file"
        return Endpoint(urls=self.servers, user=self.user, token=self.token, nkey=nkey)

    def options(self, nonce: str | None) -> dict[str, Any]:
        """The login fields of CONNECT. Raises VstreamError if *nonce* must be signed but there is no key."""
        fields: dict[str, Any] = {}
        if self.user is not None:
            fields |= {"user": self.user, "pass": self.password or ""}
        if self.token is not None:
            fields["auth_token"] = self.token
        if self.seed is not None and nonce:
            public, signature = _sign(self.seed, nonce.encode())
            fields["sig"] = signature
            fields |= {"jwt": self.jwt} if self.jwt else {"nkey": public}
        return fields


def load_login(access: Access) -> Login:
    """Load the secrets that *access* names. Raises VstreamError for a missing file or variable."""
    context: dict[str, Any] = {}
    if access.context:
        context = _read_context(access.context)
        login_fields: dict[str, Any] = {ours: str(context[theirs]) for ours, theirs in _CONTEXT if context.get(theirs)}
        access = replace(
            access,
            servers=tuple(url.strip() for url in str(context.get("url", "")).split(",") if url.strip()),
            **login_fields,
        )
    jwt, seed = _read_credentials(access)
    return Login(
        servers=access.servers,
        user=access.user,
        password=_read_secret(access.password_env, access.password_file, context.get("password")),
        token=_read_secret(access.token_env, access.token_file, context.get("token")),
        jwt=jwt,
        seed=seed,
        tls=_make_tls_context(access),
        inbox=access.inbox or inbox_of(access.user),
    )


def split_address(url: str) -> SplitResult:
    """The parts of *url*, which may lack a scheme. Raises VstreamError if it is no address."""
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        is_address = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        address = url.rpartition("@")[2]  # without a password
        raise VstreamError(f"`{address}` is not the address of a server", hint="write `nats://host:4222`")
    return parts


def find_file(name: str) -> Path:
    """The path of the file *name*: local, or one that Spark distributed. Raises VstreamError if it does not exist."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    try:
        distributed = Path(SparkFiles.getRootDirectory()) / path.name
    except Exception:  # noqa: BLE001 - Spark raises errors of many kinds where it has no such directory
        distributed = path
    if distributed.is_file():
        return distributed
    raise VstreamError(
        f"the file {name} is not on the machine that reads", hint="`spark-submit --files` distributes files"
    )


def _read_secret(variable: str | None, file: str | None, secret: object) -> str | None:
    if variable:
        return read_secret_variable(variable, "the machine that reads")
    if file:
        return find_file(file).read_text(encoding="utf-8").strip()
    return str(secret) if secret else None


def context_file(name: str) -> Path:
    """The file of the nats CLI context *name*, which may also be a path. Raises VstreamError as `find_file`."""
    directory = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "nats" / "context"
    path = directory / f"{name}.json"
    return path if path.is_file() else find_file(name)


def _read_context(name: str) -> dict[str, Any]:
    path = context_file(name)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise VstreamError(f"the nats CLI context {path} cannot be read", hint="`nats context validate` says why")
    return document


def _read_credentials(access: Access) -> tuple[str | None, bytes | None]:
    if access.creds:
        return read_credentials(find_file(access.creds))
    return None, read_seed(find_file(access.nkey)) if access.nkey else None


def _make_tls_context(access: Access) -> ssl.SSLContext | None:
    if not (access.tls_ca or access.tls_cert):
        return None
    files = (access.tls_ca, access.tls_cert, access.tls_key)
    return make_tls_context(*(str(find_file(file)) if file else None for file in files))


def _sign(seed: bytes, nonce: bytes) -> tuple[str, str]:
    """The public nkey of *seed*, and *nonce* signed with *seed*, encoded for CONNECT."""
    raw = base64.b32decode(seed + b"=" * (-len(seed) % 8))
    # A seed is two bytes of prefix, 32 of key and two of checksum; the prefix holds the kind of the key twice over.
    kind = ((raw[0] & 0x07) << 5) | (raw[1] >> 3)
    if SigningKey is None:
        raise VstreamError("nkeys and credentials need PyNaCl on the machine that reads", hint="pip install pynacl")
    key = SigningKey(raw[2:34])
    body = bytes([kind, *bytes(key.verify_key)])
    encoded = base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).rstrip(b"=").decode()
    return encoded, base64.urlsafe_b64encode(key.sign(nonce).signature).rstrip(b"=").decode()
