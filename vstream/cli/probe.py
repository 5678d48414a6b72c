"""`vstream probe`."""

from __future__ import annotations

import typer

from vstream.cli import inputs


def command(topology: inputs.TopologyFile = inputs.DEFAULT_FILE) -> None:
    """Prove it."""
    raise typer.Exit(1)
