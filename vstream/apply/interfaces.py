"""
What carrying out a plan needs from the world, and nothing more.

`vstream.apply.pipeline` says what does it on servers: `JetStreamAdmin`, `LiveGateChecker`, `LivePositionReader`, `LabServerAdmin`, and what
`vstream.apply.mappings` chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from vstream.plan.model import Gate
from vstream.topology.consumer_config import ConsumerConfig
from vstream.topology.stream_config import StreamConfig
from vstream.value_class import value_class


class StreamAdmin(Protocol):
    """
    Changes streams and consumers.

    Each method raises ServerError if the servers refuse (nothing has changed), and
    NotReachableError if there was no answer (it may have happened).
    """

    async def create(self, config: StreamConfig) -> None:
        """
        Create a stream. Creating one that exists with this very configuration succeeds and changes nothing.

        Clusters of servers before 2.15 do that too, but never answer where the stream has sources (2.10 to 2.14.6).
        """

    async def update(self, config: StreamConfig) -> None:
        """Give a stream this whole configuration."""

    async def read(self, name: str) -> StreamConfig:
        """The configuration that a stream has now."""

    async def delete(self, name: str) -> None:
        """Delete a stream and its messages."""

    async def forget(self, name: str) -> None:
        """Delete a stream that no server answers for, and return once the meta group does not know it any more."""

    async def create_consumer(self, config: ConsumerConfig) -> None:
        """Create a durable. Creating one that exists with this very configuration succeeds and changes nothing."""

    async def update_consumer(self, config: ConsumerConfig) -> None:
        """Give a durable this whole configuration."""

    async def delete_consumer(self, config: ConsumerConfig) -> None:
        """Delete a durable, and with it its position."""


class MappingAdmin(Protocol):
    """Makes every server load the topology's mappings."""

    async def ensure_loaded(self) -> None:
        """Load them, and return when every server has. Raises VstreamError if one has not."""


class ServerAdmin(Protocol):
    """Ends servers that the topology no longer has."""

    async def retire(self, servers: Sequence[str]) -> None:
        """
        Stop *servers*, and remove them from the JetStream meta group; those that are gone already too.

        Raises VstreamError if they still run or vote.
        """


class ReaderAdmin(Protocol):
    """Makes streams take from others again."""

    async def resync(self, readers: Sequence[str]) -> tuple[str, ...]:
        """
        Make *readers* ask at once for what they take, and return once all of them have been heard of, or time is up.

        Returns a sentence for each that is not known to take again: it does by itself, within two minutes. Raises VstreamError.
        """


class GateChecker(Protocol):
    """Asks streams. Each method raises VstreamError for what can never be told."""

    async def find_missing(self, gate: Gate) -> str | None:
        """
        What *gate* still lacks; None if it holds. What does not answer is lacking.

        Raises VstreamError, too, for REPLICAS_ARE_COMPLETE if a replica goes on lacking what its leader begins with.
        """

    async def push(self, gate: Gate) -> None:
        """Where it is MOVE_IS_RECORDED, have a server that lacks it record it: it leads the meta group for a moment."""

    async def leader(self, stream: str) -> str | None:
        """The server that leads *stream*; None if nobody says so."""

    async def note_before_move(self, stream: str) -> Mapping[int, str]:
        """
        Note the servers and some of the messages of *stream*, which is to move: afterwards, these must be there.

        Returns when the first and the last of these messages were stored, by sequence; nothing if that cannot be asked.
        """


class PositionReader(Protocol):
    """Measures how far streams and consumers have come. Each method raises VstreamError for what can never be measured."""

    async def start_sequences(self, reader: str) -> Mapping[str, int]:
        """The sequences with which sources of *reader* continue: those recorded when it stopped, and what came after."""

    async def sequence_after(self, origin: str, readers: Sequence[str]) -> int:
        """The sequence after the last one that any of *readers* has taken of a stream *origin*, which is gone."""

    async def sequences_after_mirrors(self, origins: Sequence[str], mirrors: Sequence[str]) -> Mapping[str, int]:
        """By origin, the sequence after the last one in the furthest of *mirrors*: all that is left of what sourced *origins*."""

    async def end_sequences(self, reader: str) -> Mapping[str, int]:
        """As `start_sequences`, for a *reader* that has not stopped."""

    async def last_taken(self, reader: str, ends: Mapping[str, tuple[int, int]]) -> Mapping[str, int]:
        """
        The last sequence that *reader* has taken of each of *ends*, which it sources no more.

        *ends* says how far it was in each, and its own last sequence before that was measured.
        """

    async def ack_floor(self, stream: str, durable: str) -> int:
        """The sequence up to which everything that *durable* of *stream* delivers was acknowledged."""


class LeftToOthers(Enum):
    """Stands for whoever does what vstream does not: then that part of a plan is skipped."""

    LEFT = "left to others"


LEFT_TO_OTHERS = LeftToOthers.LEFT


@value_class
class Administration:
    """Who does what a plan asks for."""

    streams: StreamAdmin
    checker: GateChecker
    positions: PositionReader
    mappings: MappingAdmin | LeftToOthers
    """Left to whoever runs the servers, if only they can make them load mappings: what waits for these is skipped, too."""
    servers: ServerAdmin | LeftToOthers
    """Left to their owners, where servers that leave are not vstream's: they go on."""
    readers: ReaderAdmin | LeftToOthers
    """Left to themselves, where nobody resyncs the readers of moved streams."""
