"""The values that a physical stream is rendered from: its template, its sources, its metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from vstream.render.environment import to_json
from vstream.syntax.document import Json, object_or_empty
from vstream.timing import SECOND_NS
from vstream.topology import naming, physical
from vstream.topology.model import Consumer, Role, Topology, VirtualStream
from vstream.topology.profiles import name_in_metadata, profile_of
from vstream.topology.replication import PhysicalStream, sources_of
from vstream.topology.stream_config import OWNERSHIP_KEYS, REGION_KEY, ROLE_KEY, ROUTING_KEY, STREAM_KEY, TOPOLOGY_KEY

_CATALOG_CONFIG: Mapping[str, Json] = {
    "retention": "limits",
    "storage": "memory",
    "num_replicas": 1,
    "max_msgs": 1,
    "max_bytes": 1024,
    "discard": "old",
    "allow_direct": True,
    "description": "holds nothing: clients find the stream of this name by its subjects",
}
_EXPECTED = {
    "subjects": (str, "`subjects`, a list of texts"),
    "sources": (dict, "`sources`, a list of objects"),
    "mirror": (dict, "`mirror`, an object"),
}
_MARK = "\0"
_SLOT = re.compile(r'"\\u0000(\w+)"')
"""A marked value, as JSON writes it."""


@dataclass(frozen=True, slots=True)
class StreamTemplate:
    """The template that a physical stream is written by, and the field in it with its subjects or sources."""

    file: str
    input_field: Literal["subjects", "sources", "mirror"]


def choose_template(stream: VirtualStream, role: Role) -> StreamTemplate:
    """The template of the physical streams of *role*."""
    match role:
        case Role.WRITE | Role.ORIGIN:
            return StreamTemplate(f"streams/{role.value}.json.j2", "subjects")
        case Role.CATALOG:
            return StreamTemplate("streams/write.json.j2", "subjects")
        case Role.ORDER:
            return StreamTemplate("streams/order.json.j2", "sources")
        case Role.READ if stream.consistency.has_mirrors:
            return StreamTemplate("streams/mirror.json.j2", "mirror")
        case Role.READ:
            return StreamTemplate("streams/read.json.j2", "sources")
        case _:
            assert_never(role)


def list_catalogs(topology: Topology, stream: VirtualStream) -> tuple[PhysicalStream, ...]:
    """
    Streams that hold nothing, and are found by the subjects of *stream* where its mirrors are not.

    With `routing: accounts`, clients look subjects up among the write streams of their region: these have the
    virtual name and its subjects, and mirrors have none (server/stream.go, checkStreamCfg). A stream with an origin has
    no write streams, so it has these beside those of others. Nothing is published there.
    """
    if not profile_of(topology).has_hidden_accounts or not stream.consistency.has_origin:
        return ()
    parts = []
    for region in stream.regions:
        parts.append(
            PhysicalStream(
                virtual=stream.name,
                name=physical.physical_name(stream, Role.CATALOG, region),
                place=region,
                role=Role.CATALOG,
                fields={**_CATALOG_CONFIG, "placement": {"cluster": topology.cluster_at(region)}, "metadata": {}},
            )
        )
    return tuple(parts)


def make_input(topology: Topology, stream: VirtualStream, part: PhysicalStream) -> Any:
    """What a physical stream takes messages from: the value of its template's `input_field`."""
    takes = choose_template(stream, part.role).input_field
    account = physical.account_of(stream, part.role, part.place)
    match takes:
        case "subjects":
            return physical.write_subjects(topology, stream, part.place)
        case "mirror":
            return naming.local_name(physical.mirrored_stream(stream) or stream.name)
        case "sources":
            sources: list[Json] = []
            for origin in sources_of(stream, part.role):
                transforms = physical.source_transforms(topology, stream, origin.place)
                sources.append(_source_view(origin.name, account, transforms))
            plain = stream_taken_over(stream, part)
            return [*sources, _source_view(plain, account)] if plain else sources
        case _:
            assert_never(takes)


def _source_view(name: str, account: str | None, transforms: Iterable[tuple[str, str]] = ()) -> dict[str, Json]:
    return {
        "name": naming.local_name(name),
        "external": naming.external_api(name, account),
        "transforms": [{"src": source, "dest": destination} for source, destination in transforms],
    }


def stream_taken_over(stream: VirtualStream, part: PhysicalStream) -> str | None:
    """
    The stream that a read stream sources besides, whose subjects are what clients publish on.

    A plain one, or the region's read stream of the layout that the topology moves away from.
    """
    if part.role is not Role.READ or stream.consistency.has_mirrors:
        return None
    return physical.former_stream_of(stream, part.role, part.place) or stream.takes_over


def lookup_subjects(topology: Topology, stream: VirtualStream, part: PhysicalStream) -> tuple[str, ...]:
    """
    The subjects that a stream which sources declares, though nobody publishes them to it.

    In an account of its own it can: there clients that look a stream up by subject find it. In a domain, and where it gives
    the order its name, it can once every server maps publishes away from it (`Stage.ADD_CLIENT_SUBJECTS`), unless it publishes
    them again for core subscribers: these it would store once more.
    """
    if part.role is Role.ORDER and stream.is_virtual_name_of_order:
        return stream.subjects
    if part.role is not Role.READ or not profile_of(topology).read_stream_declares_subjects(stream):
        return ()
    return stream.subjects


def mirror_api(stream: VirtualStream, part: PhysicalStream) -> dict[str, str] | None:
    """How a mirror reaches a stream in another account; None in the same account."""
    if not stream.consistency.has_mirrors:
        return None
    account = physical.account_of(stream, part.role, part.place)
    return naming.external_api(physical.mirrored_stream(stream) or stream.name, account)


def make_metadata(topology: Topology, stream: VirtualStream, part: PhysicalStream) -> dict[str, Json]:
    """The user's metadata, and by what vstream knows that the stream is its own."""
    routing = name_in_metadata(topology)
    return {
        **_make_check_metadata(topology, stream, part),
        **object_or_empty(part.fields["metadata"]),
        TOPOLOGY_KEY: topology.name,
        STREAM_KEY: stream.name,
        REGION_KEY: part.place,
        ROLE_KEY: part.role.value,
        **({} if routing is None else {ROUTING_KEY: routing}),
    }


def _make_check_metadata(topology: Topology, stream: VirtualStream, part: PhysicalStream) -> dict[str, Json]:
    """What `nats server check stream` expects, in its own words (monitor/stream.go of nats-io/jsm.go)."""
    checks = topology.nats_checks
    if checks is None:
        return {}
    expected = {"enabled": "true", "peer-expect": str(part.fields["num_replicas"])}
    takes = choose_template(stream, part.role).input_field
    if takes != "subjects":
        expected.update({"lag-critical": str(checks.lag), "seen-critical": f"{checks.silence / SECOND_NS:g}s"})
    if takes == "sources":
        number = str(len(make_input(topology, stream, part)))
        expected.update({"min-sources": number, "max-sources": number})
    return {f"io.nats.monitor.{key}": value for key, value in expected.items()}


def consumer_view(topology: Topology, stream: VirtualStream, region: str, consumer: Consumer) -> dict[str, Any]:
    """The values that the durable *consumer* in *region* is rendered from."""
    ownership = {TOPOLOGY_KEY: topology.name, STREAM_KEY: stream.name, REGION_KEY: region}
    return {
        "name": consumer.name,
        "settings": sorted((field, value) for field, value in consumer.fields.items() if field != "metadata"),
        "metadata": dict(sorted({**object_or_empty(consumer.fields["metadata"]), **ownership}.items())),
    }


def consumer_problem(fields: Mapping[str, Json], name: str, metadata: Mapping[str, Json]) -> str | None:
    """What in a rendered consumer violates the assumptions of the rest of vstream."""
    if fields.get("durable_name") != name or fields.get("name", name) != name:
        return f"the consumer `{name}` comes out with another `durable_name` or `name`"
    if object_or_empty(fields.get("metadata")).get(TOPOLOGY_KEY) != metadata[TOPOLOGY_KEY]:
        return f"the consumer `{name}` comes out without its metadata `{TOPOLOGY_KEY}`"
    return None


def stream_problem(
    fields: Mapping[str, Json], name: str, template: StreamTemplate, ownership: Mapping[str, Json]
) -> str | None:
    """What in a rendered stream violates the assumptions of the rest of vstream."""
    if fields.get("name") != name:
        return f"the stream `{name}` comes out with the name `{fields.get('name')}`"
    metadata = fields.get("metadata")
    if not isinstance(metadata, dict) or any(not isinstance(value, str) for value in metadata.values()):
        return f"the stream `{name}` needs `metadata`, a map of texts"
    missing = next((key for key in OWNERSHIP_KEYS if metadata.get(key) != ownership[key]), None)
    if missing:
        return (
            f"the stream `{name}` comes out without its metadata `{missing}`, by which vstream knows that it is its own"
        )
    written, (item_type, description) = fields.get(template.input_field), _EXPECTED[template.input_field]
    items = [written] if template.input_field == "mirror" else written
    if not isinstance(items, list) or not items or any(not isinstance(item, item_type) for item in items):
        return f"the stream `{name}` needs {description}"
    return None


def mark_values(view: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Json]]:
    """
    *view* with a mark instead of each value that differs from stream to stream, and these values by mark.

    What is empty stays, since templates ask for that.
    """
    values: dict[str, Json] = {}

    def mark(key: str, value: Any) -> Any:
        if not value:
            return value
        values[key] = list(value) if isinstance(value, tuple) else value
        return _MARK + key

    marked: dict[str, Any] = {}
    for key, value in view.items():
        if key == "sources":
            marked[key] = []
            for number, source in enumerate(value):
                marked[key].append({name: mark(f"{name}{number}", part) for name, part in source.items()})
        else:
            marked[key] = value if key == "settings" else mark(key, value)
    return marked, values


class StreamShape:
    """
    What physical streams of one shape have in common: a text that is rendered and read once, with marks for their values.

    For templates of vstream alone, which write every value as JSON, and ask of none but whether it is empty.
    """

    def __init__(self, text: str) -> None:
        """*text* is what the template writes for marked values. Raises ValueError if it is not JSON."""
        self._parts = _SLOT.split(text)
        self._fields: dict[str, Json] = json.loads(text)
        self._open = [field for field, value in self._fields.items() if "\\u0000" in to_json(value)]
        self.is_plain = text.count("\\u0000") == len({*self._parts[1::2]})
        """Whether each mark stands there once, and nothing else looks like one."""

    def text(self, values: Mapping[str, Json]) -> str:
        """What the template writes for *values*."""
        parts = self._parts.copy()
        parts[1::2] = [to_json(values[key]) for key in parts[1::2]]
        return "".join(parts)

    def fields(self, values: Mapping[str, Json]) -> dict[str, Json]:
        """The JSON object of that text. All streams of the shape share what does not differ."""
        return {**self._fields, **{field: _fill(self._fields[field], values) for field in self._open}}


def _fill(value: Json, values: Mapping[str, Json]) -> Json:
    if isinstance(value, str):
        return values[value[1:]] if value.startswith(_MARK) else value
    if isinstance(value, list):
        return [_fill(item, values) for item in value]
    return {key: _fill(item, values) for key, item in value.items()} if isinstance(value, dict) else value
