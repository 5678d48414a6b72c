"""`--overlay`, for every command that reads a topology: a file with the differences of one environment."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

TOPOLOGY_VARIABLE = "VSTREAM_TOPOLOGY"
"""The environment variable of the topology's file: a command with it takes overlays too."""
OverlayFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--overlay",
        help="A file laid over the topology: maps are merged, other values replaced, `null` removes. Can be repeated.",
        envvar="VSTREAM_OVERLAY",
        metavar="FILE",
    ),
]
_chosen: list[Path] = []


def chosen_overlays() -> tuple[Path, ...]:
    """The files of `--overlay` that the command line of this process names, in order."""
    return tuple(_chosen)


def add_overlay_option(parameters: list[Any]) -> list[Any]:
    """*parameters* of a command, with `--overlay` if the command reads a topology."""
    if not any(parameter.envvar == TOPOLOGY_VARIABLE for parameter in parameters):
        return parameters
    return [*parameters[:-1], _make_option(), parameters[-1]]


def _make_option() -> Any:
    (option,) = (param for param in typer.main.get_command(_declaration).params if param.name == "overlay")
    option.expose_value = False
    option.callback = lambda _context, _parameter, value: choose_overlays(value)
    return option


def choose_overlays(paths: Iterable[Path] | None) -> None:
    """Lay the files *paths* over each topology that this process reads, in order."""
    _chosen[:] = [Path(path) for path in paths or ()]


_declaration = typer.Typer(add_completion=False)


@_declaration.command()
def _declare(overlay: OverlayFiles = None) -> None:
    """Exists for its option, which commands get without a parameter of their own."""
