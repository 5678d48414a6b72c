"""The keys of operator mode as a table: what is public of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping


def table(public: Mapping[str, str | None]) -> Table:
    """Each key by its name; None for one that is missing."""
    found = Table(box=None)
    found.add_column("key")
    found.add_column("public", overflow="fold", no_wrap=True)
    for name, key in public.items():
        found.add_row(name, Text(key) if key else Text("missing", style="bold red"))
    return found
