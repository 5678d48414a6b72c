"""From recognised streams to a short topology document: only what differs from the language's defaults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from vstream.errors import VstreamError
from vstream.formatting import quote_value
from vstream.plan.importing import settings
from vstream.plan.importing.discovered import ClusterEndpoint, Discovered, UndescribedItem, count_servers
from vstream.plan.importing.recognise import RecognisedStream, RecognisedTopology
from vstream.topology import decode, naming
from vstream.topology.buckets import expand_buckets
from vstream.topology.consumer_config import POSITION_KEY
from vstream.topology.document import TopologyDocument
from vstream.topology.model import Consistency, Endpoint, Naming, Role, Topology, VirtualStream
from vstream.topology.replication import physical_streams

Data = dict[str, Any]
_MAX_ROUNDS = 4
"""Defaults can depend on settings, and settings on nothing: two rounds are enough."""
_OF_ONE_KIND = frozenset({"max_age", "duplicate_window"})
"""Settings with different meanings for streams that take publishes and for their copies, even if equal."""
_MERGED_KEYS = frozenset({"metadata", "config"})
"""Maps that are merged key by key: a single stream cannot remove a key that all have."""


def topology_document(name: str, system: Discovered, seen: RecognisedTopology) -> tuple[Data, list[UndescribedItem]]:
    """
    The topology called *name* as plain data, and the consumers that it leaves out.

    Raises VstreamError if the language cannot express something that it needs.
    """
    try:
        return _write_document(name, system, seen)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise VstreamError(
            f"a topology cannot describe what runs: `{place}` would be {quote_value(first['input'])}: {first['msg']}",
            hint="`--name` chooses the topology's name; clusters, streams and versions have to be what docs/topology.md says",
        ) from error


def _write_document(name: str, system: Discovered, seen: RecognisedTopology) -> tuple[Data, list[UndescribedItem]]:
    """Say what physical streams have and the document would not give them, until nothing is unsaid."""
    stated: dict[str, dict[tuple[Role, str], Data]] = {stream.name: _find_ages(stream) for stream in seen.virtual}
    consumers = {stream.name: _write_consumers(stream, system, name) for stream in seen.virtual}
    durables = {stream: durable for stream, (durable, _) in consumers.items()}
    written = _write_stream_document(name, system, seen, stated, durables)
    for _ in range(_MAX_ROUNDS):
        unsaid = [*_list_unsaid(written, seen)]
        if not unsaid:
            break
        for stream, role, place, settings_of_part in unsaid:
            stated[stream].setdefault((role, place), {}).update(settings_of_part)
        written = _write_stream_document(name, system, seen, stated, durables)
    return _with_buckets(written, seen), [item for _, left_out in consumers.values() for item in left_out]


def _find_ages(stream: RecognisedStream) -> dict[tuple[Role, str], Data]:
    """How long write streams keep their messages: the one thing that has to be said."""
    taking = [part for part in stream.parts if part.role in {Role.WRITE, Role.ORIGIN}]
    return {(part.role, part.place): settings.express_max_age(part.stream.config.fields) for part in taking}


def _list_strays(virtual: RecognisedStream, system: Discovered, reads: Collection[str]) -> Iterator[UndescribedItem]:
    """Durables on streams that no client of a region is sent to."""
    for part in virtual.parts:
        stream = part.stream.config.name
        for name in system.consumers.get(stream, {}) if stream not in reads else ():
            text = f"is a durable on {'an' if part.role in {Role.ORIGIN, Role.ORDER} else 'a'} {part.role.value} stream"
            hint = "the topology has consumers on streams that are read from in a region: it stays as it is"
            yield UndescribedItem(kind="consumer", name=f"{stream} > {name}", text=text, hint=hint)


def _with_buckets(written: Data, seen: RecognisedTopology) -> Data:
    """*written*, with those streams below `kv` and `objects` that are buckets, as clients would make them."""
    for recognised in seen.virtual:
        path = settings.find_bucket_path(recognised)
        stream = written["streams"][recognised.name]
        if path is None or "consumers" in stream:
            continue
        section, name = path
        bucket = settings.express_bucket(recognised, stream)
        other_streams = {key: value for key, value in written["streams"].items() if key != recognised.name}
        trial = {**written, "streams": other_streams, section: {**written.get(section, {}), name: bucket}}
        if _is_said_whole(trial, recognised):
            written = trial
    return written


def _is_said_whole(trial: Data, recognised: RecognisedStream) -> bool:
    """Whether *trial* says all of the virtual stream *recognised*."""
    try:
        topology = _resolve(trial)
    except ValidationError:
        return False  # no name for a bucket, say
    virtual = topology.stream(recognised.name)
    return virtual.subjects == recognised.subjects and not any(True for _ in _find_unsaid(virtual, recognised))


def _list_unsaid(written: Data, seen: RecognisedTopology) -> Iterator[tuple[str, Role, str, Data]]:
    """What physical streams have and *written* does not say: the virtual stream, role, place and settings of each."""
    virtual = {recognised.name: recognised for recognised in _resolve(written).streams}
    for recognised in seen.virtual:
        for role, place, new in _find_unsaid(virtual[recognised.name], recognised):
            yield recognised.name, role, place, new


def _resolve(written: Data) -> Topology:
    """
    The topology that *written* is, with a subject for those streams of which nobody knows one.

    Raises ValidationError if the language has no word for something of it.
    """
    streams = {}
    for name, stream in written["streams"].items():
        streams[name] = {**stream, "subjects": stream["subjects"] or [f"unknown.{name}"]}
    return decode.resolve_document(expand_buckets(TopologyDocument.model_validate({**written, "streams": streams})))


def _find_unsaid(virtual: VirtualStream, stream: RecognisedStream) -> Iterator[tuple[Role, str, Data]]:
    """What the physical streams of *stream* have, and *virtual*, as the topology has it yet, does not say."""
    has = {part.stream.config.name: part.stream.config.fields for part in stream.parts}
    for part in physical_streams(virtual):
        fields = has.get(part.name)
        if fields is not None and (new := settings.find_differing_settings(fields, part.fields, part.role)):
            yield part.role, part.place, new


def _write_stream_document(
    name: str,
    system: Discovered,
    seen: RecognisedTopology,
    stated: Mapping[str, Mapping[tuple[Role, str], Data]],
    durables: Mapping[str, Data],
) -> Data:
    versions = [server.version for server in system.servers]
    streams = {stream.name: stream for stream in seen.virtual}
    return {
        "version": 1,
        "name": name,
        "server_version": ".".join(map(str, min(versions, default=(2, 10)))),
        **({"naming": seen.naming.value} if seen.naming is not Naming.ISOLATED else {}),
        "regions": {region: _write_region(region, cluster, system) for region, cluster in seen.places.regions.items()},
        **({"stretch": _write_stretch(seen)} if seen.places.stretch else {}),
        **({"connect": _connect(system, seen)} if system.lab is None else {}),
        "streams": {key: _write_stream(streams[key], seen, stated[key], durables[key]) for key in streams},
    }


def _write_region(region: str, cluster: str, system: Discovered) -> Data:
    members = sorted((server for server in system.servers if server.cluster == cluster), key=lambda server: server.name)
    count = count_servers(cluster, system)
    # One entry for each server, or none: who was not asked may have others.
    tags = (
        [server.tags[0] if len(server.tags) == 1 else list(server.tags) for server in members]
        if count.asked == count.at_least and any(server.tags for server in members)
        else []
    )
    return {
        "servers": count.at_least,
        **({"cluster": cluster} if cluster != region else {}),
        **({"tags": tags} if tags else {}),
    }


def _write_stretch(seen: RecognisedTopology) -> Data:
    members, regions = seen.places.members, tuple(seen.places.regions)
    cluster = seen.places.stretch
    return {
        "members": list(members) if members and members != regions else "all",
        **({"cluster": cluster} if cluster != "stretch" else {}),
    }


def _connect(system: Discovered, seen: RecognisedTopology) -> Data:
    """How each region is reached, with the monitoring address of every server there."""
    connect = {}
    for endpoint in system.endpoints:
        region = seen.places.region_at(endpoint.cluster)
        if region is not None:
            monitors = [*_list_monitors(system, seen, endpoint)]
            connect[region] = {**_write_endpoint(endpoint.endpoint), **({"monitor": monitors} if monitors else {})}
    return connect


def _list_monitors(system: Discovered, seen: RecognisedTopology, endpoint: ClusterEndpoint) -> Iterator[str]:
    region = seen.places.region_at(endpoint.cluster)
    for server in sorted(system.servers, key=lambda server: server.name):
        member = naming.stretch_server_name(seen.places.stretch or "", region or "")
        is_member = server.cluster == seen.places.stretch and (
            server.name == member or server.beside == endpoint.cluster
        )
        if server.monitor and (server.cluster == endpoint.cluster or is_member):
            yield server.monitor


def _write_endpoint(endpoint: Endpoint) -> Data:
    if endpoint.context:
        return {"context": endpoint.context}
    stated = {
        "creds": endpoint.creds,
        "nkey": endpoint.nkey,
        "user": endpoint.user,
        "password_env": endpoint.password_env,
    }
    return {"urls": list(endpoint.urls), **{key: value for key, value in stated.items() if value}}


def _write_stream(
    stream: RecognisedStream, seen: RecognisedTopology, stated: Mapping[tuple[Role, str], Data], durables: Data
) -> Data:
    general, overrides = _factor_out(stream, stated)
    everywhere = stream.regions == tuple(seen.places.regions)
    return {
        "subjects": list(stream.subjects),
        **({"consistency": stream.consistency.value} if stream.consistency is not Consistency.VIRTUAL else {}),
        **({"home": stream.home} if stream.home else {}),
        **({"virtual_name": "order"} if stream.is_virtual_name_of_order else {}),
        **({} if everywhere else {"regions": list(stream.regions)}),
        **({"takes_over": stream.takes_over} if stream.takes_over else {}),
        **({"counters": True} if _has_counters(stream) else {}),
        **{word: general[word] for word in general if word not in decode.ROLE_KEYS.values()},
        **{word: general[word] for word in ("write", "order", "read") if general.get(word)},
        **({"overrides": overrides} if overrides else {}),
        **({"consumers": durables} if durables else {}),
    }


def _has_counters(stream: RecognisedStream) -> bool:
    """Whether what takes its writes stores sums."""
    taking = [part.stream.config for part in stream.parts if part.role in {Role.WRITE, Role.ORIGIN}]
    return any(config.fields.get("allow_msg_counter") is True for config in taking)


def _factor_out(stream: RecognisedStream, stated: Mapping[tuple[Role, str], Data]) -> tuple[Data, dict[str, Data]]:
    """What is said of a stream as a whole, and of single regions: what most of them have is said once."""
    general: Data = {}
    overrides: dict[str, Data] = {}
    for role, word in decode.ROLE_KEYS.items():
        places = [part.place for part in stream.parts if part.role is role]
        for key in dict.fromkeys(key for place in places for key in stated.get((role, place), {})):
            values = {place: stated[role, place][key] for place in places if key in stated.get((role, place), {})}
            # Where nothing is said there is the default, which cannot always be written down.
            is_equal = all(value == values[places[0]] for value in values.values() if len(values) == len(places))
            has_usual = len(values) == len(places) and (is_equal or key not in _MERGED_KEYS)
            usual = _choose_usual(values.values()) if has_usual else None
            if usual is not None:
                general.setdefault(word, {})[key] = usual
            for place, value in values.items():
                if value != usual:
                    overrides.setdefault(place, {}).setdefault(word, {})[key] = value
    _move_shared_up(general, {decode.ROLE_KEYS[part.role] for part in stream.parts})
    return general, {region: overrides[region] for region in stream.regions if region in overrides}


def _move_shared_up(general: Data, words: Collection[str]) -> None:
    """Say what is the same for all kinds of streams, of which there are *words*, for the stream as a whole."""
    if len(words) == 1 or set(general) != set(words):
        return
    kinds = [general[word] for word in general]
    equal = [key for key, value in kinds[0].items() if all(kind.get(key) == value for kind in kinds)]
    shared = {key: kinds[0][key] for key in equal if key not in _OF_ONE_KIND}
    for kind in kinds:
        for key in shared:
            del kind[key]
    general.update(shared)


def _choose_usual(values: Iterable[Any]) -> Any:
    """The most common of *values*, the first of those that are as common."""
    listed = list(values)
    return max(listed, key=listed.count)


def _write_consumers(virtual: RecognisedStream, system: Discovered, owner: str) -> tuple[Data, list[UndescribedItem]]:
    """
    The durables of a virtual stream that the topology can say, by name, and those that it does not.

    Those that it has marked, and those that exist everywhere and are the same.
    """
    reads = {_read_in(virtual, region): region for region in virtual.regions}
    durables: dict[str, dict[str, Data | None]] = {}
    marked = Counter[str]()
    undescribed = [*_list_strays(virtual, system, reads)]
    for stream, region in reads.items():
        for name, consumer in system.consumers.get(stream, {}).items():
            if consumer.config.owner not in {None, owner} or POSITION_KEY in consumer.config.metadata:
                continue
            durables.setdefault(name, {})[region] = settings.express_consumer(consumer.config.fields)
            marked[name] += consumer.config.owner == owner
    told: Data = {}
    for name, by_region in sorted(durables.items()):
        if reason := _explain_differing(by_region, virtual.regions, is_marked=bool(marked[name])):
            text = f"{reason}: {', '.join(by_region)}"
            hint = f"declare it under `consumers` of `{virtual.name}` if it should be the same everywhere"
            undescribed.append(UndescribedItem(kind="consumer", name=f"{virtual.name} > {name}", text=text, hint=hint))
            continue
        first = next(iter(by_region.values())) or {}
        regions = [region for region in virtual.regions if region in by_region]
        told[name] = {**({"regions": regions} if len(regions) < len(virtual.regions) else {}), **first}
    return told, undescribed


def _read_in(stream: RecognisedStream, region: str) -> str:
    """The physical stream that is read from in *region*."""
    read = f"{stream.name}-{Role.READ.value}-{region}"
    return read if any(part.stream.config.name == read for part in stream.parts) else stream.name


def _explain_differing(by_region: Mapping[str, Data | None], regions: Iterable[str], *, is_marked: bool) -> str | None:
    """Why a durable cannot be said."""
    settings_by_region = list(by_region.values())
    if any(consumer is None for consumer in settings_by_region):
        return "pushes, or begins at a message that differs between regions"
    if any(consumer != settings_by_region[0] for consumer in settings_by_region):
        return "is not the same in each region"
    return None if is_marked or set(by_region) == set(regions) else "is not in every region"
