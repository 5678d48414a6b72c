"""Sizes: what a topology needs, and what comes of simulated outages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from vstream.formatting import format_count, format_duration, format_size
from vstream.health.simulation import OutageSimulation, Spread
from vstream.topology.sizing import Sizing

_MEGA_FACTOR = 1e6
_UNITS = (("Tbit", 1e12), ("Gbit", 1e9), ("Mbit", _MEGA_FACTOR))
_AT_MOST = "at most "
_PRECISE_BELOW_US = 10
_MIN_CORES = 0.01


def describe_size(sizing: Sizing) -> Iterator[RenderableType]:
    """Streams, places, and what the mapping rules cost."""
    streams = _render_stream_table(
        "each virtual stream", "stream", "in each region", "full copy", "between regions", "survives"
    )
    for stream in sizing.streams:
        reads = max((part.bytes for part in stream.parts), default=0.0)
        limit = _AT_MOST if any(part.is_at_most for part in stream.parts if part.bytes == reads) else ""
        endless = "by subjects" if limit else "no limit"
        streams.add_row(
            stream.name,
            f"{stream.load.rate:,.4g}/s × {format_size(stream.load.size)}",
            f"{limit}{format_size(reads)}" if math.isfinite(reads) else endless,
            _describe_traffic(stream.crossing),
            _format_outage(stream.outage),
        )
    yield streams
    places = _render_stream_table("storage", "where", "needs", "grows without limit by", "has", "")
    verdicts = {
        True: Text("✓", style="green"),
        False: Text("✗ too little", style="bold red"),
        None: Text("? depends on the number of subjects", style="bold yellow"),
    }
    for place in sizing.places:
        needs, per_day = format_size(place.bytes), place.bytes_per_day_without_limit
        growth = f"{format_size(per_day)} a day" if per_day else "–"
        places.add_row(
            place.place,
            f"{_AT_MOST}{needs}" if place.bytes_at_least < place.bytes else needs,
            f"{_AT_MOST}{growth}" if place.bytes_per_day_at_least < per_day else growth,
            format_size(place.bytes_available),
            verdicts[place.fits],
        )
    yield places
    cost = sizing.rule_cost * _MEGA_FACTOR
    shown_cost = f"{cost:.2f}" if cost < _PRECISE_BELOW_US else f"{cost:,.0f}"
    crossing = sum(stream.crossing for stream in sizing.streams)
    cores = f"about {sizing.idle_cores:,.2g}" if sizing.idle_cores >= _MIN_CORES else f"less than {_MIN_CORES}"
    yield Text(f"between regions {_describe_traffic(crossing)}")
    rules, sources = format_count(sizing.rules, "mapping rule"), format_count(sizing.sources, "source")
    yield Text(f"{rules}: about {shown_cost} µs for each message that a client publishes")
    yield Text(f"{sources}: {cores} cores of all servers together while nobody publishes")


def _describe_traffic(bits: float) -> str:
    """`17 Gbit/s`; *bits* are those of a second."""
    unit, size = next(((unit, size) for unit, size in _UNITS if bits >= size), _UNITS[-1])
    return f"{bits / size:,.3g} {unit}/s"


def _format_outage(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return format_duration(seconds) if math.isfinite(seconds) else "any outage"


def _render_stream_table(title: str, *headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


_MAX_PAIRS = 20
"""Kinds of pairs, the worst first; JSON has all."""


def describe_simulation(simulation: OutageSimulation) -> Iterator[RenderableType]:
    """Pairs of regions, what regions store, and what the servers hold for it."""
    title = f"in {format_duration(simulation.duration_s)}, from the best to the worst of what servers may do"
    pairs = _render_stream_table(
        title, "from", "to", "highest lag", "messages", "all there after healing", "lost", "first lost at"
    )
    for pair in simulation.pairs[:_MAX_PAIRS]:
        alike = f" and {pair.pairs_alike - 1:,} such pairs" if pair.pairs_alike > 1 else ""
        pairs.add_row(
            pair.origin,
            pair.reader + alike,
            _describe_spread(pair.lag_s, format_duration, "never"),
            _describe_spread(pair.lag_messages, "{:,.0f}".format, "–"),
            _describe_spread(pair.everywhere_after_healing_s, format_duration, "not in this time"),
            _describe_spread(pair.lost_messages, "{:,.0f}".format, "–"),
            _describe_spread(pair.first_loss_s, format_duration, "–"),
        )
    yield pairs
    least, most = (format_size(choose(simulation.stored_bytes.values())) for choose in (min, max))
    yield Text(
        f"published {simulation.published_messages:,.0f} messages, refused {simulation.refused_messages:,.0f} · each region stores {least} to {most} "
        f"in the end · between regions {format_size(simulation.crossed_bytes)}"
    )
    yield Text(
        f"the meta group has {simulation.meta_members:,} servers and assigns {simulation.meta_assets:,} streams; sources hold "
        f"{simulation.source_consumers:,} consumers, which it does not assign, each with a heartbeat a second when idle"
    )
    if simulation.not_simulated:
        yield Text(f"Not simulated, as they are not `virtual`: {', '.join(simulation.not_simulated)}", style="yellow")
    yield Text(
        "The model does not know servers' CPU and disks, consumers, loss on links, and slow elections.", style="dim"
    )


def _describe_spread(spread: Spread, describe: Callable[[float], str], never: str) -> str:
    low, high = (never if value is None else describe(value) for value in (spread.low, spread.high))
    return low if low == high else f"{low} to {high}"
