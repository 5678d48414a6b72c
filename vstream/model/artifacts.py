"""What rendering produces: files, each with the place in the topology that caused it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vstream.model.topology import Routing

if TYPE_CHECKING:
    from vstream.model.accounts import Account
    from vstream.model.consumers import ConsumerConfig
    from vstream.model.mappings import Mapping as SubjectMapping
    from vstream.model.streams import StreamConfig
    from vstream.model.topology import Role, Server


MAPPINGS_PATH = "mappings.cfg"
"""With `routing: mapped`, what every server includes in the account that holds the streams."""
ACCOUNTS_PATH = "accounts.cfg"
"""With `routing: accounts`, what every server includes."""
PASSWORDS_PATH = "passwords.cfg"
"""What that includes: the passwords of its users, which vstream makes up for labs only. Never in a bundle."""


def loaded_path(routing: Routing) -> str:
    """What of a bundle every server loads, and loads again while it runs."""
    return ACCOUNTS_PATH if routing is Routing.ACCOUNTS else MAPPINGS_PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One file of a bundle. *path* is relative, with forward slashes."""

    path: str
    text: str
    origin: tuple[str | int, ...] = ()
    """The path in the topology document that this file comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalStream:
    """A stream that will exist on servers, parsed back from its artifact."""

    config: StreamConfig
    virtual: str
    region: str
    """Where it lives: a region, or the stretch cluster's name."""
    role: Role
    path: str
    account: str | None = None
    """The hidden account that it lives in; None where all streams share the account of clients."""
    takes_over: str | None = None
    """A plain stream that it sources besides, until it has everything of it."""
    subjects: tuple[str, ...] = ()
    """What clients publish on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalConsumer:
    """A durable that will exist on a physical stream, parsed back from its artifact."""

    config: ConsumerConfig
    virtual: str
    region: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where one server listens, and where it stores."""

    server: Server
    region: str
    """Where it stands. A member of the stretch cluster stands in a region too, and is lost with it."""
    cluster_name: str
    """The NATS cluster that it belongs to: the region's own, or the stretch cluster."""
    host: str
    client: int
    monitor: int
    cluster: int
    gateway: int
    store_dir: str
    log_file: str | None = None
    pid_file: str | None = None
    is_stretch: bool = False
    """Whether it is a member of the stretch cluster."""
    link_host: str | None = None
    """Where other servers reach it, if not at *host*: in a lab whose regions are networks of their own."""
    gateway_front: int | None = None
    """The port at which other clusters reach it, if not at its own: a lab's links stand in between."""
    route_front: int | None = None
    """The port at which the other members of the stretch cluster reach it, in the same way."""

    @property
    def peer_host(self) -> str:
        """Where it listens for other servers."""
        return self.link_host or self.host

    @property
    def gateway_url(self) -> str:
        """Where other clusters dial it."""
        return f"nats://{self.peer_host}:{self.gateway_front or self.gateway}"

    @property
    def route_url(self) -> str:
        """Where the other members of its cluster dial it."""
        return f"nats://{self.peer_host}:{self.route_front or self.cluster}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Everything a topology renders to, sorted by path, and what it means."""

    artifacts: tuple[Artifact, ...]
    streams: tuple[PhysicalStream, ...]
    mappings: tuple[SubjectMapping, ...]
    accounts: tuple[Account, ...]
    """What they share, without their users. None with `routing: mapped`."""
    servers: tuple[ServerAddress, ...]
    consumers: tuple[PhysicalConsumer, ...] = ()

    def text(self, path: str) -> str:
        """The text of the artifact at *path*. Raises KeyError if there is none."""
        for artifact in self.artifacts:
            if artifact.path == path:
                return artifact.text
        raise KeyError(path)
