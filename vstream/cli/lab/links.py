"""`vstream lab link` and `vstream lab links`: the network between the regions of a lab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.lab.find import LabArgument, LabOption, the_lab
from vstream.cli.views.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vstream.lab.links.control import Traffic
    from vstream.lab.links.state import LinkState, Pair
    from vstream.topology.model import Link, Topology

T = TypeVar("T")

LinkOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--link",
        metavar="REGION-REGION:KEY=VALUE,…",
        help="A link between regions, over what the topology's `links` say: `west-east:rtt=140ms,loss=1%`. Repeatable.",
    ),
]


def link(
    one: Annotated[str, typer.Argument(metavar="REGION", help="A region.")],
    other: Annotated[str, typer.Argument(metavar="REGION", help="Another region.")],
    rtt: Annotated[
        str | None, typer.Option(help="The time there and back, such as 140ms; half of it each way.")
    ] = None,
    jitter: Annotated[str | None, typer.Option(help="How much later some of it is, at most, there and back.")] = None,
    rate: Annotated[str | None, typer.Option(help="Bits per second each way, such as 200mbit, or unlimited.")] = None,
    loss: Annotated[str | None, typer.Option(help="How many packets are lost each way, such as 1%.")] = None,
    one_way: Annotated[bool, typer.Option("--one-way", help="Only from the first region to the second.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="As the lab was started, first of all.")] = False,
    name: LabOption = None,
) -> None:
    """
    Change the link between two regions of a running lab, at once and until the lab stops.

    What is not given stays as it is. Cutting links is `vstream chaos partition`.

    Examples: `vstream lab link west east --rtt 140ms --jitter 2ms`, `vstream lab link west east --loss 5% --one-way`,
    `vstream lab link west east --reset`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import links as view  # noqa: PLC0415
    from vstream.lab.links import control  # noqa: PLC0415
    from vstream.lab.links.choose import link_state  # noqa: PLC0415

    wanted = link_state(stated((one, other), {"rtt": rtt, "jitter": jitter, "rate": rate, "loss": loss}))
    pairs = [(one, other)] if one_way else [(one, other), (other, one)]
    says_nothing = all(value is None for value in (rtt, jitter, rate, loss))
    if says_nothing and not reset:
        raise typer.BadParameter("say what to change: --rtt, --jitter, --rate, --loss or --reset")

    chosen = the_lab(name)

    async def change() -> control.Links:
        after = await control.reset(chosen, pairs) if reset else None
        return (
            after if after is not None and says_nothing else await control.change(chosen, dict.fromkeys(pairs, wanted))
        )

    after = run(change())
    for pair in pairs:
        console.print_note(f"{pair[0]} → {pair[1]}: {view.described(after.state(pair))}")


def links(name: LabArgument = None, output: options.TextOrJson = "text") -> None:
    """
    Show the links between the regions of a lab: what they are like, what cuts them, and what uses them.

    Examples: `vstream lab links`, `vstream lab links acme --format json`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import links as view  # noqa: PLC0415
    from vstream.lab.links import control as lab_links  # noqa: PLC0415

    chosen = the_lab(name, is_argument=True)
    known = lab_links.read(chosen)
    traffic = run(_traffic(chosen))
    if output == "json":
        print_json("lab-links", view.as_dict(chosen, known, traffic))
        return
    console.stdout().print(view.table(chosen, known, traffic))
    if known.backend is lab_links.Backend.NONE:
        console.print_note("The servers of this lab dial each other: its links cannot be changed.")
    elif traffic is None:
        console.print_note("Nothing makes these links now: the lab is not up.")


async def _traffic(name: str) -> Traffic | None:
    from vstream.errors import LabError  # noqa: PLC0415
    from vstream.lab.links import control  # noqa: PLC0415

    try:
        return await control.traffic(name)
    except LabError:
        return None


def shape(topology: Topology, options: Sequence[str]) -> Mapping[Pair, LinkState]:
    """The links of *topology*, with what `--link` says over them. Raises BadParameter."""
    from vstream.lab.links.choose import link_states  # noqa: PLC0415
    from vstream.lab.links.state import IDEAL  # noqa: PLC0415
    from vstream.topology import naming  # noqa: PLC0415

    found = dict(link_states(topology.links))
    regions = [region.name for region in topology.regions]
    for option in options:
        key, _, said = option.partition(":")
        ends = naming.link_ends(key, regions)
        if len(ends) != 1 or ends[0][0] == ends[0][1]:
            raise typer.BadParameter(
                f"`{key}` is not the link of two regions: write `--link WEST-EAST:rtt=140ms`, or WEST/EAST where names "
                f"contain `-`; regions: {', '.join(regions)}"
            )
        values = dict(_setting(option, one) for one in said.split(","))
        for pair, state in link_states([stated(ends[0], values)]).items():
            found[pair] = state.over(found.get(pair, IDEAL))
    return found


def _setting(option: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if key not in {"rtt", "jitter", "rate", "loss"} or not separator:
        raise typer.BadParameter(f"`{option}`: after the colon come rtt=…, jitter=…, rate=…, loss=…, with commas")
    return key, value


def stated(between: Pair, values: Mapping[str, str | None]) -> Link:
    """A link with what options say of it: `rtt`, `jitter`, `rate`, `loss`. Raises BadParameter."""
    from vstream.topology import units  # noqa: PLC0415
    from vstream.topology.model import Link  # noqa: PLC0415

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
