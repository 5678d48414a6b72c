"""
Change the consistency model of a stream, or take over a plain stream.

Read streams that mirror are to source the write streams when a topology leaves `ordered`, `homed` or `stretch` for
`virtual`. It goes as with a copy (`vstream.plan.transitions.seed_region`): the mirror stops, and once everything on its
way is stored, it sources from there. What it mirrored is the ordering stream, whose sources are the write streams; or an
origin, which continues as a plain stream that is taken over. Servers cannot turn a stream into a mirror, so there is no
way back.

A plain stream is taken over while clients publish. The read streams source it too, until they have everything of it.
Then the mappings send publishes to the write streams, one server after the other. Each publish goes to exactly one of
the two, and both are sourced: nothing is lost, nothing is duplicated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vstream.plan.context import DiffContext, PlanItem
from vstream.plan.model import Blocked, Create, FieldChange, Update
from vstream.plan.risk import Risk
from vstream.plan.transitions.seed_region import SINCE
from vstream.subjects.algebra import is_subset
from vstream.syntax.document import object_or_empty
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Role
from vstream.topology.stream_config import FORMER_PREFIX, ROLE_KEY, ObservedStream, StreamConfig

_TAKES_PUBLISHES = frozenset({Role.WRITE.value, Role.ORIGIN.value})


def can_become_sourced(stream: RenderedStream, observed: ObservedStream, context: DiffContext) -> bool:
    """Whether *observed*, a mirror, can become *stream*, which sources, without losing its place."""
    mirrored = context.streams.get(observed.config.mirror_name or "")
    if mirrored is None or not stream.config.source_names or stream.account is not None:
        return False
    if context.topology.server_version < SINCE:
        return False
    if observed.config.owner != stream.config.owner or mirrored.config.owner != stream.config.owner:
        return False
    decided = mirrored.config.source_names
    return mirrored.config.name == stream.takes_over or bool(decided and {*decided} <= {*stream.config.source_names})


def hint_for_mirror(stream: RenderedStream, fields: Sequence[FieldChange], context: DiffContext) -> str | None:
    """What to do about a read stream that mirrors an order or an origin, and no longer should; None for others."""
    mirror = next((change for change in fields if change.path == "mirror"), None)
    if mirror is None or mirror.after is not None or stream.account is not None:
        return None  # in hidden accounts a plain stream is out of reach
    name = object_or_empty(mirror.before).get("name")
    mirrored = context.streams.get(str(name))
    is_order = mirrored is not None and bool(mirrored.config.source_names)
    if context.topology.server_version < SINCE and (is_order or name == stream.virtual):
        return (
            "servers of 2.12 and later can: update all of them, and say so in `server_version`; "
            "or give the virtual stream another name and move over"
        )
    if name == stream.virtual and not is_order:
        return f"add `takes_over: {stream.virtual}` to the stream, apply it, and then take that out again"
    return None


def block_abandoned_streams(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """
    Block the deletion of streams whose virtual stream gets another model, in which nothing takes over what they hold.

    Where the virtual stream has several regions, a mirror that would have to source says so, or the other way round.
    Where it has one, nothing of it stays.
    """
    yield from planned
    for name, stream in sorted(context.undesired_streams.items()):
        virtual, role = stream.config.virtual or "", stream.config.metadata_value(ROLE_KEY)
        siblings = context.siblings.get(virtual, ())
        if role not in _TAKES_PUBLISHES or not siblings:
            continue
        is_continued = any(sibling.config.name in context.streams for sibling in siblings)
        if not is_continued and role not in {sibling.role.value for sibling in siblings}:
            yield Blocked(
                name=name,
                region=stream.config.region,
                reason=f"`{virtual}` gets another consistency model, and what is stored here would be lost",
                hint="change the topology back, or give the virtual stream another name and move over",
            )


def create_ordering_stream(change: Create) -> Iterator[Create | Update]:
    """
    The steps that make the ordering stream of *change*: two if it carries the virtual name and lists subjects.

    Whatever is published before a server maps it past would be stored in the order itself. So the stream is made without
    subjects, as its mirrors need it. It gets them once every server has loaded the mappings: from then on clients find
    it by subject.
    """
    subjects = change.config.fields.get("subjects")
    if not subjects:
        yield change
        return
    bare = {field: value for field, value in change.config.fields.items() if field != "subjects"}
    yield Create(config=StreamConfig(name=change.config.name, fields=bare), region=change.region, role=change.role)
    yield Update(
        config=change.config,
        region=change.region,
        role=change.role,
        fields=(
            FieldChange(
                path="subjects",
                before=[],
                after=subjects,
                risk=Risk.SAFE,
                why="clients find it by these subjects; by now, every server maps their publishes to the write streams",
            ),
        ),
    )


def block_takeovers(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """Block read streams whose plain stream does not exist, or holds what the virtual stream does not have."""
    yield from planned
    for stream in context.desired_streams:
        plain = stream.takes_over
        if plain is None or plain.startswith(FORMER_PREFIX):
            continue  # of the topology itself, in the layout that it moves away from
        observed = context.streams.get(plain)
        if observed is None:
            yield Blocked.of(
                stream,
                reason=f"it takes over `{plain}`, which does not exist, or does not answer",
                hint="take `takes_over` out of the topology if everything has been taken over",
            )
        elif reason := _explain_misfit(stream, observed):
            yield Blocked.of(
                stream,
                reason=f"it takes over `{plain}`, which {reason}",
                hint="a plain stream is taken over as a whole, by a stream with all of its subjects",
            )


def _explain_misfit(stream: RenderedStream, plain: ObservedStream) -> str | None:
    """Why *stream* cannot take over *plain*; None if it can."""
    for listed in plain.config.subjects:
        if not any(is_subset(listed, subject) for subject in stream.subjects):
            return f"listens on `{listed}`, too"
    if plain.config.owner is None or _is_own_origin(stream, plain):
        return None
    return f"belongs to the topology `{plain.config.owner}`"


def _is_own_origin(stream: RenderedStream, plain: ObservedStream) -> bool:
    """Whether *plain*, which *stream* takes over, is the origin that its virtual stream had until now."""
    is_origin = plain.config.metadata_value(ROLE_KEY) == Role.ORIGIN.value
    return is_origin and plain.config.owner == stream.config.owner and plain.config.virtual == stream.virtual
