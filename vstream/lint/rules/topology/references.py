"""Names that are taken or unknown, and settings without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vstream.diagnostics import Severity
from vstream.formatting import quote_value
from vstream.lint.registry import Violation, find_closest, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.syntax.yaml import Path
from vstream.topology import naming, physical
from vstream.topology.buckets import key_value_stream, objects_stream
from vstream.topology.document import BucketDocument, LevelDocument, StretchDocument, TopologyDocument
from vstream.topology.model import Consistency
from vstream.topology.profiles import profile_of


@rule("VS101", "unknown-region", Severity.ERROR)
def unknown_region(subject: TopologySubject) -> Iterator[Violation]:
    """
    The topology names a region that it does not define.

    ## Why is this bad?
    No server has that cluster name, so neither a write stream nor a read stream can be placed there.
    """
    document = subject.document
    region_names = list(document.regions)
    for at, region, title, on_key in _list_region_names(document):
        if region not in document.regions:
            yield Violation(
                at=at,
                message=f"{title} unknown region {quote_value(region)}",
                hint=find_closest(region, region_names, "defined regions"),
                on_key=on_key,
            )


def _list_region_names(document: TopologyDocument) -> Iterator[tuple[Path, str, str, bool]]:
    """Every place that names a region: its path, the name, a description, and whether the name is a key."""
    for name, stream in document.streams.items():
        for index, region in enumerate(stream.regions if stream.regions != "all" else ()):
            yield ("streams", name, "regions", index), region, f"stream `{name}` uses", False
        if stream.home is not None:
            yield ("streams", name, "home"), stream.home, f"stream `{name}` has its home in", False
        for region in stream.overrides:
            yield ("streams", name, "overrides", region), region, f"stream `{name}` overrides", True
        for durable, consumer in stream.consumers.items():
            for index, region in enumerate(consumer.regions if consumer.regions != "all" else ()):
                yield (
                    ("streams", name, "consumers", durable, "regions", index),
                    region,
                    f"consumer `{durable}` of stream `{name}` uses",
                    False,
                )
    for region in document.hubs.hosts:
        yield ("hubs", "hosts", region), region, "`hubs` name", True
    for region in document.connect:
        yield ("connect", region), region, "`connect` names", True
    if document.stretch:
        yield from _list_stretch_names(document.stretch)


def _list_stretch_names(stretch: StretchDocument) -> Iterator[tuple[Path, str, str, bool]]:
    for index, region in enumerate(stretch.members if stretch.members != "all" else ()):
        # A list has a place for each index, a map for each key.
        has_host = isinstance(stretch.members, dict) and stretch.members[region] is not None
        at: Path = ("stretch", "members", region if has_host else index)
        yield at, region, "the stretch cluster has a member in", has_host
    if stretch.leader is not None:
        yield ("stretch", "leader"), stretch.leader, "the stretch cluster is to be led from", False


@rule("VS114", "unknown-preset", Severity.ERROR)
def unknown_preset(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream extends a preset that the topology does not define.

    ## Why is this bad?
    Its settings would silently be missing.
    """
    presets = list(subject.document.presets)
    for name, stream in subject.document.streams.items():
        for index, preset in enumerate(stream.extends):
            if preset not in presets:
                yield Violation(
                    at=("streams", name, "extends", index),
                    message=f"stream `{name}` extends unknown preset {quote_value(preset)}",
                    hint=find_closest(preset, presets, "defined presets"),
                )


@rule("VS123", "setting-without-effect", Severity.WARNING)
def setting_without_effect(subject: TopologySubject) -> Iterator[Violation]:
    """
    A setting has no effect.

    ## Why is this bad?
    It looks as if it applied. An override for a region in which the stream does not exist, ports of servers without
    host names (vstream chooses those ports), or `writers` of a bucket with a single origin is a mistake or a leftover.
    """
    document = subject.document
    for name, stream in document.streams.items():
        for region in stream.overrides if stream.regions != "all" else ():
            if region in document.regions and region not in stream.regions:
                yield Violation(
                    at=("streams", name, "overrides", region),
                    message=f"stream `{name}` does not exist in region `{region}`, so this override has no effect",
                    hint=f"add `{region}` to the stream's `regions`, or remove the override",
                    on_key=True,
                )
    yield from _check_unused_words(document)
    yield from unused_writers(subject)
    for region, settings in document.regions.items():
        if "ports" in settings.model_fields_set and None in settings.servers:
            yield Violation(
                at=("regions", region, "ports"),
                message=f"the servers of region `{region}` have no host names, so these ports have no effect",
                hint="list host names under `servers`, or remove the ports",
                on_key=True,
            )
    stretch = document.stretch
    if (
        stretch
        and stretch.leader in document.regions
        and stretch.members != "all"
        and stretch.leader not in stretch.members
    ):
        yield Violation(
            at=("stretch", "leader"),
            message=f"region `{stretch.leader}` has no member of the stretch cluster, so it cannot lead",
            hint="name one of its `members`",
        )
    has_no_hosts = stretch and (stretch.members == "all" or None in stretch.members.values())
    if stretch and "ports" in stretch.model_fields_set and has_no_hosts:
        yield Violation(
            at=("stretch", "ports"),
            message="the members of the stretch cluster have no host names, so these ports have no effect",
            hint="write `members` as a map of regions to host names, or remove the ports",
            on_key=True,
        )


def _check_unused_words(document: TopologyDocument) -> Iterator[Violation]:
    """Settings that have no effect in the consistency model of their stream."""
    for name, stream in document.streams.items():
        if stream.home is not None and stream.consistency != "homed":
            yield Violation(
                at=("streams", name, "home"),
                message=f"stream `{name}` is `{stream.consistency}`, so its `home` has no effect",
                hint="write `consistency: homed`, or remove `home`",
                on_key=True,
            )
        if stream.virtual_name == "order" and stream.consistency != "ordered":
            yield Violation(
                at=("streams", name, "virtual_name"),
                message=f"stream `{name}` is `{stream.consistency}` without an ordering stream, so this has no effect",
                hint="write `consistency: ordered`, or remove `virtual_name`",
                on_key=True,
            )
        has_origin = stream.consistency in {"stretch", "homed"}
        for region, override in stream.overrides.items():
            if has_origin and region != stream.home and override.write.model_fields_set:
                yield Violation(
                    at=("streams", name, "overrides", region, "write"),
                    message=f"no stream of `{name}` stores publishes in region `{region}`, so this has no effect",
                    hint="write it under the stream's own `write`, or remove it",
                    on_key=True,
                )
        levels: list[tuple[Path, LevelDocument]] = [(("streams", name), stream)]
        levels.extend((("streams", name, "overrides", region), level) for region, level in stream.overrides.items())
        for path, level in levels:
            if level.read.duplicate_window is not None and stream.consistency != "virtual":
                yield Violation(
                    at=(*path, "read", "duplicate_window"),
                    message=f"the read streams of `{name}` are mirrors, which do not deduplicate: this has no effect",
                    hint="write it under `write`" + (" or `order`" if stream.consistency == "ordered" else ""),
                    on_key=True,
                )
            if level.order.model_fields_set and (stream.consistency != "ordered" or "overrides" in path):
                yield Violation(
                    at=(*path, "order"),
                    message=f"stream `{name}` is `{stream.consistency}`, so `order` has no effect"
                    if stream.consistency != "ordered"
                    else f"the ordering stream of `{name}` lives in no region, so this override has no effect",
                    hint="write it beside `consistency: ordered`, or remove it",
                    on_key=True,
                )


@rule("VS108", "reserved-name", Severity.ERROR)
def reserved_name(subject: TopologySubject) -> Iterator[Violation]:
    """
    The name of a virtual stream or a region has another meaning.

    ## Why is this bad?
    If a stream is named like a keyword of the JetStream API, its API mappings also match requests about other streams:
    `$JS.API.CONSUMER.*.NEXT.>` matches `$JS.API.CONSUMER.MSG.NEXT.foo.bar`. A region `all` could not be distinguished
    from all regions.
    """
    for name in subject.document.streams:
        if name in naming.RESERVED_NAMES:
            yield Violation(
                at=("streams", name),
                message=f"`{name}` is a keyword of the JetStream API and cannot name a virtual stream",
                hint=f"`{name.lower()}` is fine",
                on_key=True,
            )
    if "all" in subject.document.regions:
        yield Violation(
            at=("regions", "all"),
            message="`all` means all regions and cannot name a region",
            hint="choose another name",
            on_key=True,
        )


@rule("VS109", "name-collision", Severity.ERROR)
def name_collision(subject: TopologySubject) -> Iterator[Violation]:
    """
    Two streams, regions or servers get the same name.

    ## Why is this bad?
    Stream names are shared by all regions of a super-cluster, and clusters are distinguished by name: the second stream
    would be mistaken for the first, and the servers of the second region would join the first. Names are also used for
    files: if two differ only in case, the second file overwrites the first on macOS and Windows. A bucket `users` is
    the stream `KV_users`.
    """
    owners: dict[str, str] = {}
    for stream in subject.topology.streams:
        names = {physical.physical_name(stream, part.role, part.place) for part in stream.physical}
        for name in sorted({stream.name, *names}):
            owner = owners.setdefault(name, stream.name)
            if owner != stream.name:
                yield Violation(
                    at=("streams", stream.name),
                    message=f"streams `{owner}` and `{stream.name}` both need the stream name `{name}`",
                    hint="rename one of them",
                    on_key=True,
                )
    clusters: dict[str, str] = {}
    for region in subject.topology.regions:
        owner = clusters.setdefault(region.cluster, region.name)
        if owner != region.name:
            written = subject.document.regions[region.name].cluster is not None
            yield Violation(
                at=("regions", region.name, "cluster") if written else ("regions", region.name),
                message=f"regions `{owner}` and `{region.name}` have the same cluster name `{region.cluster}`",
                hint="each region is a cluster of its own",
                on_key=not written,
            )
    yield from _check_stretch_collision(subject, clusters)
    yield from _differ_in_case(subject)
    yield from buckets_called_like_streams(subject)


def _check_stretch_collision(subject: TopologySubject, clusters: Mapping[str, str]) -> Iterator[Violation]:
    """Name clashes of the stretch cluster. *clusters* maps the cluster names of regions to the regions."""
    stretch = subject.topology.stretch
    if stretch is None:
        return
    names = {**{region.name: region.name for region in subject.topology.regions}, **clusters}
    written = subject.document.stretch
    at: Path = ("stretch", "cluster") if written and "cluster" in written.model_fields_set else ("stretch",)
    if stretch.cluster in names:
        yield Violation(
            at=at,
            message=f"the stretch cluster and region `{names[stretch.cluster]}` both need the name `{stretch.cluster}`",
            hint="write another `cluster` name, which no region uses",
            on_key=at == ("stretch",),
        )
        return
    servers = {server.name: region.name for region in subject.topology.regions for server in region.servers}
    for region, member in stretch.members.items():
        if member.name in servers:
            yield Violation(
                at=at,
                message=(
                    f"the stretch cluster's server in region `{region}` and one of region "
                    f"`{servers[member.name]}` are both called `{member.name}`"
                ),
                hint="write another `cluster` name",
                on_key=at == ("stretch",),
            )


def _differ_in_case(subject: TopologySubject) -> Iterator[Violation]:
    """Names that differ only in case: as file names on macOS and Windows, the second would overwrite the first."""
    for kind, names in (("regions", subject.document.regions), ("streams", subject.document.streams)):
        spellings: dict[str, str] = {}
        for name in names:
            earlier = spellings.setdefault(name.lower(), name)
            if earlier != name:
                yield Violation(
                    at=(kind, name),
                    message=f"{kind} `{earlier}` and `{name}` differ only in upper and lower case",
                    hint="rename one of them",
                    on_key=True,
                )


_STREAMS = {"kv": key_value_stream, "objects": objects_stream}


def _list_buckets(subject: TopologySubject) -> Iterator[tuple[Path, str, BucketDocument, Consistency]]:
    """Each bucket: its place in the file, its kind, its document, and its model."""
    document = subject.document
    for section, buckets, noun in (("kv", document.kv, "bucket"), ("objects", document.objects, "object store")):
        for name, bucket in buckets.items():
            yield (section, name), f"{noun} `{name}`", bucket, Consistency(bucket.consistency)


def _has_several_regions(subject: TopologySubject, bucket: BucketDocument) -> bool:
    return len(subject.document.regions if bucket.regions == "all" else bucket.regions) > 1


def _alternative(subject: TopologySubject) -> str:
    """The models in which all writes of a bucket go to one stream and that this topology can use."""
    if profile_of(subject.topology).has_domains:
        return "keep the bucket in a topology with `routing: accounts`, as `stretch` or `homed`"
    stretch = (
        "`consistency: stretch`" if subject.document.stretch else "`consistency: stretch` (and a `stretch` cluster)"
    )
    return f"choose {stretch} or `consistency: homed`"


@rule("VS142", "bucket-diverges", Severity.ERROR)
def bucket_diverges(subject: TopologySubject) -> Iterator[Violation]:
    """
    A bucket accepts writes in several regions, but `writers: one-per-key` is not set.

    ## Why is this bad?
    In a `virtual` bucket, two regions that write one key at the same time see the two writes in different orders, and
    keep different values for ever; a region may even combine the description of one object with the bytes of another.
    `create` succeeds in each region, and `update` compares the revision of a read with the sequences of another stream.
    None of this happens if each key is written in only one region: state that with `writers: one-per-key`.
    """
    for at, title, bucket, model in _list_buckets(subject):
        if model is Consistency.VIRTUAL and bucket.writers is None and _has_several_regions(subject, bucket):
            yield Violation(
                at=at,
                message=(
                    f"the {title} diverges for ever if two regions write one key: `create` succeeds in each "
                    "region, and `update` compares revisions of two different streams"
                ),
                hint=(
                    f"{_alternative(subject)}; or set `writers: one-per-key` if each key is written in only one region"
                ),
                on_key=True,
            )


@rule("VS143", "bucket-compares-nothing", Severity.ERROR)
def bucket_compares_nothing(subject: TopologySubject) -> Iterator[Violation]:
    """
    An ordered bucket accepts writes in several regions, but `writers: one-per-key` is not set.

    ## Why is this bad?
    All regions agree on one order, and so on one value in the end. But each region accepts a write before that:
    `create` succeeds in several regions, `update` compares the revision of a read with the sequences of another stream,
    and the losing value was acknowledged. If two objects are written under one name at once, their chunks are never
    mixed, but the chunks of one of them stay as garbage.
    """
    for at, title, bucket, model in _list_buckets(subject):
        if model is Consistency.ORDERED and bucket.writers is None and _has_several_regions(subject, bucket):
            yield Violation(
                at=(*at, "consistency"),
                message=(
                    f"the {title} compares nothing across regions: `create` succeeds in each region, "
                    "`update` compares revisions of two different streams, and the last of two writers wins"
                ),
                hint=(
                    f"{_alternative(subject)}; or set `writers: one-per-key` if each key is written in only one region"
                ),
            )


@rule("VS144", "bucket-out-of-reach", Severity.ERROR)
def bucket_out_of_reach(subject: TopologySubject) -> Iterator[Violation]:
    """
    Some or all client operations cannot read the bucket, because its stream is reached by mapping.

    ## Why is this bad?
    With `routing: mapped`, clients cannot create consumers on `virtual` and `ordered` streams (error 10056), and object
    stores are read by consumers: `put` works, but `get`, `list`, `watch` and `delete` do not. On a key/value bucket,
    `keys`, `watch`, `history` and `purge_deletes` do not work.
    """
    if not profile_of(subject.topology).has_physical_names:
        return
    by_name = {stream.name: stream for stream in subject.topology.streams}
    for at, title, _, model in _list_buckets(subject):
        if by_name[_STREAMS[str(at[0])](str(at[1]))].has_namesake:
            continue
        is_objects = at[0] == "objects"
        lacking = (
            "`get`, `list`, `watch` and `delete`" if is_objects else "`keys`, `watch`, `history` and `purge_deletes`"
        )
        yield Violation(
            at=at,
            message=f"of the {title}, {lacking} do not work with `routing: mapped`: clients cannot create the consumer (10056)",
            hint="use `routing: accounts`, or make it `stretch` or `homed`"
            + (", or set `virtual_name: order`" if model is Consistency.ORDERED else ""),
            on_key=True,
            severity=None if is_objects else Severity.WARNING,
        )


def unused_writers(subject: TopologySubject) -> Iterator[Violation]:
    """Buckets with a single origin that set `writers`: their stream already compares revisions for all regions."""
    for at, title, bucket, model in _list_buckets(subject):
        if model.has_origin and bucket.writers is not None:
            yield Violation(
                at=(*at, "writers"),
                message=f"the {title} is {model.value}: any region may write any key",
                hint="remove `writers`",
            )


def buckets_called_like_streams(subject: TopologySubject) -> Iterator[Violation]:
    """Buckets whose stream is also declared under `streams`: clients find the bucket `users` in `KV_users`."""
    for at, title, _, _ in _list_buckets(subject):
        stream = _STREAMS[str(at[0])](str(at[1]))
        if stream in subject.written:
            yield Violation(
                at=at,
                message=f"the {title} is stored in the stream `{stream}`, which is also listed under `streams`",
                hint="remove it from `streams`, or rename one of them",
                on_key=True,
            )
