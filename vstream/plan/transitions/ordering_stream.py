"""
An ordering stream that carries the virtual name, and lists the subjects of clients beside write streams.

Whatever is published before a server maps it past would be stored in the order itself. So the stream is made without subjects, as
its mirrors need it, and gets them once every server has loaded the mappings: from then on clients find it by subject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.plan.plan import Create, FieldChange, Update
from vstream.plan.risk import Risk
from vstream.topology.stream_config import StreamConfig

if TYPE_CHECKING:
    from collections.abc import Iterator


def create_ordering_stream(change: Create) -> Iterator[Create | Update]:
    """*change*, which makes an ordering stream; in two steps if it lists subjects."""
    listed = change.config.fields.get("subjects")
    if not listed:
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
                field="subjects",
                before=[],
                after=listed,
                risk=Risk.SAFE,
                why="clients find it by them; what they publish, every server maps to the write streams by now",
            ),
        ),
    )
