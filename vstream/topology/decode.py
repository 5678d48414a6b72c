"""From a valid document to a topology: every default, preset and override is resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from vstream.syntax.document import Json
from vstream.syntax.yaml import Path
from vstream.topology import buckets, defaults, model, naming
from vstream.topology.accounts import inbox_of
from vstream.topology.document import (
    ConsumerDocument,
    LevelDocument,
    LinkDocument,
    RegionDocument,
    SettingsDocument,
    StreamDocument,
    TopologyDocument,
    TransportDocument,
)
from vstream.topology.profiles import PROFILES

API_NAMES = {"replicas": "num_replicas", "allow_rollup": "allow_rollup_hdrs"}
"""Settings that the JetStream API calls by another name."""
SETTING_WORDS = {API_NAMES.get(word, word): word for word in SettingsDocument.model_fields if word != "config"}
"""The word of the topology language for what the JetStream API calls so."""
_SharedSettings = dict[tuple[model.Role, str, tuple[str, ...], str], model.StreamSettings]
"""By role, place, regions, and what a stream says beside `_OTHER_THAN_SETTINGS`: most of thousands of streams have the same."""
_OTHER_THAN_SETTINGS = frozenset({"subjects", "regions", "canary", "takes_over", "consumers", "survive"})
"""What has no say in the settings of a stream."""
ROLE_KEYS = {model.Role.WRITE: "write", model.Role.ORIGIN: "write", model.Role.ORDER: "order", model.Role.READ: "read"}
"""The key under which the settings of a role are written."""
_SETTING_FIELDS = frozenset(SettingsDocument.model_fields) - {"config", "metadata"}


def resolve_document(document: TopologyDocument) -> model.Topology:
    """
    Fill in everything that a document leaves open.

    Total: names that mean nothing (unknown regions, unknown presets) are left out
    here and reported by the rules.
    """
    document = document.model_copy(update={"routing": _decode_routing(document).value})
    lost = tuple(_decode_lost_regions(document))
    document = _without_lost_regions(document)
    regions = tuple(_decode_region(document, name, region) for name, region in document.regions.items())
    shared: _SharedSettings = {}
    return model.Topology(
        name=document.name,
        server_version=document.server_version,
        naming=model.Naming(document.naming),
        routing=model.Routing(document.routing),
        account=document.account,
        moves_to=model.Routing(document.moves_to) if document.moves_to else None,
        moves_from=model.Routing(document.moves_from) if document.moves_from else None,
        security=model.Security(document.security.mode),
        certificates=document.security.certificates,
        transport=_decode_transport(document.security.transport),
        limits=model.AccountLimits(**document.security.limits.model_dump())
        if document.security.limits
        else model.AccountLimits(),
        is_plaintext_meant=document.security.transport is not None and document.security.transport.none is not None,
        roots=document.roots,
        regions=regions,
        streams=tuple(_decode_stream(document, name, stream, shared) for name, stream in document.streams.items()),
        links=tuple(_decode_links(document)),
        stretch=_decode_stretch(document),
        hubs=_decode_hubs(document),
        server_options=model.ServerOptions(**document.server_options.model_dump()),
        nats_checks=model.NatsChecks(**document.nats_checks.model_dump()) if document.nats_checks is not None else None,
        lost=lost,
    )


def _decode_lost_regions(document: TopologyDocument) -> Iterator[model.LostRegion]:
    for name, region in document.regions.items():
        if region.lost is not None:
            lost_region, stretch = _decode_region(document, name, region), _decode_stretch(document)
            members = [server for at, server in stretch.members.items() if at == name] if stretch else []
            servers = tuple(server.name for server in (*lost_region.servers, *members))
            yield model.LostRegion(region=lost_region, homes=region.lost, servers=servers)


def with_new_homes(document: TopologyDocument) -> TopologyDocument:
    """*document*, with the homes of `homed` streams where `lost` and `drained` of their regions move them."""
    streams = dict(document.streams)
    for name, region in document.regions.items():
        for stream, home in (region.lost or {}).items():
            if stream in streams and streams[stream].home == name:
                streams[stream] = streams[stream].model_copy(update={"home": home})
    takeover_regions = {name: _decode_takeover_regions(document, stream) for name, stream in streams.items()}
    for homed, taken_by in takeover_regions.items():
        drained = streams[homed].home
        if drained is not None and drained in taken_by:
            streams[homed] = streams[homed].model_copy(update={"home": taken_by[drained]})
    return document.model_copy(update={"streams": streams})


def _decode_takeover_regions(document: TopologyDocument, stream: StreamDocument) -> dict[str, str]:
    """By drained region, who takes its publishes: the named region, else the first of the stream that is not drained."""
    named = document.regions if stream.regions == "all" else stream.regions
    drained = {name: region.drained for name, region in document.regions.items() if region.drained is not None}
    lost = {name for name, region in document.regions.items() if region.lost is not None}
    left = [name for name in document.regions if name in named and name not in drained and name not in lost]
    takeover_regions = {}
    for name, taker in drained.items():
        if name in named and left:
            takeover_regions[name] = taker if taker in left else left[0]
    return takeover_regions


def _without_lost_regions(document: TopologyDocument) -> TopologyDocument:
    regions = {name: region for name, region in document.regions.items() if region.lost is None}
    stretch = document.stretch
    if stretch is not None and stretch.members == "all":
        stretch = stretch.model_copy(update={"members": dict.fromkeys(document.regions)})
    return with_new_homes(document).model_copy(update={"regions": regions, "stretch": stretch})


def _decode_transport(document: TransportDocument | None) -> model.Transport | None:
    """None also where a file is missing, which VS162 reports."""
    if document is None or not (document.cert_file and document.key_file and document.ca_file):
        return None
    return model.Transport(
        cert_file=document.cert_file,
        key_file=document.key_file,
        ca_file=document.ca_file,
        peer_name=document.peer_name,
        client_ca_file=document.client_ca_file,
        rejects_unknown_clusters=document.reject_unknown_cluster,
    )


def _decode_routing(document: TopologyDocument) -> model.Routing:
    """
    How clients of *document*, which has a stream for each bucket, reach streams.

    The stated one, or else `mapped`, which leaves the account of clients as it is. Where the document asks for what
    `mapped` cannot do (VS137, VS144 and VS149 would refuse it), `accounts`, which can; also with a security mode, where
    vstream writes the account of clients anyway. So a topology that was valid before, and may be live, keeps its
    meaning.
    """
    if document.routing is not None:
        return model.Routing(document.routing)
    is_beyond_mapping = (
        document.roots
        or model.Security(document.security.mode) is not model.Security.PASSWORDS
        or any(_is_beyond_mapping(document, name, stream) for name, stream in document.streams.items())
    )
    return (
        model.Routing.ACCOUNTS
        if is_beyond_mapping and document.naming != model.Naming.BLOG.value
        else model.Routing.MAPPED
    )


def _is_beyond_mapping(document: TopologyDocument, name: str, stream: StreamDocument) -> bool:
    """Whether mapping rules of one account cannot serve clients of *stream*."""
    if model.Consistency(stream.consistency).has_origin:
        return False
    is_object_store = buckets.is_object_store(document, name)
    return (stream.core_subscribers or is_object_store) and not (is_object_store and _names_order(stream))


def _decode_hubs(document: TopologyDocument) -> model.Hubs | None:
    # One region has nothing to be joined to.
    if not PROFILES[model.Routing(document.routing)].has_domains or len(document.regions) == 1:
        return None
    members = {}
    for name, region in document.regions.items():
        members[name] = model.Server(
            name=naming.hub_name(name), host=document.hubs.hosts.get(name, next(iter(region.servers), None))
        )
    return model.Hubs(members=members, ports=model.Ports(**document.hubs.ports.model_dump()))


def _decode_stretch(document: TopologyDocument) -> model.Stretch | None:
    stretch = document.stretch
    if stretch is None:
        return None
    hosts = dict.fromkeys(document.regions) if stretch.members == "all" else stretch.members
    # Each member is in another region, so in a zone of its own.
    prefix = document.server_options.unique_tag
    members = {}
    for region in document.regions:
        if region in hosts:
            name = naming.stretch_server_name(stretch.cluster, region)
            tags = () if prefix is None else (f"{prefix}{region}",)
            members[region] = model.Server(name=name, host=hosts[region], tags=tags)
    return model.Stretch(
        cluster=stretch.cluster,
        members=members,
        ports=model.Ports(**stretch.ports.model_dump()),
        jetstream=model.JetStreamLimits(**(stretch.jetstream or document.jetstream).model_dump()),
        leader=stretch.leader if stretch.leader in members else None,
    )


def _decode_links(document: TopologyDocument) -> Iterator[model.Link]:
    """The links between regions: the settings of each, over the settings for all."""
    default = document.links.get(naming.DEFAULT_LINK, LinkDocument())
    by_pair = {}
    for key, link in document.links.items():
        if len(pairs := naming.link_ends(key, document.regions)) == 1:
            by_pair[frozenset(pairs[0])] = link
    for between in combinations(document.regions, 2):
        link = by_pair.get(frozenset(between), LinkDocument())
        values = default.model_dump(exclude_none=True) | link.model_dump(exclude_none=True)
        if values:
            yield model.Link(between=between, **values)


def _decode_region(document: TopologyDocument, name: str, region: RegionDocument) -> model.Region:
    limits = region.jetstream or document.jetstream
    tags = region.tags if len(region.tags) == len(region.servers) else ((),) * len(region.servers)
    servers = []
    for index, host in enumerate(region.servers):
        is_named = len(region.names) == len(region.servers)
        server = region.names[index] if is_named else naming.server_name(name, index + 1)
        servers.append(model.Server(name=server, host=host, tags=tags[index]))
    return model.Region(
        name=name,
        cluster=region.cluster or name,
        servers=tuple(servers),
        ports=model.Ports(**region.ports.model_dump()),
        jetstream=model.JetStreamLimits(**limits.model_dump()),
        endpoint=_decode_endpoint(document, name),
        gateway=region.gateway,
    )


def _decode_endpoint(document: TopologyDocument, region: str) -> model.Endpoint | None:
    connect = document.connect.get(region)
    if connect is None:
        return None
    tls = connect.tls
    endpoint = model.Endpoint(
        **connect.model_dump(exclude={"tls", "system", "inbox"}),
        inbox=connect.inbox or inbox_of(connect.user),
        tls_ca=tls.ca if tls else None,
        tls_cert=tls.cert if tls else None,
        tls_key=tls.key if tls else None,
    )
    if connect.system is None:
        return endpoint
    without_login = replace(endpoint, context=None, creds=None, nkey=None, user=None, password_env=None, token_env=None)
    return replace(endpoint, system=replace(without_login, **connect.system.model_dump(), monitor=()))


def _decode_stream(
    document: TopologyDocument, name: str, stream: StreamDocument, shared: _SharedSettings
) -> model.VirtualStream:
    named = document.regions if stream.regions == "all" else stream.regions
    regions = tuple(region for region in document.regions if region in named)
    consistency = model.Consistency(stream.consistency)
    stretch = _decode_stretch(document)
    home = stream.home if consistency is model.Consistency.HOMED and stream.home in regions else None
    wide = stretch.cluster if stretch and consistency.needs_stretch else None
    stated = repr([(field, getattr(stream, field)) for field in sorted(stream.model_fields_set - _OTHER_THAN_SETTINGS)])

    def settings(role: model.Role, places: Iterable[str | None]) -> dict[str, model.StreamSettings]:
        by_place = {}
        for place in filter(None, places):
            key = (role, place, regions, stated)
            if key not in shared:
                shared[key] = _decode_settings(document, name, regions, place, role)
            by_place[place] = shared[key]
        return by_place

    return model.VirtualStream(
        name=name,
        subjects=stream.subjects,
        regions=regions,
        write_settings=settings(model.Role.WRITE, () if consistency.has_origin else regions),
        read_settings=settings(model.Role.READ, (region for region in regions if region != home)),
        origin_settings=settings(model.Role.ORIGIN, (home, wide) if consistency.has_origin else ()),
        order_settings=settings(model.Role.ORDER, () if consistency.has_origin else (wide,)),
        consistency=consistency,
        is_virtual_name_of_order=_names_order(stream) and PROFILES[model.Routing(document.routing)].has_physical_names,
        routing=model.Routing(document.routing),
        follows_former=document.moves_from is not None,
        canary=stream.canary,
        takeover_regions=_decode_takeover_regions(document, stream),
        takes_over=stream.takes_over,
        core_subscribers=stream.core_subscribers,
        is_bucket=buckets.is_bucket(document, name),
        consumers=tuple(
            _decode_consumer(consumer_name, consumer, regions) for consumer_name, consumer in stream.consumers.items()
        ),
    )


def _names_order(stream: StreamDocument) -> bool:
    return stream.virtual_name == "order" and model.Consistency(stream.consistency) is model.Consistency.ORDERED


def _decode_consumer(name: str, consumer: ConsumerDocument, regions: tuple[str, ...]) -> model.Consumer:
    """Sets every field, so that no default of a server, an account or a stream decides."""
    fields: dict[str, Json] = {
        "deliver_policy": consumer.deliver_policy,
        "ack_policy": consumer.ack_policy,
        "replay_policy": "instant",
        "max_deliver": consumer.max_deliver,
        "max_waiting": consumer.max_waiting,
        "num_replicas": consumer.replicas or 0,  # as many as the stream has
    }
    if consumer.ack_policy != "none":
        fields["ack_wait"] = consumer.backoff[0] if consumer.backoff else consumer.ack_wait or defaults.ACK_WAIT_NS
        fields["max_ack_pending"] = consumer.max_ack_pending or defaults.MAX_ACK_PENDING
    optional = {
        "backoff": list(consumer.backoff),
        "description": consumer.description,
        "filter_subjects": list(consumer.filter_subjects),
        "headers_only": consumer.headers_only,
        "mem_storage": consumer.memory,
    }
    return model.Consumer(
        name=name,
        regions=tuple(region for region in regions if consumer.regions == "all" or region in consumer.regions),
        fields={
            **fields,
            **{field: value for field, value in optional.items() if value},
            **consumer.config,
            "metadata": dict(consumer.metadata),
        },
    )


def list_levels(
    document: TopologyDocument, name: str, place: str, role: model.Role
) -> Iterator[tuple[Path, SettingsDocument]]:
    """The settings that apply to one physical stream of the stream called *name*, each with its path, weakest first."""
    stream = document.streams[name]
    chain: list[tuple[Path, LevelDocument]] = [(("defaults",), document.defaults)]
    chain.extend(
        (("presets", preset), document.presets[preset]) for preset in stream.extends if preset in document.presets
    )
    chain.append((("streams", name), stream))
    if place in stream.overrides:
        chain.append((("streams", name, "overrides", place), stream.overrides[place]))
    for path, level in chain:
        yield path, level
        yield (*path, ROLE_KEYS[role]), getattr(level, ROLE_KEYS[role])


def _merge_levels(
    document: TopologyDocument, name: str, place: str, role: model.Role
) -> tuple[dict[str, Any], dict[str, str], dict[str, Json]]:
    """What is set for a physical stream: its settings, `metadata` and `config`. Later levels win."""
    settings: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    config: dict[str, Json] = {}
    for _, level in list_levels(document, name, place, role):
        for field in level.model_fields_set & _SETTING_FIELDS:
            value = getattr(level, field)
            if value is not None:
                settings[field] = value
        metadata.update(level.metadata or {})
        # A rule refuses the rest, which may be of any type: what has a word of its own is checked there.
        config.update({key: value for key, value in (level.config or {}).items() if key not in SETTING_WORDS})
    return settings, metadata, config


def _decode_settings(
    document: TopologyDocument, name: str, regions: tuple[str, ...], place: str, role: model.Role
) -> model.StreamSettings:
    settings, metadata, config = _merge_levels(document, name, place, role)
    is_mirror = role is model.Role.READ and model.Consistency(document.streams[name].consistency).has_mirrors
    placement_tags = settings.pop("placement_tags", ())
    fields: dict[str, Json] = {
        **defaults.STREAM,
        "num_replicas": _choose_replicas(document, regions, place),
        **{API_NAMES.get(field, field): value for field, value in settings.items()},
    }
    if role is model.Role.ORDER:
        # It hands on what write streams hold, and has to hold it as long.
        fields["max_age"] = settings.get("max_age", _find_longest_write(document, name, regions))
    if is_mirror:
        # A mirror takes what its origin took: servers do not deduplicate there, and keep the 0.
        fields["duplicate_window"] = 0
        # In an account of its own it is called like what it mirrors, and answers in its own name.
        fields |= {"mirror_direct": True} if PROFILES[model.Routing(document.routing)].has_physical_names else {}
    elif document.streams[name].counters:
        # A mirror takes sums as they are; whatever else stores them adds up.
        fields |= {"allow_msg_counter": True}
    if document.streams[name].core_subscribers:
        republish = PROFILES[model.Routing(document.routing)].republish(role)
        fields |= {"republish": republish} if republish else {}
    max_age: Any = fields["max_age"]
    window = defaults.choose_duplicate_window(role, document.server_version, max_age=max_age)
    fields.setdefault("duplicate_window", window)
    region = document.regions.get(place)
    placement: dict[str, Json] = {"cluster": (region and region.cluster) or place}
    if placement_tags and region:
        placement["tags"] = list(placement_tags)
    return {**fields, **config, "placement": placement, "metadata": metadata}


def _choose_replicas(document: TopologyDocument, regions: tuple[str, ...], place: str) -> int:
    if place in document.regions:
        smallest = min((len(document.regions[region].servers) for region in regions), default=1)
        return defaults.choose_region_replicas(smallest)
    stretch = _decode_stretch(document)
    before = len(document.stretch.members) if document.stretch else 1
    return defaults.choose_stretch_replicas(len(stretch.members) if stretch else 1, before=before)


def _find_longest_write(document: TopologyDocument, name: str, regions: tuple[str, ...]) -> int:
    """The longest `max_age` of a write stream in nanoseconds; 0, for ever, is the longest."""
    ages = [_decode_settings(document, name, regions, region, model.Role.WRITE)["max_age"] for region in regions]
    limits = [age for age in ages if isinstance(age, int)]
    # Nothing is known of a stream whose regions are all unknown.
    return 0 if 0 in limits else max(limits, default=0)
