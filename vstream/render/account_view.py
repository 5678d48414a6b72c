"""The values that account templates use, and how users are named: by password, public key or certificate."""

from __future__ import annotations

from functools import partial
from typing import Any

from vstream.render.environment import quote
from vstream.topology import physical
from vstream.topology.accounts import SYSTEM_USER
from vstream.topology.model import Security, Topology
from vstream.topology.profiles import profile_of
from vstream.topology.profiles.shared import ANSWERS
from vstream.topology.signing import SYSTEM_ACCOUNT, Signer, user_key


def make_login_view(topology: Topology, signer: Signer) -> dict[str, Any]:
    """How users are written in configuration files."""
    return {
        "has_passwords": topology.security is Security.PASSWORDS,
        "has_keys": topology.security is Security.NKEYS,
        "login": partial(_write_login, topology, signer),
    }


def accounts_view(topology: Topology) -> dict[str, Any]:
    """
    The accounts of *topology*, and what is particular about them; none where there is one account, somebody else's.

    `mapped` are the accounts with mapping rules, `inner` files with passwords by the account that includes them.
    """
    profile = profile_of(topology)
    return {
        "accounts": profile.accounts(topology),
        "mapped": physical.client_accounts(topology),
        "answers": ANSWERS,
        "denied": profile.denied if topology.has_accounts else (),
        "passwords": profile.passwords_path,
        "inner": profile.inner_passwords(topology),
        "has_hubs": profile.has_domains,
        "client_limits": _write_entries(
            max_connections=topology.limits.connections, max_subscriptions=topology.limits.subscriptions
        ),
        "stream_limits": _write_entries(max_consumers=topology.limits.consumers),
    }


def _write_entries(**values: int | None) -> str:
    """The entries of a map in a configuration, without those that have no value."""
    return ", ".join(f"{key}: {value}" for key, value in values.items() if value is not None)


def index_users(topology: Topology) -> dict[str, str]:
    """Which users exist, and the account of each."""
    users = {user.name: account.name for account in accounts_view(topology)["accounts"] for user in account.users}
    return {**users, SYSTEM_USER: SYSTEM_ACCOUNT}


def _write_login(topology: Topology, signer: Signer, user: str, variable: str) -> str:
    """
    What the entry of *user* begins with. *variable* is the one that holds its password, where users have passwords.

    A user of a certificate has no password, so it is kept to connections whose certificates servers map
    (server/auth.go, canTLSMap): an older server would take an empty password for it on another listener.
    """
    if topology.security is Security.NKEYS:
        return f"nkey: {quote(signer.public_key(user_key(user)))}"
    if topology.security is Security.CERTIFICATES:
        name = topology.certificates.get(user, user)
        return f'user: {quote(name)}, allowed_connection_types: ["STANDARD"]'
    return f"user: {quote(user)}, password: ${variable}"
