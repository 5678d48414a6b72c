"""
A topology that moves from `routing: mapped` to `accounts`: both layouts of its streams, side by side.

First clients are in the old one (`moves_to`), then in the new one (`moves_from`). The read streams of the new one source
those of the old one besides, each that of its own region.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vstream.topology.model import Topology


def other_layout(topology: Topology) -> Topology | None:
    """*topology* in the layout that its clients are not in: the one that they will be in, or were in. None if it does not move."""
    if topology.moves_to is not None:
        streams = tuple(replace(stream, routing=topology.moves_to, follows_former=True) for stream in topology.streams)
        return replace(topology, routing=topology.moves_to, streams=streams)
    if topology.moves_from is not None:
        routing = topology.moves_from
        streams = tuple(
            replace(stream, routing=routing, is_former=True, follows_former=False) for stream in topology.streams
        )
        return replace(topology, routing=routing, streams=streams)
    return None


def layouts(topology: Topology) -> tuple[Topology, ...]:
    """*topology*, and what is beside it."""
    second = other_layout(topology)
    return (topology,) if second is None else (topology, second)
