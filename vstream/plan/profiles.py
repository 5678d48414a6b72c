"""A live topology stays in the routing profile that it was made with: the streams of another have other names and accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.model.streams import REGION_KEY, ROUTING_KEY
from vstream.model.topology import Routing
from vstream.plan.changes import Blocked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vstream.model.artifacts import PhysicalStream
    from vstream.model.streams import ObservedStream

_MAPPED = Routing.MAPPED.value


def moved(desired: Sequence[PhysicalStream], owned: Mapping[str, ObservedStream]) -> tuple[Blocked, ...]:
    """Streams that the topology has in the layout of another `routing`: nothing may touch them."""
    routing = next((one.config.metadata.get(ROUTING_KEY) for one in desired), None)
    return tuple(
        Blocked(
            name=name,
            region=one.config.metadata.get(REGION_KEY),
            reason=f"it was made with `routing: {one.config.metadata.get(ROUTING_KEY, _MAPPED)}`, "
            f"the topology says `{routing or _MAPPED}`",
            hint="a live topology cannot move from one to the other: change it back, or begin with new servers",
        )
        for name, one in sorted(owned.items())
        if desired and one.config.metadata.get(ROUTING_KEY) != routing
    )
