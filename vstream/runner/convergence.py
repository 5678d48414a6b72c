"""
Whether every stream holds everything that its sources hold.

`lag: 0` is no proof: servers report it for a lost source, too. What counts is how far a stream has come in each source.
Servers from 2.15 report that in STREAM.INFO; otherwise it is in the last messages taken from the source.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vstream.errors import NotReachableError, VstreamError
from vstream.jetstream.answers import api_error
from vstream.jetstream.message_reader import read_messages
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.jetstream.source_header import origin_of, read_positions
from vstream.topology import naming
from vstream.topology.bundle import RenderedStream

_POLL_SECONDS = 0.2
_REQUEST_TIMEOUT = 2.0
_TAIL_MESSAGES = 500
"""Messages read from the end of a stream at first; the number doubles."""
_SETTLED_LOOKS = 3
"""How often a write stream must be unchanged before it counts as quiet."""


@dataclass(slots=True)
class _Reader:
    """What is known of one stream that takes from others."""

    stream: RenderedStream
    reached: dict[str, int] = field(default_factory=dict)
    looked_to: int = 0

    @property
    def sources(self) -> Sequence[str]:
        mirrored = self.stream.config.mirror_name
        return self.stream.config.source_names if mirrored is None else [mirrored]


class ConvergenceWait:
    """Asks *streams* over *connections*, by region: each where it lives, else anywhere."""

    def __init__(self, streams: Sequence[RenderedStream], connections: Mapping[str, ReconnectingConnection]) -> None:
        self._connections = connections
        self._places = {stream.config.name: stream.region for stream in streams}
        self._readers = [reader for reader in map(_Reader, streams) if reader.sources]

    async def wait_until_reached(self, *, within: float) -> None:
        """
        Wait until everything that the sources hold now is everywhere.

        Raises VstreamError, with what is missing, after *within* seconds.
        """
        deadline = time.monotonic() + within
        await self._wait_until_copied(await self._read_ends(deadline), deadline)

    async def wait_until_settled(self, *, within: float) -> None:
        """Like `wait_until_reached`, after publishing has ended: later messages count too."""
        deadline, before, quiet = time.monotonic() + within, None, 0
        while quiet < _SETTLED_LOOKS:
            ends = await self._read_ends(deadline)
            await self._wait_until_copied(ends, deadline)
            quiet = quiet + 1 if ends == before else 0
            before = ends
            await asyncio.sleep(_POLL_SECONDS)

    async def _read_ends(self, deadline: float) -> dict[str, int]:
        """The last sequence of each source that holds anything. Raises NotReachableError if one does not answer in time."""
        names = list(dict.fromkeys(name for reader in self._readers for name in reader.sources))
        last: dict[str, int] = {}
        while missing := [name for name in names if name not in last]:
            for name, info in zip(missing, await asyncio.gather(*map(self._read_info, missing)), strict=True):
                if info is not None:
                    state = info["state"]
                    last[name] = int(state["last_seq"]) if state["messages"] else 0
            if len(last) < len(names):
                if time.monotonic() > deadline:
                    silent = ", ".join(name for name in names if name not in last)
                    raise NotReachableError(f"nobody answers for {silent}")
                await asyncio.sleep(_POLL_SECONDS)
        return last

    async def _wait_until_copied(self, ends: Mapping[str, int], deadline: float) -> None:
        while True:
            lags = await asyncio.gather(*(self._list_lags(reader, ends) for reader in self._readers))
            behind = [text for texts in lags for text in texts]
            if not behind:
                return
            if time.monotonic() > deadline:
                raise VstreamError("; ".join(behind))
            await asyncio.sleep(_POLL_SECONDS)

    async def _list_lags(self, reader: _Reader, ends: Mapping[str, int]) -> list[str]:
        """What *reader* still lacks of *ends*."""
        name = reader.stream.config.name
        if self._list_lacking(reader, ends):
            info = await self._read_info(name)
            if info is None:
                return [f"nobody answers for {name}"]
            last = int(info["state"]["last_seq"])
            if (mirrored := reader.stream.config.mirror_name) is not None:
                reader.reached[mirrored] = last  # a mirror keeps sequences
            for source, seq in read_positions(info, name).items():
                self._advance(reader, source, seq)
            if self._list_lacking(reader, ends):
                await self._read_positions_from_messages(reader, last, ends)
        lines = []
        for source in self._list_lacking(reader, ends):
            lines.append(f"{name} has {source} up to {reader.reached.get(source, 0)} of {ends[source]}")
        return lines

    @staticmethod
    def _list_lacking(reader: _Reader, ends: Mapping[str, int]) -> list[str]:
        return [source for source in reader.sources if reader.reached.get(source, 0) < ends[source]]

    @staticmethod
    def _advance(reader: _Reader, source: str, seq: int) -> None:
        reader.reached[source] = max(seq, reader.reached.get(source, 0))

    async def _read_positions_from_messages(self, reader: _Reader, last: int, ends: Mapping[str, int]) -> None:
        """Find in the messages themselves how far *reader* has come."""
        start, tail = reader.looked_to, _TAIL_MESSAGES
        while last > reader.looked_to:
            first = start + 1 if start else max(1, last - tail + 1)
            seen: set[str] = set()
            try:
                async for message in read_messages(
                    self._choose_connection(reader.stream.config.name),
                    reader.stream.config.name,
                    from_seq=first,
                    headers_only=True,
                    patience=_REQUEST_TIMEOUT,
                ):
                    source, seq = origin_of(message.headers, reader.sources, reader=reader.stream.config.name)
                    if source is not None and seq is not None:
                        self._advance(reader, source, seq)
                        seen.add(source)
                    last = max(last, message.seq)
            except VstreamError:
                return
            if first <= start + 1 or seen >= {source for source in reader.sources if ends[source]}:
                reader.looked_to = last
            tail *= 4

    async def _read_info(self, stream: str) -> dict[str, Any] | None:
        subject = naming.api_subject("STREAM.INFO", stream)
        try:
            answer = await self._choose_connection(stream).request_json(subject, timeout=_REQUEST_TIMEOUT)
        except VstreamError:
            return None
        return answer if api_error(answer, subject) is None and "state" in answer else None

    def _choose_connection(self, stream: str) -> ReconnectingConnection:
        """The connection to where *stream* lives, else any that stands. Raises NotReachableError if there is none."""
        preferred = self._connections.get(self._places[stream]) if stream in self._places else None
        for connection in (preferred, *self._connections.values()):
            if connection is not None and connection.is_connected:
                return connection
        raise NotReachableError("no region can be reached")
