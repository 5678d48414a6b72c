"""VS175: failures that a stream must survive according to the topology, and does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.formatting import list_names
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.topology.context import TopologySubject
from vstream.topology.model import Role, Topology, VirtualStream
from vstream.topology.survival import Ability, Failure, worst_cell

if TYPE_CHECKING:
    from vstream.syntax.yaml import Path

"""Streams that are named in one message."""


@rule("VS175", "survival-not-met", Severity.ERROR)
def survival_not_met(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream does not survive what `survive` demands.

    ## Why is this bad?
    `survive` states what must keep working when a server, a zone or a region fails, and this topology cannot deliver
    it. What a stream survives depends on its consistency model, its replicas, its regions and the stretch cluster.
    `vstream survive` shows the whole table with a reason for each cell, and `--rehearse` tries it on a lab.
    """
    streams = [stream for stream in subject.topology.streams if _is_whole(subject.topology, stream)]
    for failure in Failure:
        general = getattr(subject.document.survive, failure.value)
        settled = [stream for stream in streams if not _demands_of(subject, stream, failure)]
        for index, word in enumerate(general):
            yield from _unmet(subject.topology, settled, failure, Ability(word), ("survive", failure.value, index))
        for stream in streams:
            for index, word in enumerate(_demands_of(subject, stream, failure)):
                at = ("streams", stream.name, "survive", failure.value, index)
                yield from _unmet(subject.topology, [stream], failure, Ability(word), at)


def _demands_of(subject: TopologySubject, stream: VirtualStream, failure: Failure) -> list[str]:
    """What the stream itself demands, which then counts instead of what the topology demands of all."""
    demanded: list[str] = getattr(subject.document.streams[stream.name].survive, failure.value)
    return demanded


def _unmet(
    topology: Topology, streams: list[VirtualStream], failure: Failure, ability: Ability, at: Path
) -> Iterator[Violation]:
    cells = [worst_cell(topology, stream, failure, ability) for stream in streams]
    unmet = [cell for cell in cells if not cell.ruling.answer.is_survival]
    if not unmet:
        return
    names = list_names([cell.stream for cell in unmet])
    incident = f" ({unmet[0].incident.name})" if unmet[0].incident is not None else ""
    yield Violation(
        at=at,
        message=f"`{failure.value}: {ability.value}` does not hold for {names}{incident}: {unmet[0].ruling.reason}",
        hint="`vstream survive` shows what each stream survives and why; change the stream, or remove the demand",
    )


def _is_whole(topology: Topology, stream: VirtualStream) -> bool:
    """Whether all that the stream needs is there: what is missing has an error of its own."""
    regions = {region.name for region in topology.regions}
    places = {*regions, *((topology.stretch.cluster,) if topology.stretch else ())}
    parts = stream.physical
    takes_writes = any(part.role in {Role.WRITE, Role.ORIGIN} for part in parts)
    has_order = not stream.consistency.needs_stretch or topology.stretch is not None
    is_placed = set(stream.regions) <= regions and all(part.place in places for part in parts)
    return bool(stream.regions) and takes_writes and has_order and is_placed
