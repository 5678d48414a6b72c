"""
Repair plans, as values: what makes streams source from each other again.

A read stream that stands still is resynced: its next leader asks its sources at once. A write stream that has lost its end
is refilled from its readers, which have the lost messages. Published again in order, under their old sequences, they
are where they were: readers skip what they have, those that lacked them take them, and later messages are new to all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from vstream.health.status import AssessedPair, PairState
from vstream.jetstream.direct import DirectMessage
from vstream.syntax.document import Json
from vstream.value_class import value_class

_MAX_NAMED = 5


@value_class
class Leftover:
    """What an interrupted repair has left: a stream, and those that source it."""

    stream: str
    exists: bool
    readers: tuple[str, ...]
    is_running: bool
    """Whether the repair that created it still runs."""

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return asdict(self)


@value_class
class Standstill:
    """A stream that sources nothing from an origin, or not the message that waits there."""

    virtual: str
    reader: str
    origins: tuple[str, ...]
    detail: str
    obstacle: str | None
    """Why it cannot be resynced from here, and what to do instead; None if it can."""

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "stream": self.virtual,
            "reader": self.reader,
            "origins": list(self.origins),
            "detail": self.detail,
            "blocked": self.obstacle,
        }


def find_standstills(pairs: Iterable[AssessedPair], replicas: Mapping[str, int]) -> tuple[Standstill, ...]:
    """Readers of *pairs* that take nothing, or not what has been waiting for long. *replicas* is how many each has."""
    stopped: dict[str, list[AssessedPair]] = {}
    for pair in pairs:
        if pair.state is PairState.SILENT or pair.is_stuck:
            stopped.setdefault(pair.reader, []).append(pair)
    return tuple(_plan_standstill(stopped_pairs, replicas) for _, stopped_pairs in sorted(stopped.items()))


def _plan_standstill(pairs: Sequence[AssessedPair], replicas: Mapping[str, int]) -> Standstill:
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
class HeldMessage:
    """A lost *message*, as *reader* holds it, and the sequence *seq* that it had in its origin."""

    seq: int
    reader: str
    message: DirectMessage


@value_class
class Refill:
    """The lost end of one stream, and the messages to fill it with."""

    lost: LostEnd
    messages: tuple[HeldMessage, ...]
    """In ascending order."""
    absent: tuple[int, ...]
    """Lost sequences that no reader holds: probes and limits remove messages."""
    filler: str | None
    """The canary subject on which empty messages fill gaps; None if the stream has none."""
    first_conflict: int | None
    """The first sequence before the end that holds another message than its readers took; None if there is none."""

    @property
    def obstacle(self) -> str | None:
        """Why it cannot be repaired, and what to do instead; None if it can."""
        if self.first_conflict is not None:
            return (
                f"from sequence {self.first_conflict:,} to {self.lost.last:,} it holds other messages than its readers took: "
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
            "copies": len(self.messages),
            "absent": list(self.absent),
            "blocked": self.obstacle,
        }


def find_lost_ends(pairs: Iterable[AssessedPair]) -> tuple[LostEnd, ...]:
    """The origins of *pairs* that have lost their end, by name."""
    past_end: dict[str, list[tuple[int, int, AssessedPair]]] = {}
    for pair in pairs:
        if pair.state is PairState.ROLLED_BACK and pair.cursor is not None and pair.last is not None:
            past_end.setdefault(pair.origin, []).append((pair.cursor, pair.last, pair))
    ends: list[LostEnd] = []
    for origin, positions in sorted(past_end.items()):
        positions.sort(key=lambda position: (-position[0], position[2].reader))
        (last_taken, _, furthest), lasts = positions[0], [last for _, last, _ in positions]
        ends.append(
            LostEnd(
                virtual=furthest.virtual,
                origin=origin,
                place=furthest.origin_place,
                last=max(lasts),
                last_taken=last_taken,
                readers=tuple(pair.reader for _, _, pair in positions),
            )
        )
    return tuple(ends)


def format_sequences(sequences: tuple[int, ...]) -> str:
    """*sequences* in words: the first few, and how many more there are."""
    named = ", ".join(f"{seq:,}" for seq in sequences[:_MAX_NAMED])
    rest = f" and {len(sequences) - _MAX_NAMED:,} more" if len(sequences) > _MAX_NAMED else ""
    return f"sequence {named}" if len(sequences) == 1 else f"sequences {named}{rest}"


@value_class
class SourcingRepairs:
    """What keeps streams from sourcing each other, and what to do about it."""

    leftovers: tuple[Leftover, ...] = ()
    standstills: tuple[Standstill, ...] = ()
    refills: tuple[Refill, ...] = ()
    unknown: tuple[AssessedPair, ...] = ()
    """Pairs with unknown state."""
    silent: tuple[AssessedPair, ...] = ()
    """Pairs in which a reader takes nothing, where `resync` was not asked for."""


@value_class
class RepairedSourcing:
    """What was done about `SourcingRepairs`, and what was not."""

    cleared: tuple[Leftover, ...] = ()
    resynced: tuple[Standstill, ...] = ()
    """Those that have everything again."""
    refilled: tuple[Refill, ...] = ()
    still_open: tuple[str, ...] = ()
    """What remains, in words."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of what was repaired."""
        return (
            *(leftover.stream for leftover in self.cleared),
            *(standstill.reader for standstill in self.resynced),
            *(refill.lost.origin for refill in self.refilled),
        )
