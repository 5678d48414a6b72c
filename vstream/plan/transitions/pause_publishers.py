"""
Let a stream take no publishes while it gets other servers, or more than its only one.

Servers of 2.11 to 2.14 tell the new servers of a stream that had one replica what was there by a snapshot in the log of the new
group. A message that comes before the old server has written it stands in front of it there: new servers begin with that
message, and everything before is lost, or held by the old server only (server/jetstream_cluster.go: what runs the stream's
group writes the snapshot, and what takes publishes does not wait for that). So none may come. The stream listens on nothing
that anybody publishes on; publishers are told that nobody listens, and try again. It gets its subjects back once its new
servers hold what it held. Not before: servers that get another update of a stream that moves end the move, and it has no leader.

Which step is next is seen from the subjects, so a run that was killed in between is carried on by the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from vstream.plan.context import DiffContext, Outcome
from vstream.plan.plan import FieldChange, TransitionStep, Update
from vstream.plan.risk import Risk
from vstream.topology.naming import is_paused, pause_subject
from vstream.topology.stream_config import ObservedStream

_RESUMED = "publishers go on, once it is all there"
_AFFECTED_SINCE = (2, 11, 0)
_SAFE_SINCE = (2, 15, 0)


def pause_while_moving(outcomes: Sequence[Outcome], context: DiffContext) -> Iterable[Outcome]:
    """Pause what may lose messages while it moves or is scaled up, and resume it afterwards, also if an earlier run paused it."""
    for outcome in outcomes:
        observed = context.streams.get(outcome.config.name) if isinstance(outcome, Update) else None
        if not isinstance(outcome, Update) or observed is None or outcome.step is not None:
            yield outcome
        elif _may_lose_messages(outcome, observed, context):
            yield from _plan_steps(outcome, observed)
        elif is_paused(observed.config):
            yield replace(outcome, fields=tuple(map(_as_resumed, outcome.fields)), step=TransitionStep.RESUME)
        else:
            yield outcome


def _may_lose_messages(update: Update, observed: ObservedStream, context: DiffContext) -> bool:
    """Whether *update* gives other servers to a stream that is all on one, and that clients publish into."""
    changed = {change.field for change in update.fields}
    if changed.isdisjoint({"placement", "num_replicas"}) or observed.config.fields.get("num_replicas") not in {1, None}:
        return False
    is_published_to = bool(observed.config.subjects and update.config.subjects) and not observed.config.source_names
    if not is_published_to or not observed.messages or observed.cluster is None:
        return False
    # While servers are upgraded one by one, any of them may hold it.
    versions = context.list_versions(observed.cluster)
    is_affected = any(_AFFECTED_SINCE <= version < _SAFE_SINCE for version in versions)
    is_safe = context.are_versions_known(observed.cluster) or context.topology.server_version >= _SAFE_SINCE[:2]
    return is_affected or not is_safe


def _plan_steps(update: Update, observed: ObservedStream) -> Iterator[Update]:
    subjects, paused = list(update.config.subjects), [pause_subject(observed.config.name)]
    why = (
        "publishers are refused until its new servers hold it all: "
        "servers of 2.11 to 2.14 may lose it if a message comes meanwhile"
    )
    if not is_paused(observed.config):
        before = list(observed.config.subjects)
        pause = FieldChange(field="subjects", before=before, after=[*paused], risk=Risk.DISRUPTIVE, why=why)
        config = observed.config.with_fields(subjects=[*paused])
        yield replace(update, config=config, fields=(pause,), adopts=False, step=TransitionStep.PAUSE)
    fields = tuple(change for change in update.fields if change.field != "subjects")
    yield replace(update, config=update.config.with_fields(subjects=[*paused]), fields=fields)
    resume = FieldChange(field="subjects", before=[*paused], after=subjects, risk=Risk.SAFE, why=_RESUMED)
    yield replace(update, fields=(resume,), adopts=False, step=TransitionStep.RESUME)


def _as_resumed(change: FieldChange) -> FieldChange:
    return replace(change, risk=Risk.SAFE, why=_RESUMED) if change.field == "subjects" else change
