"""Credentials that a topology names: which variables and files it may use, as whoever runs vstream allows; and reading them."""

from __future__ import annotations

import base64
import binascii
import os
import re
import ssl
from collections.abc import Sequence
from pathlib import Path

from vstream.errors import VstreamError

ALLOWED_VARIABLES = ("VSTREAM_", "NATS_")
"""How the names of environment variables begin that a topology may name: anybody could take out others."""
MORE_VARIABLES = "VSTREAM_ALLOW_ENV"
"""The variable with more of them: names, and beginnings of names such as `OPS_*`."""
PLAINTEXT = "VSTREAM_ALLOW_PLAINTEXT"
"""The variable that allows credentials to cross the network in clear. `vstream --allow-plaintext` sets it."""
FILE_PLACES = "VSTREAM_CREDENTIALS"
"""The variable with directories, as in `PATH`, whose files a topology may name."""
_BLOCK = re.compile(rb"-----BEGIN [A-Z ]+-----\s*(\S+)\s*-+END")
"""Of a credentials file: first the JWT, then the seed."""
_SEED_BYTES = 36
"""Two of prefix, 32 of key and two of checksum."""


def read_secret_variable(name: str | None, reader: str) -> str:
    """
    The secret in the environment variable *name*, for *reader*, such as "region `west`".

    Raises VstreamError if it is not set, or not for a topology to name.
    """
    name = name or ""
    more = [entry.strip() for entry in os.environ.get(MORE_VARIABLES, "").split(",") if entry.strip()]
    is_allowed = name.startswith(ALLOWED_VARIABLES) or any(
        name.startswith(entry.removesuffix("*")) if entry.endswith("*") else name == entry for entry in more
    )
    if not is_allowed and name != name.upper():
        raise VstreamError(
            f"{reader}: `connect` has no name of a variable where one must be",
            hint=f"write a name, such as {ALLOWED_VARIABLES[0]}PASSWORD, never the secret itself",
        )
    if not is_allowed:
        raise VstreamError(
            f"{reader}: the environment variable {name} may not be read",
            hint=f"call it {ALLOWED_VARIABLES[0]}{name}, or allow it: export {MORE_VARIABLES}={name}",
        )
    value = os.environ.get(name)
    if not value:
        raise VstreamError(f"{reader}: the environment variable {name} is not set", hint=f"export {name}=…")
    return value


def require_secret_file(path: str, reader: str, keys: Path) -> str:
    """
    The file at *path* that a topology names, for *reader*, such as "region `west`".

    It is below the current directory, or in a place that whoever runs vstream has chosen: the directories in
    VSTREAM_CREDENTIALS, and that of *keys*, where a name alone is looked for. Raises VstreamError for any other, which a
    topology could have sent anywhere.
    """
    current, named = Path.cwd().resolve(), Path(path).expanduser()
    listed = [Path(entry).expanduser() for entry in os.environ.get(FILE_PLACES, "").split(os.pathsep) if entry]
    places = [place.resolve() for place in (*listed, keys)]
    candidates = [named, *(place / path for place in places)] if "/" not in path else [named]
    file = next((candidate for candidate in candidates if candidate.is_file()), named).resolve()
    is_below = current != Path(current.anchor) and file.is_relative_to(current)
    is_hidden = is_below and any(part.startswith(".") for part in file.relative_to(current).parts)
    if (not is_below or is_hidden) and not any(file.is_relative_to(place) for place in places):
        place = named.parent if named.parent.resolve() == file.parent else file.parent  # of a link, where it leads
        raise VstreamError(
            f"{reader}: a topology may not name the file {path}",
            hint=f"put it below the current directory, or allow its directory: export {FILE_PLACES}={place}",
        )
    return str(file) if file.is_file() else path


def is_plaintext_allowed() -> bool:
    """Whether credentials may cross the network in clear."""
    return os.environ.get(PLAINTEXT, "0") not in {"", "0"}


def check_plaintext(hosts: Sequence[str], reader: str) -> None:
    """Raise VstreamError if a login would go to *hosts* in clear, and nobody has allowed it."""
    if hosts and not is_plaintext_allowed():
        raise VstreamError(
            f"{reader}: credentials would cross the network unencrypted, to {', '.join(hosts)}; nothing was sent",
            hint=f"use `tls://` addresses; if this is meant: `vstream --allow-plaintext`, or export {PLAINTEXT}=1",
        )


def read_credentials(path: Path) -> tuple[str, bytes]:
    """The JWT and the seed of a credentials file. Raises VstreamError if *path* is none."""
    blocks = _BLOCK.findall(path.read_bytes())
    if len(blocks) != 2 or not _is_seed(blocks[1]):  # noqa: PLR2004 - a JWT and a seed
        raise VstreamError(f"{path} is not a credentials file", hint="`nsc generate creds` writes them")
    return blocks[0].decode(errors="replace"), blocks[1]


def read_seed(path: Path) -> bytes:
    """The seed of an nkey, which is all that its file holds. Raises VstreamError if *path* holds something else."""
    if not _is_seed(seed := path.read_bytes().strip()):
        raise VstreamError(f"{path} holds no seed of an nkey", hint="a seed begins with `SU`; `U…` is the public half")
    return seed


def _is_seed(text: bytes) -> bool:
    try:
        raw = base64.b32decode(text + b"=" * (-len(text) % 8))
    except ValueError:
        return False
    return len(raw) == _SEED_BYTES and binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") == raw[-2:]


def make_tls_context(ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """How servers are verified, and what is shown to them. Raises VstreamError if a file is not what it should be."""
    name = f"the CA file {ca}"
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate:
            name = f"the certificate {certificate} with the key {key or certificate}"
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise VstreamError(
            f"{name} cannot be read: {error.strerror or error}", hint="see `tls` of `connect` in the topology"
        ) from None
    return context
