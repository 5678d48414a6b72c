"""A YAML document to a topology: shape errors as diagnostics, then every default, preset and override resolved."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from vstream.diagnostics import Diagnostic, Severity
from vstream.model.topology import (
    Endpoint,
    JetStreamLimits,
    Naming,
    Ports,
    Region,
    Role,
    Server,
    StreamSettings,
    Topology,
    VirtualStream,
)
from vstream.topology import naming
from vstream.topology.document import LevelDocument, SettingsDocument, TopologyDocument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic_core import ErrorDetails

    from vstream.model.json import Json
    from vstream.syntax.yaml import Document, Path
    from vstream.topology.document import RegionDocument, StreamDocument

_TWO_MINUTES = 120 * 10**9
DEDUPE_OFF_SINCE = (2, 14)
"""From here on a window of 0 turns deduplication of sourced messages off; before, it meant 2 minutes."""
SMALLEST_WINDOW = 100 * 10**6
"""100 ms: the shortest duplicate window that servers accept (server/stream.go, checkStreamCfg)."""

_API_NAMES = {"replicas": "num_replicas", "allow_rollup": "allow_rollup_hdrs"}


def shape(document: Document) -> tuple[TopologyDocument | None, tuple[Diagnostic, ...]]:
    """Check the shape of a document. Each error has a place and a way out; None if there is any."""
    try:
        return TopologyDocument.model_validate(document.data), ()
    except ValidationError as error:
        return None, tuple(_diagnostic(document, details) for details in error.errors(include_url=False))


def _diagnostic(document: Document, details: ErrorDetails) -> Diagnostic:
    path: Path = tuple(part for part in details["loc"] if part != "[key]")
    kind = details["type"]
    where = ".".join(str(part) for part in path) or "the document"
    context = details.get("ctx", {})
    code, span, hint = "VS005", document.source.value(path), None
    if kind == "extra_forbidden":
        code, span = "VS006", document.source.key(path)
        known = _known_keys(path[:-1])
        message = f"unknown key `{path[-1]}`"
        hint = _did_you_mean(str(path[-1]), known)
        if not hint and {"max_age", "config"} <= set(known):
            hint = "a setting of the JetStream API that vstream has no word for goes under `config`"
    elif kind == "missing":
        message = f"`{where}` is missing"
        hint = _MISSING_HINTS.get(str(path[-1])) if path else None
        span = document.source.key(path[:-1])
    elif kind in {"model_type", "dict_type"}:
        message = f"`{where}` must be a map of keys and values"
        if not path and document.data is None:
            message = "the file has no content"
    elif kind == "literal_error":
        message = f"`{where}` must be {context.get('expected')}, not `{details['input']}`"
        hint = _did_you_mean(str(details["input"]), str(context.get("expected", "")).replace("'", "").split(" or "))
    elif kind == "string_type":
        message = f"`{where}` must be text"
        hint = "put it in quotes"
    elif kind == "string_pattern_mismatch":
        is_key = "[key]" in details["loc"]
        span = document.source.key(path) if is_key else span
        message = f"`{details['input']}` is no name: letters, digits, `-` and `_` only, beginning with a letter or digit"
    elif kind == "bool_type":
        message, hint = f"`{where}` must be true or false", None
    elif kind in {"int_type", "greater_than_equal", "less_than_equal"}:
        low, high = ("1", "5") if path and path[-1] == "replicas" else ("1", "65535")
        message = f"`{where}` must be a whole number from {low} to {high}"
    else:
        message = f"`{where}`: {details['msg']}"
    return Diagnostic(code=code, severity=Severity.ERROR, message=message, span=span, hint=hint)


_MISSING_HINTS = {
    "version": "write `version: 1`, the version of the topology language",
    "name": "name the topology: streams are marked with it as their owner",
    "server_version": 'state the oldest nats-server that must be able to run this, such as `server_version: "2.12"`',
    "subjects": "state what clients publish on, such as `subjects: [foo.>]`",
    "servers": "give a number (`servers: 3`) or host names",
    "regions": "name at least one region, such as `west: {servers: 3}`",
}


def _did_you_mean(word: str, known: list[str]) -> str | None:
    close = get_close_matches(word, known, n=1)
    return f"did you mean `{close[0]}`?" if close else None


def _known_keys(path: Path) -> list[str]:
    """The keys that the language allows at *path*."""
    model: Any = TopologyDocument
    for part in path:
        if isinstance(model, type) and issubclass(model, BaseModel):
            info = model.model_fields.get(str(part))
            model = info.annotation if info else None
        elif getattr(model, "__origin__", None) is dict:
            model = model.__args__[1]
        for choice in getattr(model, "__args__", ()):
            if getattr(model, "__origin__", None) is not dict and choice is not type(None):
                model = choice
                break
    return sorted(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def resolve(document: TopologyDocument) -> Topology:
    """
    Fill in everything that a document leaves open.

    Total: names that mean nothing (unknown regions, unknown presets) are left out
    here and reported by the rules.
    """
    regions = tuple(_region(document, name, region) for name, region in document.regions.items())
    return Topology(
        name=document.name,
        server_version=document.server_version,
        naming=Naming(document.naming),
        regions=regions,
        streams=tuple(_stream(document, name, stream) for name, stream in document.streams.items()),
    )


def _region(document: TopologyDocument, name: str, region: RegionDocument) -> Region:
    limits = region.jetstream or document.jetstream
    tags = region.tags if len(region.tags) == len(region.servers) else ((),) * len(region.servers)
    return Region(
        name=name,
        cluster=region.cluster or name,
        servers=tuple(
            Server(name=naming.server_name(name, index + 1), host=host, tags=tags[index])
            for index, host in enumerate(region.servers)
        ),
        ports=Ports(**region.ports.model_dump()),
        jetstream=JetStreamLimits(**limits.model_dump()),
        endpoint=_endpoint(document, name),
    )


def _endpoint(document: TopologyDocument, region: str) -> Endpoint | None:
    connect = document.connect.get(region)
    if connect is None:
        return None
    tls = connect.tls
    return Endpoint(
        **connect.model_dump(exclude={"tls"}),
        tls_ca=tls.ca if tls else None,
        tls_cert=tls.cert if tls else None,
        tls_key=tls.key if tls else None,
    )


def _stream(document: TopologyDocument, name: str, stream: StreamDocument) -> VirtualStream:
    wanted = document.regions if stream.regions == "all" else stream.regions
    regions = tuple(region for region in document.regions if region in wanted)
    return VirtualStream(
        name=name,
        subjects=stream.subjects,
        regions=regions,
        write={region: _settings(document, stream, regions, region, Role.WRITE) for region in regions},
        read={region: _settings(document, stream, regions, region, Role.READ) for region in regions},
        canary=stream.canary,
    )


def levels(document: TopologyDocument, stream: StreamDocument, region: str, role: Role) -> Iterator[SettingsDocument]:
    """The settings that apply to one physical stream, weakest first."""
    chain: list[LevelDocument] = [document.defaults]
    chain.extend(document.presets[preset] for preset in stream.extends if preset in document.presets)
    chain.append(stream)
    if region in stream.overrides:
        chain.append(stream.overrides[region])
    for level in chain:
        yield level
        yield level.write if role is Role.WRITE else level.read


def _settings(
    document: TopologyDocument, stream: StreamDocument, regions: tuple[str, ...], region: str, role: Role
) -> StreamSettings:
    said: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    config: dict[str, Json] = {}
    for level in levels(document, stream, region, role):
        for field in level.model_fields_set & _SETTING_FIELDS:
            value = getattr(level, field)
            if value is not None:
                said[field] = value
        metadata.update(level.metadata or {})
        config.update(level.config or {})
    smallest = min((len(document.regions[name].servers) for name in regions), default=1)
    placement_tags = said.pop("placement_tags", ())
    fields: dict[str, Json] = {
        "retention": "limits",
        "storage": "file",
        "num_replicas": 3 if smallest >= 3 else 1,  # noqa: PLR2004 - three is what survives the loss of one
        "max_age": 0,
        "max_bytes": -1,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "discard": "old",
        "compression": "none",
        # Direct Get is the only read that works in a region that lost the meta leader.
        "allow_direct": True,
        "allow_rollup_hdrs": False,
        "deny_delete": False,
        "deny_purge": False,
        **{_API_NAMES.get(field, field): value for field, value in said.items()},
    }
    fields.setdefault("duplicate_window", _duplicate_window(document, fields, role))
    placement: Mapping[str, Json] = {"cluster": document.regions[region].cluster or region}
    if placement_tags:
        placement = {**placement, "tags": list(placement_tags)}
    return StreamSettings(fields={**fields, **config, "placement": placement, "metadata": metadata})


_SETTING_FIELDS = frozenset(SettingsDocument.model_fields) - {"config", "metadata"}


def _duplicate_window(document: TopologyDocument, fields: Mapping[str, Any], role: Role) -> int:
    """
    The default window, in nanoseconds.

    A read stream must not deduplicate: of two messages with one id, from two
    regions, each region would keep the one that it saw first, and they would never
    agree again.
    """
    if role is Role.READ:
        return 0 if document.server_version >= DEDUPE_OFF_SINCE else SMALLEST_WINDOW
    max_age: int = fields["max_age"]
    return min(_TWO_MINUTES, max_age) if max_age else _TWO_MINUTES
