"""
Let a stream take no publishes while it gets other servers, or more than its only one.

Servers of 2.11 to 2.14 tell the new servers of a stream that had one replica what was there by a snapshot in the log of the new
group. A message that comes before the old server has written it stands in front of it there: new servers begin with that
message, and everything before is lost, or held by the old server only (server/jetstream_cluster.go: what runs the stream's
group writes the snapshot, and what takes publishes does not wait for that). So none may come. The stream listens on nothing
that anybody publishes on; publishers are told that nobody listens, and try again. It gets its subjects back once its new
servers hold what it held. Not before: servers that get another update of a stream that moves end the move, and it has no leader.

Which step is next is seen from the subjects, so a run that was killed in between is carried on by the next one. Where that
may not change everything, it lets streams that are paused go on as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from vstream.errors import RefusedError
from vstream.plan.canonical import to_canonical_stream
from vstream.plan.context import DiffContext, PlanItem
from vstream.plan.model import Blocked, FieldChange, GateKind, Plan, TransitionStep, Update, is_resumption
from vstream.plan.risk import Risk
from vstream.topology.naming import is_paused, pause_subject
from vstream.topology.stream_config import ObservedStream, StreamConfig

_PLACES = frozenset({"placement", "num_replicas"})
_RESUMED = "publishers go on, once it is all there"
_AFFECTED_SINCE = (2, 11, 0)
_SAFE_SINCE = (2, 15, 0)


def pause_while_moving(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """Pause what may lose messages while it moves or is scaled up, and resume it afterwards, also if an earlier run paused it."""
    for item in planned:
        observed = context.streams.get(item.config.name) if isinstance(item, Update) else None
        if not isinstance(item, Update) or observed is None or item.step is not None:
            yield item
        elif _may_lose_messages(item, observed, context):
            yield from _plan_steps(item, observed)
        elif is_paused(observed.config):
            yield replace(item, fields=tuple(map(_as_resumed, item.fields)), step=TransitionStep.RESUME)
        else:
            yield item
    yield from _resume_blocked(planned, context)


def select_resumptions(plan: Plan) -> Plan:
    """What of *plan* only lets streams that an earlier run has paused take publishes again."""
    names = plan.list_paused()
    resumptions = [change for change in plan.changes if isinstance(change, Update) and is_resumption(change)]
    return Plan(
        topology=plan.topology,
        observed_digest=plan.observed_digest,
        changes=tuple(_without_other_fields(change) for change in resumptions if change.config.name in names),
        gates=tuple(gate for gate in plan.gates if gate.kind is GateKind.QUORUM_IS_CURRENT and gate.stream in names),
        owned_stream_count=plan.owned_stream_count,
    )


def require_still_paused(current: StreamConfig, changes: Sequence[FieldChange] = ()) -> None:
    """Raises RefusedError if another run has resumed the stream that *current* is of, or has given it other servers already."""
    form = to_canonical_stream(current.fields)
    is_changed = any(form.get(change.path) != change.before for change in changes if change.path in _PLACES)
    if is_changed or not is_paused(current):
        raise RefusedError(
            f"`{current.name}` was changed since this run began: does another `apply` run?",
            hint="let only one run at a time",
        )


def _without_other_fields(resumption: Update) -> Update:
    return replace(resumption, fields=tuple(field for field in resumption.fields if field.path == "subjects"))


def _resume_blocked(planned: Sequence[PlanItem], context: DiffContext) -> Iterator[Update]:
    """Let streams go on that are paused, and cannot be made as the topology says."""
    blocked = {item.name for item in planned if isinstance(item, Blocked)}
    for stream in context.desired_streams:
        observed = context.owned_streams.get(stream.config.name)
        if stream.config.name not in blocked or observed is None or not is_paused(observed.config):
            continue
        resume = _plan_resumption(observed, stream.config.subjects)
        config = observed.config.with_fields(subjects=[*stream.config.subjects])
        yield Update(
            config=config, region=stream.region, role=stream.role, fields=(resume,), step=TransitionStep.RESUME
        )


def _may_lose_messages(update: Update, observed: ObservedStream, context: DiffContext) -> bool:
    """Whether *update* gives other servers to a stream that is all on one, and that clients publish into."""
    changed = {change.path for change in update.fields}
    if changed.isdisjoint(_PLACES) or observed.config.fields.get("num_replicas") not in {1, None}:
        return False
    is_published_to = bool(observed.config.subjects and update.config.subjects) and not observed.config.source_names
    # Also if it is empty: a message may come before the change is made.
    if not is_published_to or observed.cluster is None:
        return False
    # While servers are upgraded one by one, any of them may hold it.
    versions = context.list_versions(observed.cluster)
    is_affected = any(_AFFECTED_SINCE <= version < _SAFE_SINCE for version in versions)
    is_safe = context.are_versions_known(observed.cluster) or context.topology.server_version >= _SAFE_SINCE[:2]
    return is_affected or not is_safe


def _plan_steps(update: Update, observed: ObservedStream) -> Iterator[Update]:
    paused = [pause_subject(observed.config.name)]
    why = (
        "publishers are refused until its new servers hold it all: "
        "servers of 2.11 to 2.14 may lose it if a message comes meanwhile"
    )
    if not is_paused(observed.config):
        before = list(observed.config.subjects)
        pause = FieldChange(path="subjects", before=before, after=[*paused], risk=Risk.DISRUPTIVE, why=why)
        config = observed.config.with_fields(subjects=[*paused])
        yield replace(update, config=config, fields=(pause,), adopts=False, step=TransitionStep.PAUSE)
    fields = tuple(change for change in update.fields if change.path != "subjects")
    yield replace(update, config=update.config.with_fields(subjects=[*paused]), fields=fields)
    resume = _plan_resumption(observed, update.config.subjects)
    yield replace(update, fields=(resume,), adopts=False, step=TransitionStep.RESUME)


def _plan_resumption(observed: ObservedStream, subjects: Sequence[str]) -> FieldChange:
    paused = [pause_subject(observed.config.name)]
    return FieldChange(path="subjects", before=[*paused], after=[*subjects], risk=Risk.SAFE, why=_RESUMED)


def _as_resumed(change: FieldChange) -> FieldChange:
    return replace(change, risk=Risk.SAFE, why=_RESUMED) if change.path == "subjects" else change
