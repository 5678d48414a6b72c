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


def out() -> Console:
    """Data: what can be piped."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNBOUNDED
    return console


def talk() -> Console:
    """Talk: progress, warnings, errors."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def progress() -> Progress:
    """A progress display on stderr that disappears when it is done; nothing where stderr is no terminal."""
    console = talk()
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


def say(text: str, *, style: str = "") -> None:
    """One line of talk."""
    talk().print(Text(text, style=style))


def failure(error: VstreamError) -> None:
    """Why a command could not do its work, and the way out."""
    console = talk()
    console.print(Text.assemble(("error: ", "bold red"), error.message))
    if error.hint:
        console.print(Text.assemble(("hint: ", "bold cyan"), error.hint))
