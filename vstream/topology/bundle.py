"""The result of rendering: files, each with the place in the topology that caused it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vstream.subjects.mapping_rule import MappingRule
from vstream.topology.accounts import (
    HUB_PASSWORDS,
    LEAF_PLACEHOLDER,
    PASSWORDS,
    REGIONAL_PASSWORDS,
    SYSTEM_PASSWORDS,
    Account,
    password_placeholders,
)
from vstream.topology.consumer_config import ConsumerConfig
from vstream.topology.model import Role, Security, Topology
from vstream.topology.server_address import ServerAddress
from vstream.topology.stream_config import StreamConfig
from vstream.value_class import value_class

MAPPINGS_PATH = "mappings.cfg"
"""With `routing: mapped`, what every server includes in the account that holds the streams, if vstream does not write that."""
ACCOUNTS_PATH = "accounts.cfg"
"""Where vstream writes accounts as a whole, what every server that stores includes."""
OPERATOR_PATH = "operator.cfg"
"""In operator mode, what every server includes: the operator's token, and those of accounts that it begins with."""
HUBS_PATH = "hubs.cfg"
"""With `routing: domains`, what every hub includes."""
PASSWORDS_PATH = "passwords.cfg"
"""The passwords of its users, which it includes. vstream generates them for labs only. Never in a bundle."""
HUB_PASSWORDS_PATH = "hub-passwords.cfg"
"""The same for hubs."""
SYSTEM_PASSWORD_PATH = "system-password.cfg"
"""With `routing: regional`, the password of the system account; those of users are in a file for each region."""
TLS_PATH = "tls.cfg"
"""Where users have certificates, what every server includes: the path of its own one. Not in a bundle."""


def passwords_path(region: str) -> str:
    """With `routing: regional`, the passwords of the users of *region*. Never in a bundle."""
    return f"passwords-{region}.cfg"


def leaf_path(region: str) -> str:
    """What the servers of *region* include to reach their hub: its URL, with a password. Never in a bundle."""
    return f"leaf-{region}.cfg"


def is_secret(path: str) -> bool:
    """Whether the file at *path* holds passwords."""
    return placeholder_for(path) is not None


def placeholder_for(path: str) -> str | None:
    """A placeholder for the file with passwords at *path*, where a configuration is only read; None for another file."""
    name = path.rpartition("/")[2]
    whole = {PASSWORDS_PATH: PASSWORDS, HUB_PASSWORDS_PATH: HUB_PASSWORDS, SYSTEM_PASSWORD_PATH: SYSTEM_PASSWORDS}
    if name in whole:
        return password_placeholders(whole[name])
    if name.startswith("passwords-") and name.endswith(".cfg"):
        return password_placeholders(REGIONAL_PASSWORDS)
    return LEAF_PLACEHOLDER if name.startswith("leaf-") and name.endswith(".cfg") else None


def is_private(path: str) -> bool:
    """Whether nobody else needs to read the file at *path*: it holds passwords, or tokens."""
    return is_secret(path) or path.rpartition("/")[2] == OPERATOR_PATH


def loaded_path(topology: Topology) -> str:
    """The file of a bundle that every server with JetStream loads, and reloads while it runs. Tokens are pushed."""
    if topology.security is Security.OPERATOR:
        return OPERATOR_PATH
    return ACCOUNTS_PATH if topology.has_accounts else MAPPINGS_PATH


@value_class
class Artifact:
    """One file of a bundle. *path* is relative, with forward slashes."""

    path: str
    text: str
    origin: tuple[str | int, ...] = ()
    """The path in the topology document that this file comes from."""


class LateArtifact(Artifact):
    """One that is written when its text is asked for: a plan of thousands of streams needs none of theirs."""

    __slots__ = ("_write",)
    _write: Callable[[], str]

    def __init__(self, path: str, write: Callable[[], str], origin: tuple[str | int, ...]) -> None:
        for name, value in (("path", path), ("_write", write), ("origin", origin)):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is written late, too."""
        return LateArtifact, (self.path, self._write, self.origin)

    @property
    def text(self) -> str:
        """What the file holds."""
        return self._write()


@value_class
class RenderedStream:
    """A stream that will exist on servers, parsed back from its artifact."""

    config: StreamConfig
    virtual: str
    region: str
    """Where it lives: a region, or the stretch cluster's name."""
    role: Role
    path: str
    account: str | None = None
    """The hidden account, or the domain, that it lives in; None where all streams share the account of clients."""
    takes_over: str | None = None
    """A plain stream that it sources besides, until it has everything of it."""
    subjects: tuple[str, ...] = ()
    """What clients publish on."""


@value_class
class RenderedConsumer:
    """A durable that will exist on a physical stream, parsed back from its artifact."""

    config: ConsumerConfig
    virtual: str
    region: str
    path: str


@value_class
class Bundle:
    """Everything a topology renders to, sorted by path, and what it means."""

    artifacts: tuple[Artifact, ...]
    streams: tuple[RenderedStream, ...]
    mappings: tuple[MappingRule, ...]
    accounts: tuple[Account, ...]
    """What they share, without their users. None with `routing: mapped`."""
    servers: tuple[ServerAddress, ...]
    consumers: tuple[RenderedConsumer, ...] = ()
    claims: tuple[dict[str, Any], ...] = ()
    """In operator mode, those of its accounts, the system account included."""

    def text(self, path: str) -> str:
        """The text of the artifact at *path*. Raises KeyError if there is none."""
        for artifact in self.artifacts:
            if artifact.path == path:
                return artifact.text
        raise KeyError(path)
