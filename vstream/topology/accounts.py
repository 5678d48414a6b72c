"""The accounts of a super-cluster as values: exports, imports and users."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

APP_USER, VSTREAM_USER, PROBE_USER, AUDIT_USER = USERS = ("app", "vstream", "probe", "audit")
"""Who logs in to the account of clients, with `routing: accounts`."""
SYSTEM_USER = "system"
LEAF_USER = "leaf"
"""As whom the servers of a region log in to its hub, with `routing: domains`."""


def password_variable(user: str) -> str:
    """The variable of a server's configuration that holds the password of *user*."""
    return f"VSTREAM_PASSWORD_{user.upper()}"


def regional_user(user: str, region: str) -> str:
    """What *user* of the account of *region* is called: servers refuse one name in two accounts."""
    return f"{user}-{region}"


def regional_variable(user: str, region: str) -> str:
    """The variable of the environment that holds the password of *user* in *region*."""
    return f"{password_variable(user)}_{region.upper().replace('-', '_')}"


def is_permanent(user: str) -> bool:
    """Whether *user* is one that vstream changes accounts with: without it, no other key could be made known."""
    return user == SYSTEM_USER or user.partition("-")[0] == VSTREAM_USER


REGIONAL_PASSWORDS = tuple(map(password_variable, USERS))
SYSTEM_PASSWORDS = (password_variable(SYSTEM_USER),)
PASSWORDS = (*REGIONAL_PASSWORDS, *SYSTEM_PASSWORDS)

HUB_PASSWORDS = tuple(map(password_variable, (LEAF_USER, SYSTEM_USER)))
LEAF_VARIABLE = "VSTREAM_LEAF"
"""The variable that says where the servers of a region reach their hub, and with which password: a URL."""


def password_placeholders(variables: Iterable[str]) -> str:
    """What stands for a file with passwords where a configuration is only read."""
    return "".join(f'{variable}: "$2a$11$none"\n' for variable in variables)


LEAF_PLACEHOLDER = f'{LEAF_VARIABLE}: "nats-leaf://leaf:none@127.0.0.1:7422"\n'


class ShareKind(Enum):
    """What is shared between two accounts."""

    SERVICE = "service"
    """Requests go from the importing account to the exporting one, and answers come back."""
    STREAM = "stream"
    """Messages go from the exporting account to the importing one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What *accounts* may import. *threshold* is how long answers may take, for services with many of them: `10m`."""

    kind: ShareKind
    subject: str
    accounts: tuple[str, ...]
    threshold: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What is taken from *account*. *to* is what it is called here, None for the same."""

    kind: ShareKind
    account: str
    subject: str
    to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who may log in. The password is a variable of the servers' configuration: no secret stands in a bundle."""

    name: str
    password_variable: str
    purpose: str
    publish: tuple[str, ...]
    """What it may publish, after mapping: servers look at the mapped subject."""
    subscribe: tuple[str, ...]
    denied: tuple[str, ...] = ()
    """What of that it may not publish all the same."""
    unheard: tuple[str, ...] = ()
    """What it may not hear of what it subscribes to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One account. The text of all of them is the same on every server."""

    name: str
    purpose: str
    has_jetstream: bool
    users: tuple[User, ...] = ()
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
