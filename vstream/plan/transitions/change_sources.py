"""
Reconfigure a source: its filter or its transforms change.

For servers that is another source, which begins with the first message that is still stored: everything would arrive
again. So the reader first stops (STOP_SOURCING: the source goes, and where it continues is recorded). Once everything on its way
is stored, it sources as it should from there (CONTINUE_SOURCING, `opt_start_seq`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vstream.plan.context import DiffContext
from vstream.plan.model import FieldChange, TransitionStep, Update
from vstream.plan.risk import Risk
from vstream.plan.transitions import seed_region
from vstream.subjects.algebra import FULL_WILDCARD, is_subset, overlaps
from vstream.topology.bundle import RenderedStream
from vstream.topology.naming import is_paused
from vstream.topology.stream_config import (
    FROM_KEY,
    OWNERSHIP_KEYS,
    ObservedStream,
    StreamSource,
    parse_positions,
    parse_source,
)

_WHY = (
    "somebody has changed it. If it was like this before, servers go on after the last message that it took so: "
    "what it has taken since arrives again, and `vstream repair messages --kind delete` removes it"
)


def find_reconfigured_sources(fields: Sequence[FieldChange]) -> tuple[FieldChange, ...]:
    """The sources among *fields* that change, in contrast to those that come or go."""
    return tuple(
        change for change in fields if change.is_source and change.before is not None and change.after is not None
    )


def drops_source(fields: Sequence[FieldChange]) -> bool:
    """Whether *fields* remove a source."""
    return any(change.is_source and change.after is None for change in fields)


def has_stopped_sourcing(observed: ObservedStream) -> bool:
    """Whether *observed* has stopped to reconfigure a source, and does not continue yet."""
    return bool(parse_positions(observed.config.metadata)) and not seed_region.is_copy(observed)


def find_subject_left_out(reader: str, fields: Sequence[FieldChange], context: DiffContext) -> tuple[str, str] | None:
    """A write stream, and a subject in it, that a source of *reader* takes now and would no longer take."""
    for change in find_reconfigured_sources(fields):
        before, after = parse_source(change.before, reader), parse_source(change.after, reader)
        if before is None or after is None:
            continue
        origin = context.streams.get(before.stream)
        subjects_after = _list_subjects_taken(after)
        for subject in _list_subjects_taken(before):
            is_stored = True
            # What a paused one listens on says nothing of what it stores.
            if origin is not None and "subjects" in origin.config.fields and not is_paused(origin.config):
                is_stored = any(overlaps(subject, listed) for listed in origin.config.subjects)
            if is_stored and not any(is_subset(subject, pattern) for pattern in subjects_after):
                return before.stream, subject
    return None


def _list_subjects_taken(source: StreamSource) -> tuple[str, ...]:
    """The subjects that *source* takes, as its stream stores them."""
    if source.filter is not None:
        return (source.filter,)
    return tuple(subject for subject, _ in source.transforms) or (FULL_WILDCARD,)


def _is_extended(reader: str, change: FieldChange) -> bool:
    """Whether a source takes more subjects and is otherwise unchanged: nobody has had it so before."""
    before, after = parse_source(change.before, reader), parse_source(change.after, reader)
    if before is None or after is None:
        return False
    is_longer = len(after.transforms) > len(before.transforms) > 0
    return is_longer and all(transform in after.transforms for transform in before.transforms)


def stop_sources(
    stream: RenderedStream, observed: ObservedStream, fields: Sequence[FieldChange], *, adopts: bool
) -> Update:
    """*observed* without the sources that change. It becomes vstream's, so that a later run can continue."""
    reconfigured = find_reconfigured_sources(fields)
    reader = observed.config
    names = {
        source.stream for change in reconfigured if (source := parse_source(change.before, reader.name)) is not None
    }
    ownership = {key: value for key, value in stream.config.metadata.items() if key in OWNERSHIP_KEYS}
    stopped = reader.with_sources(source for source in reader.sources if source.stream not in names)
    why = "it stops for some seconds, and its position is recorded"
    return Update(
        config=stopped.with_fields(metadata={**reader.metadata, **ownership}),
        region=stream.region,
        role=stream.role,
        fields=tuple(replace(change, after=None, risk=Risk.DISRUPTIVE, why=why) for change in reconfigured),
        adopts=adopts,
        step=TransitionStep.STOP_SOURCING,
    )


def start_sources(update: Update) -> Update:
    """
    *update*, which changes sources of a stream that has stopped, or will have.

    A stream that is vstream's already had the sources that it should have, unless the topology takes more subjects now.
    """
    fields = []
    for change in update.fields:
        if change.path.startswith(f"metadata.{FROM_KEY}") or change.path == "subjects":
            continue  # the subject that servers give a stream without sources
        if change.is_source and change.after is not None:
            is_back = change.before is not None and not update.adopts and not _is_extended(update.config.name, change)
            risk, why = (Risk.RESOURCING, _WHY) if is_back else (Risk.SAFE, "it continues where it stopped")
            fields.append(replace(change, before=None, risk=risk, why=why))
        elif change.path == "subject_transform" and change.after is None:
            fields.append(replace(change, risk=Risk.DISRUPTIVE, why="each source has its own from now on"))
        else:
            fields.append(change)
    return replace(update, fields=tuple(fields), adopts=False, step=TransitionStep.CONTINUE_SOURCING)
