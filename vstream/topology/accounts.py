"""The accounts of a super-cluster as values: exports, imports and users."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from vstream.topology.model import VSTREAM_INBOX
from vstream.value_class import value_class

APP_USER, VSTREAM_USER, PROBE_USER, AUDIT_USER = USERS = ("app", "vstream", "probe", "audit")
"""Who logs in to the account of clients, with `routing: accounts`."""
SYSTEM_USER = "system"
LEAF_USER = "leaf"
"""The user as which the servers of a region log in to its hub, with `routing: domains`."""


def password_variable(user: str) -> str:
    """The variable of a server's configuration that holds the password of *user*."""
    return f"VSTREAM_PASSWORD_{user.upper()}"


def regional_user(user: str, region: str) -> str:
    """The name of *user* in the account of *region*: servers refuse one name in two accounts."""
    return f"{user}-{region}"


def regional_variable(user: str, region: str) -> str:
    """The variable of the environment that holds the password of *user* in *region*."""
    return f"{password_variable(user)}_{region.upper().replace('-', '_')}"


def inbox_of(user: str | None) -> str:
    """
    The prefix of subjects for answers to *user*, with or without its region; None where only its key is known.

    Those of `probe` and `audit` are below that of `vstream`, which users of one's own and of earlier versions may hear.
    """
    role = (user or "").partition("-")[0]
    return f"{VSTREAM_INBOX}.{role}" if role in {PROBE_USER, AUDIT_USER} else VSTREAM_INBOX


def is_irrevocable(user: str) -> bool:
    """Whether *user* cannot be revoked: vstream changes accounts with it, and servers could learn of no other key."""
    return user == SYSTEM_USER or user.partition("-")[0] == VSTREAM_USER


REGIONAL_PASSWORDS = tuple(map(password_variable, USERS))
SYSTEM_PASSWORDS = (password_variable(SYSTEM_USER),)
PASSWORDS = (*REGIONAL_PASSWORDS, *SYSTEM_PASSWORDS)

HUB_PASSWORDS = tuple(map(password_variable, (LEAF_USER, SYSTEM_USER)))
LEAF_VARIABLE = "VSTREAM_LEAF"
"""The variable that says where the servers of a region reach their hub, and with which password: a URL."""


def password_placeholders(variables: Iterable[str]) -> str:
    """A placeholder for a file with passwords, where a configuration is only read."""
    return "".join(f'{variable}: "$2a$11$none"\n' for variable in variables)


LEAF_PLACEHOLDER = f'{LEAF_VARIABLE}: "nats-leaf://leaf:none@127.0.0.1:7422"\n'


class ShareKind(Enum):
    """What two accounts share."""

    SERVICE = "service"
    """Requests go from the importing account to the exporting one, and answers come back."""
    STREAM = "stream"
    """Messages go from the exporting account to the importing one."""


@value_class
class Export:
    """What *accounts* may import. *threshold* limits how long a service with many answers may take: `10m`."""

    kind: ShareKind
    subject: str
    accounts: tuple[str, ...]
    threshold: str | None = None


@value_class
class Import:
    """What is imported from *account*. *to* is its subject here, None for the same subject."""

    kind: ShareKind
    account: str
    subject: str
    to: str | None = None


@value_class
class User:
    """Who may log in. The password is a variable of the servers' configuration: no secret is in a bundle."""

    name: str
    password_variable: str
    purpose: str
    publish: tuple[str, ...]
    """What it may publish, after mapping: servers look at the mapped subject."""
    subscribe: tuple[str, ...]
    denied: tuple[str, ...] = ()
    """Exceptions: what it may not publish, although *publish* covers it."""
    unheard: tuple[str, ...] = ()
    """What it may not receive, although its subscriptions cover it."""


@value_class
class Account:
    """One account. The text of all of them is the same on every server."""

    name: str
    purpose: str
    has_jetstream: bool
    users: tuple[User, ...] = ()
    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()
