"""
Restore a backup onto servers that have none of its streams.

Streams that others take from come first, and no stream takes from another until all are there: a restored stream is a new one to
servers since 2.15, and a reader would begin again with its first message. So each source gets the sequence after the last one that
the reader has of it (`opt_start_seq`) when it is attached in the end. Servers before 2.15 look at the reader's own last message of an
origin, which says the same.

Until then each stream carries a mark in its metadata, with the id of the backup, and another one as soon as a server has said
that it is whole. An interrupted restore is continued: what is whole stays, what is not is made again, and what has no mark
is never touched. What a stream holds does not tell: one of which a server has every message and not the end of the snapshot
exists, answers, and listens to nobody.

What came while the backup was made may be in no reader yet, and older than `max_age` by now. So streams that others take from get
their `max_age` back, and lose their mark, once the others have everything.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from vstream.backup.directory import BackupDirectory, BackupRecord, SavedStream
from vstream.backup.take import refuse_streams_in_accounts
from vstream.errors import NoRespondersError, NotReachableError, RefusedError, ServerError, VstreamError
from vstream.formatting import format_count
from vstream.health.repair.live.scan import ignore_progress, read_provenances
from vstream.jetstream import error_codes
from vstream.jetstream.admin import JetStreamAdmin, ask_until_available
from vstream.jetstream.answers import require_config
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.jetstream.region_connections import choose_connection_to, connect_reconnecting, require_all_reached
from vstream.jetstream.snapshots import CHUNK_BYTES, restore_snapshot
from vstream.jetstream.source_header import EXPECTED_STREAM
from vstream.plan.consumer_failover import continue_from
from vstream.plan.live.gate_checks import LiveGateChecker
from vstream.plan.model import Gate, GateKind
from vstream.probe.hops import NO_STREAM
from vstream.topology import naming
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Endpoint, Topology
from vstream.topology.stream_config import RESTORE_KEY, StreamConfig, header_name
from vstream.topology.units import format_version, parse_version
from vstream.value_class import value_class

WHOLE_KEY = "vstream.restored"
"""Metadata of a stream that is being restored, once a server has confirmed it as complete."""
_FORGET_TIMEOUT = 10.0
"""Seconds. Servers forget a restore whose next chunk does not come for 5 s."""
_GIVEN_UP_SECONDS = 6.0
"""
Seconds until they have given it up for certain. Then they say that it failed, and the meta leader removes whatever stream of that
name is younger than 5 s (nats-server, processStreamAssignmentResults): nothing may be made again before.
"""
_CONSUMERS_TIMEOUT = 60.0
"""Seconds until a restored stream has its consumers."""
_TAKEN_TIMEOUT = 300.0
"""Seconds until readers have taken everything: a source that is not heard is asked again after up to two minutes."""
_PAUSE_SECONDS = 0.25
_SOON_TIMEOUT = 1.0


@value_class
class RestoreRequest:
    """What to restore, and where."""

    directory: BackupDirectory
    record: BackupRecord
    topology: Topology
    streams: Sequence[RenderedStream]
    """Those of the topology."""
    endpoints: Mapping[str, Endpoint]
    is_approved: bool
    """Whether to change anything."""


@value_class
class RestoreState:
    """What of a backup is on the servers: nothing, or what an interrupted restore of the same backup has left."""

    missing: tuple[str, ...]
    marked: tuple[str, ...]
    unfinished: tuple[str, ...] = ()
    """Those of *marked* that no server has confirmed as complete."""

    @property
    def is_continued(self) -> bool:
        """Whether an earlier restore has begun."""
        return bool(self.marked)


async def restore_backup(request: RestoreRequest, on_stream: Callable[[str], None]) -> RestoreState:
    """
    Make all streams of the backup, with their consumers, and let readers take from the others again, if approved.

    Returns what was there before. Killed anywhere, it can be run again. *on_stream* is told what is being done. Raises
    RefusedError if anything is there but an interrupted restore of this backup, NotReachableError if a region does not
    answer, and as requests do.
    """
    with request.directory.hold_lock() if request.is_approved else nullcontext():
        async with connect_reconnecting(request.topology, request.endpoints) as opened:
            connections = require_all_reached(opened)
            state = await _read_state(request, connections)
            if request.is_approved:
                await _restore(request, state, connections, on_stream)
    return state


async def _restore(
    request: RestoreRequest,
    state: RestoreState,
    connections: Mapping[str, ReconnectingConnection],
    on_stream: Callable[[str], None],
) -> None:
    if state.unfinished:
        on_stream(f"waiting {_GIVEN_UP_SECONDS:g} s: servers give up the restore that was interrupted")
        await asyncio.sleep(_GIVEN_UP_SECONDS)
    chosen = [saved for saved in request.record.streams if state.missing or saved.name in state.marked]
    gates = _list_gates(request.record)
    taken_from = {name for gate in gates for name in gate.counterparts}
    restored = []
    for saved in chosen:
        connection = choose_connection_to(connections, saved.region)
        restored.append(_Restored(connection, request, saved, is_limited_later=saved.name in taken_from))
    for stream in restored:
        on_stream(f"restoring {stream.name}")
        await stream.make()
    for stream in restored:
        on_stream(f"attaching {stream.name}")
        await stream.attach()
    if limited := [stream for stream in restored if stream.is_limited_later]:
        on_stream("waiting until readers have taken everything")
        await _wait_until_taken(next(iter(connections.values())), gates)
        for stream in limited:
            await stream.limit()


def _list_gates(record: BackupRecord) -> list[Gate]:
    """What must hold before streams that others take from may drop messages by their age: the others have everything."""
    aged = {saved.name for saved in record.streams if saved.config.get("max_age")}
    gates = []
    for saved in record.streams:
        config = StreamConfig(name=saved.name, fields=saved.config)
        if config.mirror_name in aged:
            gates.append(Gate(kind=GateKind.COPY_IS_COMPLETE, stream=saved.name, counterparts=(config.mirror_name,)))
        elif origins := tuple(name for name in config.source_names if name in aged):
            gates.append(Gate(kind=GateKind.HAS_ALL_OF_SOURCES, stream=saved.name, counterparts=origins))
    return gates


async def _wait_until_taken(connection: ReconnectingConnection, gates: Sequence[Gate]) -> None:
    """Raises VstreamError if that takes too long."""
    checker, deadline = LiveGateChecker(connection), time.monotonic() + _TAKEN_TIMEOUT
    for gate in gates:
        while (missing := await checker.find_missing(gate)) is not None:
            if time.monotonic() > deadline:
                hint = "everything is restored, and nothing expires yet: `vstream repair sources`, then run this again"
                raise VstreamError(missing, hint=hint)
            await asyncio.sleep(_PAUSE_SECONDS)


async def _read_state(request: RestoreRequest, connections: Mapping[str, ReconnectingConnection]) -> RestoreState:
    _require_fitting_topology(request)
    _refuse_older_servers(request, connections)
    record = request.record
    missing: list[str] = []
    marked: list[str] = []
    unmarked: list[str] = []
    unfinished: list[str] = []
    for saved in record.streams:
        config = await _Restored(choose_connection_to(connections, saved.region), request, saved).find()
        if config is None:
            missing.append(saved.name)
        elif config.metadata.get(RESTORE_KEY) != record.id:
            unmarked.append(saved.name)
        else:
            marked.append(saved.name)
            if WHOLE_KEY not in config.metadata:
                unfinished.append(saved.name)
    # Marks go when all streams are there: until then, what has none is somebody else's.
    if unmarked and (missing or not marked):
        raise RefusedError(
            f"{len(unmarked)} of the {len(record.streams)} streams exist: {', '.join(unmarked)}",
            hint="a backup can only be restored onto servers without them; nothing was changed",
        )
    return RestoreState(missing=tuple(missing), marked=tuple(marked), unfinished=tuple(unfinished))


def _require_fitting_topology(request: RestoreRequest) -> None:
    """Raise RefusedError if the backup is of something else than the topology, or needs more servers."""
    refuse_streams_in_accounts(request.streams)
    record, names = request.record, {stream.config.name for stream in request.streams}
    servers = Counter(seat.cluster for seat in request.topology.seats)
    if record.topology != request.topology.name:
        raise RefusedError(f"the backup is of topology `{record.topology}`, not of `{request.topology.name}`")
    for saved in record.streams:
        if saved.name not in names:
            raise RefusedError(
                f"the backup has `{saved.name}`, and the topology does not",
                hint="restore it with the topology that is in its directory, and change that afterwards",
            )
        cluster = StreamConfig(name=saved.name, fields=saved.config).placement_cluster
        replicas = saved.config.get("num_replicas", 1)
        if cluster is not None and servers[cluster] < replicas:
            raise RefusedError(
                f"`{saved.name}` has {replicas} replicas, and cluster `{cluster}` has {format_count(servers[cluster], 'server')}",
                hint="restore it onto as many servers as it had, and change `replicas` afterwards; nothing was changed",
            )


def _refuse_older_servers(request: RestoreRequest, connections: Mapping[str, ReconnectingConnection]) -> None:
    """Raise RefusedError if a server is older than those of the backup: it cannot read their snapshots."""
    texts = (server.version for server in request.directory.capture.manifest().servers)
    newest = max((version[:2] for text in texts if (version := parse_version(text)) is not None), default=(0, 0))
    for region, connection in connections.items():
        running = parse_version(connection.server_version)
        if running is not None and running[:2] < newest:
            raise RefusedError(
                f"the backup is of servers {format_version(newest)}, and region {region} runs {format_version(running)}",
                hint="older servers cannot read it: restore it onto the same or a newer version; nothing was changed",
            )


def _is_confirmed(info: Mapping[str, Any]) -> bool:
    """Whether a server has said that it is complete."""
    return WHOLE_KEY in require_config(info["config"], "info").get("metadata", {})


class _Restored:
    """One stream on its way back."""

    def __init__(
        self,
        connection: ReconnectingConnection,
        request: RestoreRequest,
        saved: SavedStream,
        *,
        is_limited_later: bool = False,
    ) -> None:
        self._connection = connection
        self._admin = JetStreamAdmin(connection)
        self._request = request
        self._saved = saved
        self._config = StreamConfig(name=saved.name, fields=saved.config)
        self.name = saved.name
        self.is_limited_later = is_limited_later
        """Whether others take from it what its `max_age` could remove before."""

    async def find(self) -> StreamConfig | None:
        """Its configuration on the servers, None if it is not there."""
        info = await self._read_info()
        return None if info is None else StreamConfig(name=self.name, fields=require_config(info["config"], "info"))

    @property
    def _marks(self) -> Mapping[str, str]:
        return {RESTORE_KEY: self._request.record.id, WHOLE_KEY: "yes"}

    async def _read_info(self) -> dict[str, Any] | None:
        try:
            return await ask_until_available(lambda: self._admin.info(self.name))
        except ServerError as error:
            if error.err_code != error_codes.STREAM_NOT_FOUND:
                raise
            return None

    async def make(self) -> None:
        """Restore it, unless it is whole, with consumers that are not ahead of it."""
        info, last = await self._read_info(), int(self._saved.state["last_seq"])
        if info is not None:
            self._require_mark(info)
            if _is_confirmed(info) and self._has_all_messages(info):
                return  # what clients have done since stays: a consumer that is missing was deleted by somebody
            if not (self._has_all_messages(info) and await self._listens()):
                await self._admin.delete(self.name)
                info = None
            elif (missing := await self._find_missing()) is not None:
                raise RefusedError(
                    f"{missing}, and clients may have published to it since it was restored",
                    hint="make the consumer (`nats consumer add`), or delete the stream if nobody has; then run this again",
                )
        if info is None:
            await self._send()
            if (missing := await self._find_missing()) is not None:
                raise VstreamError(f"{missing} after the restore: see the servers' logs")
            last = int((await ask_until_available(lambda: self._admin.info(self.name)))["state"]["last_seq"])
        await self._bring_consumers_back(last)
        # Only now: what is confirmed is not looked at again.
        await ask_until_available(lambda: self._admin.update(self._config_with(self._marks)))

    def _require_mark(self, info: Mapping[str, Any]) -> None:
        """Raise RefusedError where a restore from a copy of the backup was faster: clients may be back."""
        if require_config(info["config"], "info").get("metadata", {}).get(RESTORE_KEY) != self._request.record.id:
            raise RefusedError(
                f"another command has restored `{self.name}` meanwhile",
                hint="run this again: it continues if anything is left",
            )

    async def _find_missing(self) -> str | None:
        """What it lacks, None as soon as it lacks nothing: servers announce its consumers after the stream."""
        deadline = time.monotonic() + _CONSUMERS_TIMEOUT
        while True:
            info = await self._read_info()
            if info is None or not self._has_all_messages(info):
                missing = f"`{self.name}` lacks messages"
            elif (consumer := await self._find_missing_consumer()) is not None:
                missing = f"`{self.name}` lacks its consumer `{consumer}`"
            else:
                return None
            if time.monotonic() > deadline:
                return missing
            await asyncio.sleep(_PAUSE_SECONDS)

    def _has_all_messages(self, info: Mapping[str, Any]) -> bool:
        return int(info["state"]["last_seq"]) >= int(self._saved.state["last_seq"])

    async def _find_missing_consumer(self) -> str | None:
        """The first one that does not answer. Lists of consumers would wait 4 s for one that has no leader yet."""
        for consumer in self._saved.consumers:
            try:
                if await self._admin.find_consumer(self.name, consumer, timeout=_SOON_TIMEOUT) is None:
                    return consumer
            except NotReachableError:
                return consumer
        return None

    async def _listens(self) -> bool:
        """Whether clients can publish to it: then it may have taken what they have published since, and stays."""
        try:
            for subject in self._config.subjects:
                # A stream that listens refuses this, and stores nothing.
                headers = {EXPECTED_STREAM: NO_STREAM}
                await self._connection.request(naming.probe_subject(subject), headers=headers, timeout=_SOON_TIMEOUT)
        except NoRespondersError:
            return False
        return bool(self._config.subjects)

    def _config_with(self, marks: Mapping[str, str]) -> StreamConfig:
        """What it is until all are there: it takes from nobody, and drops nothing that others may lack."""
        fields = {key: value for key, value in self._config.fields.items() if key != "sources"}
        config = StreamConfig(name=self.name, fields={**fields, "metadata": {**self._config.metadata, **marks}})
        return config.with_fields(max_age=0) if self.is_limited_later else config

    async def _send(self) -> None:
        config = self._config_with({RESTORE_KEY: self._request.record.id})
        deadline = time.monotonic() + _FORGET_TIMEOUT
        while True:
            chunks = self._request.directory.read_chunks(self.name, CHUNK_BYTES)
            try:
                return await restore_snapshot(self._connection, config, self._saved.state, chunks)
            except ServerError as error:
                if error.err_code not in {error_codes.STREAM_EXISTS_ALREADY, *error_codes.TEMPORARILY_UNAVAILABLE}:
                    raise
                if time.monotonic() > deadline:
                    if error.err_code != error_codes.STREAM_EXISTS_ALREADY or await self._read_info() is not None:
                        raise
                    # A restore that broke off leaves the name of a stream with several replicas, and no stream.
                    await self._admin.forget(self.name)
                    deadline += _FORGET_TIMEOUT
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _bring_consumers_back(self, last: int) -> None:
        """Consumers went on while the snapshot was sent: one that is ahead of the stream would skip what comes next."""
        consumers, _ = await ask_until_available(lambda: self._admin.consumers(self.name))
        for consumer in consumers.values():
            if max(consumer.delivered, consumer.ack_floor) > last:
                await self._admin.delete_consumer(consumer.config)
                config = continue_from(consumer.config, self.name, min(consumer.ack_floor, last))
                await ask_until_available(partial(self._admin.create_consumer, config))

    async def attach(self) -> None:
        """Give it the sources that it had, each beginning after what is stored of it. The mark goes, unless a limit comes later."""
        info = await ask_until_available(lambda: self._admin.info(self.name))
        self._require_mark(info)
        config = self._config
        if self.is_limited_later:
            if info["config"].get("sources") or not config.sources:
                return
            config = self._config_with(self._marks)
        if self._config.sources:
            positions = await self._read_positions()
            sources = []
            for source in self._config.sources:
                start_seq = max(positions.get(source.stream, 0) + 1, source.start_seq or 1)
                sources.append(source.with_start_seq(start_seq if start_seq > 1 else None))
            config = config.with_sources(sources)
        await ask_until_available(lambda: self._admin.update(config))

    async def limit(self) -> None:
        """Give it its `max_age` back, and take the mark away."""
        info = await ask_until_available(lambda: self._admin.info(self.name))
        self._require_mark(info)
        fields = {**info["config"], "max_age": self._saved.config["max_age"], "metadata": dict(self._config.metadata)}
        await ask_until_available(lambda: self._admin.update(StreamConfig(name=self.name, fields=fields)))

    async def _read_positions(self) -> dict[str, int]:
        """The last sequence of each origin in the restored stream: blocks of a snapshot may have more than was said."""
        positions, saved = dict(self._saved.positions), self._saved
        names = {header_name(name, saved.name): name for name in self._config.source_names}
        after = int(saved.state["last_seq"]) + 1
        async for _, provenance in read_provenances(self._connection, saved.name, after, ignore_progress):
            if provenance is not None and not provenance.is_replayed and provenance.origin in names:
                name = names[provenance.origin]
                positions[name] = max(positions.get(name, 0), provenance.seq)
        return positions
