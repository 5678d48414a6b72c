"""Names that are unknown, reserved, or taken twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vstream.findings import Severity
from vstream.formatting import quote_value
from vstream.lint.rule import Violation, rule, suggest_closest
from vstream.lint.rules.topology.buckets import buckets_called_like_streams
from vstream.lint.rules.topology.context import TopologySubject
from vstream.syntax.yaml import Path
from vstream.topology import naming
from vstream.topology.document import StretchDocument, TopologyDocument
from vstream.topology.replication import physical_streams


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
                hint=suggest_closest(region, region_names, "defined regions"),
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
                    hint=suggest_closest(preset, presets, "defined presets"),
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
        names = {part.name for part in physical_streams(stream)}
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
