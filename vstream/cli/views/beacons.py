"""The ages of beacons as a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from vstream.health.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.health.snapshot import BeaconSighting


def matrix(regions: Sequence[str], seen: Sequence[BeaconSighting]) -> Table:
    """From where → found in: the age of the newest beacon, the oldest of all streams."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title="newest beacon: published in → found in",
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    table.add_column("", overflow="fold")
    for region in regions:
        table.add_column(region, overflow="fold")
    by_pair: dict[tuple[str, str], list[BeaconSighting]] = {}
    for sighting in seen:
        by_pair.setdefault((sighting.origin, sighting.reader), []).append(sighting)
    for origin in regions:
        cells = [_cell(by_pair.get((origin, reader), ())) for reader in regions]
        table.add_row(Text(origin, style="bold"), *cells)
    return table


def _cell(sightings: Sequence[BeaconSighting]) -> Text:
    if not sightings:
        return Text("·", style="dim")
    missing = [sighting for sighting in sightings if sighting.age is None]
    if missing:
        # Why nobody answers is said elsewhere: a cell has no room for it.
        return Text("there is none" if missing[0].is_absent else "? no answer", style="yellow")
    return Text(format_duration(max(sighting.age or 0.0 for sighting in sightings)))
