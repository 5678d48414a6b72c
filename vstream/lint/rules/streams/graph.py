"""Streams that belong together: which stream sources which, missing streams, and republish cycles."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from vstream.findings import Related, Severity
from vstream.formatting import quote_names, suggest_name
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.streams import values
from vstream.lint.rules.streams.values import SourceEntry
from vstream.lint.workspace import StreamFile, StreamRole, Workspace
from vstream.subjects import algebra
from vstream.subjects.functions import FUNCTION
from vstream.topology import physical
from vstream.topology.model import Role, ServerVersion, Topology
from vstream.topology.profiles import PROFILES
from vstream.topology.replication import index_physical_streams, physical_streams
from vstream.topology.stream_config import ROUTING_KEY

_Copy: TypeAlias = "tuple[tuple[str, ...], tuple[tuple[str, str], ...]]"
"""What a source copies, and how it renames that."""
_MAX_COMPARED = 500
_MAX_CIRCLES = 100
_MAX_SHOWN = 5
_MIN_SIBLINGS = 2


@rule("VS211", "unknown-source", Severity.WARNING)
def unknown_source(workspace: Workspace) -> Iterator[Violation]:
    """
    A source names a stream that does not exist, or a subject that the stream does not hold.

    ## Why is this bad?
    Servers accept it and retry for ever, or wait for ever; `lag` is 0. A transform or `republish` of such a subject has
    no effect. Files may be missing, so it is only reported if a stream with a similar name exists and is not sourced,
    or if the topology knows all streams. Sources with an `external` prefix are not checked. All versions
    (server/stream.go, checkStreamCfg).
    """
    streams = values.StreamSet(workspace.streams)
    rendered = set(index_physical_streams(workspace.topology) if workspace.topology else ())
    names = sorted(streams.names | rendered)
    writes: dict[str, list[str]] = {}
    for stream in workspace.streams:
        if stream.virtual is not None and stream.role is StreamRole.WRITE:
            writes.setdefault(stream.virtual, []).append(stream.config.name)
    for stream in workspace.streams:
        local_sources = [source for source in values.read_sources(stream) if not source.is_external]
        missing = []
        for source in local_sources:
            if streams.find(source.name, stream) is None and source.name not in rendered:
                missing.append(source)
        mirrored = values.read_mirror(stream)
        copied = [*local_sources, *([mirrored] if mirrored and not mirrored.is_external else [])]
        yield from _check_filters(stream, copied, streams)
        yield from _check_own(stream)
        if not missing:
            continue
        source_names = {source.name for source in local_sources}
        # Comparing with thousands of names would take longer than everything else.
        comparable = names if len(names) <= _MAX_COMPARED else []
        if stream.virtual:
            comparable = writes.get(stream.virtual, [])
        candidates = [name for name in comparable if name not in {*source_names, stream.config.name}]
        for source in missing:
            hint = suggest_name(source.name, candidates)
            if hint or stream.config.name in rendered:
                yield Violation(
                    at=stream.locate(*source.path, "name"),
                    message=f"unknown stream `{source.name}`",
                    hint=hint or "name a write stream of the topology",
                )


def _check_filters(stream: StreamFile, local: list[SourceEntry], streams: values.StreamSet) -> Iterator[Violation]:
    for source in local:
        source_stream = streams.find(source.name, stream)
        for index, pattern in enumerate(source.patterns if source_stream else ()):
            if source_stream is not None and pattern != values.ANYTHING and not values.may_hold(source_stream, pattern):
                field = ("subject_transforms", index, "src") if source.transforms else ("filter_subject",)
                yield Violation(
                    at=stream.locate(*source.path, *field),
                    message=f"stream `{source.name}` holds nothing of `{pattern}`: nothing is sourced",
                    hint=f"filter what it holds: {quote_names(values.stored_subjects(source_stream)[:_MAX_SHOWN])}",
                    related=(Related(span=source_stream.locate("subjects"), message="what it holds"),),
                )


def _check_own(stream: StreamFile) -> Iterator[Violation]:
    """What the stream itself would transform or republish."""
    fields = ["subject_transform"] if values.read_table(stream, "subject_transform") else ["republish"]
    for field in fields if not values.read_sources(stream) and values.read_mirror(stream) is None else ():
        pattern, subjects = values.read_table(stream, field).get("src"), values.read_strings(stream, "subjects")
        if subjects and isinstance(pattern, str) and pattern and not _find_overlap(subjects, pattern):
            yield Violation(
                at=stream.locate(field, "src"),
                message=f"the stream stores nothing of `{pattern}`: `{field}` does nothing",
                hint=f"write what it stores: {quote_names(subjects[:_MAX_SHOWN])}",
            )


@rule("VS212", "sourcing-loop", Severity.ERROR)
def sourcing_loop(workspace: Workspace) -> Iterator[Violation]:
    """
    Streams source or mirror each other in a cycle.

    ## Why is this bad?
    Servers refuse the stream that closes the cycle (`detected cycle`, 10052), so the order of creation decides which
    one is missing. All versions (server/stream.go, checkStreamCfg).
    """
    streams = values.StreamSet(workspace.streams)
    done: set[int] = set()
    circles = (circle for start in workspace.streams for circle in _list_circles(start, streams, done))
    for names, length, stream, source in islice(circles, _MAX_CIRCLES):
        shown = [f"`{name}`" for name in names] + ["…"] * (length > len(names)) + [f"`{names[0]}`"]
        yield Violation(
            at=stream.locate(*source.path, "name"),
            message=f"{' → '.join(shown)} is a cycle: servers refuse the last stream",
            hint="let one stream store the messages, and the others source it",
        )


@rule("VS213", "missing-source", Severity.ERROR)
def missing_source(workspace: Workspace) -> Iterator[Violation]:
    """
    A read stream lacks a source that its siblings in other regions have, or sources other subjects from it.

    ## Why is this bad?
    Messages of that region never arrive here, or arrive under other subjects, and no error is reported. Read streams of
    one virtual stream source the same write streams in every region.
    """
    streams = values.StreamSet(workspace.streams)
    for group in streams.group_read_streams():
        yield from _compare_sources(group, streams)
        sibling_sources: dict[str, tuple[StreamFile, SourceEntry]] = {}
        for stream in group:
            for source in values.read_sources(stream):
                sibling_sources.setdefault(source.name, (stream, source))
        for stream in group:
            lacking = sorted(sibling_sources.keys() - {source.name for source in values.read_sources(stream)})
            if not lacking:
                continue
            sibling, source = sibling_sources[lacking[0]]
            more = f" and {len(lacking) - _MAX_SHOWN:,} more" if len(lacking) > _MAX_SHOWN else ""
            yield Violation(
                at=stream.key_at("sources"),
                message=f"`{stream.config.name}` does not source {quote_names(lacking[:_MAX_SHOWN])}{more}, "
                f"`{sibling.config.name}` does",
                hint=f"add {quote_names(lacking[:_MAX_SHOWN])} to its sources",
                related=(Related(span=sibling.locate(*source.path), message="sourced here"),),
            )


def _compare_sources(group: list[StreamFile], streams: values.StreamSet) -> Iterator[Violation]:
    """What each region takes of a source, and under which subjects it stores that."""
    usual_destinations: Counter[str] = Counter()
    for stream in group:
        for source in values.read_sources(stream):
            usual_destinations.update(destination for _, destination in source.transforms)
    copies: dict[str, list[tuple[_Copy, StreamFile, SourceEntry]]] = {}
    for stream in group:
        for source in values.read_sources(stream):
            copies.setdefault(source.name, []).append(((source.patterns, source.transforms), stream, source))
    for name, taken_from in copies.items():
        every = [copy for copy, _, _ in taken_from]
        held = streams.find(name, group[0])
        # What the source does not hold is said by VS211, and two sources of one stream by VS207.
        is_clear = len(every) == len(group) and all(
            held is None or values.may_hold(held, pattern) for copy in every for pattern in copy[0]
        )
        usual = max(every, key=lambda copy: (every.count(copy), sum(usual_destinations[to] for _, to in copy[1])))
        _, sibling, example = taken_from[every.index(usual)]
        for copy, stream, source in taken_from if is_clear else ():
            if copy != usual:
                yield Violation(
                    at=stream.locate(*source.path),
                    message=f"`{stream.config.name}` stores other subjects of `{name}` than `{sibling.config.name}`",
                    hint="give the source the same filter and transforms in every region",
                    related=(Related(span=sibling.locate(*example.path), message="sourced here"),),
                )


@rule("VS214", "uncovered-region", Severity.ERROR)
def uncovered_region(workspace: Workspace) -> Iterator[Violation]:
    """
    The files contain no stream of a virtual stream for one of its regions.

    ## Why is this bad?
    The mappings send publishes of clients in that region to a write stream, and their reads to a read stream. Without
    these streams, clients get `no responders`. Checked with a topology, if the files contain the streams of other
    regions; without one, it is a warning where all regions but one have both.
    """
    topology = workspace.topology
    by_virtual: dict[tuple[str | None, StreamRole], list[StreamFile]] = {}
    for stream in workspace.streams:
        by_virtual.setdefault((stream.virtual, stream.role), []).append(stream)
    if topology is None:
        for name in sorted({name for name, _ in by_virtual if name}):
            groups = (by_virtual.get((name, role), []) for role in (StreamRole.WRITE, StreamRole.READ))
            yield from _check_half_regions(name, *({stream.region: stream for stream in group} for group in groups))
        return
    for virtual in topology.streams:
        for role in (StreamRole.WRITE, StreamRole.READ):
            group = by_virtual.get((virtual.name, role), [])
            places = [part.place for part in physical_streams(virtual) if part.role.value == role.value]
            lacking = [region for region in places if region not in {stream.region for stream in group}]
            if group and lacking:
                yield Violation(
                    at=group[0].locate("name"),
                    message=f"`{virtual.name}` has no {role.value} stream in {quote_names(lacking)}",
                    hint="add "
                    + quote_names(physical.physical_name(virtual, Role(role.value), region) for region in lacking),
                )


def _check_half_regions(
    name: str, writes: dict[str | None, StreamFile], reads: dict[str | None, StreamFile]
) -> Iterator[Violation]:
    """The one region that has a single stream of *name*. Topologies may mean that; what they render is left out."""
    half = writes.keys() ^ reads.keys()
    if len(half) != 1 or None in half or len(writes.keys() & reads.keys()) < _MIN_SIBLINGS:
        return
    region = half.pop()
    stream, role = (writes[region], "read") if region in writes else (reads[region], "write")
    if stream.config.owner is None:
        sibling = next(iter((reads if role == "read" else writes).values()))
        yield Violation(
            at=stream.locate("name"),
            message=f"`{name}` has no {role} stream in `{region}`: every other region has both",
            hint=f"add one like `{sibling.config.name}`",
            related=(Related(span=sibling.locate("name"), message="the stream of another region"),),
            severity=Severity.WARNING,
        )


def _list_edges(stream: StreamFile) -> list[SourceEntry]:
    """The edges that count for cycles: no external sources, no filters that exclude the stream's own messages."""
    mirrored = values.read_mirror(stream)
    listens = values.read_strings(stream, "subjects")
    edges = []
    for source in [*values.read_sources(stream), *([mirrored] if mirrored else [])]:
        if not source.is_external and (
            not source.filter_subject or any(algebra.overlaps(subject, source.filter_subject) for subject in listens)
        ):
            edges.append(source)
    return edges


def _list_circles(
    start: StreamFile, streams: values.StreamSet, done: set[int]
) -> Iterator[tuple[list[str], int, StreamFile, SourceEntry]]:
    """
    The cycles found by a depth-first search from *start*: the first names, the length, and the source that closes each.

    *done* are streams that need not be visited again. No recursion: a cycle may be as long as the list of streams.
    """
    if id(start) in done:
        return
    path: list[tuple[StreamFile, list[SourceEntry], int]] = [(start, _list_edges(start), 0)]
    on_path = {id(start): 0}
    while path:
        stream, edges, index = path[-1]
        if index == len(edges):
            path.pop()
            del on_path[id(stream)]
            done.add(id(stream))
            continue
        path[-1] = (stream, edges, index + 1)
        next_stream = streams.find(edges[index].name, stream)
        if next_stream is None or id(next_stream) in done:
            continue
        if id(next_stream) in on_path:
            first = on_path[id(next_stream)]
            yield (
                [member.config.name for member, _, _ in path[first : first + _MAX_SHOWN]],
                len(path) - first,
                stream,
                edges[index],
            )
            continue
        on_path[id(next_stream)] = len(path)
        path.append((next_stream, _list_edges(next_stream), 0))


_REQUESTS = "$JS.API.>"
_TRANSFORMED_SINCE = (2, 12)
"""Since then, to republish all to `>` follows the transform of the stream."""


@rule("VS210", "republish-cycle", Severity.ERROR)
def republish_cycle(workspace: Workspace) -> Iterator[Violation]:
    """
    Republished messages return to the stream, reach subscribers more than once, or become requests to JetStream.

    ## Why is this bad?
    Servers refuse a stream that republishes to its own subjects (`forms a cycle`, 500, 10052). They do not detect a
    cycle through a source: if a read stream republishes into a write stream that it sources, each message is stored
    again and again. Read streams should not republish to the virtual subjects either: each region would do it, so a
    subscriber would get one copy from each. Let the write streams republish. What is republished to `$JS.API.>` is a
    request with all rights, whoever published it. All versions (server/stream.go,
    checkStreamCfg). They do not detect two streams that republish to each other either: one message never ends.
    """
    streams = values.StreamSet(workspace.streams)
    earlier: dict[str, list[tuple[StreamFile, str]]] = {}
    for stream in workspace.streams:
        target = _republished_to(stream, workspace.stated_version or _TRANSFORMED_SINCE)
        if target is None or _is_for_its_region(stream):
            continue
        at = values.locate_field(stream, "republish", "dest")
        if target.startswith("$") and algebra.overlaps(target, _REQUESTS):
            yield Violation(
                at=at,
                message=f"`{target}` are requests to JetStream: whoever publishes to this stream can delete all streams",
                hint="republish to subjects of your own",
            )
        overlapping = _find_overlap(values.read_strings(stream, "subjects"), target)
        if overlapping:
            yield Violation(
                at=at,
                message=f"`{target}` overlaps the stream's own subject `{overlapping}`: servers refuse the cycle",
                hint="republish to subjects that the stream does not store",
            )
            continue
        links = earlier.setdefault(posixpath.dirname(stream.file), [])
        back = []
        for _, source_stream in streams.sourced_streams(stream):
            back.append((source_stream, _find_overlap(values.read_strings(source_stream, "subjects"), target)))
        around = next(((source_stream, subject) for source_stream, subject in back if subject), None)
        virtual = _find_overlap(_list_virtual_subjects(workspace.topology, stream), target)
        if around:
            yield Violation(
                at=at,
                message=f"`{target}` is stored by `{around[0].config.name}`, which this stream sources: "
                "messages circulate for ever",
                hint=f"republish to subjects outside of `{around[1]}`",
            )
        elif (link := _find_closing_link(stream, target, links)) is not None:
            yield Violation(
                at=at,
                message=f"`{link.config.name}` republishes what it gets from here back to this stream: "
                "messages circulate for ever",
                hint="republish to subjects that no stream stores which republishes itself",
            )
        elif virtual and stream.role is StreamRole.READ:
            yield Violation(
                at=at,
                message=f"each region republishes to `{virtual}`: subscribers get one copy from each",
                hint="let the write streams republish: subscribers then get one copy",
                severity=Severity.WARNING,
            )
        links.append((stream, target))


def _find_closing_link(stream: StreamFile, target: str, earlier: list[tuple[StreamFile, str]]) -> StreamFile | None:
    """Which of the *earlier* streams republishes to *stream* what comes from there by *target*, at once or through others."""
    targets, passed = [target], set[int]()
    for reached in targets:
        for number, (link, onward) in enumerate(earlier[-_MAX_COMPARED:]):
            if number not in passed and _republishes(link, reached):
                if _republishes(stream, onward):
                    return link
                passed.add(number)
                targets.append(onward)
    return None


def _republishes(stream: StreamFile, subject: str) -> bool:
    source = values.read_table(stream, "republish").get("src") or values.ANYTHING
    stored = _find_overlap(values.read_strings(stream, "subjects"), subject)
    return stored is not None and isinstance(source, str) and algebra.overlaps(source, subject)


def _is_for_its_region(stream: StreamFile) -> bool:
    """Whether it republishes messages of other regions only to core subscribers of its own region."""
    everything = values.read_table(stream, "republish") == {"src": values.ANYTHING, "dest": values.ANYTHING}
    profiles = {profile.routing.value for profile in PROFILES.values() if profile.has_write_beside_read}
    return (
        everything
        and not values.read_strings(stream, "subjects")
        and stream.config.metadata.get(ROUTING_KEY) in profiles
    )


def _republished_to(stream: StreamFile, oldest: ServerVersion) -> str | None:
    """The pattern of the subjects that *stream* republishes to, as the *oldest* server reads it."""
    republish, transform = values.read_table(stream, "republish"), values.read_table(stream, "subject_transform")
    target = republish.get("dest")
    # From `>` to `>` with a transform of all subjects: the transform decides.
    everything = target == values.ANYTHING and republish.get("src") in (None, "", values.ANYTHING)
    if (
        oldest >= _TRANSFORMED_SINCE
        and everything
        and values.read_strings(stream, "subjects") == [transform.get("src")]
    ):
        target = transform.get("dest")
    return FUNCTION.sub("*", target) if isinstance(target, str) and target else None


def _find_overlap(patterns: list[str], target: str) -> str | None:
    return next((candidate for candidate in patterns if algebra.overlaps(candidate, target)), None)


def _list_virtual_subjects(topology: Topology | None, stream: StreamFile) -> list[str]:
    """The subjects that clients of a read stream know."""
    if topology is not None:
        return [
            subject for virtual in topology.streams if virtual.name == stream.virtual for subject in virtual.subjects
        ]
    stored = {
        FUNCTION.sub("*", destination) for source in values.read_sources(stream) for _, destination in source.transforms
    }
    republished = values.read_table(stream, "republish").get("src")
    if values.ANYTHING in stored and isinstance(republished, str) and republished:
        stored.add(republished)
    return sorted(stored - {values.ANYTHING})
