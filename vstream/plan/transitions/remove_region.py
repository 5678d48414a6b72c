"""
Remove streams of a region: one that leaves, or one that is dead for good.

Write streams that clients can reach close before they are deleted, so that what they have can be taken. With
`routing: mapped` other mappings lead clients away from a region's write stream. A rule for a root, and every rule of
`domains`, is the same in all regions and stays: clients would publish into the stream until it is deleted. So it
listens on nothing that anybody publishes on, and publishers are told that nobody does. An origin that was taken over
closes too: once nobody sources it, it cannot be told what others have taken of it.

Nothing waits for a region that is dead, and the plan says what is lost with it. What was acknowledged there and reached
no other region is gone. Nobody knows how much that is, but it is known how far the others have come in its write streams.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from vstream.plan.context import DiffContext, PlanItem
from vstream.plan.model import Change, Delete, FieldChange, Plan, RegionLoss, TransitionStep, Update
from vstream.plan.risk import Risk
from vstream.plan.stages import stage_of
from vstream.topology import physical
from vstream.topology.model import Role, Topology
from vstream.topology.naming import PHYSICAL_PREFIX
from vstream.topology.profiles import profile_named
from vstream.topology.stream_config import ROLE_KEY, ROUTING_KEY, StreamConfig
from vstream.value_class import value_class

CLOSED = f"{PHYSICAL_PREFIX}.closed"
"""What a closed write stream listens on begins with this. Users may not publish there."""


def delete_undesired_streams(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """Delete the streams that the topology no longer has. Those that clients can reach close first."""
    yield from planned
    for _, stream in sorted(context.undesired_streams.items()):
        config, messages, consumers = stream.config, stream.messages, stream.consumers
        role = next((role for role in Role if role.value == config.metadata_value(ROLE_KEY)), None)
        delete = Delete(config=config, region=config.region, role=role, messages=messages, consumers=consumers)
        yield from _close_before_delete(delete, context)
        yield delete


def _close_before_delete(change: Delete, context: DiffContext) -> Iterator[Update]:
    """Close the stream that *change* deletes if others read it, clients can reach it, and it is open."""
    profile = profile_named(change.config.metadata_value(ROUTING_KEY))
    is_mapped = profile is not None and profile.has_physical_names
    is_reached = change.role is Role.ORIGIN or (change.role is Role.WRITE and not is_mapped)
    if not is_reached or change.role is None or change.region is None:
        return
    virtual = change.config.virtual or ""
    readers = [stream.config for stream in context.siblings.get(virtual, ()) if stream.config.source_names]
    is_read = any(reader.name in context.streams for reader in readers)
    before, after = change.config.fields.get("subjects"), [f"{CLOSED}.{virtual}"]
    if not is_read or before == after:
        return
    why = "publishes that still bypass the mappings are refused from now on"
    if change.role is Role.WRITE:
        why = f"publishes in `{change.region}` are refused from now on"
    yield Update(
        config=change.config.with_fields(subjects=[*after]),
        region=change.region,
        role=change.role,
        fields=(FieldChange(path="subjects", before=before, after=[*after], risk=Risk.DISRUPTIVE, why=why),),
        step=TransitionStep.CLOSE,
    )


@value_class
class DeadStream:
    """A stream that was in a region which is given up. Its name is all that is left of it."""

    name: str
    region: str
    role: Role


def list_dead_streams(
    topology: Topology, regions: Collection[str], unanswered: Collection[str]
) -> tuple[DeadStream, ...]:
    """Those of *unanswered*, which no server answers for, that streams of *topology* had in *regions*."""
    dead = []
    for stream, region, role in product(topology.streams, sorted(regions), (Role.READ, Role.WRITE)):
        name = physical.physical_name(stream, role, region)
        if name in unanswered:
            dead.append(DeadStream(name=name, region=region, role=role))
    return tuple(dead)


def _forget(stream: DeadStream) -> Delete:
    config = StreamConfig(name=stream.name, fields={})
    return Delete(config=config, region=stream.region, role=stream.role, messages=0, is_dead=True)


def _note_ends(change: Change, losses: Sequence[RegionLoss]) -> Change:
    """*change*, which notes how far the reader was in what it sources no more."""
    if not isinstance(change, Update) or change.step is not None:
        return change
    name, sources = change.config.name, change.config.source_names
    dropped = [loss for loss in losses if name in loss.last_seqs and loss.stream not in sources]
    ends = {loss.stream: (loss.readers[name] or 0, loss.last_seqs[name]) for loss in dropped}
    return replace(
        change,
        dead_sources={**ends, **change.dead_sources},
        needs_only_note=change.needs_only_note and ends.keys() <= change.dead_sources.keys(),
    )


def adapt_to_losses(
    plan: Plan, dead: Sequence[DeadStream], losses: Sequence[RegionLoss], servers: Collection[str]
) -> Plan:
    """*plan*, which waits neither for streams in *dead* nor for *servers*, deletes the former, and says the *losses*."""
    # An origin that is made again waits for its copy.
    names = {stream.name for stream in dead} | {loss.stream for loss in losses if not loss.is_origin}
    changes = [*(_note_ends(change, losses) for change in plan.changes), *map(_forget, dead)]
    changes.sort(key=lambda change: (stage_of(change), change.config.name))
    return replace(
        plan,
        changes=tuple(changes),
        gates=tuple(gate for gate in plan.gates if gate.stream not in names),
        unread_servers=tuple(server for server in plan.unread_servers if server not in servers),
        losses=tuple(losses),
    )
