"""What a topology needs, as tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from vstream.health.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from vstream.health.sizing import Sizing

_MEGA = 1e6
_PRECISE_BELOW_US = 10


def text(sizing: Sizing) -> Iterator[RenderableType]:
    """Streams, places, and what the mapping rules cost."""
    streams = _table("each virtual stream", "stream", "in each region", "full copy", "between regions", "survives")
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
    places = _table("storage", "where", "needs", "grows without limit by", "has", "")
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


def _table(title: str, *headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
