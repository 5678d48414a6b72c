"""The gates of a plan: what must hold on the servers before certain stages may begin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta

from vstream.plan.context import DiffContext
from vstream.plan.model import Change, Delete, Gate, GateKind, TransitionStep, Update, is_move, is_scaled_up
from vstream.plan.stages import Stage, stage_after, stage_of
from vstream.plan.transitions.remove_region import select_living_gates
from vstream.plan.transitions.seed_region import is_copy
from vstream.timing import ALIVE_SECONDS, RECORDING_SECONDS
from vstream.topology.model import Role
from vstream.topology.stream_config import FORMER_PREFIX, MOVED_KEY, SCALED_KEY, ObservedStream, parse_source

_SOURCED = frozenset({Role.WRITE, Role.ORIGIN, Role.ORDER})
_PLACES = frozenset({"num_replicas", "placement"})
"""Fields with which a stream changes servers, so that who takes from it loses sight of it."""


def gates_of(changes: Sequence[Change], context: DiffContext) -> tuple[Gate, ...]:
    """What *changes* must wait for, in the order of the stages."""
    before_removals = list(_list_copies_hold_no_more_gates(changes, context))
    gates = [
        *_list_move_is_over_gates(changes, context),
        *_list_pause_gates(changes),
        *_list_replicas_are_current_gates(changes, context),
        *before_removals,
        *_list_move_is_recorded_gates(changes, before_removals),
        *_list_replicas_are_complete_gates(changes),
        *_list_copy_gates(changes, context),
        *_list_readers_have_all_gates(changes),
        *_list_nothing_has_arrived_since_gates(changes, context),
        *_list_former_layout_gates(changes, context),
    ]
    gates.sort(key=lambda gate: (stage_after(gate), gate.stream))
    gates.extend(_list_takeover_gates(context))
    # A stream that does not exist any more needs no draining.
    existing = {*context.streams, *context.observed.unanswered}
    needed = (gate for gate in gates if gate.kind is not GateKind.READERS_HAVE_ALL or gate.stream in existing)
    return tuple(select_living_gates(needed, context))


def _list_move_is_over_gates(changes: Sequence[Change], context: DiffContext) -> Iterator[Gate]:
    """
    What an earlier run has moved is there before it is changed again. One that is resumed waits for that anyway.

    Only with one replica: of three, the servers of two may be gone for good, and the update is what goes on without them.
    """
    updates = [change for change in changes if isinstance(change, Update) and change.step is not TransitionStep.RESUME]
    for name in dict.fromkeys(change.config.name for change in updates):
        observed = context.streams.get(name)
        if observed is not None and observed.config.fields.get("num_replicas") == 1 and _is_moving(observed):
            yield Gate(kind=GateKind.MOVE_IS_OVER, stream=name)


def _list_pause_gates(changes: Sequence[Change]) -> Iterator[Gate]:
    """Nothing is on its way into what moves or is scaled while it is paused, and it is all there when it resumes."""
    updated = {change.config.name for change in changes if isinstance(change, Update) and change.step is None}
    for change in changes:
        if isinstance(change, Update) and change.step is TransitionStep.RESUME:
            if change.config.name in updated:
                yield Gate(kind=GateKind.PUBLISHES_ARE_STORED, stream=change.config.name)
            yield Gate(kind=GateKind.QUORUM_IS_CURRENT, stream=change.config.name)


def _list_replicas_are_current_gates(changes: Sequence[Change], context: DiffContext) -> Iterator[Gate]:
    """What moves or is scaled gets there before the streams that take from it are resynced."""
    for change in changes:
        if not isinstance(change, Update) or change.role not in _SOURCED or stage_of(change) > Stage.RESYNC_READERS:
            continue
        if _PLACES.isdisjoint(field.path for field in change.fields):
            continue
        if readers := _readers_of(change.config.name, context):
            yield Gate(kind=GateKind.REPLICAS_ARE_CURRENT, stream=change.config.name, counterparts=readers)


def _list_copies_hold_no_more_gates(changes: Sequence[Change], context: DiffContext) -> Iterator[Gate]:
    """
    What moves, in this run or an earlier one, is all there before anything goes that may be all that holds it.

    A copy in the new home shows that an earlier run did not end. A server that dies meanwhile may have lost the rest.
    """
    deleted = [change for change in changes if isinstance(change, Delete)]
    shrinking = {change.config.virtual for change in deleted}
    copies: defaultdict[tuple[str | None, str | None], list[str]] = defaultdict(list)
    for change in deleted:
        copies[change.config.mirror_name, change.region].append(change.config.name)
    for rendered in context.desired_streams:
        observed, place = context.streams.get(rendered.config.name), rendered.config.placement_cluster
        if (
            observed is None
            or observed.cluster is None
            or not (context.observed.leaving_servers or rendered.virtual in shrinking)
        ):
            continue
        replaced = copies.get((rendered.config.name, rendered.region), ())
        if replaced or place not in {None, observed.cluster} or _is_moving(observed):
            yield Gate(kind=GateKind.COPIES_HOLD_NO_MORE, stream=rendered.config.name, counterparts=tuple(replaced))


def _list_move_is_recorded_gates(changes: Sequence[Change], before_removals: Sequence[Gate]) -> Iterator[Gate]:
    """A server that is killed before it has recorded that a stream is there deletes what it has of it."""
    moving = [change.config.name for change in changes if is_move(change)]
    for name in dict.fromkeys([*moving, *(gate.stream for gate in before_removals)]):
        yield Gate(kind=GateKind.MOVE_IS_RECORDED, stream=name)


def _list_replicas_are_complete_gates(changes: Sequence[Change]) -> Iterator[Gate]:
    """The server of a stream with one replica may give new ones a message before the snapshot of what is before it."""
    scaled = dict.fromkeys(change.config.name for change in changes if is_scaled_up(change))
    yield from (Gate(kind=GateKind.REPLICAS_ARE_COMPLETE, stream=name) for name in scaled)


def list_interrupted_gates(changes: Sequence[Change], context: DiffContext) -> Iterator[Gate]:
    """What an earlier run has moved or scaled, and ended before it resynced the readers, or servers had recorded it, or it was compared."""
    resumed = [change for change in changes if isinstance(change, Update) and change.step is TransitionStep.RESUME]
    changed = {change.config.name for change in changes if change not in resumed}
    for rendered in context.desired_streams:
        name, observed = rendered.config.name, context.streams.get(rendered.config.name)
        if observed is None:
            continue
        if _has_just_moved(observed, context):
            yield Gate(kind=GateKind.MOVE_IS_RECORDED, stream=name)
        if observed.config.metadata_value(SCALED_KEY) and rendered.config.fields.get("num_replicas") != 1:
            yield Gate(kind=GateKind.REPLICAS_ARE_COMPLETE, stream=name)
        if rendered.role not in _SOURCED or name in changed:
            continue
        if readers := _readers_of(name, context, None if _is_moving(observed) else observed):
            yield Gate(kind=GateKind.REPLICAS_ARE_CURRENT, stream=name, counterparts=readers)


def _has_just_moved(stream: ObservedStream, context: DiffContext) -> bool:
    """Whether a server that holds it now may not have recorded that: each does it once a minute."""
    moved, now = stream.config.metadata_value(MOVED_KEY), context.observed.at
    return (
        moved is not None and moved.isdecimal() and now is not None and now.timestamp() - int(moved) < RECORDING_SECONDS
    )


def _is_moving(stream: ObservedStream) -> bool:
    configured = stream.config.fields.get("num_replicas")
    number = stream.replicas
    return number is not None and isinstance(configured, int) and (number > configured or 1 == number < configured)


def _is_waiting(reader: ObservedStream, origin: ObservedStream) -> bool:
    """Whether *reader* has not heard of *origin* since that has its leader: it asks again only later."""
    silence = reader.silence_by_source.get(origin.config.name)
    if silence is None or reader.at is None or reader.replicas == 1:
        return False
    return reader.at - silence < (origin.leader_since or reader.at - timedelta(seconds=ALIVE_SECONDS))


def _readers_of(stream: str, context: DiffContext, missed: ObservedStream | None = None) -> tuple[str, ...]:
    """The streams that take from *stream*, if they wait for it where it is *missed*, and those that take from these, too."""
    readers: dict[str, None] = {}
    origins = [stream]
    while origins:
        origin = origins.pop()
        for reader in context.readers.get(origin, ()):
            observed = None if reader in readers else context.streams.get(reader)
            if observed is not None and (missed is None or origin != stream or _is_waiting(observed, missed)):
                readers[reader] = None
                origins.append(reader)
    return tuple(sorted(readers))


def _list_copy_gates(changes: Sequence[Change], context: DiffContext) -> Iterator[Gate]:
    for change in changes:
        if not isinstance(change, Update):
            continue
        name = change.config.name
        if change.step is TransitionStep.STOP_SOURCING:
            for field in change.fields:
                mirror = parse_source(field.before, name) if field.path == "mirror" else None
                if mirror is not None:
                    yield Gate(kind=GateKind.COPY_IS_COMPLETE, stream=name, counterparts=(mirror.stream,))
        elif change.step is TransitionStep.OPEN:
            # Until then, who gives the same region up at the same time may still delete it: its copy goes only afterwards.
            yield Gate(kind=GateKind.SOURCED_MESSAGES_ARE_STORED, stream=name)
        elif change.step is TransitionStep.CONTINUE_SOURCING:
            yield Gate(kind=GateKind.SOURCED_MESSAGES_ARE_STORED, stream=name)
            observed = context.streams.get(name)
            if observed is None or is_copy(observed) or observed.config.mirror_name is not None:
                yield Gate(kind=GateKind.HAS_ALL_OF_SOURCES, stream=name, counterparts=change.config.source_names)


def _list_readers_have_all_gates(changes: Sequence[Change]) -> Iterator[Gate]:
    """A write stream is drained before its readers drop it as a source."""
    readers: defaultdict[str, list[str]] = defaultdict(list)
    for change in changes:
        if not isinstance(change, Update) or change.step is not None:
            continue
        for origin in change.dropped_sources:
            readers[origin].append(change.config.name)
    for origin, names in readers.items():
        yield Gate(kind=GateKind.READERS_HAVE_ALL, stream=origin, counterparts=tuple(dict.fromkeys(names)))


def _list_nothing_has_arrived_since_gates(changes: Sequence[Change], context: DiffContext) -> Iterator[Gate]:
    """Nothing came into a write stream after its readers had dropped it."""
    for change in changes:
        if not isinstance(change, Delete) or change.role is not Role.WRITE:
            continue
        if change.config.name.startswith(FORMER_PREFIX):
            continue
        siblings = context.siblings.get(change.config.virtual or "", ())
        sourcing = [sibling.config.name for sibling in siblings if sibling.config.source_names]
        readers = tuple(name for name in sourcing if name in context.streams)
        if readers:
            yield Gate(kind=GateKind.NOTHING_HAS_ARRIVED_SINCE, stream=change.config.name, counterparts=readers)


def _list_former_layout_gates(changes: Sequence[Change], context: DiffContext) -> Iterator[Gate]:
    """
    A layout that the topology has moved away from is read to the end before it goes.

    First its own read streams take what its write streams have. Then the new read stream of each region takes what the
    former one of that region has.
    """
    former_streams = [
        change for change in changes if isinstance(change, Delete) and change.config.name.startswith(FORMER_PREFIX)
    ]
    # Once nobody follows them any more, it only counts that nothing has come since.
    followed = {gate.stream for gate in _list_readers_have_all_gates(changes)}
    for change in former_streams:
        name, virtual = change.config.name, change.config.virtual
        if change.role is Role.WRITE:
            read_configs = [candidate.config for candidate in former_streams if candidate.role is Role.READ]
            between = tuple(config.name for config in read_configs if config.virtual == virtual)
            if not followed.isdisjoint(between):
                yield Gate(kind=GateKind.FORMER_READERS_HAVE_ALL, stream=name, counterparts=between)
            if between:
                yield Gate(kind=GateKind.NOTHING_HAS_ARRIVED_SINCE, stream=name, counterparts=between)
            continue
        siblings = [stream for stream in context.siblings.get(virtual or "", ()) if stream.region == change.region]
        read_streams = [stream.config.name for stream in siblings if stream.role is Role.READ]
        followers = tuple(follower for follower in read_streams if follower in context.streams)
        if followers:
            yield Gate(kind=GateKind.NOTHING_HAS_ARRIVED_SINCE, stream=name, counterparts=followers)


def _list_takeover_gates(context: DiffContext) -> Iterator[Gate]:
    """
    Before clients are sent to the read streams, these hold what the plain stream, or the former read stream, holds.

    What a former one has not taken by then would come behind what its publisher stores afterwards.
    """
    for stream in context.desired_streams if context.rule_changes else ():
        former = stream.takes_over
        if former is not None and former in context.streams:
            is_read = former.startswith(FORMER_PREFIX)
            kind = GateKind.HAS_ALL_OF_FORMER if is_read else GateKind.HAS_ALL_OF_SOURCES
            yield Gate(kind=kind, stream=stream.config.name, counterparts=(former,))
