"""The two consoles, and what every command prints the same way. Everything that is printed is cleaned here."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from vstream.cli.views.cleaning import clean, clean_lines, clean_text, cut_text, fit_encoding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vstream.errors import VstreamError


class Display(Protocol):
    """Something on the terminal that other output erases for a moment."""

    def start(self) -> None:
        """Show it."""

    def stop(self) -> None:
        """Erase it."""


_UNBOUNDED = 200
"""Columns where nobody looks at a screen: tables must not be cut when they are piped."""


class CleanConsole(Console):
    """
    A console that obeys nothing in what it prints, and writes what its encoding can hold.

    A text is one line: a line break in it came with a foreign name and is escaped. Progress displays are erased before
    anything is printed: they share the terminal.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print each of *objects*; strings are not markup."""
        with _without_displays():
            super().print(*map(_to_one_line, objects), **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """A string in a table, whose cells may have several lines."""
        return super().render_str(clean_lines(text), **{**options, "markup": False})

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """The segments of *renderable*, cleaned."""
        if isinstance(renderable, Text):
            renderable = cut_text(renderable)
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(fit_encoding(clean_lines(segment.text), self.encoding), segment.style)


DISPLAYS: list[Display] = []
"""The progress displays that are on the terminal now."""


@contextmanager
def _without_displays() -> Iterator[None]:
    displays = list(DISPLAYS)
    for display in displays:
        display.stop()
    try:
        yield
    finally:
        for display in displays:
            display.start()


def _to_one_line(printed: Any) -> Any:
    if isinstance(printed, str):
        return Text(clean(printed))
    return clean_text(printed) if isinstance(printed, Text) else printed


def stdout() -> Console:
    """Data: what can be piped."""
    console = CleanConsole(highlight=False, soft_wrap=True, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNBOUNDED
    return console


def stderr() -> Console:
    """Talk: progress, warnings, errors."""
    return CleanConsole(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_note(text: str, *, style: str = "") -> None:
    """One line of talk."""
    stderr().print(Text(text, style=style))


def print_error(error: VstreamError) -> None:
    """Why a command could not do its work, and what to do."""
    console = stderr()
    console.print(Text.assemble(("error: ", "bold red"), error.message))
    if error.hint:
        console.print(Text.assemble(("hint: ", "bold cyan"), error.hint))
