"""What the text of accounts is rendered from, by routing profile."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from vstream.render.accounts import domains, mapped, regional
from vstream.render.accounts.logins import login
from vstream.topology import naming
from vstream.topology.accounts import SYSTEM_USER
from vstream.topology.bundle import PASSWORDS_PATH, SYSTEM_PASSWORD_PATH, passwords_path
from vstream.topology.model import Routing, Security
from vstream.topology.signing import SYSTEM_ACCOUNT

if TYPE_CHECKING:
    from vstream.topology.model import Topology
    from vstream.topology.signing import Signer


def user_entries(topology: Topology, signer: Signer) -> dict[str, Any]:
    """How the entries of users in configuration files are written."""
    return {
        "has_passwords": topology.security is Security.PASSWORDS,
        "has_keys": topology.security is Security.NKEYS,
        "login": partial(login, topology, signer),
    }


def accounts_view(topology: Topology) -> dict[str, Any]:
    """
    The accounts of *topology*, and what is particular about them; none where there is one account, somebody else's.

    `mapped` are the accounts with mapping rules, `inner` files with passwords by the account that includes them.
    """
    common: dict[str, Any] = {
        "mapped": naming.client_accounts(topology),
        "passwords": PASSWORDS_PATH,
        "inner": {},
        "has_hubs": topology.hubs is not None,
    }
    denied = (f"{naming.ACCOUNT_API_PREFIX}.>",)
    match topology.routing:
        case Routing.MAPPED if not topology.has_accounts:
            return {**common, "accounts": (), "denied": ()}
        case Routing.MAPPED:
            return {**common, "accounts": mapped.accounts(topology), "denied": denied}
        case Routing.ACCOUNTS:
            return {**common, "accounts": mapped.accounts_with_former(topology), "denied": denied}
        case Routing.DOMAINS:
            return {**common, "accounts": (domains.account(topology),), "denied": domains.DENIED, "has_hubs": True}
        case Routing.REGIONAL:
            return {
                **common,
                "accounts": regional.accounts(topology),
                "denied": regional.DENIED,
                "passwords": SYSTEM_PASSWORD_PATH,
                "inner": {
                    naming.region_account(region.name): passwords_path(region.name) for region in topology.regions
                },
            }
        case _:
            assert_never(topology.routing)


def logins(topology: Topology) -> dict[str, str]:
    """Who logs in, and to which account."""
    found = {user.name: account.name for account in accounts_view(topology)["accounts"] for user in account.users}
    return {**found, SYSTEM_USER: SYSTEM_ACCOUNT}
