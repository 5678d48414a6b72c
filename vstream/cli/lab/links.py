"""`vstream lab link` and `vstream lab links`: the network between the regions of a lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeVar

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.lab.options import LabArgument, LabOption, SameLab, choose_lab, choose_name
from vstream.cli.views import console
from vstream.cli.views import lab as view
from vstream.cli.views.json_output import print_json
from vstream.errors import LabError
from vstream.lab.links import control
from vstream.lab.links.choose import link_state, link_states
from vstream.lab.links.control import Traffic
from vstream.lab.links.state import IDEAL, Backend, Links, LinkState, Pair
from vstream.topology import naming, units
from vstream.topology.model import Link, Topology

T = TypeVar("T")

LinkOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--link",
        metavar="REGION-REGION:KEY=VALUE,…",
        help="A link between regions, over what the topology's `links` say: `west-east:rtt=140ms,loss=1%`. Can be repeated.",
    ),
]


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


async def _change(lab: str, pairs: Sequence[Pair], shape: LinkState, *, reset: bool) -> Links:
    links = await control.restore_started_shape(lab, pairs) if reset else control.read_links(lab)
    return links if shape == IDEAL else await control.shape_links(lab, dict.fromkeys(pairs, shape))


def links(name: LabArgument = None, same: SameLab = None, output: options.TextOrJson = "text") -> None:
    """
    Show the links between the regions of a lab: their shape, what cuts them, and the connections over them.

    Examples: `vstream lab links`, `vstream lab links acme --format json`
    """
    chosen = choose_lab(choose_name(name, same), is_argument=True)
    lab_links = control.read_links(chosen)
    traffic = run(_measure_traffic(chosen))
    if output == "json":
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


def choose_shape(topology: Topology, options: Sequence[str]) -> Mapping[Pair, LinkState]:
    """The links of *topology*, with what `--link` says over them. Raises BadParameter."""
    states = dict(link_states(topology.links))
    regions = [region.name for region in topology.regions]
    for option in options:
        key, _, settings = option.partition(":")
        ends = naming.link_ends(key, regions)
        if len(ends) != 1 or ends[0][0] == ends[0][1]:
            raise typer.BadParameter(
                f"`{key}` is not a link between two regions: write `--link WEST-EAST:rtt=140ms`, or WEST/EAST "
                "where names "
                f"contain `-`; regions: {', '.join(regions)}"
            )
        values = dict(_parse_setting(option, setting) for setting in settings.split(","))
        for pair, state in link_states([read_link(ends[0], values)]).items():
            states[pair] = state.layer_over(states.get(pair, IDEAL))
    return states


def _parse_setting(option: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if key not in {"rtt", "jitter", "rate", "loss"} or not separator:
        raise typer.BadParameter(
            f"`{option}`: after the colon write rtt=…, jitter=…, rate=… or loss=…, separated by commas"
        )
    return key, value


def read_link(between: Pair, values: Mapping[str, str | None]) -> Link:
    """A link with what options say of it: `rtt`, `jitter`, `rate`, `loss`. Raises BadParameter."""
    return Link(
        between=between,
        rtt=_read(units.parse_link_time, values.get("rtt")),
        jitter=_read(units.parse_link_time, values.get("jitter")),
        rate=_read(units.parse_rate, values.get("rate")),
        loss=_read(units.parse_share, values.get("loss")),
    )


def _read(parse: Callable[[str], T], text: str | None) -> T | None:
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
