"""The two consoles, and what every command prints the same way."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

if TYPE_CHECKING:
    from vstream.errors import VstreamError


_UNBOUNDED = 200
"""Columns where nobody looks at a screen: tables must not be cut when they are piped."""


def stdout() -> Console:
    """Data: what can be piped."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNBOUNDED
    return console


def stderr() -> Console:
    """Talk: progress, warnings, errors."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def progress_bar() -> Progress:
    """A progress display on stderr that disappears when it is done; nothing where stderr is no terminal."""
    console = stderr()
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def print_note(text: str, *, style: str = "") -> None:
    """One line of talk."""
    stderr().print(Text(text, style=style))


def print_error(error: VstreamError) -> None:
    """Why a command could not do its work, and the way out."""
    console = stderr()
    console.print(Text.assemble(("error: ", "bold red"), error.message))
    if error.hint:
        console.print(Text.assemble(("hint: ", "bold cyan"), error.hint))
