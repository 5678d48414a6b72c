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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from vstream.plan.context import DiffContext, PlanItem
from vstream.plan.model import Delete, FieldChange, Gate, RegionLoss, TransitionStep, Update
from vstream.plan.risk import Risk
from vstream.topology import physical
from vstream.topology.model import Role
from vstream.topology.naming import PHYSICAL_PREFIX
from vstream.topology.profiles import profile_named
from vstream.topology.stream_config import ROLE_KEY, ROUTING_KEY, StreamConfig

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


def forget_dead_streams(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """Delete the streams in regions that are given up; those that took from them note how far they were."""
    for item in planned:
        yield _note_ends(item, context.observed.losses)
    for name, region, role in _list_dead_streams(context):
        config = StreamConfig(name=name, fields={})
        yield Delete(config=config, region=region, role=role, messages=0, is_dead=True)


def select_living_gates(gates: Iterable[Gate], context: DiffContext) -> Iterator[Gate]:
    """Those of *gates* that are not of streams in regions that are given up."""
    dead = {name for name, _, _ in _list_dead_streams(context)}
    # An origin that is made again waits for its copy.
    dead |= {loss.stream for loss in context.observed.losses if not loss.is_origin}
    return (gate for gate in gates if gate.stream not in dead)


def _list_dead_streams(context: DiffContext) -> Iterator[tuple[str, str, Role]]:
    """The streams in regions that are given up, with these and their roles: no server answers for them."""
    observed = context.observed
    for stream, region, role in product(context.topology.streams, sorted(observed.lost), (Role.READ, Role.WRITE)):
        name = physical.physical_name(stream, role, region)
        if name in observed.unanswered:
            yield name, region, role


def _note_ends(item: PlanItem, losses: Sequence[RegionLoss]) -> PlanItem:
    """*item*; if it is an update of a reader, it notes how far that was in what it sources no more."""
    if not isinstance(item, Update) or item.step is not None:
        return item
    name, sources = item.config.name, item.config.source_names
    dropped = [loss for loss in losses if name in loss.last_seqs and loss.stream not in sources]
    ends = {loss.stream: (loss.readers[name] or 0, loss.last_seqs[name]) for loss in dropped}
    return replace(
        item,
        dead_sources={**ends, **item.dead_sources},
        needs_only_note=item.needs_only_note and ends.keys() <= item.dead_sources.keys(),
    )
