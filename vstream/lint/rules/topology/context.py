"""What the rules of a topology look at."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vstream.syntax.yaml import Path
from vstream.topology.decode import list_levels
from vstream.topology.document import LevelDocument, SettingsDocument, TopologyDocument
from vstream.topology.model import Role, Topology
from vstream.topology.replication import physical_streams
from vstream.value_class import value_class


@value_class
class PhysicalSettings:
    """One physical stream and the fields with which it will be created."""

    stream: str
    role: Role
    region: str
    """Where it is placed: a region, or the name of the stretch cluster."""
    fields: Mapping[str, Any]
    is_mirror: bool = False


@dataclass(frozen=True, kw_only=True)
class TopologySubject:
    """A topology as written, with a stream for each bucket, and as resolved."""

    document: TopologyDocument
    topology: Topology
    written: Collection[str]
    """The streams that are declared under `streams`."""
    removed: Collection[Path] = ()
    """What is left out, since it could not be read."""

    def setting_levels(self) -> Iterator[tuple[Path, SettingsDocument]]:
        """Every place where settings are written, with its path."""
        document = self.document
        levels: list[tuple[Path, LevelDocument]] = [(("defaults",), document.defaults)]
        levels.extend((("presets", name), preset) for name, preset in document.presets.items())
        for name, stream in document.streams.items():
            levels.append((("streams", name), stream))
            levels.extend(
                (("streams", name, "overrides", region), override) for region, override in stream.overrides.items()
            )
        for path, level in levels:
            yield path, level
            yield (*path, "write"), level.write
            yield (*path, "read"), level.read
            yield (*path, "order"), level.order

    @cached_property
    def physical(self) -> tuple[PhysicalSettings, ...]:
        """Every physical stream."""
        settings = []
        for stream in self.topology.streams:
            for part in physical_streams(stream):
                settings.append(
                    PhysicalSettings(
                        stream=stream.name,
                        role=part.role,
                        region=part.place,
                        fields=part.fields,
                        is_mirror=part.role is Role.READ and stream.consistency.has_mirrors,
                    )
                )
        return tuple(settings)

    def describe_place(self, place: str) -> str:
        """A region or the stretch cluster, as it is called in messages."""
        return f"region `{place}`" if place in self.document.regions else "the stretch cluster"

    def may_set_more(self, physical: PhysicalSettings) -> bool:
        """Whether what was left out, or a preset that does not exist, may have a setting for a physical stream."""
        levels = list_levels(self.document, physical.stream, physical.region, physical.role)
        extends = self.document.streams[physical.stream].extends
        return not set(extends) <= set(self.document.presets) or any(
            path[: len(level)] == level for level, _ in levels for path in self.removed
        )

    def list_paths(self, physical: PhysicalSettings, word: str) -> list[Path]:
        """Where the setting *word* of a physical stream is written, weakest first."""
        weakest_first = list_levels(self.document, physical.stream, physical.region, physical.role)
        return [(*path, word) for path, level in weakest_first if getattr(level, word) is not None]

    def locate(self, physical: PhysicalSettings, word: str) -> Path:
        """The place that sets *word* of a physical stream; the stream itself if the value is the default."""
        return [("streams", physical.stream), *self.list_paths(physical, word)][-1]
