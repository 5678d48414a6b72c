"""`--link west-east:rtt=140ms`, and what else options say of links between regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeVar

import typer

from vstream.lab.links.choose import link_states
from vstream.lab.links.state import IDEAL, Direction, LinkState
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


def choose_shape(topology: Topology, options: Sequence[str]) -> Mapping[Direction, LinkState]:
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


def read_link(between: Direction, values: Mapping[str, str | None]) -> Link:
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
