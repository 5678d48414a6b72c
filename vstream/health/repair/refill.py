"""
A plan, as a value, to restore the lost end of a write stream.

Its readers have the lost messages. Published again in order, under their old sequences, they are where they were:
readers skip what they have, those that lacked them take them, and later messages are new to all.
"""

from __future__ import annotations

from collections.abc import Mapping

from vstream.health.status import PairState, Status
from vstream.syntax.document import Json
from vstream.value_class import value_class

_NAMED = 5


@value_class
class LostEnd:
    """A write stream that ends before messages that its readers have taken."""

    virtual: str
    origin: str
    place: str
    last: int
    """Its last sequence."""
    last_taken: int
    """The highest sequence that a reader has taken."""
    readers: tuple[str, ...]
    """Readers that are past its end, the furthest first."""


@value_class
class Copy:
    """A lost message, as a reader holds it. *subject* is the one that its publisher used."""

    seq: int
    subject: str
    headers: Mapping[str, str]
    data: bytes
    reader: str
    stored_at: str
    """When the reader stored it."""


@value_class
class Refill:
    """The lost end of one stream, and the messages to fill it with."""

    lost: LostEnd
    copies: tuple[Copy, ...]
    """In ascending order."""
    absent: tuple[int, ...]
    """Lost sequences that no reader holds: probes and limits remove messages."""
    filler: str | None
    """The canary subject on which empty messages fill gaps; None if the stream has none."""
    rewritten: int | None
    """The first sequence before the end that holds another message than its readers took; None if there is none."""

    @property
    def obstacle(self) -> str | None:
        """Why it cannot be repaired, and what to do instead; None if it can."""
        if self.rewritten is not None:
            return (
                f"from sequence {self.rewritten:,} to {self.lost.last:,} it holds other messages than its readers took: "
                "something was published after its end was lost, was acknowledged, and was skipped by them. Stop "
                "publishing; `vstream audit` names what is missing where. Publish those again under other message ids "
                f"once its sequence is past {self.lost.last_taken:,}"
            )
        if self.absent and self.filler is None:
            return (
                f"no reader holds {format_sequences(self.absent)}, and without a `canary` subject in the topology nothing "
                "can replace them. Give the stream one, or move its sequence forward yourself: "
                f"`nats stream purge --seq {self.lost.last_taken + 1}`, which drops what slower readers have not taken"
            )
        return None

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it, without payloads."""
        return {
            "stream": self.lost.virtual,
            "origin": self.lost.origin,
            "place": self.lost.place,
            "last_seq": self.lost.last,
            "taken": self.lost.last_taken,
            "readers": list(self.lost.readers),
            "copies": len(self.copies),
            "absent": list(self.absent),
            "blocked": self.obstacle,
        }


def find_lost_ends(status: Status) -> tuple[LostEnd, ...]:
    """The streams that have lost their end, by name."""
    ends: dict[str, LostEnd] = {}
    behind = [pair_behind for pair_behind in status.pairs if pair_behind.state is PairState.ROLLED_BACK]
    for pair in sorted(
        behind, key=lambda pair_behind: (pair_behind.origin, -(pair_behind.cursor or 0), pair_behind.reader)
    ):
        if pair.cursor is None or pair.last is None:
            continue
        before = ends.get(pair.origin)
        ends[pair.origin] = LostEnd(
            virtual=pair.virtual,
            origin=pair.origin,
            place=pair.origin_place,
            last=pair.last if before is None else max(before.last, pair.last),
            last_taken=pair.cursor if before is None else max(before.last_taken, pair.cursor),
            readers=(*(before.readers if before else ()), pair.reader),
        )
    return tuple(ends.values())


def format_sequences(sequences: tuple[int, ...]) -> str:
    """*sequences* in words: the first few, and how many more there are."""
    named = ", ".join(f"{seq:,}" for seq in sequences[:_NAMED])
    rest = f" and {len(sequences) - _NAMED:,} more" if len(sequences) > _NAMED else ""
    return f"sequence {named}" if len(sequences) == 1 else f"sequences {named}{rest}"
