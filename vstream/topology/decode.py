"""A document of the right shape → a topology: every default, preset and override resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vstream.model.topology import (
    DEDUPE_OFF_SINCE,
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
from vstream.topology.document import SettingsDocument
from vstream.topology.values import SMALLEST_AGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vstream.model.json import Json
    from vstream.syntax.yaml import Path
    from vstream.topology.document import LevelDocument, RegionDocument, StreamDocument, TopologyDocument

_TWO_MINUTES = 120 * 10**9
_SURVIVES_ONE = 3
"""Replicas: the fewest of which one can be lost without stopping."""

_API_NAMES = {"replicas": "num_replicas", "allow_rollup": "allow_rollup_hdrs"}


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
        write={region: _settings(document, name, regions, region, Role.WRITE) for region in regions},
        read={region: _settings(document, name, regions, region, Role.READ) for region in regions},
        canary=stream.canary,
    )


def levels(document: TopologyDocument, name: str, region: str, role: Role) -> Iterator[tuple[Path, SettingsDocument]]:
    """The settings that apply to one physical stream of the stream called *name*, each with its path, weakest first."""
    stream = document.streams[name]
    chain: list[tuple[Path, LevelDocument]] = [(("defaults",), document.defaults)]
    chain.extend(
        (("presets", preset), document.presets[preset]) for preset in stream.extends if preset in document.presets
    )
    chain.append((("streams", name), stream))
    if region in stream.overrides:
        chain.append((("streams", name, "overrides", region), stream.overrides[region]))
    for path, level in chain:
        yield path, level
        yield (*path, role.value), level.write if role is Role.WRITE else level.read


def _settings(
    document: TopologyDocument, name: str, regions: tuple[str, ...], region: str, role: Role
) -> StreamSettings:
    said: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    config: dict[str, Json] = {}
    for _, level in levels(document, name, region, role):
        for field in level.model_fields_set & _SETTING_FIELDS:
            value = getattr(level, field)
            if value is not None:
                said[field] = value
        metadata.update(level.metadata or {})
        config.update(level.config or {})
    smallest = min(len(document.regions[one].servers) for one in regions)
    placement_tags = said.pop("placement_tags", ())
    fields: dict[str, Json] = {
        "retention": "limits",
        "storage": "file",
        "num_replicas": _SURVIVES_ONE if smallest >= _SURVIVES_ONE else 1,
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
        return 0 if document.server_version >= DEDUPE_OFF_SINCE else SMALLEST_AGE
    max_age: int = fields["max_age"]
    return min(_TWO_MINUTES, max_age) if max_age else _TWO_MINUTES
