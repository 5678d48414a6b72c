"""Those commands of `vstream chaos` that are about the links between regions."""

from __future__ import annotations

from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.chaos import common
from vstream.lab.links.state import Cut

How = Annotated[
    Cut, typer.Option("--how", help="reset: connections break, at once. drop: nothing arrives, and nobody is told.")
]


def partition(
    sides: Annotated[list[str], typer.Argument(help='The sides, as "west | central,east".', metavar="SIDES")],
    how: How = Cut.RESET,
    one_way: Annotated[bool, typer.Option("--one-way", help="Cut only what the first side sends.")] = False,
    topology: common.TopologyFile = options.DEFAULT_FILE,
    hold: common.Hold = None,
    force: common.Force = False,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Cut the links between regions. What is not named keeps its links. Needs a lab with links, as labs are by default.

    Examples: `vstream chaos partition "west | central,east" --for 30s`, `vstream chaos partition west east --how drop`
    """
    from vstream.chaos import select  # noqa: PLC0415

    texts = " ".join(sides).split("|") if any("|" in side for side in sides) else sides
    shown = " | ".join(text.strip() for text in texts)
    job = common.job(topology, lab, f"partition {shown}{_said(how, one_way)}", output, force=force)
    job.cut(select.between(select.sides(job.site, texts), one_way=one_way), how, hold, timeout)


def isolate(
    region: Annotated[str, typer.Argument(help="The region.")],
    how: How = Cut.RESET,
    topology: common.TopologyFile = options.DEFAULT_FILE,
    hold: common.Hold = None,
    force: common.Force = False,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Cut a region off from all others.

    Example: `vstream chaos isolate west --for 30s`
    """
    from vstream.chaos import select  # noqa: PLC0415

    job = common.job(topology, lab, f"isolate {region}{_said(how)}", output, force=force)
    job.cut(select.around(job.site, (region,)), how, hold, timeout)


def link(
    one: Annotated[str, typer.Argument(help="A region.", metavar="REGION")],
    other: Annotated[str, typer.Argument(help="Another region.", metavar="REGION")],
    rtt: Annotated[str | None, typer.Option(help="The time there and back, such as 140ms.")] = None,
    jitter: Annotated[str | None, typer.Option(help="How much later some of it is, at most, there and back.")] = None,
    rate: Annotated[str | None, typer.Option(help="Bits per second each way, such as 200mbit.")] = None,
    loss: Annotated[str | None, typer.Option(help="How many packets are lost each way, such as 5%.")] = None,
    topology: common.TopologyFile = options.DEFAULT_FILE,
    hold: common.Hold = None,
    force: common.Force = False,
    timeout: common.Timeout = common.HEAL_TIMEOUT,
    lab: options.LabName = None,
    output: common.Format = "text",
) -> None:
    """
    Make the link between two regions worse, until it is healed. `vstream lab link` changes it for good.

    Example: `vstream chaos link west east --rtt 140ms --loss 5% --for 1m`
    """
    from vstream.chaos import select  # noqa: PLC0415
    from vstream.chaos.links import LinkShape  # noqa: PLC0415
    from vstream.cli.lab import links  # noqa: PLC0415
    from vstream.lab.links.choose import link_state  # noqa: PLC0415

    given = {"rtt": rtt, "jitter": jitter, "rate": rate, "loss": loss}
    said = "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
    if not said:
        raise typer.BadParameter("say what to change: --rtt, --jitter, --rate or --loss")
    wanted = link_state(links.stated((one, other), given))
    job = common.job(topology, lab, f"link {one} {other}{said}", output, force=force)
    job.take(LinkShape(states=dict.fromkeys(select.link(job.site, one, other), wanted)), hold, timeout)


def _said(how: Cut, one_way: bool = False) -> str:
    return f"{'' if how is Cut.RESET else f' --how {how.value}'}{' --one-way' if one_way else ''}"
