"""What every keeper of links does: read orders, follow them, and answer."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING

from vstream.lab.links import state
from vstream.lab.links.state import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vstream.lab.links.state import Links, Pair


def read_orders(place: Path) -> Links:
    """The orders for the lab at *place*. Raises OSError, ValueError, KeyError or TypeError if they cannot be read."""
    return state.decode((place / "links" / "links.json").read_text(encoding="utf-8"))


class Program(ABC):
    """Keeps the links of the lab at *place*, first as *links* says."""

    namespaces: Mapping[str, int] = {}
    cannot: tuple[str, ...] = ()

    def __init__(self, place: Path, links: Links) -> None:
        self._place = place
        self.links = links
        self._answered = 0
        self._failure: str | None = None

    @abstractmethod
    async def listen(self) -> None:
        """Listen at every front. Raises OSError if one is taken."""

    @abstractmethod
    def apply(self) -> None:
        """Do as `links` says. Raises OSError if that is not possible; then everything is as it was."""

    @abstractmethod
    def connections(self) -> Mapping[Pair, int]:
        """Open connections, by who dialed whom."""

    @property
    def refused(self) -> int:
        """Connections that belong to nobody."""
        return 0

    async def start(self) -> None:
        """Follow the first orders, and say so. Raises OSError if that is not possible."""
        self._follow(self.links)
        await self.listen()
        self.answer()

    def reread(self) -> None:
        """Do as the orders say by now, and answer."""
        try:
            wanted = read_orders(self._place)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._failure = f"{type(error).__name__}: {error}"
        else:
            self._follow(wanted)
        self.answer()

    def answer(self) -> None:
        """Say what is in effect, and what connects."""
        self._answered += 1
        answer = Answer(
            pid=os.getpid(),
            generation=self.links.generation,
            answered=self._answered,
            connections=self.connections(),
            refused=self.refused,
            failure=self._failure,
            namespaces=self.namespaces,
            cannot=self.cannot,
        )
        with suppress(OSError):  # a lab that is being removed
            state.replace_file(self._place / "links" / "answer.json", state.encode_answer(answer))

    def _follow(self, wanted: Links) -> None:
        before, self.links = self.links, wanted
        try:
            self.apply()
        except OSError as error:
            self._failure = error.strerror or str(error)
            self.links = before
        else:
            self._failure = None
