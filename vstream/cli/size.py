"""`vstream size`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Annotated, TypeVar

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from vstream.cli import options
from vstream.cli.exit_codes import NO
from vstream.cli.views import console
from vstream.cli.views.json_output import print_json
from vstream.health.sizing import Load, Sizing, estimate_size
from vstream.health.units import format_duration, format_size
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
        for part in describe_size(sizing):
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


_MEGA = 1e6
_PRECISE_BELOW_US = 10


def describe_size(sizing: Sizing) -> Iterator[RenderableType]:
    """Streams, places, and what the mapping rules cost."""
    streams = _stream_table(
        "each virtual stream", "stream", "in each region", "full copy", "between regions", "survives"
    )
    for stream in sizing.streams:
        reads = max((part.bytes for part in stream.parts), default=0.0)
        streams.add_row(
            stream.name,
            f"{stream.load.rate:,.4g}/s × {format_size(stream.load.size)}",
            format_size(reads) if math.isfinite(reads) else "no limit",
            f"{stream.crossing / _MEGA:,.3g} Mbit/s",
            _outage(stream.outage),
        )
    yield streams
    places = _stream_table("storage", "where", "needs", "grows without limit by", "has", "")
    for place in sizing.places:
        places.add_row(
            place.place,
            format_size(place.needs),
            f"{format_size(place.per_day)} a day" if place.per_day else "–",
            format_size(place.has),
            Text("✓", style="green") if place.fits else Text("✗ too little", style="bold red"),
        )
    yield places
    cost = sizing.rule_cost * _MEGA
    shown_cost = f"{cost:.2f}" if cost < _PRECISE_BELOW_US else f"{cost:,.0f}"
    crossing = sum(stream.crossing for stream in sizing.streams)
    yield Text(
        f"between regions {crossing / _MEGA:,.3g} Mbit/s · {sizing.rules:,} mapping rules: "
        f"about {shown_cost} µs for each message that a client publishes"
    )


def _outage(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return format_duration(seconds) if math.isfinite(seconds) else "any outage"


def _stream_table(title: str, *headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
