"""What only whoever runs vstream may allow, and never a topology: it also chooses the servers that secrets are sent to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Sequence

ALLOWED_VARIABLES = ("VSTREAM_", "NATS_")
"""How the names of environment variables begin that a topology may name: anybody could take out others."""
MORE_VARIABLES = "VSTREAM_ALLOW_ENV"
"""The variable with more of them: names, and beginnings of names such as `OPS_*`."""
PLAINTEXT = "VSTREAM_ALLOW_PLAINTEXT"
"""The variable that allows credentials to cross the network in clear. `vstream --allow-plaintext` sets it."""


def read_variable(name: str | None, reader: str) -> str:
    """
    The secret in the environment variable *name*, for *reader*, such as "region `west`".

    Raises VstreamError if it is not set, or not for a topology to name.
    """
    name = name or ""
    more = [entry.strip() for entry in os.environ.get(MORE_VARIABLES, "").split(",") if entry.strip()]
    is_allowed = name.startswith(ALLOWED_VARIABLES) or any(
        name.startswith(entry.removesuffix("*")) if entry.endswith("*") else name == entry for entry in more
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
