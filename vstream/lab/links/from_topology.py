"""The links of a topology as a lab makes them: times there and back become delays of each direction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lab.links.state import LinkState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vstream.lab.links.state import Pair
    from vstream.topology.model import Link

_NANOSECONDS = 10**9


def link_states(links: Iterable[Link]) -> Mapping[Pair, LinkState]:
    """The shape of *links*, in both directions of each."""
    return {pair: link_state(link) for link in links for pair in (link.between, link.between[::-1])}


def link_state(link: Link) -> LinkState:
    """What each direction of *link* is like."""
    return LinkState(delay=_each_way(link.rtt), jitter=_each_way(link.jitter), rate=link.rate, loss=link.loss)


def _each_way(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / _NANOSECONDS / 2
