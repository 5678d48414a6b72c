"""
Regions that are dead for good: nothing waits for them, and the plan says what is lost with them.

What was acknowledged there and reached no other region is gone. How much that is nobody knows, but how
far the others have come in its write streams is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vstream.plan.plan import Delete, phase_of
from vstream.topology import physical
from vstream.topology.model import Role
from vstream.topology.stream_config import StreamConfig

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from vstream.plan.plan import Plan
    from vstream.topology.model import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadStream:
    """A stream that was in a region which is given up. Its name is all that is left of it."""

    name: str
    region: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionLoss:
    """A write stream that is given up, and how far each stream that sources it has come in it; None where that is not known."""

    stream: str
    region: str
    readers: Mapping[str, int | None]
    waiting: int = 0
    """How many more messages a reader knew of when it last heard of it."""

    def __str__(self) -> str:
        """What is lost, as a sentence."""
        known = {name: seq for name, seq in self.readers.items() if seq is not None}
        most = max(known.values(), default=0)
        said = ", ".join(
            f"`{name}` has {'it' if seq == most else 'an unknown part of it' if seq is None else f'it up to {seq:,} only'}"
            for name, seq in sorted(self.readers.items())
        )
        text = f"what was acknowledged in `{self.region}` after sequence {most:,} of `{self.stream}`"
        if self.waiting:
            text += f", {self.waiting:,} messages at least,"
        text += f" is lost; up to there {said}"
        if behind := [name for name, seq in known.items() if seq < most]:
            text += f": {', '.join(f'`{one}`' for one in sorted(behind))} will never get the rest"
        return text


def dead_streams(topology: Topology, regions: Collection[str], missing: Collection[str]) -> tuple[DeadStream, ...]:
    """Those of *missing*, which no server answers for, that streams of *topology* had in *regions*."""
    return tuple(
        DeadStream(name=name, region=region, role=role)
        for stream in topology.streams
        for region in sorted(regions)
        for role in (Role.READ, Role.WRITE)
        if (name := physical.physical_name(stream, role, region)) in missing
    )


def give_up(plan: Plan, dead: Sequence[DeadStream], losses: Sequence[RegionLoss], servers: Collection[str]) -> Plan:
    """*plan*, which waits neither for streams in *dead* nor for *servers*, deletes the former, and says the *losses*."""
    names = {one.name for one in dead} | {one.stream for one in losses}
    deletes = [
        Delete(
            config=StreamConfig(name=one.name, fields={}), region=one.region, role=one.role, messages=0, is_dead=True
        )
        for one in dead
    ]
    changes = sorted((*plan.changes, *deletes), key=lambda change: (phase_of(change), change.config.name))
    return replace(
        plan,
        changes=tuple(changes),
        gates=tuple(gate for gate in plan.gates if gate.stream not in names),
        unread_servers=tuple(one for one in plan.unread_servers if one not in servers),
        losses=tuple(map(str, losses)),
    )
