"""
A source that changes: its filter or its transforms.

For servers that is another source, which begins with the first message that is still
there: everything arrives again. So the reader first stops (STOP: the source goes, where it goes on is written
down), and once what was on its way is stored, it sources as it shall from there (SOURCE, `opt_start_seq`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vstream.model.streams import REGION_KEY, ROLE_KEY, STREAM_KEY, TOPOLOGY_KEY, StreamConfig, taken_from
from vstream.plan import copies
from vstream.plan.changes import FieldChange, Handover, Update
from vstream.plan.risk import Risk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.model.artifacts import PhysicalStream
    from vstream.model.streams import ObservedStream

_OWNERSHIP = (TOPOLOGY_KEY, STREAM_KEY, REGION_KEY, ROLE_KEY)


def changed(fields: Sequence[FieldChange]) -> tuple[FieldChange, ...]:
    """The sources among *fields* that change, in contrast to those that come or go."""
    return tuple(one for one in fields if _is_source(one) and one.before is not None and one.after is not None)


def drops(fields: Sequence[FieldChange]) -> bool:
    """Whether a source goes with *fields*."""
    return any(_is_source(one) and one.after is None for one in fields)


def is_stopped(found: ObservedStream) -> bool:
    """Whether *found* has stopped for another source, and does not source again yet."""
    return bool(copies.positions(found.config.metadata)) and not copies.is_copy(found)


def stop(stream: PhysicalStream, found: ObservedStream, fields: Sequence[FieldChange], *, adopts: bool) -> Update:
    """*found* without the sources that change. It becomes vstream's, so that whatever happens, the next run goes on."""
    going = changed(fields)
    names = {taken_from(one.before, found.config.name) for one in going if isinstance(one.before, dict)}
    sources = found.config.fields.get("sources")
    kept = (
        [one for one in sources if isinstance(one, dict) and taken_from(one, found.config.name) not in names]
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


def source(update: Update) -> Update:
    """*update*, which changes sources of a stream that has stopped, or will have."""
    fields = []
    for one in update.fields:
        if one.field.startswith(f"metadata.{copies.FROM_KEY}") or one.field == "subjects":
            continue  # the subject that servers give a stream without sources
        if _is_source(one) and one.after is not None:
            fields.append(replace(one, before=None, risk=Risk.SAFE, why="it goes on where it stopped"))
        elif one.field == "subject_transform" and one.after is None:
            fields.append(replace(one, risk=Risk.DISRUPTIVE, why="each source has its own from now on"))
        else:
            fields.append(one)
    return replace(update, fields=tuple(fields), adopts=False, handover=Handover.SOURCE)


def _is_source(change: FieldChange) -> bool:
    return change.field.startswith("sources.")
