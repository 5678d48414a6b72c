"""Read streams that stand still, as values: a next leader asks their sources at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vstream.health.status import PairState, PairStatus
from vstream.syntax.document import Json
from vstream.value_class import value_class


@value_class
class Standstill:
    """A stream that sources nothing from an origin, or not the message that waits there."""

    virtual: str
    reader: str
    origins: tuple[str, ...]
    detail: str
    obstacle: str | None
    """Why it cannot be resumed from here, and what to do instead; None if it can."""

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "stream": self.virtual,
            "reader": self.reader,
            "origins": list(self.origins),
            "detail": self.detail,
            "blocked": self.obstacle,
        }


def find_standstills(
    pairs: Iterable[PairStatus], replicas: Mapping[str, int], stuck_after: float
) -> tuple[Standstill, ...]:
    """Readers of *pairs* that take nothing, or have not taken what has been waiting for *stuck_after* seconds."""
    stuck: dict[str, list[PairStatus]] = {}
    for pair in pairs:
        is_stuck = pair.state is PairState.BEHIND and pair.age is not None and pair.age > stuck_after
        if pair.state is PairState.SILENT or is_stuck:
            stuck.setdefault(pair.reader, []).append(pair)
    return tuple(_plan_standstill(stuck_pairs, replicas) for _, stuck_pairs in sorted(stuck.items()))


def _plan_standstill(pairs: Sequence[PairStatus], replicas: Mapping[str, int]) -> Standstill:
    obstacle = None
    if replicas.get(pairs[0].reader, 1) <= 1:
        obstacle = (
            "it has one replica, and no other server can lead it: it asks again by itself within two minutes, or "
            "when its server is restarted"
        )
    return Standstill(
        virtual=pairs[0].virtual,
        reader=pairs[0].reader,
        origins=tuple(pair.origin for pair in pairs),
        detail="; ".join(pair.detail for pair in pairs),
        obstacle=obstacle,
    )
