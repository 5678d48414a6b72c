"""`vstream resolve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from vstream.cli import options
from vstream.cli.views.json_output import print_json

if TYPE_CHECKING:
    from vstream.topology.model import Topology, VirtualStream


def command(
    stream: Annotated[str, typer.Argument(help="The virtual stream.")],
    topology: options.TopologyFile = options.DEFAULT_FILE,
    region: Annotated[
        str | None, typer.Option("--region", help="Print only the stream that clients of this region read from.")
    ] = None,
    output: options.TextOrJson = "text",
) -> None:
    """
    Print the physical streams behind a virtual stream, region by region: what is published into, what is read from.

    Consumers are created on the one that is read from, by its own name: servers refuse to create one by
    the virtual name. Asks no server.

    Examples: `vstream resolve foo`, `nats consumer add $(vstream resolve foo --region west) worker`
    """
    from vstream.cli.views import resolve as view  # noqa: PLC0415
    from vstream.cli.views.console import stdout  # noqa: PLC0415
    from vstream.errors import UnknownNameError  # noqa: PLC0415

    wanted = options.load_topology(topology).require()
    found = next((one for one in wanted.streams if one.name == stream), None)
    if found is None:
        names = ", ".join(one.name for one in wanted.streams)
        raise UnknownNameError(f"there is no virtual stream `{stream}`", hint=f"there are {names}" if names else None)
    if region is not None and region not in found.regions:
        raise UnknownNameError(f"`{stream}` is not in region `{region}`", hint=f"it is in {', '.join(found.regions)}")
    places = [_place(wanted, found, one) for one in found.regions if region in {None, one}]
    if output == "json":
        print_json("resolve", {"regions": places})
    elif region is not None:
        typer.echo(places[0]["read"])
    else:
        stdout().print(view.table(places))


def _place(topology: Topology, stream: VirtualStream, region: str) -> dict[str, Any]:
    from vstream.topology import physical  # noqa: PLC0415

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
