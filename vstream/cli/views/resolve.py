"""The physical streams behind a virtual one, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def table(places: Sequence[Mapping[str, Any]]) -> Table:
    """One row for each region."""
    rows = Table(box=box.SIMPLE_HEAD)
    for column in ("region", "published into", "as", "read from"):
        rows.add_column(column, overflow="fold")
    for place in places:
        rows.add_row(place["region"], place["published_into"], "\n".join(place["subjects"]), place["read"])
    return rows
