"""`vstream size`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from vstream.cli import options
from vstream.cli.exit_codes import NO
from vstream.cli.views import console
from vstream.cli.views import size as view
from vstream.cli.views.json_output import print_json
from vstream.health.sizing import Load, estimate_size
from vstream.topology.units import parse_size

T = TypeVar("T")

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/(s|min|h|d))?")
_DEFAULT_RATE, _DEFAULT_SIZE = "100/s", "1KiB"
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
    Estimate what a topology needs at given rates. Asks no servers.

    Storage of each region against `jetstream.max_file`, bandwidth between regions, the
    longest outage that loses nothing, and what the mapping rules cost each message. An
    upper estimate: streams that are full, without compression. Assumes 100/s and 1KiB where
    `--rate` or `--size` is not given. Exits with 1 if a region has too little room.

    Examples: `vstream size --rate 500/s --size 1KiB`,
    `vstream size acme.yaml --rate 10/s --rate orders=2000/s --size 200B --size orders=4KiB`
    """
    loaded = options.load_topology(topology).require()
    names = [stream.name for stream in loaded.streams]
    rates = _by_stream("--rate", rate or [_DEFAULT_RATE], names, _parse_rate)
    sizes = _by_stream("--size", size or [_DEFAULT_SIZE], names, parse_size)
    for option, values in (("--rate", rates), ("--size", sizes)):
        missing = [name for name in names if name not in values]
        if missing:
            raise typer.BadParameter(f"no value for {', '.join(missing)}", param_hint=option)
    sizing = estimate_size(loaded, {name: Load(rate=rates[name], size=sizes[name]) for name in names})
    assumed = [] if rate else [f"{_DEFAULT_RATE} (--rate)"]
    assumed += [] if size else [f"{_DEFAULT_SIZE} (--size)"]
    if assumed:
        console.print_note(f"assumed for each stream in each region: {', '.join(assumed)}")
    if output == "json":
        print_json("size", sizing.as_dict())
    else:
        for part in view.text(sizing):
            console.stdout().print(part)
    if not sizing.fits:
        raise typer.Exit(NO)


def _by_stream(option: str, values: list[str], names: list[str], parse: Callable[[str], T]) -> dict[str, T]:
    """The values by stream: a value for one stream wins over a value for all."""
    general: dict[str, T] = {}
    special: dict[str, T] = {}
    for text in values:
        name, separator, value = text.rpartition("=")
        if separator and name not in names:
            raise typer.BadParameter(f"unknown stream `{name}`: expected one of {', '.join(names)}", param_hint=option)
        try:
            parsed = parse(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=option) from None
        if separator:
            special[name] = parsed
        else:
            general.update(dict.fromkeys(names, parsed))
    return general | special


def _parse_rate(text: str) -> float:
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` is not a valid rate: write it like `500/s`, `30/min` or `2000/h`")
    return float(match[1]) / _SECONDS[match[2]]
