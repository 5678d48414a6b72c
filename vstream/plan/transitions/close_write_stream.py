"""
Write streams that go while clients still publish into them: they close first, so that what they have can be taken.

With `routing: mapped` other mappings lead clients away from a region's write stream. A rule for a root, and every rule of
`domains`, is the same in all regions and stays: publishes would come into the stream until the moment in which it
is deleted. So it listens on nothing that anybody publishes on, and publishers are told that nobody does.

An origin that was taken over closes too: what others have taken of it cannot be told any more once they do not source it, as what they
mirrored before says nothing of where it comes from. Closed, it has nothing that came later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.plan.plan import FieldChange, Handover, Update
from vstream.plan.risk import Risk
from vstream.topology.model import Role
from vstream.topology.naming import PHYSICAL_PREFIX
from vstream.topology.profiles import profile_named
from vstream.topology.stream_config import ROUTING_KEY, STREAM_KEY, StreamConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.plan.plan import Delete
    from vstream.topology.bundle import RenderedStream
    from vstream.topology.stream_config import ObservedStream

CLOSED = f"{PHYSICAL_PREFIX}.closed"
"""What a closed write stream listens on begins with this. Users may not publish there."""


def close_before_delete(
    deletes: Sequence[Delete], desired: Sequence[RenderedStream], observed: Mapping[str, ObservedStream]
) -> Iterator[Update]:
    """Of *deletes*, the streams that others read, that clients can reach, and that are open."""
    read = {one.virtual for one in desired if one.config.source_names and one.config.name in observed}
    for change in deletes:
        metadata = change.config.metadata
        profile = profile_named(metadata.get(ROUTING_KEY))
        is_mapped = profile is not None and profile.has_physical_names
        virtual = metadata.get(STREAM_KEY)
        is_reached = change.role is Role.ORIGIN or (change.role is Role.WRITE and not is_mapped)
        if not is_reached or change.role is None or change.region is None or virtual not in read:
            continue
        before, after = change.config.fields.get("subjects"), [f"{CLOSED}.{virtual}"]
        if before != after:
            yield Update(
                config=StreamConfig(name=change.config.name, fields={**change.config.fields, "subjects": [*after]}),
                region=change.region,
                role=change.role,
                fields=(
                    FieldChange(
                        field="subjects",
                        before=before,
                        after=[*after],
                        risk=Risk.DISRUPTIVE,
                        why=f"publishes in `{change.region}` are refused from now on"
                        if change.role is Role.WRITE
                        else "what still comes past the mappings is refused from now on",
                    ),
                ),
                handover=Handover.CLOSE,
            )
