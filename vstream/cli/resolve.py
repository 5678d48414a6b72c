"""`vstream map --stream`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich import box
from rich.table import Table

from vstream.cli.views.console import stdout
from vstream.cli.views.json_output import print_json
from vstream.errors import UnknownNameError
from vstream.topology import naming, physical
from vstream.topology.model import Topology, VirtualStream


def print_places(topology: Topology, stream: str, region: str | None, *, is_json: bool) -> None:
    """
    Print the physical streams behind the virtual *stream*: a table, or the name alone by which clients in *region* read it.

    Raises UnknownNameError if *topology* has no such stream, or the stream is not in *region*.
    """
    virtual = next((candidate for candidate in topology.streams if candidate.name == stream), None)
    if virtual is None:
        names = ", ".join(candidate.name for candidate in topology.streams)
        raise UnknownNameError(f"there is no virtual stream `{stream}`", hint=f"there are {names}" if names else None)
    if region is not None and region not in virtual.regions:
        raise UnknownNameError(f"`{stream}` is not in region `{region}`", hint=f"it is in {', '.join(virtual.regions)}")
    places = [_describe_place(topology, virtual, name) for name in virtual.regions if region in {None, name}]
    if is_json:
        print_json("map-stream", {"regions": places})
    elif region is not None:
        typer.echo(naming.local_name(places[0]["read"]))
    else:
        stdout().print(region_table(places))


def _describe_place(topology: Topology, stream: VirtualStream, region: str) -> dict[str, Any]:
    origin = next(iter(stream.origin), None)
    into = physical.write_stream_in(stream, region)
    # The home of a homed stream has no mirror of it: there it is read itself.
    read = physical.read_stream_in(stream, region)
    return {
        "region": region,
        "published_into": into,
        "subjects": list(physical.write_subjects(topology, stream, origin or region)),
        "read": read,
    }


def region_table(places: Sequence[Mapping[str, Any]]) -> Table:
    """One row for each region."""
    rows = Table(box=box.SIMPLE_HEAD)
    for column in ("region", "published into", "as", "read from"):
        rows.add_column(column, overflow="fold")
    for place in places:
        rows.add_row(place["region"], place["published_into"], "\n".join(place["subjects"]), place["read"])
    return rows
