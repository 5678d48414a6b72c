"""
A source that changes: its filter or its transforms.

For servers that is another source, which begins with the first message that is still
there: everything arrives again. So the reader first stops (STOP: the source goes, where it goes on is written
down), and once what was on its way is stored, it sources as it shall from there (SOURCE, `opt_start_seq`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vstream.plan.plan import FieldChange, Handover, Update
from vstream.plan.risk import Risk
from vstream.plan.transitions import seed_region
from vstream.subjects.algebra import FULL_WILDCARD, is_subset, overlaps
from vstream.topology.stream_config import REGION_KEY, ROLE_KEY, STREAM_KEY, TOPOLOGY_KEY, StreamConfig, source_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vstream.syntax.json_types import Json
    from vstream.topology.bundle import RenderedStream
    from vstream.topology.stream_config import ObservedStream

_OWNERSHIP = (TOPOLOGY_KEY, STREAM_KEY, REGION_KEY, ROLE_KEY)


_BACK = (
    "somebody has changed it. If it was like this before, servers go on after the last message that it took so: "
    "what it has taken since arrives again, and `vstream repair --kind delete` removes it"
)


def reconfigured_sources(fields: Sequence[FieldChange]) -> tuple[FieldChange, ...]:
    """The sources among *fields* that change, in contrast to those that come or go."""
    return tuple(one for one in fields if _is_source(one) and one.before is not None and one.after is not None)


def drops_source(fields: Sequence[FieldChange]) -> bool:
    """Whether a source goes with *fields*."""
    return any(_is_source(one) and one.after is None for one in fields)


def is_stopped(found: ObservedStream) -> bool:
    """Whether *found* has stopped for another source, and does not source again yet."""
    return bool(seed_region.positions(found.config.metadata)) and not seed_region.is_copy(found)


def subject_left_out(
    taker: str, fields: Sequence[FieldChange], observed: Mapping[str, ObservedStream]
) -> tuple[str, str] | None:
    """The write stream, and the subjects in it, that a source of *taker* takes and will not take any more."""
    for one in reconfigured_sources(fields):
        if not (isinstance(one.before, dict) and isinstance(one.after, dict)):
            continue
        origin = source_name(one.before, taker)
        found = observed.get(origin)
        listed = found.config.fields.get("subjects") if found is not None else None
        wanted = _taken(one.after)
        for subject in _taken(one.before):
            is_stored = any(overlaps(subject, str(here)) for here in listed) if isinstance(listed, list) else True
            if is_stored and not any(is_subset(subject, other) for other in wanted):
                return origin, subject
    return None


def _taken(source: Mapping[str, Json]) -> tuple[str, ...]:
    """The subjects that *source* takes, as its stream stores them."""
    if isinstance(subject := source.get("filter_subject"), str) and subject:
        return (subject,)
    transforms = source.get("subject_transforms")
    said = tuple(str(one["src"]) for one in transforms if isinstance(one, dict)) if isinstance(transforms, list) else ()
    return said or (FULL_WILDCARD,)


def _is_extended(change: FieldChange) -> bool:
    """Whether a source takes more subjects and is otherwise as it was: nobody has had it so before."""
    if not (isinstance(change.before, dict) and isinstance(change.after, dict)):
        return False
    before, after = change.before.get("subject_transforms"), change.after.get("subject_transforms")
    if not (isinstance(before, list) and isinstance(after, list)):
        return False
    return len(after) > len(before) > 0 and all(one in after for one in before)


def stop_sources(
    stream: RenderedStream, found: ObservedStream, fields: Sequence[FieldChange], *, adopts: bool
) -> Update:
    """*found* without the sources that change. It becomes vstream's, so that whatever happens, the next run goes on."""
    going = reconfigured_sources(fields)
    names = {source_name(one.before, found.config.name) for one in going if isinstance(one.before, dict)}
    sources = found.config.fields.get("sources")
    kept = (
        [one for one in sources if isinstance(one, dict) and source_name(one, found.config.name) not in names]
        if isinstance(sources, list)
        else []
    )
    ours = {key: value for key, value in stream.config.metadata.items() if key in _OWNERSHIP}
    return Update(
        config=StreamConfig(
            name=found.config.name,
            fields={**found.config.fields, "sources": kept, "metadata": {**found.config.metadata, **ours}},
        ),
        region=stream.region,
        role=stream.role,
        fields=tuple(
            replace(
                one, after=None, risk=Risk.DISRUPTIVE, why="it stops, for seconds; where it goes on is written down"
            )
            for one in going
        ),
        adopts=adopts,
        handover=Handover.STOP,
    )


def start_sources(update: Update) -> Update:
    """
    *update*, which changes sources of a stream that has stopped, or will have.

    A stream that is vstream's already had the sources that it shall have, unless the topology takes more subjects now.
    """
    fields = []
    for one in update.fields:
        if one.field.startswith(f"metadata.{seed_region.FROM_KEY}") or one.field == "subjects":
            continue  # the subject that servers give a stream without sources
        if _is_source(one) and one.after is not None:
            is_back = one.before is not None and not update.adopts and not _is_extended(one)
            risk, why = (Risk.RESOURCING, _BACK) if is_back else (Risk.SAFE, "it goes on where it stopped")
            fields.append(replace(one, before=None, risk=risk, why=why))
        elif one.field == "subject_transform" and one.after is None:
            fields.append(replace(one, risk=Risk.DISRUPTIVE, why="each source has its own from now on"))
        else:
            fields.append(one)
    return replace(update, fields=tuple(fields), adopts=False, handover=Handover.SOURCE)


def _is_source(change: FieldChange) -> bool:
    return change.field.startswith("sources.")
