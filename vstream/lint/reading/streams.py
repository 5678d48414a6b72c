"""Stream configurations as JSON: what `nats stream add --config` takes, and what `nats stream info --json` prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from types import NoneType
from typing import TYPE_CHECKING, Final

from vstream.lint import late
from vstream.lint.workspace import ConfValue, ConsumerFile, StreamFile, StreamRole
from vstream.syntax.document import Json, object_or_empty
from vstream.topology.stream_config import REGION_KEY, ROLE_KEY, STREAM_KEY, StreamConfig, StreamSource

if TYPE_CHECKING:
    from vstream.syntax.yaml import Path, SourceMap
    from vstream.topology.model import Topology

_NAME: Final = re.compile(r"(.+)-(write|read)-(.+)")
_TELLING: Final = frozenset({"subjects", "sources", "mirror", "retention", "storage", "num_replicas", "max_age"})
_FOLDED: Final = _TELLING | {"name", "max_bytes", "max_msgs", "discard", "duplicate_window", "republish", "placement"}
_MIN_FIELDS: Final = 3
_CONSUMER: Final = frozenset(
    {"ack_policy", "ack_wait", "deliver_policy", "deliver_subject", "durable_name", "filter_subject", "max_deliver"}
    | {"filter_subjects", "max_ack_pending", "replay_policy"}
)
_MIN_CONSUMER_FIELDS: Final = 2


def parse_stream_files(data: Json, source: SourceMap) -> tuple[StreamFile, ...]:
    """The stream configurations in *data*: one, or an array of them. Empty if there are none."""
    streams = []
    for prefix, written in _read_configs(data):
        fields, places = _fold_keys(prefix, written, source)
        name = fields.get("name")
        is_in_request = _read_stream_name(data, prefix, source) is not None
        if not is_in_request and _is_stream(fields) and isinstance(name, (str, NoneType)):
            streams.append(_read_stream_file(name, fields, prefix, places))
    return tuple(streams)


def with_roles(streams: Iterable[StreamFile], topology: Topology | None) -> tuple[StreamFile, ...]:
    """*streams*, those without metadata with the role that *topology* gives a stream of their name."""
    if topology is None:
        return tuple(streams)
    parts = late.index_physical_streams(topology)
    told = []
    for stream in streams:
        part = None if ROLE_KEY in stream.config.metadata else parts.get(stream.config.name)
        if part is None:
            told.append(stream)
        else:
            role = StreamRole(part.role.value)
            told.append(replace(stream, role=role, virtual=part.virtual, region=part.place))
    return tuple(told)


def read_consumer_files(data: Json, source: SourceMap) -> tuple[ConsumerFile, ...]:
    """The consumer configurations in *data*: one, an array of them, or what `nats consumer info --json` prints."""
    consumers = []
    for prefix, fields in _read_configs(data):
        stream = _read_stream_name(data, prefix, source)
        if is_consumer(fields, 1 if stream else _MIN_CONSUMER_FIELDS):
            consumers.append(ConsumerFile(file=source.file, fields=fields, source=source, prefix=prefix, stream=stream))
    return tuple(consumers)


def _read_stream_name(data: Json, prefix: Path, source: SourceMap) -> ConfValue | None:
    """What stands beside `config`, in a request and in what `nats consumer info --json` prints."""
    if prefix[-1:] != ("config",):
        return None
    outside = data
    for part in prefix[:-1]:
        outside = outside[part] if isinstance(outside, list) and isinstance(part, int) else None
    name = object_or_empty(outside).get("stream_name")
    path = (*prefix[:-1], "stream_name")
    return ConfValue(name, source.value_span(path)) if isinstance(name, str) else None


def is_consumer(fields: dict[str, Json], enough: int = _MIN_CONSUMER_FIELDS) -> bool:
    """Whether the fields are those of a consumer: *enough* of them speak for it."""
    return "durable_name" in fields or len(_CONSUMER & fields.keys()) >= enough


def _is_stream(fields: dict[str, Json]) -> bool:
    """Without a name, as in a file for `nats stream add NAME --config`, more has to speak for it."""
    telling = len(_TELLING & fields.keys())
    return not is_consumer(fields) and telling >= (1 if "name" in fields else _MIN_FIELDS)


def _fold_keys(prefix: Path, fields: dict[str, Json], source: SourceMap) -> tuple[dict[str, Json], SourceMap]:
    """The fields under the names that servers know: Go reads `Subjects` as `subjects`."""
    names = {key: low for key in fields if (low := key.lower()) in _FOLDED and low not in fields}
    if not names or len(_TELLING & {names.get(key, key) for key in fields}) < _MIN_FIELDS - 1:
        return fields, source
    depth = len(prefix)

    def fold(path: Path) -> Path:
        is_inside = len(path) > depth and path[:depth] == prefix
        return (*prefix, names.get(str(path[depth]), path[depth]), *path[depth + 1 :]) if is_inside else path

    values, keys = ({fold(path): span for path, span in spans.items()} for spans in (source.values, source.keys))
    return {names.get(key, key): value for key, value in fields.items()}, replace(source, values=values, keys=keys)


def _read_configs(data: Json) -> Iterator[tuple[Path, dict[str, Json]]]:
    several = data if isinstance(data, list) else [data]
    for index, item in enumerate(several):
        if isinstance(item, dict):
            path: Path = (index,) if isinstance(data, list) else ()
            inner = item.get("config")
            yield ((*path, "config"), inner) if isinstance(inner, dict) else (path, item)


def _read_stream_file(written: str | None, fields: dict[str, Json], prefix: Path, source: SourceMap) -> StreamFile:
    name = PurePosixPath(source.file).stem if written is None else written
    config = StreamConfig(name=name, fields=fields)
    metadata = config.metadata
    match = _NAME.fullmatch(name)
    if metadata.get(ROLE_KEY) in {role.value for role in StreamRole if role.is_of_virtual}:
        role, virtual, region = StreamRole(metadata[ROLE_KEY]), metadata.get(STREAM_KEY), metadata.get(REGION_KEY)
    else:
        role = _guess_role(config, match[2] if match else None)
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


def _guess_role(config: StreamConfig, named: str | None) -> StreamRole:
    """What a stream is by its name, and by whom it sources: many streams that only source are in no virtual stream."""
    sources = config.fields.get("sources")
    if config.fields.get("subjects") and not (sources and named == StreamRole.READ.value):
        return StreamRole.WRITE if named == StreamRole.WRITE.value and not sources else StreamRole.PLAIN
    if not sources:
        return StreamRole.PLAIN
    is_read = named == StreamRole.READ.value or any(map(_is_write_stream, config.sources))
    return StreamRole.READ if is_read else StreamRole.AGGREGATE


def _is_write_stream(source: StreamSource) -> bool:
    """Whether *source* is called like the write stream of a region."""
    match = _NAME.fullmatch(str(source.fields["name"]))
    return match is not None and match[2] == StreamRole.WRITE.value
