"""What streams publish again after they have stored it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.streams.values import ANYTHING, StreamSet, place, sources, strings, table
from vstream.lint.workspace import StreamRole
from vstream.subjects import algebra
from vstream.topology.profiles import PROFILES
from vstream.topology.stream_config import ROUTING_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.workspace import StreamFile, Workspace
    from vstream.topology.model import Topology

_FUNCTION = re.compile(r"\{\{[^{}]*\}\}|\$[0-9]+")


@rule("VS210", "republish-cycle", Severity.ERROR)
def republish_cycle(workspace: Workspace) -> Iterator[Violation]:
    """
    What a stream republishes comes back to it, or to those who have it already.

    ## Why is this bad?
    Servers refuse a stream that republishes to its own subjects (`forms a cycle`,
    500, 10052). They do not see the way around through a source: a read stream
    that republishes into a write stream which it sources stores each message for
    ever. A read stream that republishes to the virtual subjects is wrong in another
    way: each region does it, so a subscriber gets one copy from each; let the write
    streams do it. All versions (server/stream.go, checkStreamCfg).
    """
    streams = StreamSet(workspace.streams)
    for stream in workspace.streams:
        target = _republished_to(stream)
        if target is None or _is_for_its_region(stream):
            continue
        at = place(stream, "republish", "dest")
        own = _overlapping(strings(stream, "subjects"), target)
        if own:
            yield Violation(
                at=at,
                message=f"`{target}` overlaps the stream's own subject `{own}`: servers refuse the cycle",
                hint="republish to subjects outside of the stream",
            )
            continue
        back = [
            (source_stream, _overlapping(strings(source_stream, "subjects"), target))
            for _, source_stream in streams.sourced_streams(stream)
        ]
        around = next(((source_stream, subject) for source_stream, subject in back if subject), None)
        virtual = _overlapping(_virtual_subjects(workspace.topology, stream), target)
        if around:
            yield Violation(
                at=at,
                message=f"`{target}` is stored by `{around[0].config.name}`, which this stream sources: "
                "messages go round for ever",
                hint=f"republish to subjects outside of `{around[1]}`",
            )
        elif virtual and stream.role is StreamRole.READ:
            yield Violation(
                at=at,
                message=f"each region republishes to `{virtual}`: subscribers get one copy from each",
                hint="let the write streams republish: then there is one copy",
                severity=Severity.WARNING,
            )


def _is_for_its_region(stream: StreamFile) -> bool:
    """Whether it publishes what it takes from others to core subscribers, which no other region's clients hear."""
    everything = table(stream, "republish") == {"src": ANYTHING, "dest": ANYTHING}
    aside = {profile.routing.value for profile in PROFILES.values() if profile.has_write_beside_read}
    return everything and not strings(stream, "subjects") and stream.config.metadata.get(ROUTING_KEY) in aside


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
    return next((candidate for candidate in patterns if algebra.overlaps(candidate, target)), None)


def _virtual_subjects(topology: Topology | None, stream: StreamFile) -> list[str]:
    """The subjects that clients of a read stream know."""
    if topology is not None:
        return [
            subject for virtual in topology.streams if virtual.name == stream.virtual for subject in virtual.subjects
        ]
    stored = {_FUNCTION.sub("*", destination) for source in sources(stream) for _, destination in source.transforms}
    republished = table(stream, "republish").get("src")
    if ANYTHING in stored and isinstance(republished, str) and republished:
        stored.add(republished)
    return sorted(stored - {ANYTHING})
