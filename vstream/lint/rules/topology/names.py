"""Names that are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.topology.buckets import buckets_called_like_streams
from vstream.topology import naming, physical

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vstream.lint.rules.topology.context import TopologySubject
    from vstream.syntax.yaml import Path


@rule("VS108", "reserved-name", Severity.ERROR)
def reserved_name(subject: TopologySubject) -> Iterator[Violation]:
    """
    A virtual stream or a region is called like a word that means something else.

    ## Why is this bad?
    The API mappings of a stream that is called like a word of the JetStream API
    would also match requests about other streams: `$JS.API.CONSUMER.*.NEXT.>`
    matches `$JS.API.CONSUMER.MSG.NEXT.foo.bar`. A region called `all` could not be
    told from all regions.
    """
    for name in subject.document.streams:
        if name in naming.RESERVED_NAMES:
            yield Violation(
                at=("streams", name),
                message=f"`{name}` is a word of the JetStream API and cannot name a virtual stream",
                hint=f"`{name.lower()}` is fine",
                on_key=True,
            )
    if "all" in subject.document.regions:
        yield Violation(
            at=("regions", "all"),
            message="`all` means all regions and cannot name one",
            hint="choose another name",
            on_key=True,
        )


@rule("VS109", "name-collision", Severity.ERROR)
def name_collision(subject: TopologySubject) -> Iterator[Violation]:
    """
    Two things of a topology get the same name.

    ## Why is this bad?
    Stream names are shared by all regions of a super-cluster, and clusters are told
    apart by name: the second stream would be taken for the first, and the servers
    of the second region would join the first. Names become names of files too: where two differ only in upper and
    lower case, the second overwrites the first on macOS and Windows. A bucket `users` is the stream `KV_users`.
    """
    owners: dict[str, str] = {}
    for stream in subject.topology.streams:
        names = {physical.physical_name(stream, part.role, part.place) for part in stream.physical}
        for name in sorted({stream.name, *names}):
            owner = owners.setdefault(name, stream.name)
            if owner != stream.name:
                yield Violation(
                    at=("streams", stream.name),
                    message=f"streams `{owner}` and `{stream.name}` both need the name `{name}`",
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
    yield from _stretch_collision(subject, clusters)
    yield from _differ_in_case(subject)
    yield from buckets_called_like_streams(subject)


def _stretch_collision(subject: TopologySubject, clusters: Mapping[str, str]) -> Iterator[Violation]:
    """What the stretch cluster shares a name with. *clusters* are the regions' cluster names, and whose they are."""
    stretch = subject.topology.stretch
    if stretch is None:
        return
    names = {**{region.name: region.name for region in subject.topology.regions}, **clusters}
    at: Path = ("stretch", "cluster") if "cluster" in _written(subject) else ("stretch",)
    if stretch.cluster in names:
        yield Violation(
            at=at,
            message=f"the stretch cluster and region `{names[stretch.cluster]}` both need the name `{stretch.cluster}`",
            hint="write another `cluster` name: it belongs to no region",
            on_key=at == ("stretch",),
        )
        return
    servers = {server.name: region.name for region in subject.topology.regions for server in region.servers}
    for region, member in stretch.members.items():
        if member.name in servers:
            yield Violation(
                at=at,
                message=f"the stretch cluster's server in region `{region}` and one of region `{servers[member.name]}` "
                f"are both called `{member.name}`",
                hint="write another `cluster` name",
                on_key=at == ("stretch",),
            )


def _written(subject: TopologySubject) -> frozenset[str]:
    return frozenset(subject.document.stretch.model_fields_set if subject.document.stretch else ())


def _differ_in_case(subject: TopologySubject) -> Iterator[Violation]:
    """Names of regions or streams become names of files: on macOS and Windows the second would overwrite the first."""
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
