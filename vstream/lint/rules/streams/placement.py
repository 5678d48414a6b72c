"""Placement, replicas, and overlapping subjects of streams."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from itertools import islice

from vstream.findings import Related, Severity
from vstream.formatting import format_count
from vstream.lint.reading.nodes import values_in
from vstream.lint.rule import Violation, rule, suggest_closest
from vstream.lint.rules.server_values import cluster_of, index_isolated_clusters, known_cluster_sizes, list_whole
from vstream.lint.rules.streams.values import count_replicas, find_misspelt, locate_field, read_strings, read_table
from vstream.lint.workspace import StreamFile, StreamRole, Workspace
from vstream.subjects.algebra import SubjectTrie, is_valid

_MAX_REPLICAS = 5
_MIN_REPLICAS = 3


@rule("VS221", "placement-missing", Severity.WARNING)
def placement_missing(workspace: Workspace) -> Iterator[Violation]:
    """
    A physical stream of a virtual stream does not set its cluster.

    ## Why is this bad?
    It is placed in the cluster of the client that creates it, or in any other cluster if that one has no room
    (server/jetstream_cluster.go, createGroupForStream, all versions). Then publishes leave their region, and fail if
    the other region fails. Tags alone do not keep a stream in its cluster.
    """
    for stream in workspace.streams:
        if stream.virtual is not None and stream.region is not None and not _find_cluster(stream):
            yield Violation(
                at=locate_field(stream, "placement"),
                message=f"`{stream.config.name}` does not set its cluster",
                hint=f'add `"placement": {{"cluster": "{_find_home(workspace, stream)}"}}`',
            )


@rule("VS222", "placed-elsewhere", Severity.ERROR)
def placed_elsewhere(workspace: Workspace) -> Iterator[Violation]:
    """
    A stream is placed in a cluster that does not exist, in that of another region, or by a tag that no server has.

    ## Why is this bad?
    Servers answer `no suitable peers for placement` (10005) for an unknown cluster or tag. Cluster names are compared
    exactly, tags ignoring case; tags are only checked if the file of a server in the cluster has any. In
    another region's cluster, the stream works until the connection between the two regions fails. Clusters are known
    from a topology, or from server configurations with gateways. All versions.
    """
    has_gateways = any(server.gateway and server.gateway.remotes for server in workspace.servers)
    names = list(workspace.cluster_names)
    tags = _tags_by_cluster(workspace)
    for stream in workspace.streams:
        placed = _find_cluster(stream)
        yield from _check_unknown_tags(stream, tags.get(placed, set()))
        # Without gateways the files may be those of one cluster of several: only what is nearly its name is wrong.
        is_whole = workspace.topology is not None or has_gateways or find_misspelt(placed, names) is not None
        clusters = names if is_whole else []
        if not placed or not clusters:
            continue
        home = _find_home(workspace, stream)
        if placed not in clusters:
            yield Violation(
                at=stream.locate("placement", "cluster"),
                message=f"unknown cluster `{placed}`",
                hint=suggest_closest(placed, clusters[:100], "clusters"),
            )
        elif home in clusters and home != placed:
            yield Violation(
                at=stream.locate("placement", "cluster"),
                message=f"`{stream.config.name}` is the stream of region `{stream.region}`, but is placed in cluster `{placed}`",
                hint=f"place it in `{home}`",
            )


def _tags_by_cluster(workspace: Workspace) -> dict[str, set[str]]:
    """The tags that servers have, by the name of their cluster."""
    tags: dict[str, set[str]] = {}
    # Of a topology that renders to these files, VS122 looks at the tags.
    for server in () if workspace.is_rendered else list_whole(workspace):
        name, written = cluster_of(server), values_in(server.root, "server_tags")
        if name is not None and written:
            tags.setdefault(str(name.text), set()).update(str(tag.value).lower() for tag in written)
    return tags


def _check_unknown_tags(stream: StreamFile, tags: set[str]) -> Iterator[Violation]:
    placement_tags = read_table(stream, "placement").get("tags")
    for index, tag in enumerate(placement_tags if tags and isinstance(placement_tags, list) else ()):
        if isinstance(tag, str) and not tag.startswith("!") and tag.strip().lower() not in tags:
            yield Violation(
                at=stream.locate("placement", "tags", index),
                message=f"no server of cluster `{_find_cluster(stream)}` has the tag `{tag}`",
                hint=suggest_closest(tag, sorted(tags), "tags"),
            )


@rule("VS223", "more-replicas-than-servers", Severity.ERROR)
def more_replicas_than_servers(workspace: Workspace) -> Iterator[Violation]:
    """
    A stream needs more replicas than its cluster has servers, or than servers allow.

    ## Why is this bad?
    Servers answer `no suitable peers for placement` (10005). More than 5 are always refused. Servers are counted in a
    topology, or in server configurations that list each other as routes. All versions (server/jetstream_cluster.go,
    selectPeerGroup).
    """
    servers, alone = known_cluster_sizes(workspace), index_isolated_clusters(workspace)
    for stream in workspace.streams:
        replica_count = count_replicas(stream)
        placed = _find_cluster(stream) or alone.get(posixpath.dirname(stream.file), "")
        if replica_count > _MAX_REPLICAS:
            message = f"{replica_count:,} replicas, {_MAX_REPLICAS} is the most"
        elif placed in servers and replica_count > servers[placed]:
            message = f"{format_count(replica_count, 'replica')}, but cluster `{placed}` has {format_count(servers[placed], 'server')}"
        else:
            continue
        yield Violation(at=stream.locate("num_replicas"), message=message, hint="lower `num_replicas`, or add servers")


@rule("VS224", "even-number-of-replicas", Severity.WARNING)
def even_number_of_replicas(workspace: Workspace) -> Iterator[Violation]:
    """
    A stream has an even number of replicas.

    ## Why is this bad?
    A stream needs more than half of its replicas: 2 replicas survive no loss; 4 survive the loss of one, like 3, but
    cost one copy more. With 2, the loss of either server stops the stream. All versions (Raft).
    """
    for stream in workspace.streams:
        replica_count = count_replicas(stream)
        if 1 < replica_count <= _MAX_REPLICAS and replica_count % 2 == 0:
            survives = "the loss of either stops the stream" if replica_count < _MIN_REPLICAS else "no safer than 3"
            yield Violation(
                at=stream.locate("num_replicas"), message=f"{replica_count} replicas: {survives}", hint="use 3 or 5"
            )


@rule("VS225", "single-replica-write-stream", Severity.WARNING)
def single_replica_write_stream(workspace: Workspace) -> Iterator[Violation]:
    """
    A write stream has one replica.

    ## Why is this bad?
    Until the other regions have sourced a message, the write stream holds the only copy. With one replica, all
    publishes of the region fail while that server is down, and acknowledged messages are lost with its disk. Not
    reported if the cluster is known to have fewer than three servers, or for streams that vstream rendered, unless
    their topology is given and differs. All versions.
    """
    servers = known_cluster_sizes(workspace)
    intended = set()
    for virtual in workspace.topology.streams if workspace.topology else ():
        for region, settings in virtual.write_settings.items():
            if settings.get("num_replicas") == 1:
                intended.add((virtual.name, region))
    for stream in workspace.streams:
        if stream.role is not StreamRole.WRITE or count_replicas(stream) > 1:
            continue
        is_unknown = workspace.topology is None and stream.config.owner is not None
        is_wanted = is_unknown or (stream.virtual, stream.region) in intended
        if servers.get(_find_cluster(stream), _MIN_REPLICAS) >= _MIN_REPLICAS and not is_wanted:
            yield Violation(
                at=locate_field(stream, "num_replicas"),
                message=f"`{stream.config.name}` holds the only copy of its region's messages, on one server",
                hint='write `"num_replicas": 3`',
            )


def _find_cluster(stream: StreamFile) -> str:
    cluster = read_table(stream, "placement").get("cluster")
    return cluster if isinstance(cluster, str) else ""


def _find_home(workspace: Workspace, stream: StreamFile) -> str:
    """The cluster of the region that the stream is for."""
    region = stream.region or ""
    for candidate in workspace.topology.regions if workspace.topology else ():
        if candidate.name == region:
            return candidate.cluster
    return region


_MAX_COMPARED = 50


@rule("VS235", "overlapping-streams", Severity.ERROR)
def overlapping_streams(workspace: Workspace) -> Iterator[Violation]:
    """
    Subjects overlap, in one stream or between two streams of the same directory.

    ## Why is this bad?
    Servers refuse a stream whose subjects overlap those of another (`subjects overlap with an existing stream`, 10065)
    or each other (10052), and a second stream with the same name (10058). Streams in different directories may belong
    to different accounts and are not compared, and neither are streams that vstream rendered, which contain their
    account (server/jetstream_cluster.go, server/stream.go; all versions).
    """
    directories: dict[str, list[StreamFile]] = {}
    for stream in workspace.streams:
        if stream.config.owner is None:
            directories.setdefault(posixpath.dirname(stream.file), []).append(stream)
    for streams in directories.values():
        places = [place for stream in streams for place in _list_places(stream)]
        pairs = SubjectTrie(subject for _, _, subject in places).overlapping_pairs()
        for earlier, later in islice(pairs, _MAX_COMPARED):
            yield from _check_overlap(places[later], places[earlier])
        yield from _check_namesakes(streams)


def _check_namesakes(streams: list[StreamFile]) -> Iterator[Violation]:
    seen_streams: dict[str, StreamFile] = {}
    for stream in streams:
        namesake = seen_streams.setdefault(stream.config.name, stream)
        if stream is not namesake and stream.is_named and dict(stream.config.fields) != dict(namesake.config.fields):
            yield Violation(
                at=stream.locate("name"),
                message=f"`{namesake.file}` has another stream called `{stream.config.name}`",
                hint="give it a name of its own",
                related=(Related(span=namesake.locate("name"), message="the other stream"),),
            )


def _list_places(stream: StreamFile) -> Iterator[tuple[StreamFile, int, str]]:
    for index, subject in enumerate(read_strings(stream, "subjects")):
        if is_valid(subject):
            yield stream, index, subject


def _check_overlap(later: tuple[StreamFile, int, str], earlier: tuple[StreamFile, int, str]) -> Iterator[Violation]:
    stream, index, subject = later
    other_stream, other_index, other_subject = earlier
    related = (Related(span=other_stream.locate("subjects", other_index), message="the other subject"),)
    at = stream.locate("subjects", index)
    if stream is other_stream:
        hint = f"remove one of them: servers refuse both `{other_subject}` and `{subject}`"
        yield Violation(
            at=at, message=f"`{subject}` overlaps with `{other_subject}` of the same stream", hint=hint, related=related
        )
    elif stream.config.name != other_stream.config.name:
        yield Violation(
            at=at,
            message=f"`{subject}` overlaps with `{other_subject}` of stream `{other_stream.config.name}`",
            hint="give each stream its own subjects; to copy the messages of another stream, source it",
            related=related,
        )
