"""
Put back messages that a stream lacks in its middle: at its end, under the sequences that they had.

Nobody may publish to a stream that sources, nor write where a message comes from: only servers do, of what they
source. So a temporary stream beside the reader gets the missing messages, at the sequences that they have in their
origin, and the reader sources it for as long as that takes. Its name is that of the origin and a token
(`foo-write-west:RplXXXXX`). Whoever compares contents takes them for the origin's own, and a server that looks for
where to go on with the origin passes them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vstream.errors import NoRespondersError, NotReachableError, RefusedError, ServerError, VstreamError
from vstream.health.repair.contents import Replay
from vstream.health.repair.live.missing import parse_write_stream
from vstream.health.repair.live.scan import TIMEOUT, Fetcher, Tick, find_source, ignore_progress, read_provenances
from vstream.health.repair.live.write import write_message
from vstream.health.repair.sequence_set import SequenceSet
from vstream.health.repair.sourcing import Leftover
from vstream.jetstream import direct, error_codes
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection, Reply, ask_api
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.jetstream.source_header import new_replay_name, parse_provenance, parse_replay
from vstream.topology import naming, physical
from vstream.topology.model import Role, Topology, VirtualStream
from vstream.topology.replication import list_physical_streams
from vstream.topology.stream_config import UNTIL_KEY, StreamConfig, parse_positions

REPAIR_KEY = "vstream.repair"
"""Metadata key of a temporary stream: the topology."""
SUBJECTS = naming.REPAIR_PREFIX
"""Prefix before the token: a message published there is stored on the subject that follows."""
ALIVE = naming.REPAIR_ALIVE_PREFIX
"""Prefix before the token: answered while the repair runs."""
_POLL_SECONDS = 0.02
_STALLED_TIMEOUT = 20.0
"""Seconds for a message to arrive. A source that found no stream retries after 10."""
_DEDUPLICATED_AFTER_SECONDS = 3.0
"""Seconds after which a message that the reader has passed will not arrive any more."""
_BATCH_MESSAGES = 10_000
"""Maximum messages in the temporary stream."""
_DUPLICATE_WINDOW_NS = 100_000_000
"""Nanoseconds, the shortest there is: two messages may have one id where the origin took them."""


async def replay_missing(
    topology: Topology, replay: Replay, connections: Mapping[str, ReconnectingConnection], tick: Tick
) -> SequenceSet:
    """
    Put the *replay* messages into their reader, and return those that it refused as duplicates by their ids.

    Whatever happens, what is temporary is removed again; what a killed one leaves, `find_leftovers` finds.
    What another repair has put in since *replay* was planned is left out. Raises RefusedError while one is at the same reader,
    NotReachableError without a connection to the reader's own region, and as requests do.
    """
    connection = _connection_for(topology, replay.place, connections)
    stream = topology.stream(replay.virtual)
    origin = parse_write_stream(stream, replay.origin)
    fetcher = Fetcher(topology, stream, connections, ignore_progress)
    done = 0
    for holder, sequences in replay.by_holder.items():
        name, token = new_replay_name(replay.origin)
        temporary = _TemporaryStream(topology, stream, connection, replay.reader, name, token, origin.place)
        leftover = Leftover(stream=name, exists=True, readers=(replay.reader,), is_running=False)
        await temporary.announce()
        try:
            await temporary.begin(sequences.runs()[0][0])
            remaining = sequences - await _list_arrived(connection, replay)
            async for seq, message in fetcher.fetch(origin, holder, remaining):
                await temporary.put(seq, message)
                done += 1
                tick(done, replay.count)
            await temporary.wait_until_taken()
        finally:
            await remove_leftover(connection, leftover)
            await temporary.stop_answering()
    return replay.sequences - await _list_arrived(connection, replay)


async def _list_arrived(connection: ReconnectingConnection, replay: Replay) -> SequenceSet:
    """The sequences that a repair, this one or another, has put in since *replay* was planned."""
    arrived = SequenceSet()
    async for _, provenance in read_provenances(connection, replay.reader, replay.read_to + 1, ignore_progress):
        if provenance is not None and provenance.is_replayed and provenance.origin == replay.origin:
            arrived.add(provenance.seq)
    return arrived


def _connection_for(
    topology: Topology, place: str, connections: Mapping[str, ReconnectingConnection]
) -> ReconnectingConnection:
    if place in connections:
        return connections[place]
    if place in {region.name for region in topology.regions} or not connections:
        raise NotReachableError(
            f"region `{place}` cannot be reached: nothing can be put into its read stream from elsewhere",
            hint="start its servers, or name them under `connect`, and run `vstream repair messages` again",
        )
    return next(iter(connections.values()))  # the stretch cluster is reached from any


@dataclass(slots=True)
class _TemporaryStream:
    """A temporary stream, and the reader that sources it."""

    topology: Topology
    stream: VirtualStream
    connection: ReconnectingConnection
    reader: str
    name: str
    token: str
    region: str
    at: int = 0
    """Its last sequence."""
    waiting: int = 0
    last_subject: str = ""
    floor: int = 0
    """A sequence of the reader: what arrives does so behind it."""
    is_over: bool = False

    async def announce(self) -> None:
        """Answer those who ask whether this still runs."""

        async def answer(request: Reply, _: str) -> None:
            if not self.is_over:
                await self.connection.publish(request.reply, b"")

        await self.connection.subscribe(f"{ALIVE}.{self.token}", answer)

    async def stop_answering(self) -> None:
        """Answer no more."""
        self.is_over = True

    async def begin(self, first: int) -> None:
        """Make the temporary stream, which begins with *first*, and have the reader source it."""
        info = await JetStreamAdmin(self.connection).info(self.reader)
        config = info["config"]
        if feeding := [source["name"] for source in config.get("sources") or () if parse_replay(source["name"])]:
            raise RefusedError(
                f"another repair puts messages into `{self.reader}`, by `{feeding[0]}`",
                hint="run `vstream repair messages` again once that has ended: it continues with what is still missing",
            )
        cluster = (info.get("cluster") or {}).get("name")
        fields: dict[str, Any] = {
            "name": self.name,
            "description": f"vstream repair: missing messages of {self.reader}, removed when they are there",
            "subjects": [f"{SUBJECTS}.{self.token}.>"],
            "subject_transform": {"src": f"{SUBJECTS}.{self.token}.>", "dest": ">"},
            "storage": config["storage"],
            "num_replicas": 1,
            "retention": "limits",
            "duplicate_window": _DUPLICATE_WINDOW_NS,
            "first_seq": first,
            "metadata": {REPAIR_KEY: self.topology.name},
        }
        if cluster:
            fields["placement"] = {"cluster": cluster}
        await JetStreamAdmin(self.connection).create(StreamConfig(name=self.name, fields=fields))
        self.at = first - 1
        self.floor = int(info["state"]["last_seq"])
        transforms = physical.source_transforms(self.topology, self.stream, self.region)
        source = {
            "name": self.name,
            "subject_transforms": [{"src": before, "dest": after} for before, after in transforms],
        }
        sources = [*(config.get("sources") or ()), source]
        await JetStreamAdmin(self.connection).update(
            StreamConfig(name=self.reader, fields={**config, "sources": sources})
        )

    async def put(self, seq: int, message: DirectMessage) -> None:
        """Store *message* at *seq*, which is behind all before it."""
        if seq != self.at + 1 or self.waiting >= _BATCH_MESSAGES:
            await self.wait_until_taken()
            await self._forward(seq)
        subject = f"{SUBJECTS}.{self.token}.{message.subject}"
        # The stream is so new that not all servers of its cluster know it, and soon forgets which ids it has seen.
        ack = await write_message(self.connection, seq, subject, message.headers, message.data, patience=TIMEOUT)
        if ack.problem is not None:
            raise VstreamError(
                f"`{self.name}` did not take sequence {seq:,}: {ack.problem}",
                hint="run `vstream repair messages` again: it continues with what is still missing",
            )
        self.at = seq
        self.waiting += 1
        self.last_subject = physical.published_subject(self.topology.naming, self.stream, message.subject)

    async def _forward(self, seq: int) -> None:
        """Let *seq* be the next."""
        subject = naming.api_subject("STREAM.PURGE", self.name)
        await ask_api(self.connection, subject, {"seq": seq}, timeout=TIMEOUT)
        self.at = seq - 1

    async def wait_until_taken(self) -> None:
        """Wait until the reader has taken all that was put in. Raises VstreamError if it does not."""
        if not self.waiting:
            return
        began, passed_since = time.monotonic(), None
        while not await self._has_arrived():
            now = time.monotonic()
            if await self._is_passed():
                passed_since = passed_since or now
                if now - passed_since > _DEDUPLICATED_AFTER_SECONDS:
                    break  # counted at the end
            else:
                passed_since = None
            if now - began > _STALLED_TIMEOUT + TIMEOUT:
                raise VstreamError(
                    f"`{self.reader}` does not take sequence {self.at:,} from `{self.name}`",
                    hint="`vstream doctor` says whether it takes anything; then run `vstream repair messages` again",
                )
            await asyncio.sleep(_POLL_SECONDS)
        self.waiting = 0

    async def _has_arrived(self) -> bool:
        """Whether the last message is there: those before it have come before it, or will not."""
        at = self.floor + 1
        while True:
            message = await direct.get_next_from_leader(
                self.connection, self.reader, self.last_subject, at, timeout=TIMEOUT
            )
            if message is None:
                return False
            provenance = parse_provenance(message.headers)
            if provenance is not None and provenance.is_replayed and provenance.seq == self.at:
                self.floor = message.seq
                return True
            at = message.seq + 1

    async def _is_passed(self) -> bool:
        """Whether the reader says that it has nothing more to take from the temporary stream."""
        info = await JetStreamAdmin(self.connection).info(self.reader)
        source = find_source(info, self.name)
        if source.get("seq"):
            return int(source["seq"]) >= self.at
        return bool(source) and int(source.get("active", -1)) >= 0 and not source.get("lag")


async def find_leftovers(topology: Topology, connection: Connection) -> tuple[Leftover, ...]:
    """Temporary streams of interrupted or running repairs of *topology*."""
    parts = list_physical_streams(topology)
    origins = {part.name for part in parts if part.role is Role.WRITE}
    observed, missing = await JetStreamAdmin(connection).streams()
    for name in {part.name for part in parts} & observed.keys():
        origins |= parse_positions(observed[name].config.metadata, UNTIL_KEY).keys()

    def is_ours(name: str) -> bool:
        parsed = parse_replay(name)
        return parsed is not None and parsed[0] in origins

    # One that was made a moment ago may not answer yet. Nobody else calls a stream so.
    readers: dict[str, list[str]] = {name: [] for name in missing if is_ours(name)}
    for name, stream in observed.items():
        if is_ours(name) and stream.config.metadata.get(REPAIR_KEY) == topology.name:
            readers.setdefault(name, [])
        for source in filter(is_ours, stream.config.source_names):
            readers.setdefault(source, []).append(name)
    leftovers: list[Leftover] = []
    for name, names in sorted(readers.items()):
        exists = name in observed or name in missing
        is_running = await _is_running(connection, name)
        leftovers.append(Leftover(stream=name, exists=exists, readers=tuple(sorted(names)), is_running=is_running))
    return tuple(leftovers)


async def _is_running(connection: Connection, name: str) -> bool:
    parsed = parse_replay(name)
    assert parsed is not None, "it was chosen by its name"
    try:
        await connection.request(f"{ALIVE}.{parsed[1]}", timeout=TIMEOUT / 10)
    except NoRespondersError:
        return False
    except NotReachableError:
        return True  # somebody listens, and is slow
    return True


async def remove_leftover(connection: Connection, leftover: Leftover) -> None:
    """Have readers source *leftover* no more, then delete it. Raises as requests do."""
    admin = JetStreamAdmin(connection)
    for reader in leftover.readers:
        config = (await admin.info(reader))["config"]
        sources = config.get("sources") or []
        remaining = [source for source in sources if source.get("name") != leftover.stream]
        if len(remaining) < len(sources):
            await admin.update(StreamConfig(name=reader, fields={**config, "sources": remaining}))
    if not leftover.exists:
        return
    try:
        await admin.delete(leftover.stream)
    except ServerError as error:
        if error.err_code != error_codes.STREAM_NOT_FOUND:
            raise
