"""The two consoles, and what every command prints the same way. Everything that is printed is cleaned here."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import Any, Protocol

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.segment import Segment
from rich.text import Text

from vstream.cli.exit_codes import UNKNOWN
from vstream.cli.views.cleaning import clean, clean_lines, clean_text, cut_text, fit_encoding
from vstream.errors import VstreamError


class Display(Protocol):
    """Something on the terminal that other output erases for a moment."""

    def start(self) -> None:
        """Show it."""

    def stop(self) -> None:
        """Erase it."""


_UNBOUNDED_COLUMNS = 200
"""Columns where nobody looks at a screen: tables must not be cut when they are piped."""


class CleanConsole(Console):
    """
    A console that obeys nothing in what it prints, and writes what its encoding can hold.

    A text is one line: a line break in it came with a foreign name and is escaped. Progress displays are erased before
    anything is printed: they share the terminal.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print each of *objects*; strings are not markup. One alone is broken between words where a terminal is narrow."""
        texts = [_to_one_line(printed) for printed in objects]
        if len(texts) == 1:
            texts, options = _wrap_line(texts[0], self), {"sep": "\n", **options}
        with _without_displays():
            super().print(*texts, **options)

    def on_broken_pipe(self) -> None:
        """End: an answer that nobody reads is not "no", with which Rich would end."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        if self.stderr:  # what is left in its buffer would fail once more when Python ends, with 120
            os.dup2(sys.stdout.fileno(), sys.stderr.fileno())
        raise SystemExit(UNKNOWN)

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
        console.width = _UNBOUNDED_COLUMNS
    elif console.is_dumb_terminal:
        console.size = ConsoleDimensions(*get_terminal_size())  # for which Rich takes 80 columns
    return console


def print_lines(lines: Iterable[Any]) -> None:
    """Print *lines*, texts or tables, each as it comes, as data."""
    for line in lines:
        stdout().print(line)


def _wrap_line(line: Any, screen: Console) -> list[Any]:
    """A text in as many lines as a terminal needs, broken between words, with its indentation; all else as it is."""
    if not isinstance(line, Text) or not screen.is_terminal or line.cell_len <= screen.width:
        return [line]
    indent = " " * (len(line.plain) - len(line.plain.lstrip(" ")))
    # Less two columns of more indentation, and two of spaces at the end.
    room, column, breaks = screen.width - len(indent) - 4, 0, [len(indent)]
    for word in re.finditer(r"\S+\s*", line.plain):
        if column and column + cell_len(word[0].rstrip()) > room:
            breaks.append(word.start())
            column = 0
        column += cell_len(word[0])
    first, *rest = line.divide(breaks)[1:]
    return [Text.assemble(indent, first), *(Text.assemble(indent, "  ", part) for part in rest)]


def stderr() -> Console:
    """Talk: progress, warnings, errors."""
    return CleanConsole(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


@dataclass(slots=True)
class _Log:
    """How what runs on speaks on standard error."""

    is_json: bool = False
    is_quiet: bool | None = None


_LOG = _Log()


def set_log(log_format: str, *, is_quiet: bool | None) -> None:
    """Notes are JSON objects if *log_format* is `json`. With *is_quiet*, only warnings and errors; if False, details, too."""
    _LOG.is_json = log_format == "json"
    _LOG.is_quiet = is_quiet


def print_note(text: str, *, style: str = "") -> None:
    """One line of talk, unless it is to be quiet."""
    if not _LOG.is_quiet:
        _print_at_level("info", text, style)


def print_warning(text: str, *, style: str = "yellow") -> None:
    """One line about what may be wrong."""
    _print_at_level("warning", text, style)


def print_problem(text: str) -> None:
    """One line about what is wrong, or why nothing was done."""
    _print_at_level("error", text, "bold red")


def _print_at_level(level: str, text: str, style: str) -> None:
    if _LOG.is_json:
        _print_log_line(level, text)
    else:
        stderr().print(Text(text, style=style))


def print_detail(text: str) -> None:
    """What only those want to know who asked for it with `--verbose`."""
    if _LOG.is_quiet is False:
        print_note(text, style="dim")


def _print_log_line(level: str, message: str, **more: str) -> None:
    line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "message": message, **more}
    stderr().print(Text(json.dumps(line, ensure_ascii=False)))


def print_error(error: VstreamError) -> None:
    """Why a command could not do its work, and what to do."""
    if _LOG.is_json:
        _print_log_line("error", error.message, **({"hint": error.hint} if error.hint else {}))
        return
    console = stderr()
    console.print(Text.assemble(("error: ", "bold red"), error.message))
    if error.hint:
        console.print(Text.assemble(("hint: ", "bold cyan"), error.hint))
