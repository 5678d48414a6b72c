"""Signing in operator mode: the names of keys, and the interface of what signs with them."""

from __future__ import annotations

import re
from typing import Protocol

from vstream.syntax.document import Json

OPERATOR = "operator"
"""The operator's key, which servers trust. Signs nothing but itself."""
SIGNER = "signer"
"""The operator's signing key, which signs accounts."""
SYSTEM_ACCOUNT = "SYS"
PUBLIC_KEY = re.compile(r"A[A-Z2-7]{55}")
"""How servers call accounts in operator mode."""


CA_FILE, SERVER_CERTIFICATE, SERVER_KEY = "ca.pem", "server.pem", "server.key"
"""Where users have certificates: what a lab's servers have."""


def account_key(account: str) -> str:
    """The name of the key of *account*: its identity."""
    return f"account-{account}"


def role_key(user: str) -> str:
    """The name of the key that signs users of the role *user*: what they may do stands with it, in the account."""
    return f"role-{user}"


def user_key(user: str) -> str:
    """The name of the key that *user* logs in with, where configuration files say the public half of it."""
    return f"user-{user}"


def certificate_files(user: str) -> tuple[str, str]:
    """The certificate of *user*, and its key."""
    return f"user-{user}.pem", f"user-{user}.key"


class Signer(Protocol):
    """Knows keys by their names."""

    def public_key(self, name: str) -> str:
        """The public key called *name*. Raises VstreamError if there is none."""

    def sign(self, claims: dict[str, Json], name: str) -> str:
        """*claims* as a token, signed with the key called *name*. The same claims give the same token."""
