"""What rendering produces: files, each with the place in the topology that caused it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vstream.model.mappings import Mapping as SubjectMapping
    from vstream.model.streams import StreamConfig
    from vstream.model.topology import Role, Server


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
    role: Role
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where one server listens, and where it stores."""

    server: Server
    region: str
    host: str
    client: int
    monitor: int
    cluster: int
    gateway: int
    store_dir: str
    log_file: str | None = None
    pid_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Everything a topology renders to, sorted by path, and what it means."""

    artifacts: tuple[Artifact, ...]
    streams: tuple[PhysicalStream, ...]
    mappings: tuple[SubjectMapping, ...]
    servers: tuple[ServerAddress, ...]

    def text(self, path: str) -> str:
        """The text of the artifact at *path*. Raises KeyError if there is none."""
        for artifact in self.artifacts:
            if artifact.path == path:
                return artifact.text
        raise KeyError(path)
