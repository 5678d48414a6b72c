"""Stream configurations as the JetStream API speaks them: an open mapping of fields with typed views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.model.json import Json

TOPOLOGY_KEY = "vstream.topology"
STREAM_KEY = "vstream.stream"
REGION_KEY = "vstream.region"
ROLE_KEY = "vstream.role"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """
    A stream configuration.

    The API is an open world, new fields arrive with each server release: a closed
    class would drop what it does not know. Durations are integer nanoseconds.
    """

    name: str
    fields: Mapping[str, Json]
    """Every field as sent or received, the name included."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata, empty if there is none."""
        metadata = self.fields.get("metadata")
        return {str(key): str(value) for key, value in metadata.items()} if isinstance(metadata, dict) else {}

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names of the streams that this one sources, as written."""
        sources = self.fields.get("sources")
        if not isinstance(sources, (list, tuple)):
            return ()
        return tuple(str(source["name"]) for source in sources if isinstance(source, dict) and "name" in source)

    @property
    def mirror_name(self) -> str | None:
        """The name of the stream that this one mirrors, None if it is no mirror."""
        mirror = self.fields.get("mirror")
        return str(mirror["name"]) if isinstance(mirror, dict) and "name" in mirror else None

    @property
    def owner(self) -> str | None:
        """The topology that created this stream, None if vstream did not."""
        return self.metadata.get(TOPOLOGY_KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStream:
    """A stream as the servers report it."""

    config: StreamConfig
    created: str
    """RFC 3339, as the server wrote it. Changes only when a stream is created again."""
    cluster: str | None
    """Where it lives; None on a server that is not clustered."""
    messages: int = 0
