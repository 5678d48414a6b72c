"""Stream configurations as JSON: what `nats stream add --config` takes, and what `nats stream info --json` prints."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from types import NoneType
from typing import TYPE_CHECKING, Final

from vstream.lint.workspace import ConfValue, ConsumerFile, StreamFile, StreamRole
from vstream.topology.stream_config import REGION_KEY, ROLE_KEY, STREAM_KEY, StreamConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.syntax.json_types import Json
    from vstream.syntax.yaml import Path, SourceMap

_NAME: Final = re.compile(r"(.+)-(write|read)-(.+)")
_TELLING: Final = frozenset({"subjects", "sources", "mirror", "retention", "storage", "num_replicas", "max_age"})
_ENOUGH: Final = 3
_CONSUMER: Final = frozenset(
    {"ack_policy", "ack_wait", "deliver_policy", "deliver_subject", "durable_name", "filter_subject", "max_deliver"}
    | {"filter_subjects", "max_ack_pending", "replay_policy"}
)
_ENOUGH_OF_CONSUMER: Final = 2


def stream_files(data: Json, source: SourceMap) -> tuple[StreamFile, ...]:
    """The stream configurations in *data*: one, or an array of them. Empty if there are none."""
    streams = []
    for prefix, fields in _configs(data):
        name = fields.get("name")
        if _is_stream(fields) and isinstance(name, (str, NoneType)):
            streams.append(_stream_file(name, fields, prefix, source))
    return tuple(streams)


def consumer_files(data: Json, source: SourceMap) -> tuple[ConsumerFile, ...]:
    """The consumer configurations in *data*: one, an array of them, or what `nats consumer info --json` prints."""
    consumers = []
    for prefix, fields in _configs(data):
        if is_consumer(fields):
            stream = _stream_name(data, prefix, source)
            consumers.append(ConsumerFile(file=source.file, fields=fields, source=source, prefix=prefix, stream=stream))
    return tuple(consumers)


def _stream_name(data: Json, prefix: Path, source: SourceMap) -> ConfValue | None:
    """What stands beside `config`, in a request and in what `nats consumer info --json` prints."""
    if prefix[-1:] != ("config",):
        return None
    outside = data
    for part in prefix[:-1]:
        outside = outside[part] if isinstance(outside, list) and isinstance(part, int) else None
    name = outside.get("stream_name") if isinstance(outside, dict) else None
    path = (*prefix[:-1], "stream_name")
    return ConfValue(name, source.value(path)) if isinstance(name, str) else None


def is_consumer(fields: dict[str, Json]) -> bool:
    """Whether the fields are those of a consumer."""
    return "durable_name" in fields or len(_CONSUMER & fields.keys()) >= _ENOUGH_OF_CONSUMER


def _is_stream(fields: dict[str, Json]) -> bool:
    """Without a name, as in a file for `nats stream add NAME --config`, more has to speak for it."""
    telling = len(_TELLING & fields.keys())
    return not is_consumer(fields) and telling >= (1 if "name" in fields else _ENOUGH)


def _configs(data: Json) -> Iterator[tuple[Path, dict[str, Json]]]:
    several = data if isinstance(data, list) else [data]
    for index, item in enumerate(several):
        if isinstance(item, dict):
            path: Path = (index,) if isinstance(data, list) else ()
            inner = item.get("config")
            yield ((*path, "config"), inner) if isinstance(inner, dict) else (path, item)


def _stream_file(written: str | None, fields: dict[str, Json], prefix: Path, source: SourceMap) -> StreamFile:
    name = PurePosixPath(source.file).stem if written is None else written
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
        is_named=written is not None,
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
