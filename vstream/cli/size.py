"""`vstream size`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from vstream.cli import options
from vstream.cli.exit_codes import NO
from vstream.cli.views.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/(s|min|h|d))?")
_SECONDS = {None: 1, "s": 1, "min": 60, "h": 3600, "d": 86_400}


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    rate: Annotated[
        list[str] | None, typer.Option("--rate", help="[STREAM=]NUMBER[/s|min|h|d]: messages in each region.")
    ] = None,
    size: Annotated[list[str] | None, typer.Option("--size", help="[STREAM=]SIZE of one message.")] = None,
    output: options.TextOrJson = "text",
) -> None:
    """
    What a topology needs at stated rates. Asks no servers.

    Storage of each region against `jetstream.max_file`, bandwidth between regions, the
    longest outage that loses nothing, and what the mapping rules cost each message. An
    estimate from above: streams that are full, without compression. Exits with 1 if a
    region has too little room.

    Examples: `vstream size --rate 500/s --size 1KiB`,
    `vstream size acme.yaml --rate 10/s --rate orders=2000/s --size 200B --size orders=4KiB`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import size as view  # noqa: PLC0415
    from vstream.health.sizing import Load, estimate_size  # noqa: PLC0415
    from vstream.topology.units import parse_size  # noqa: PLC0415

    wanted = options.load_topology(topology).require()
    names = [stream.name for stream in wanted.streams]
    rates = _by_stream("--rate", rate or ["100/s"], names, _rate)
    sizes = _by_stream("--size", size or ["1KiB"], names, parse_size)
    for option, given in (("--rate", rates), ("--size", sizes)):
        missing = [name for name in names if name not in given]
        if missing:
            raise typer.BadParameter(f"nothing is said for {', '.join(missing)}", param_hint=option)
    found = estimate_size(wanted, {name: Load(rate=rates[name], size=sizes[name]) for name in names})
    if output == "json":
        print_json("size", found.as_dict())
    else:
        for part in view.text(found):
            console.stdout().print(part)
    if not found.fits:
        raise typer.Exit(NO)


def _by_stream(option: str, given: list[str], names: list[str], parse: Callable[[str], T]) -> dict[str, T]:
    """The values by stream: those that name one win over those that do not."""
    general: dict[str, T] = {}
    special: dict[str, T] = {}
    for text in given:
        name, separator, value = text.rpartition("=")
        if separator and name not in names:
            raise typer.BadParameter(f"`{name}` is none of {', '.join(names)}", param_hint=option)
        try:
            parsed = parse(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=option) from None
        if separator:
            special[name] = parsed
        else:
            general.update(dict.fromkeys(names, parsed))
    return general | special


def _rate(text: str) -> float:
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` is no rate: write it like `500/s`, `30/min` or `2000/h`")
    return float(match[1]) / _SECONDS[match[2]]
