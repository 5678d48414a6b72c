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


def text(found: Sizing) -> Iterator[RenderableType]:
    """Streams, places, and what the mapping rules cost."""
    streams = _table("each virtual stream", "stream", "in each region", "full copy", "between regions", "survives")
    for one in found.streams:
        reads = max((part.bytes for part in one.parts), default=0.0)
        streams.add_row(
            one.name,
            f"{one.load.rate:,.4g}/s × {format_size(one.load.size)}",
            format_size(reads) if math.isfinite(reads) else "no limit",
            f"{one.crossing / _MEGA:,.3g} Mbit/s",
            "–" if one.outage is None else format_duration(one.outage) if math.isfinite(one.outage) else "any outage",
        )
    yield streams
    places = _table("storage", "where", "needs", "grows without limit by", "has", "")
    for place in found.places:
        places.add_row(
            place.place,
            format_size(place.needs),
            f"{format_size(place.per_day)} a day" if place.per_day else "–",
            format_size(place.has),
            Text("✓", style="green") if place.fits else Text("✗ too little", style="bold red"),
        )
    yield places
    crossing = sum(one.crossing for one in found.streams)
    yield Text(
        f"between regions {crossing / _MEGA:,.3g} Mbit/s · {found.rules:,} mapping rules: "
        f"{found.rule_cost * _MEGA:,.3g} µs for each message of a client"
    )


def _table(title: str, *headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
