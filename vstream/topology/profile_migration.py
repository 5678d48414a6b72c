"""
A topology that moves from `routing: mapped` to `accounts`: both layouts of its streams, side by side.

First clients use the old one (`moves_to`), then the new one (`moves_from`). Each read stream of the new one also
sources the old read stream of its region.
"""

from __future__ import annotations

from dataclasses import replace

from vstream.topology.model import Topology


def other_layout(topology: Topology) -> Topology | None:
    """*topology* in the layout that its clients do not use: the next or the former one. None if it does not move."""
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
    """*topology*, and the other layout if it moves."""
    second = other_layout(topology)
    return (topology,) if second is None else (topology, second)
