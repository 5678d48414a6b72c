"""What the lexer tells the parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from vstream.syntax.natsconf.scalars import Scanned


class Sink(Protocol):
    """Takes the events of a text, in the order of the text; *start* and *end* are offsets in it."""

    def key(self, key: str, start: int, end: int) -> None:
        """Take a key; its value comes later, or never."""

    def string(self, value: str, start: int, end: int) -> None:
        """Take a string."""

    def scalar(self, scanned: Scanned, start: int) -> None:
        """Take any other value, or a variable."""

    def include(self, path: str, start: int, end: int) -> None:
        """Take an include directive; *start* and *end* are those of the path."""

    def open(self, start: int, *, is_map: bool) -> None:
        """Begin a map or an array."""

    def close(self, end: int) -> None:
        """End the innermost map or array."""

    def comment(self, text: str, start: int, end: int) -> None:
        """Take a comment; *text* is without its `#` or `//`."""

    def error(self, message: str, hint: str, start: int, end: int) -> None:
        """Take what makes the server refuse the text."""

    def warning(self, message: str, hint: str, start: int, end: int) -> None:
        """Take what the server accepts, but hardly as it was meant."""
