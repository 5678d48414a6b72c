"""
Remove canaries, wherever they are by now.

Write streams come first: a source passes over what is deleted, so from then on only
a canary that is already on its way can still arrive. For those the read streams in
which a canary was not seen are watched a little longer. One that arrives even later
stays until the stream's limits remove it; it is marked by its header, on the agreed
canary subject. The removed sequences stay as gaps, which an audit notes (VA112).

All of this uses physical names and asks the streams' leaders, by way of another
region where a region cannot be reached: read streams that the probe cannot or was
not asked to read have received canaries too. A message is deleted only after a look
at its header: a stream that was re-created since holds somebody's data at that sequence.

Regions that the topology leaves out have received canaries as well. Where physical
streams have names of their own, their read streams are found by these.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from vstream.errors import ServerError, VstreamError
from vstream.jetstream import direct, error_codes
from vstream.jetstream.connection import Connection, ask_api
from vstream.probe.canaries import CANARY_HEADER, FIRST_PAUSE_SECONDS, Canary, CanaryFlight, Fate
from vstream.probe.report import Check, CheckKind, CheckStatus
from vstream.probe.retry import repeat_looks
from vstream.topology import naming, physical
from vstream.topology.model import Role, Topology, VirtualStream
from vstream.topology.replication import physical_streams

CLEANUP_TIMEOUT = 10.0
"""Seconds to clean up after one stream's canaries, in addition to the probe's deadline. It needs 20 ms."""
_LATE_CANARIES_TIMEOUT = 1.0
"""Seconds within which canaries on their way arrive after their original is gone."""
_REQUEST_TIMEOUT = 2.0
_MAX_PAUSE_SECONDS = 0.1
_STATUS_UNAVAILABLE = 503


@dataclass(slots=True)
class Cleanup:
    """Removes the canaries of one flight over *connections*, by region."""

    topology: Topology
    stream: VirtualStream
    flight: CanaryFlight
    connections: Mapping[str, Connection]
    left_out: Callable[[], Awaitable[Sequence[str]]]
    deadline: float = 0.0

    async def run(self, slots: asyncio.Semaphore) -> list[Check]:
        """One check for each canary's first stream, and for each copy. Ends within CLEANUP_TIMEOUT once it has one of *slots*."""
        async with slots:
            return await self._run()

    async def _run(self) -> list[Check]:
        begun = time.monotonic()
        # Half of the time each: what cannot be done in a write stream must not keep read streams from being cleaned.
        self.deadline = begun + CLEANUP_TIMEOUT / 2
        canaries = [canary for canary in self.flight.canaries.values() if canary.fate is not Fate.NOT_STORED]
        writes = await asyncio.gather(*(self._write(canary) for canary in self.flight.canaries.values()))
        self.deadline = begun + CLEANUP_TIMEOUT
        checks = [*writes]
        # A mirror passes over what is deleted too, so what it mirrors comes first.
        for role in (Role.ORDER, Role.READ):
            places = [part.place for part in physical_streams(self.stream) if part.role is role]
            checks += await asyncio.gather(*(self._check_copies(role, place, canaries) for place in places))
        return [*checks, *await self._clean_left_out(canaries)]

    async def _clean_left_out(self, canaries: Sequence[Canary]) -> list[Check]:
        """Clean the read streams of regions that servers have and the topology has not."""
        if not canaries:
            return []
        try:
            places = await self.left_out()
        except VstreamError as error:
            detail = f"it is unknown whether regions that the topology leaves out hold canaries: {error.message}"
            return [self._check(None, None, CheckStatus.SKIPPED, detail, error.hint)]
        self.deadline = time.monotonic() + CLEANUP_TIMEOUT
        return await asyncio.gather(*(self._check_copies(Role.READ, place, canaries) for place in places))

    async def _write(self, canary: Canary) -> Check:
        region = canary.origin
        name = canary.stream or physical.write_stream_in(self.stream, region)
        if canary.fate is Fate.NOT_STORED:
            return self._check(region, name, CheckStatus.SKIPPED, "nothing was published")
        seq: int | None = canary.seq
        if canary.fate is Fate.UNKNOWN:
            subject = physical.stored_subject(self.topology.naming, self.stream, region, canary.subject)
            until = self.deadline - _REQUEST_TIMEOUT
            seq, problem = await self._find(region, name, subject, canary, from_seq=1, until=until)
            if problem is not None:
                return self._unseen(region, name, problem)
        if seq is None:
            return self._check(
                region,
                name,
                CheckStatus.UNKNOWN,
                "the publish was never answered, and no canary is stored so far",
                f"if one comes, it has the header {CANARY_HEADER}: {canary.token}",
            )
        return await self._clean_up(region, name, {canary.origin: seq})

    async def _check_copies(self, role: Role, region: str, canaries: Sequence[Canary]) -> Check:
        name = physical.physical_name(self.stream, role, region)
        if not canaries:
            return self._check(region, name, CheckStatus.SKIPPED, "nothing was published")
        reader = self.flight.readers.get(region)
        first = reader.facts.last_seq + 1 if reader is not None and reader.facts is not None else 1
        sequences: dict[str, int] = {}
        for other_reader in self.flight.readers.values():
            for origin, arrival in other_reader.seen.items():
                # Mirrors keep the sequences of an order.
                if arrival.stream == name or role is Role.ORDER:
                    sequences[origin] = arrival.seq
        until = min(self.deadline - _REQUEST_TIMEOUT, time.monotonic() + _LATE_CANARIES_TIMEOUT)
        absent = [canary for canary in canaries if canary.origin not in sequences]
        looks = await asyncio.gather(
            *(self._find(region, name, canary.subject, canary, from_seq=first, until=until) for canary in absent)
        )
        late = {canary.origin: seq for canary, (seq, _) in zip(absent, looks, strict=True) if seq is not None}
        problem = next((problem for _, problem in looks if problem is not None), None)
        removed = await self._clean_up(region, name, {**sequences, **late})
        return (
            removed if problem is None or removed.status is CheckStatus.FAILED else self._unseen(region, name, problem)
        )

    async def _find(
        self, region: str, name: str, subject: str, canary: Canary, *, from_seq: int, until: float
    ) -> tuple[int | None, str | None]:
        """The sequence of *canary* in the physical stream *name*, if it has come by *until*; why one could not look."""
        problem = None
        async for _ in repeat_looks(until, FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS):
            problem = None
            try:
                seq = await self._walk(region, name, subject, canary, from_seq)
            except ServerError as error:
                if error.err_code == error_codes.STREAM_NOT_FOUND:
                    return None, None
                problem = error.message
            except VstreamError as error:
                problem = error.message
            else:
                if seq is not None:
                    return seq, None
        return None, problem

    async def _walk(self, region: str, name: str, subject: str, canary: Canary, from_seq: int) -> int | None:
        while True:
            connection, timeout = self._choose_connection(region)
            message = await direct.get_next_from_leader(connection, name, subject, from_seq, timeout=timeout)
            if message is None:
                return None
            if message.headers.get(CANARY_HEADER) == canary.token:
                return message.seq
            from_seq = message.seq + 1

    async def _clean_up(self, region: str, name: str, where: Mapping[str, int]) -> Check:
        """Remove the canaries of the origins in *where* at the sequences there, and say what is left."""
        problems = await asyncio.gather(
            *(self._remove(region, name, seq, self.flight.canaries[origin]) for origin, seq in where.items())
        )
        left = {seq: problem for seq, problem in zip(where.values(), problems, strict=True) if problem is not None}
        if left:
            listed = ", ".join(str(seq) for seq in sorted(left))
            reason = next(iter(left.values()))
            return self._check(
                region,
                name,
                CheckStatus.FAILED,
                f"canaries at sequence {listed} of `{name}` could not be removed: {reason}",
                "; ".join(f"`nats stream rmm {name} {seq}`" for seq in sorted(left)),
            )
        detail = (
            f"removed sequence {', '.join(str(seq) for seq in sorted(where.values()))}" if where else "none arrived"
        )
        return self._check(region, name, CheckStatus.OK, detail)

    async def _remove(self, region: str, name: str, seq: int, canary: Canary) -> str | None:
        """Delete the canary at *seq* and see it gone. Returns why that did not succeed in time, if so."""
        problem, pause = "there was no time left", FIRST_PAUSE_SECONDS
        while time.monotonic() < self.deadline:
            try:
                if not await self._is_there(region, name, seq, canary):
                    return None
                connection, timeout = self._choose_connection(region)
                await _delete(connection, name, seq, timeout)
                if not await self._is_there(region, name, seq, canary):
                    return None
                problem = "it was deleted, but is still there"
            except ServerError as error:
                if error.err_code == error_codes.STREAM_NOT_FOUND:
                    return None
                if error.code != _STATUS_UNAVAILABLE and error.message == problem:
                    return problem  # refused twice: for good, and not because somebody else was faster
                problem = error.message
            except VstreamError as error:
                problem = error.message
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE_SECONDS)
        return problem

    async def _is_there(self, region: str, name: str, seq: int, canary: Canary) -> bool:
        connection, timeout = self._choose_connection(region)
        message = await direct.get_by_seq_from_leader(connection, name, seq, timeout=timeout)
        return message is not None and message.headers.get(CANARY_HEADER) == canary.token

    def _choose_connection(self, region: str) -> tuple[Connection, float]:
        """The connection to use for streams of *region*, and the seconds that one request may take."""
        regional = self.connections.get(region)
        connected = (connection for connection in self.connections.values() if connection.is_connected)
        connection = regional if regional is not None and regional.is_connected else next(connected, None)
        if connection is None:
            raise VstreamError("lost the connection to every region")
        return connection, max(0.1, min(_REQUEST_TIMEOUT, self.deadline - time.monotonic()))

    def _unseen(self, region: str, name: str, reason: str) -> Check:
        return self._check(
            region,
            name,
            CheckStatus.UNKNOWN,
            f"whether canaries are left in `{name}` cannot be seen: {reason}",
            f"they are on `{self.stream.canary}`, with the header {CANARY_HEADER}",
        )

    def _check(
        self, region: str | None, name: str | None, status: CheckStatus, detail: str, hint: str | None = None
    ) -> Check:
        return Check(
            stream=self.stream.name,
            region=region,
            kind=CheckKind.CLEANUP,
            status=status,
            detail=detail,
            hint=hint,
            answered_by=name,
        )


async def _delete(connection: Connection, stream: str, seq: int, timeout: float) -> None:
    subject = naming.api_subject("STREAM.MSG.DELETE", stream)
    # A canary holds nothing secret: the server need not overwrite it on disk.
    await ask_api(connection, subject, {"seq": seq, "no_erase": True}, timeout=timeout)
