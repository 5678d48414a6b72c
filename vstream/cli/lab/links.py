"""`vstream lab link` and `vstream lab links`: the network between the regions of a lab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.lab_options import LabArgument, LabOption, SameLab, choose_lab, choose_name
from vstream.cli.link_options import read_link
from vstream.cli.views import console
from vstream.cli.views import lab as view
from vstream.cli.views.json_output import print_json
from vstream.errors import LabError
from vstream.lab.links import control
from vstream.lab.links.choose import link_state
from vstream.lab.links.control import Traffic
from vstream.lab.links.state import IDEAL, Backend, Direction, Links, LinkState


def link(
    near: Annotated[str, typer.Argument(metavar="REGION", help="A region.")],
    far: Annotated[str, typer.Argument(metavar="REGION", help="Another region.")],
    rtt: Annotated[str | None, typer.Option(help="Round-trip time, such as 140ms; half of it each way.")] = None,
    jitter: Annotated[str | None, typer.Option(help="Maximum jitter added to the round trip, such as 20ms.")] = None,
    rate: Annotated[str | None, typer.Option(help="Bits per second each way, such as 200mbit, or unlimited.")] = None,
    loss: Annotated[str | None, typer.Option(help="Packet loss each way, such as 1%.")] = None,
    one_way: Annotated[bool, typer.Option("--one-way", help="Only from the first region to the second.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="First go back to how the lab was started.")] = False,
    name: LabOption = None,
) -> None:
    """
    Change the link between two regions of a running lab, at once and until the lab stops.

    What is not given stays as it is. Cutting links is `vstream chaos partition`.

    Examples: `vstream lab link west east --rtt 140ms --jitter 2ms`, `vstream lab link west east --loss 5% --one-way`,
    `vstream lab link west east --reset`
    """
    shape = link_state(read_link((near, far), {"rtt": rtt, "jitter": jitter, "rate": rate, "loss": loss}))
    pairs = [(near, far)] if one_way else [(near, far), (far, near)]
    if shape == IDEAL and not reset:
        raise typer.BadParameter("say what to change: --rtt, --jitter, --rate, --loss or --reset")
    after = run(_change(choose_lab(name), pairs, shape, reset=reset))
    for pair in pairs:
        console.print_note(f"{pair[0]} → {pair[1]}: {view.describe_link(after.state(pair))}")


async def _change(lab: str, pairs: Sequence[Direction], shape: LinkState, *, reset: bool) -> Links:
    links = await control.restore_started_shape(lab, pairs) if reset else control.read_links(lab)
    return links if shape == IDEAL else await control.shape_links(lab, dict.fromkeys(pairs, shape))


def show_links(name: LabArgument = None, same: SameLab = None, output_format: options.TextOrJson = "text") -> None:
    """
    Show the links between the regions of a lab: their shape, what cuts them, and the connections over them.

    Examples: `vstream lab links`, `vstream lab links acme --format json`
    """
    chosen = choose_lab(choose_name(name, same), is_argument=True)
    lab_links = control.read_links(chosen)
    traffic = run(_measure_traffic(chosen))
    if output_format == "json":
        print_json("lab-links", view.links_as_dict(chosen, lab_links, traffic))
        return
    console.stdout().print(view.render_link_table(chosen, lab_links, traffic))
    if lab_links.backend is Backend.NONE:
        console.print_note("The servers of this lab dial each other: its links cannot be changed.")
    elif traffic is None:
        console.print_note("These links are not active: the lab is not running.")


async def _measure_traffic(name: str) -> Traffic | None:
    try:
        return await control.read_traffic(name)
    except LabError:
        return None
