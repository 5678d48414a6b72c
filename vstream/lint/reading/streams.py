"""Stream configurations as JSON: what `nats stream add --config` takes, and what `nats stream info --json` prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from vstream.lint.workspace import StreamFile, StreamRole
from vstream.topology.stream_config import REGION_KEY, ROLE_KEY, STREAM_KEY, StreamConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.syntax.json_types import Json
    from vstream.syntax.yaml import Path, SourceMap

_NAME: Final = re.compile(r"(.+)-(write|read)-(.+)")
_TELLING: Final = frozenset({"subjects", "sources", "mirror", "retention", "storage", "num_replicas", "max_age"})


def stream_files(data: Json, source: SourceMap) -> tuple[StreamFile, ...]:
    """The stream configurations in *data*: one, or an array of them. Empty if there are none."""
    return tuple(
        _stream_file(name, fields, prefix, source)
        for prefix, fields in _configs(data)
        if isinstance(name := fields.get("name"), str)
    )


def is_stream(data: Json) -> bool:
    """Whether *data* looks like a stream configuration rather than anything else in JSON."""
    return any("name" in fields and _TELLING & fields.keys() for _, fields in _configs(data))


def _configs(data: Json) -> Iterator[tuple[Path, dict[str, Json]]]:
    several = data if isinstance(data, list) else [data]
    for index, one in enumerate(several):
        if isinstance(one, dict):
            path: Path = (index,) if isinstance(data, list) else ()
            inner = one.get("config")
            fields = inner if isinstance(inner, dict) else one
            if "durable_name" not in fields:  # that is a consumer
                yield (*path, "config") if isinstance(inner, dict) else path, fields


def _stream_file(name: str, fields: dict[str, Json], prefix: Path, source: SourceMap) -> StreamFile:
    config = StreamConfig(name=name, fields=fields)
    metadata = config.metadata
    match = _NAME.fullmatch(name)
    if metadata.get(ROLE_KEY) in {role.value for role in StreamRole if role.is_of_virtual}:
        role, virtual, region = StreamRole(metadata[ROLE_KEY]), metadata.get(STREAM_KEY), metadata.get(REGION_KEY)
    else:
        role = _guess(config, match[2] if match else None)
        named = match if match and role.value == match[2] else None
        virtual, region = (named[1], named[3]) if named else (None, None)
    return StreamFile(
        file=source.file,
        config=config,
        role=role,
        virtual=virtual,
        region=region,
        source=source,
        prefix=prefix,
    )


def _guess(config: StreamConfig, named: str | None) -> StreamRole:
    """A stream that only sources is for reading; one that listens is for writing if its name says so."""
    if config.fields.get("subjects"):
        return (
            StreamRole.WRITE
            if named == StreamRole.WRITE.value and not config.fields.get("sources")
            else StreamRole.PLAIN
        )
    return StreamRole.READ if config.fields.get("sources") else StreamRole.PLAIN
