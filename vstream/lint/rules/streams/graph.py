"""Streams that belong together: who sources whom, and who is left out."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from vstream import subjects
from vstream.diagnostics import Related, Severity
from vstream.lint.registry import Finding, rule
from vstream.lint.rules.streams.values import ANYTHING, StreamSet, mirror, place, sources, strings, table
from vstream.lint.rules.topology.wording import listed
from vstream.lint.subject import StreamRole
from vstream.model.topology import Role
from vstream.topology import naming

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.streams.values import Source
    from vstream.lint.subject import StreamFile, Workspace
    from vstream.model.topology import Topology

_FUNCTION = re.compile(r"\{\{[^{}]*\}\}|\$[0-9]+")
_COMPARABLE = 500


@rule("VS210", "republish-cycle", Severity.ERROR)
def republish_cycle(workspace: Workspace) -> Iterator[Finding]:
    """
    What a stream republishes comes back to it, or to those who have it already.

    ## Why is this bad?
    Servers refuse a stream that republishes to its own subjects (`forms a cycle`,
    500, 10052). They do not see the way around through a source: a read stream
    that republishes into a write stream which it sources stores each message for
    ever. A read stream that republishes to the virtual subjects is wrong in another
    way: each region does it, so a subscriber gets one copy from each; let the write
    streams do it. All versions (server/stream.go, checkStreamCfg).

    ## Example
    ```json
    {"name": "orders", "subjects": ["orders.>"],
     "republish": {"src": "orders.>", "dest": "orders.copy.>"}}
    ```
    ## Use instead
    ```json
    {"name": "orders", "subjects": ["orders.>"],
     "republish": {"src": "orders.>", "dest": "copies.orders.>"}}
    ```
    """
    known = StreamSet(workspace.streams)
    for stream in workspace.streams:
        target = _republished_to(stream)
        if target is None:
            continue
        at = place(stream, "republish", "dest")
        own = _overlapping(strings(stream, "subjects"), target)
        if own:
            yield Finding(
                at=at,
                message=f"`{target}` overlaps the stream's own subject `{own}`: servers refuse the cycle",
                hint="republish to subjects outside of the stream",
            )
            continue
        back = [(other, _overlapping(strings(other, "subjects"), target)) for _, other in known.sourced(stream)]
        around = next(((other, subject) for other, subject in back if subject), None)
        virtual = _overlapping(_virtual_subjects(workspace.topology, stream), target)
        if around:
            yield Finding(
                at=at,
                message=f"`{target}` is stored by `{around[0].config.name}`, which this stream sources: "
                "messages go round for ever",
                hint=f"republish to subjects outside of `{around[1]}`",
            )
        elif virtual and stream.role is StreamRole.READ:
            yield Finding(
                at=at,
                message=f"each region republishes to `{virtual}`: subscribers get one copy from each",
                hint="let the write streams republish: then there is one copy",
                severity=Severity.WARNING,
            )


@rule("VS211", "unknown-source", Severity.WARNING)
def unknown_source(workspace: Workspace) -> Iterator[Finding]:
    """
    A source names a stream that does not exist.

    ## Why is this bad?
    Servers accept it and try again for ever; `lag` says 0. Files may be missing, so it is
    reported only where a stream of nearly that name is there and not sourced, or where
    the topology knows all streams. Behind an `external` prefix nothing is known. All
    versions (server/stream.go, checkStreamCfg).

    ## Example
    ```json
    [{"name": "orders-eu", "subjects": ["orders.eu.>"]},
     {"name": "all", "allow_direct": true, "duplicate_window": 0,
      "sources": [{"name": "orders-eu"}, {"name": "orders-su"}]},
     {"name": "orders-us", "subjects": ["orders.us.>"]}]
    ```
    ## Use instead
    ```json
    [{"name": "orders-eu", "subjects": ["orders.eu.>"]},
     {"name": "all", "allow_direct": true, "duplicate_window": 0,
      "sources": [{"name": "orders-eu"}, {"name": "orders-us"}]},
     {"name": "orders-us", "subjects": ["orders.us.>"]}]
    ```
    """
    known = StreamSet(workspace.streams)
    rendered = _physical_names(workspace.topology)
    names = sorted(known.names | rendered)
    writes: dict[str, list[str]] = {}
    for stream in workspace.streams:
        if stream.virtual is not None and stream.role is StreamRole.WRITE:
            writes.setdefault(stream.virtual, []).append(stream.config.name)
    for stream in workspace.streams:
        own = [one for one in sources(stream) if not one.is_external]
        missing = [one for one in own if known.find(one.name, stream) is None and one.name not in rendered]
        if not missing:
            continue
        taken = {one.name for one in own}
        # Comparing with thousands of names would take longer than everything else.
        comparable = writes.get(stream.virtual, []) if stream.virtual else names if len(names) <= _COMPARABLE else []
        candidates = [name for name in comparable if name not in taken]
        for one in missing:
            close = get_close_matches(one.name, candidates, n=1)
            if close or stream.config.name in rendered:
                yield Finding(
                    at=stream.at(*one.path, "name"),
                    message=f"no stream is called `{one.name}`",
                    hint=f"did you mean `{close[0]}`?" if close else "name a write stream of the topology",
                )


@rule("VS212", "sourcing-loop", Severity.ERROR)
def sourcing_loop(workspace: Workspace) -> Iterator[Finding]:
    """
    Streams source or mirror one another in a circle.

    ## Why is this bad?
    Servers refuse the stream that closes the circle (`detected cycle`, 10052), so
    which one is missing depends on the order in which they are created. All
    versions (server/stream.go, checkStreamCfg).

    ## Example
    ```json
    [{"name": "eu", "subjects": ["eu.>"], "sources": [{"name": "us"}]},
     {"name": "us", "subjects": ["us.>"], "sources": [{"name": "eu"}]}]
    ```
    ## Use instead
    ```json
    [{"name": "eu", "subjects": ["eu.>"]},
     {"name": "us", "subjects": ["us.>"], "sources": [{"name": "eu"}]}]
    ```
    """
    known = StreamSet(workspace.streams)
    done: set[int] = set()
    for start in workspace.streams:
        for circle in _circles(start, known, done):
            names = [stream.config.name for stream, _ in circle]
            stream, source = circle[-1]
            yield Finding(
                at=stream.at(*source.path, "name"),
                message=f"{' → '.join(f'`{name}`' for name in [*names, names[0]])} is a circle: servers refuse the last of them",
                hint="let one stream take the messages, and the others source it",
            )


@rule("VS213", "missing-source", Severity.ERROR)
def missing_source(workspace: Workspace) -> Iterator[Finding]:
    """
    A read stream lacks a source that its siblings in other regions have.

    ## Why is this bad?
    What that region writes never arrives here, and nothing reports an error. Read
    streams of one virtual stream source the same write streams in every region.

    ## Example
    ```json
    [{"name": "foo-read-west", "num_replicas": 3, "allow_direct": true, "duplicate_window": 0,
      "placement": {"cluster": "west"},
      "sources": [{"name": "foo-write-west"}, {"name": "foo-write-east"}]},
     {"name": "foo-read-east", "num_replicas": 3, "allow_direct": true, "duplicate_window": 0,
      "placement": {"cluster": "east"},
      "sources": [{"name": "foo-write-east"}]}]
    ```
    ## Use instead
    ```json
    [{"name": "foo-read-west", "num_replicas": 3, "allow_direct": true, "duplicate_window": 0,
      "placement": {"cluster": "west"},
      "sources": [{"name": "foo-write-west"}, {"name": "foo-write-east"}]},
     {"name": "foo-read-east", "num_replicas": 3, "allow_direct": true, "duplicate_window": 0,
      "placement": {"cluster": "east"},
      "sources": [{"name": "foo-write-west"}, {"name": "foo-write-east"}]}]
    ```
    """
    for group in StreamSet(workspace.streams).reads():
        first: dict[str, tuple[StreamFile, Source]] = {}
        for stream in group:
            for source in sources(stream):
                first.setdefault(source.name, (stream, source))
        for stream in group:
            lacking = first.keys() - {source.name for source in sources(stream)}
            for name in sorted(lacking):
                sibling, source = first[name]
                yield Finding(
                    at=stream.key_at("sources"),
                    message=f"`{stream.config.name}` does not source `{name}`, `{sibling.config.name}` does",
                    hint=f"add `{name}` to its sources",
                    related=(Related(span=sibling.at(*source.path), message="sourced here"),),
                )


@rule("VS214", "uncovered-region", Severity.ERROR)
def uncovered_region(workspace: Workspace) -> Iterator[Finding]:
    """
    A region of a virtual stream has no stream of its own among the files.

    ## Why is this bad?
    The mappings send what clients publish in that region to a write stream, and
    their reads to a read stream. Without them clients get `no responders`. Looked at
    with a topology, where the other regions' streams are among the files.

    ## Example
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}, east: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], write: {max_age: 1h}}
    ```
    ```json
    {"name": "foo-write-west", "subjects": ["_vs.foo.west.>"], "num_replicas": 3,
     "max_age": 3600000000000, "placement": {"cluster": "west"}}
    ```
    ## Use instead
    ```yaml
    version: 1
    name: acme
    server_version: "2.12"
    regions: {west: {servers: 3}, east: {servers: 3}}
    streams:
      foo: {subjects: [foo.>], regions: [west], write: {max_age: 1h}}
    ```
    ```json
    {"name": "foo-write-west", "subjects": ["_vs.foo.west.>"], "num_replicas": 3,
     "max_age": 3600000000000, "placement": {"cluster": "west"}}
    ```
    """
    topology = workspace.topology
    if topology is None:
        return
    by_virtual: dict[tuple[str | None, StreamRole], list[StreamFile]] = {}
    for stream in workspace.streams:
        by_virtual.setdefault((stream.virtual, stream.role), []).append(stream)
    for virtual in topology.streams:
        for role in (StreamRole.WRITE, StreamRole.READ):
            group = by_virtual.get((virtual.name, role), [])
            lacking = [region for region in virtual.regions if region not in {stream.region for stream in group}]
            if group and lacking:
                yield Finding(
                    at=group[0].at("name"),
                    message=f"`{virtual.name}` has no {role.value} stream in {listed(lacking)}",
                    hint="add "
                    + listed(naming.physical_name(virtual.name, Role(role.value), region) for region in lacking),
                )


def _republished_to(stream: StreamFile) -> str | None:
    """The pattern of the subjects that *stream* republishes to."""
    republish, transform = table(stream, "republish"), table(stream, "subject_transform")
    target = republish.get("dest")
    # From `>` to `>` with a transform of all subjects: the transform decides.
    everything = target == ANYTHING and republish.get("src") in (None, "", ANYTHING)
    if everything and strings(stream, "subjects") == [transform.get("src")]:
        target = transform.get("dest")
    return _FUNCTION.sub("*", target) if isinstance(target, str) and target else None


def _overlapping(patterns: list[str], target: str) -> str | None:
    return next((one for one in patterns if subjects.overlaps(one, target)), None)


def _virtual_subjects(topology: Topology | None, stream: StreamFile) -> list[str]:
    """The subjects that clients of a read stream know."""
    if topology is not None:
        return [one for virtual in topology.streams if virtual.name == stream.virtual for one in virtual.subjects]
    stored = {_FUNCTION.sub("*", destination) for source in sources(stream) for _, destination in source.transforms}
    taken = table(stream, "republish").get("src")
    if ANYTHING in stored and isinstance(taken, str) and taken:
        stored.add(taken)
    return sorted(stored - {ANYTHING})


def _physical_names(topology: Topology | None) -> set[str]:
    return {
        naming.physical_name(stream.name, role, region)
        for stream in (topology.streams if topology else ())
        for region in stream.regions
        for role in Role
    }


def _edges(stream: StreamFile) -> list[Source]:
    """What counts for a circle: no filter that keeps the stream's own messages out, nothing external."""
    own = mirror(stream)
    listens = strings(stream, "subjects")
    return [
        one
        for one in [*sources(stream), *([own] if own else [])]
        if not one.is_external and (not one.filter_subject or _overlapping(listens, one.filter_subject))
    ]


def _circles(start: StreamFile, known: StreamSet, done: set[int]) -> Iterator[list[tuple[StreamFile, Source]]]:
    """Each circle that is reached from *start* once, by a walk in depth without recursion. *done* are streams left behind."""
    if id(start) in done:
        return
    path: list[tuple[StreamFile, list[Source], int]] = [(start, _edges(start), 0)]
    on_path = {id(start): 0}
    while path:
        stream, edges, index = path[-1]
        if index == len(edges):
            path.pop()
            del on_path[id(stream)]
            done.add(id(stream))
            continue
        path[-1] = (stream, edges, index + 1)
        found = known.find(edges[index].name, stream)
        if found is None or id(found) in done:
            continue
        if id(found) in on_path:
            yield [(one, taken[position - 1]) for one, taken, position in path[on_path[id(found)] :]]
            continue
        on_path[id(found)] = len(path)
        path.append((found, _edges(found), 0))
