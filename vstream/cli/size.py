"""`vstream size`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Annotated, TypeVar

import typer

from vstream.cli import options
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.link_options import choose_shape
from vstream.cli.views import console
from vstream.cli.views import size as view
from vstream.cli.views.json_output import print_json
from vstream.health.simulation import simulate as simulate_outages
from vstream.health.source_retries import Away
from vstream.timing import SECOND_NS
from vstream.topology.model import Topology
from vstream.topology.sizing import Load, estimate_size
from vstream.topology.units import UNLIMITED, parse_duration, parse_size

T = TypeVar("T")

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/(s|min|h|d))?")
_DEFAULT_RATE, _DEFAULT_SIZE = "100/s", "1KiB"
_SECONDS_PER_UNIT = {None: 1, "s": 1, "min": 60, "h": 3600, "d": 86_400}


def command(
    file: options.TopologyFile = options.DEFAULT_FILE,
    rate: Annotated[
        list[str] | None, typer.Option("--rate", help="[STREAM=]NUMBER[/s|min|h|d]: messages in each region.")
    ] = None,
    size: Annotated[list[str] | None, typer.Option("--size", help="[STREAM=]SIZE of one message.")] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulate outages: lag, losses and storage. With the options below.")
    ] = False,
    kill: Annotated[
        list[str] | None, typer.Option("--kill-region", help="REGION=TIME@BEGIN: killed, such as west=30s@1m.")
    ] = None,
    isolate: Annotated[
        list[str] | None, typer.Option("--isolate", help="REGION=TIME@BEGIN: cut off from all others.")
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option("--link", help="REGION-REGION:rtt=…,rate=…, or all:…, over the topology's links."),
    ] = None,
    copies: Annotated[
        list[str] | None, typer.Option("--copies", help="[STREAM=]NUMBER: how many streams each one stands for.")
    ] = None,
    duration: Annotated[str, typer.Option("--duration", help="Length of the simulated time.")] = "10m",
    output_format: options.TextOrJson = "text",
) -> None:
    """
    Estimate what a topology needs at given rates. Asks no servers.

    Storage of each region against `jetstream.max_file`, bandwidth between regions, the
    longest outage that loses nothing, and what the mapping rules cost each message. An
    upper estimate: streams that are full, without compression. Assumes 100/s and 1KiB where
    `--rate` or `--size` is not given. Exits with 1 if a region has too little room, and with
    3 where `max_msgs_per_subject` decides it.

    Examples: `vstream size --rate 500/s --size 1KiB`,
    `vstream size acme.yaml --rate 10/s --rate orders=2000/s --size 200B --size orders=4KiB`,
    `vstream size --simulate --isolate west=30s@1m --link all:rtt=80ms,rate=50mbit`
    """
    topology = options.check_topology_file(file).require()
    names = [stream.name for stream in topology.streams]
    rates = _parse_by_stream("--rate", rate or [_DEFAULT_RATE], names, _parse_rate)
    sizes = _parse_by_stream("--size", size or [_DEFAULT_SIZE], names, parse_size)
    for option, values in (("--rate", rates), ("--size", sizes)):
        missing = [name for name in names if name not in values]
        if missing:
            raise typer.BadParameter(f"no value for {', '.join(missing)}", param_hint=option)
    loads = {name: Load(rate=rates[name], size=sizes[name]) for name in names}
    assumed = [] if rate else [f"{_DEFAULT_RATE} (--rate)"]
    assumed += [] if size else [f"{_DEFAULT_SIZE} (--size)"]
    if assumed:
        console.print_note(f"assumed for each stream in each region: {', '.join(assumed)}")
    outages = _parse_outages(topology, {"--kill-region": kill or [], "--isolate": isolate or []})
    if simulate:
        numbers = _parse_by_stream("--copies", copies or [], names, _parse_copies)
        links = choose_shape(topology, [part for text in link or () for part in _expand_link(topology, text)])
        seconds = _parse_seconds("--duration", duration)
        simulation = simulate_outages(topology, loads, numbers, outages, links, seconds)
        if output_format == "json":
            print_json("size-simulation", asdict(simulation))
        else:
            console.stdout().print(*view.describe_simulation(simulation), sep="\n")
        return
    if outages or link or copies:
        raise typer.BadParameter(
            "outages, links and copies are simulated only: add --simulate", param_hint="--simulate"
        )
    sizing = estimate_size(topology, loads)
    if output_format == "json":
        print_json("size", sizing.as_dict())
    else:
        console.print_lines(view.describe_size(sizing))
    exit_unless_yes(is_no=sizing.fits is False, is_unknown=sizing.fits is None)


def _parse_outages(topology: Topology, values: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[Away]]:
    """The outages by region, from the *values* by option."""
    regions = [region.name for region in topology.regions]
    outages: defaultdict[str, list[Away]] = defaultdict(list)
    for option, text in ((option, text) for option, texts in values.items() for text in texts):
        region, _, times = text.rpartition("=")
        lasts, separator, begins = times.partition("@")
        if region not in regions or not separator:
            raise typer.BadParameter(
                f"`{text}`: write REGION=TIME@BEGIN, such as `{regions[0]}=30s@1m`; regions: {', '.join(regions)}",
                param_hint=option,
            )
        start = _parse_seconds(option, begins)
        outages[region].append(Away(start, start + _parse_seconds(option, lasts), option == "--kill-region"))
    return outages


def _parse_seconds(option: str, text: str) -> float:
    try:
        if text != UNLIMITED:
            return parse_duration(text) / SECOND_NS
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    raise typer.BadParameter(f"`{text}` cannot be simulated: give an end, such as `1h`", param_hint=option)


def _expand_link(topology: Topology, text: str) -> list[str]:
    """The option `--link` as `vstream lab up` has it: `all:` stands for every pair of regions."""
    between, _, settings = text.partition(":")
    pairs = combinations([region.name for region in topology.regions], 2) if between == "all" else ()
    return [f"{west}/{east}:{settings}" for west, east in pairs] or [text]


def _parse_copies(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f"`{text}` is not a number of streams: write it like `10000`")
    return int(text)


def _parse_by_stream(option: str, values: list[str], names: list[str], parse: Callable[[str], T]) -> dict[str, T]:
    """The values by stream: a value for one stream wins over a value for all."""
    general: dict[str, T] = {}
    special: dict[str, T] = {}
    for text in values:
        name, separator, value = text.rpartition("=")
        if separator:
            options.choose_names("virtual stream", tuple(names), [name])
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
    return float(match[1]) / _SECONDS_PER_UNIT[match[2]]
