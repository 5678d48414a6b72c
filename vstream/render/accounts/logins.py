"""How users are named in accounts that stand in configuration files: by a password, a public key, or a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.render.environment import quote
from vstream.topology.model import Security
from vstream.topology.signing import user_key

if TYPE_CHECKING:
    from vstream.topology.model import Topology
    from vstream.topology.signing import Signer


def login(topology: Topology, signer: Signer, user: str, variable: str) -> str:
    """
    What the entry of *user* begins with. *variable* is the one that holds its password, where users have passwords.

    A user of a certificate has no password, so it is kept to connections whose certificates servers map
    (server/auth.go, canTLSMap): an older server would take an empty password for it on another listener.
    """
    if topology.security is Security.NKEYS:
        return f"nkey: {quote(signer.public(user_key(user)))}"
    if topology.security is Security.CERTIFICATES:
        name = topology.certificates.get(user, user)
        return f'user: {quote(name)}, allowed_connection_types: ["STANDARD"]'
    return f"user: {quote(user)}, password: ${variable}"
