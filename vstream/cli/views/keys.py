"""Text for `vstream keys`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.table import Table
from rich.text import Text

from vstream.render.environment import quote
from vstream.topology.permissions import Permissions


def render_keys(public: Mapping[str, str | None]) -> Table:
    """Each public key by its name; None for a key that is missing."""
    table = Table(box=None)
    table.add_column("key")
    table.add_column("public", overflow="fold", no_wrap=True)
    for name, key in public.items():
        table.add_row(name, Text(key) if key else Text("missing", style="bold red"))
    return table


def render_permissions(needed: Permissions) -> Iterator[str]:
    """The block of a user in a configuration of servers."""
    yield "permissions: {"
    for action, subjects in (("publish", needed.publish), ("subscribe", needed.subscribe)):
        yield f"  {action}: {{allow: ["
        yield from (f"    {quote(subject)}" for subject in subjects)
        yield "  ]}"
    yield "}"
