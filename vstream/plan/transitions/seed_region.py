"""
Seed a new region's read stream: mirror an existing one, then switch it to sources.

A stream that only sources gets no more than what the write streams still hold. So the new stream first mirrors the read
stream of another region. Then it stops (STOP_SOURCING), and once everything on its way is stored, it sources (CONTINUE_SOURCING): servers
continue after the last message of each source that they find in it. Switching in one step would store messages that are
on their way and then source them again. `opt_start_seq` says where to continue a source that has no message left in it.

A stream that begins so never takes from an origin that goes in the same plan. What that stores until nobody publishes into it
any more would be missing: so these are two plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vstream.formatting import summarize_names
from vstream.plan.context import DiffContext, PlanItem
from vstream.plan.model import Blocked, Create, FieldChange, Note, TransitionStep, Update
from vstream.plan.risk import Risk
from vstream.syntax.document import Json
from vstream.topology import physical
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import ServerVersion
from vstream.topology.stream_config import (
    FROM_KEY,
    ObservedStream,
    StreamConfig,
    is_in_domain,
    parse_positions,
)

SINCE: ServerVersion = (2, 12)
"""Servers before cannot remove a mirror from a stream (10055)."""
COPY_KEY = "vstream.copy"
"""Metadata of a copy: which read stream it is one of. Gone once it sources."""
_NOT_FOR_COPIES = frozenset(
    {
        "sources",
        "subjects",
        "republish",
        "subject_transform",
        "allow_atomic",
        "allow_batched",
        "allow_msg_counter",
        "allow_msg_schedules",
        "subject_delete_marker_ttl",
    }
)
"""What a mirror cannot have, or what would tell clients of messages that are no news."""


def donor_of(stream: RenderedStream, context: DiffContext) -> str | None:
    """The read stream that a missing *stream* can be made a copy of: the first that has messages and sources for itself."""
    # Servers do not turn a stream into a counter. Nor need it be a copy: write streams keep every counter (VS147).
    if not stream.config.source_names or stream.config.fields.get("allow_msg_counter"):
        return None
    for sibling in context.siblings[stream.virtual]:
        donor = context.streams.get(sibling.config.name)
        if (
            sibling.role is stream.role
            and donor is not None
            and donor.messages
            and donor.config.source_names
            and donor.config.owner == stream.config.owner
        ):
            return donor.config.name
    return None


def note_short_history(stream: RenderedStream) -> Note:
    """Note what a new read stream lacks where no other can be copied."""
    if stream.account is None:
        reason = "servers before 2.12 cannot make it out of another read stream"
    elif is_in_domain(stream.config.name):
        reason = "with `routing: domains` a domain does not reach another's read streams"
    else:
        reason = "a read stream in an account does not reach another's read streams"
    return Note(name=stream.config.name, text=f"will begin with what the write streams still hold: {reason}")


def is_copy(observed: ObservedStream) -> bool:
    """Whether *observed* is a copy that does not source for itself yet."""
    return observed.config.metadata_value(COPY_KEY) is not None


def plan_copy(stream: RenderedStream, donor: str) -> Iterator[Create | Update]:
    """The changes that make *stream*, which does not exist, out of *donor*."""
    yield Create(config=copy_config(stream, donor), region=stream.region, role=stream.role)
    yield stop_copy(stream, donor)
    yield _seed_source(stream, ())


def finish_copy(stream: RenderedStream, observed: ObservedStream, fields: Sequence[FieldChange]) -> Iterator[Update]:
    """What is left to do for a copy that exists; *fields* is how it differs from *stream*."""
    if observed.config.mirror_name is not None:
        yield stop_copy(stream, observed.config.mirror_name)
    yield _seed_source(stream, [change for change in fields if not _is_of_copies(change)])


def copy_config(stream: RenderedStream, donor: str) -> StreamConfig:
    """What *stream* is while it is a copy of *donor*."""
    fields = {key: value for key, value in stream.config.fields.items() if key not in _NOT_FOR_COPIES}
    metadata: dict[str, Json] = {**stream.config.metadata, COPY_KEY: donor}
    return StreamConfig(name=stream.config.name, fields={**fields, "mirror": {"name": donor}, "metadata": metadata})


def stop_copy(stream: RenderedStream, donor: str) -> Update:
    """The step after which *stream*, a copy, takes nothing more from *donor*."""
    copy = copy_config(stream, donor)
    fields = {key: value for key, value in copy.fields.items() if key != "mirror"}
    return Update(
        config=StreamConfig(name=copy.name, fields=fields),
        region=stream.region,
        role=stream.role,
        fields=(
            FieldChange(
                path="mirror",
                before={"name": donor},
                after=None,
                risk=Risk.SAFE,
                why="it sources nothing more from there, and keeps what it has",
            ),
        ),
        step=TransitionStep.STOP_SOURCING,
    )


def _seed_source(stream: RenderedStream, changes: Sequence[FieldChange]) -> Update:
    sources = []
    for source in stream.config.sources:
        field, why = f"sources.{source.fields['name']}", "it continues where the copy ends"
        sources.append(FieldChange(path=field, before=None, after=dict(source.fields), risk=Risk.SAFE, why=why))
    return Update(
        config=stream.config,
        region=stream.region,
        role=stream.role,
        fields=(*sources, *changes),
        step=TransitionStep.CONTINUE_SOURCING,
    )


def block_incomplete_readers(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """Block streams that begin to source, or go on, in the plan in which an origin goes that others take from."""
    yield from planned
    for change in planned:
        if not isinstance(change, Create | Update):
            continue
        is_going_on = isinstance(change, Update) and change.step is not TransitionStep.CONTINUE_SOURCING
        if not is_going_on and (leaving := _list_leaving_origins(change.config, context)):
            yield Blocked.of(
                change,
                reason=f"it would lack what is published into {summarize_names(leaving)} until that goes, in the same plan",
                hint="keep for now what goes (a region, or `takes_over`), apply, and then take it out of the topology",
            )


def _list_leaving_origins(config: StreamConfig, context: DiffContext) -> list[str]:
    """What siblings of *config*, a stream that sources, have taken from until now, and it never will."""
    if not config.source_names:
        return []
    siblings = [sibling.config.name for sibling in context.siblings.get(config.virtual or "", ())]
    followed: set[str] = set()
    for observed in filter(None, map(context.streams.get, siblings)):
        followed.update(observed.config.source_names, parse_positions(observed.config.metadata))
    # From a region that is dead nobody gets more, also not the others.
    existing = {*context.streams, *context.observed.unanswered} - physical.lost_write_streams(context.topology)
    return sorted((followed & existing) - {*config.source_names, *siblings})


def _is_of_copies(change: FieldChange) -> bool:
    name = change.path
    if name in {"mirror", "mirror_direct", "subjects", *_NOT_FOR_COPIES}:
        return True
    return name.startswith(("sources.", f"metadata.{COPY_KEY}", f"metadata.{FROM_KEY}"))
