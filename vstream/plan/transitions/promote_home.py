"""
Give a `homed` stream another home, where its home is dead for good, or its origin was deleted.

Nothing of the origin is left but the copies in the other regions: mirrors, which have its very sequences. The copy that has
come furthest becomes the origin. Servers cannot rename a stream, and refuse mirrors in a circle. So the meta group forgets
the dead origin; the copy takes no more from that name; an origin of that name is made in the same region, as a mirror of
the copy. Once it has everything, it takes no more from there; the copy is deleted; and the origin takes publishes. The mirrors
in the other regions find the stream that they mirror again, and go on after their last message.

Which step is next is seen from what exists. A dead origin is only forgotten while the copy exists, and that goes before the
new origin takes its first publish. So no origin that has taken one is ever forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from vstream.plan.consumer_failover import is_record, move_record, record_name
from vstream.plan.context import DiffContext, PlanItem
from vstream.plan.model import Blocked, Create, CreateConsumer, Delete, FieldChange, Note, TransitionStep, Update
from vstream.plan.risk import Risk
from vstream.plan.transitions import seed_region
from vstream.topology import physical
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Role
from vstream.topology.stream_config import REGION_KEY, ROLE_KEY, STREAM_KEY, ObservedStream, StreamConfig


def plan_new_home(stream: RenderedStream, context: DiffContext) -> tuple[PlanItem, ...]:
    """The remaining steps that create the origin *stream* in its new home; none if that is not needed."""
    if _replaced_copy(stream, context) is None:
        return ()
    if (observed := context.streams.get(stream.config.name)) is not None:
        is_own_copy = seed_region.is_copy(observed) and observed.config.owner == context.topology.name
        return (*_plan_rest(stream, observed),) if is_own_copy else ()
    if (copy := _find_own_copy(stream, context)) is None:
        return ()
    blocked = _block(stream, copy, context)
    return (blocked,) if blocked is not None else (*_plan_steps(stream, copy, context),)


def can_replace_dead_origin(stream: RenderedStream, context: DiffContext) -> bool:
    """Whether *stream* is an origin whose former home is dead for good, and the copy in its new home exists."""
    return _has_lost_home(stream, context) and _find_own_copy(stream, context) is not None


def replace_copies(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """
    Delete each copy whose place an origin takes before that takes publishes, and name the consumers that go with it.

    What `vstream consumer sync` has kept beside it of dead regions goes over to the origin: it may be nowhere else.
    """
    updates = [item for item in planned if isinstance(item, Update)]
    opened = {update.config.name for update in updates if update.step is TransitionStep.OPEN}
    origins = {
        _replaced_copy(stream, context): stream for stream in context.desired_streams if stream.config.name in opened
    }
    for item in planned:
        if not isinstance(item, Delete) or item.config.name not in origins:
            yield item
            continue
        yield replace(item, is_replaced=True)
        yield from _carry_records(item.config.name, origins[item.config.name], context)
        durables = context.observed.consumers.get(item.config.name, {}).values()
        going_on = sum(
            durable.config.owner == context.topology.name or is_record(durable.config) for durable in durables
        )
        if number := context.streams[item.config.name].consumers - going_on:
            text = f"is replaced by `{item.config.virtual}`: {number:,} consumers of clients go with it"
            yield Note(name=item.config.name, text=text)


def _carry_records(copy: str, origin: RenderedStream, context: DiffContext) -> Iterator[CreateConsumer]:
    """
    What keeps the positions of dead regions' consumers on *copy*, for *origin* where that lacks it.

    Those of living regions are written again by the next `vstream consumer sync`, perhaps while this plan is carried out.
    """
    suffixes = tuple(record_name(lost.name, "") for lost in context.topology.lost)
    existing = context.observed.consumers.get(origin.config.name, {})
    for name, durable in context.observed.consumers.get(copy, {}).items():
        if is_record(durable.config) and name.endswith(suffixes) and name not in existing:
            yield CreateConsumer(config=move_record(durable.config, origin.config.name), region=origin.region)


def _replaced_copy(stream: RenderedStream, context: DiffContext) -> str | None:
    """The read stream in the home of *stream*, if that is an origin and vstream can make it out of a copy."""
    if stream.role is not Role.ORIGIN or stream.account is not None:
        return None
    virtual = context.topology.stream(stream.virtual)
    return physical.physical_name(virtual, Role.READ, stream.region)


def _find_own_copy(stream: RenderedStream, context: DiffContext) -> ObservedStream | None:
    """The copy that *stream* can be made out of, where it exists and belongs to this topology."""
    return context.owned_streams.get(_replaced_copy(stream, context) or "")


def _has_lost_home(stream: RenderedStream, context: DiffContext) -> bool:
    return any(lost.homes.get(stream.virtual) == stream.region for lost in context.topology.lost)


def _block(stream: RenderedStream, copy: ObservedStream, context: DiffContext) -> Blocked | None:
    """Block the promotion of *copy* if servers cannot do it, or if another copy has, or may have, come further."""
    name, virtual, is_lost = copy.config.name, stream.virtual, _has_lost_home(stream, context)
    cause = "its home is dead" if is_lost else "its origin is gone"
    if context.topology.server_version < seed_region.SINCE:
        return Blocked.of(
            stream,
            reason=f"{cause}, and servers before 2.12 cannot make an origin out of a copy",
            hint="update the servers and `server_version`; or publish to a stream with another name",
        )
    for sibling in context.siblings[virtual]:
        copied = context.streams.get(sibling.config.name)
        if sibling.config.name in context.observed.unanswered and sibling.role is Role.READ:
            reason = f"{cause}, and whether `{sibling.config.name}` has more of it than `{name}` is not known"
            hint = f"is `{sibling.region}` down? plan again when it is back, or give that region up, too"
            return Blocked.of(stream, reason=reason, hint=hint)
        if copied is not None and copied.last_seq > copy.last_seq:
            reason = f"{cause}, and `{copied.config.name}` has {copied.last_seq:,} messages of it, `{name}` {copy.last_seq:,}"
            hint = f"make `{sibling.region}` its home{' under `lost`' if is_lost else ''}"
            return Blocked.of(stream, reason=reason, hint=hint)
    return None


def _plan_steps(stream: RenderedStream, copy: ObservedStream, context: DiffContext) -> Iterator[PlanItem]:
    name, donor = stream.config.name, copy.config.name
    if name in context.observed.unanswered:
        dead = StreamConfig(name=name, fields={})
        lost = next(lost.name for lost in context.topology.lost if stream.virtual in lost.homes)
        yield Delete(config=dead, region=lost, role=Role.ORIGIN, messages=0, is_dead=True)
    if copy.config.mirror_name is not None:
        yield _detach(copy, stream.region)
    yield Create(config=seed_region.copy_config(stream, donor), region=stream.region, role=stream.role)
    yield seed_region.stop_copy(stream, donor)
    yield _open(stream)


def _detach(copy: ObservedStream, region: str) -> Update:
    fields = {key: value for key, value in copy.config.fields.items() if key not in {"mirror", "mirror_direct"}}
    before = {"name": copy.config.mirror_name}
    why = "the stream that it mirrors is gone, and the new one is made from it"
    return Update(
        config=StreamConfig(name=copy.config.name, fields=fields),
        region=region,
        role=Role.READ,
        fields=(FieldChange(path="mirror", before=before, after=None, risk=Risk.SAFE, why=why),),
        step=TransitionStep.DETACH,
    )


def mirrors_of(virtual: str, streams: Iterable[ObservedStream], owner: str) -> tuple[ObservedStream, ...]:
    """
    The mirrors of the `homed` stream *virtual*, also those that have stopped.

    First the one with the latest message; of equal ones, the one with most.
    """
    mirrors = []
    for stream in streams:
        is_mirror = stream.config.virtual == virtual and stream.config.metadata_value(ROLE_KEY) == Role.READ.value
        if is_mirror and stream.config.owner == owner:
            mirrors.append(stream)
    mirrors.sort(key=lambda mirror: (-mirror.last_seq, -mirror.messages, mirror.config.name))
    return tuple(mirrors)


def _plan_rest(stream: RenderedStream, observed: ObservedStream) -> Iterator[PlanItem]:
    if observed.config.mirror_name is not None:
        yield seed_region.stop_copy(stream, observed.config.mirror_name)
    yield _open(stream)


def _open(stream: RenderedStream) -> Update:
    subjects = list(stream.config.subjects)
    why = f"clients publish into it in `{stream.region}` from now on"
    return Update(
        config=stream.config,
        region=stream.region,
        role=stream.role,
        fields=(FieldChange(path="subjects", before=[], after=subjects, risk=Risk.SAFE, why=why),),
        step=TransitionStep.OPEN,
    )


def continue_consumers(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """A durable of a region whose stream has another name now goes on where it was: the sequences are the same."""
    mirrored = {stream.name for stream in context.topology.streams if stream.consistency.has_origin}
    former: dict[tuple[str, str | None, str], str] = {}
    for name, durables in context.observed.consumers.items():
        for durable in durables.values():
            metadata, owner = durable.config.metadata, durable.config.owner
            if owner == context.topology.name and metadata.get(STREAM_KEY) in mirrored:
                former[metadata[STREAM_KEY], metadata.get(REGION_KEY), durable.config.durable] = name
    for item in planned:
        if isinstance(item, CreateConsumer):
            key = (item.config.metadata.get(STREAM_KEY, ""), item.region, item.config.durable)
            yield replace(item, continues=former.get(key))
        else:
            yield item
