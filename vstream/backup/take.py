"""
Take a backup: a snapshot of every stream, and one cut through all of them.

Nothing stops meanwhile, so no two snapshots are of the same moment. Readers come first, and each stream only after all that take
from it: so what a reader has taken of an origin, the origin's own snapshot has, too. The *cut* is how far the reader that is
furthest behind has come, for each origin. Up to there, all copies must be the same, and that is what `vstream audit` reads. What is
beyond is in the snapshots as well: restored, readers go on from where they were, and take the rest from the restored write streams.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

from vstream import __version__
from vstream.backup.directory import FORMAT, BackupDirectory, BackupRecord, SavedStream
from vstream.capture.records import CapturedServer, Manifest, Sample, StoredRecord
from vstream.capture.store import FORMAT as CAPTURE_FORMAT
from vstream.capture.store import Capture, RecordWriter
from vstream.errors import NotReachableError, RefusedError, VstreamError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.message_reader import read_through
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.jetstream.region_connections import choose_connection_to, connect_reconnecting, require_all_reached
from vstream.jetstream.snapshots import take_snapshot
from vstream.jetstream.source_header import parse_replay, read_positions
from vstream.runner.read_back import captured_stream, stored_record
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Endpoint, Role, Topology
from vstream.topology.naming import is_paused
from vstream.topology.stream_config import StreamConfig, source_name
from vstream.value_class import value_class

_ORIGINS = frozenset({Role.WRITE, Role.ORIGIN})
_READ_TIMEOUT = 30.0
"""Seconds without a message, and seconds until a replica has what its leader had."""


@value_class
class BackupRequest:
    """What to back up, and from where."""

    topology: Topology
    text: bytes
    """The topology's file."""
    streams: Sequence[RenderedStream]
    endpoints: Mapping[str, Endpoint]


def refuse_streams_in_accounts(streams: Iterable[RenderedStream]) -> None:
    """Raise RefusedError for a stream in an account or a domain of its own: no user of vstream may have it sent from there."""
    for stream in streams:
        if stream.account is not None:
            raise RefusedError(
                f"`{stream.config.name}` is in an account or a domain of its own, whose snapshots cannot be received",
                hint="use `routing: mapped`, or copy the JetStream directories of stopped servers",
            )


def order_readers_first(streams: Sequence[RenderedStream]) -> list[RenderedStream]:
    """*streams*, each only after all others that take from it."""
    left = list(streams)
    ordered: list[RenderedStream] = []
    while left:
        taken_from = {name for stream in left for name in _list_origins(stream)}
        free = [stream for stream in left if stream.config.name not in taken_from] or left
        ordered += free
        left = [stream for stream in left if stream not in free]
    return ordered


def _list_origins(stream: RenderedStream) -> tuple[str, ...]:
    mirror = stream.config.mirror_name
    return stream.config.source_names if mirror is None else (mirror,)


async def take_backup(
    request: BackupRequest, directory: BackupDirectory, on_stream: Callable[[str], None]
) -> BackupRecord:
    """
    Write a backup of *request* into *directory*, which must be empty. *on_stream* is told what is being done.

    Raises RefusedError where that cannot be, NotReachableError if a region does not answer, and as requests do.
    """
    refuse_streams_in_accounts(request.streams)
    started, began = datetime.now(UTC), time.monotonic_ns()
    try:
        directory.require_empty()
        async with connect_reconnecting(request.topology, request.endpoints) as opened:
            connections = require_all_reached(opened)
            directory.create(request.text)  # once every region has answered: nothing is left where one did not
            manifest = _begin_manifest(request, connections, started)
            directory.capture.write_manifest(manifest)
            snapshots: dict[str, SavedStream] = {}
            for stream in order_readers_first(request.streams):
                on_stream(f"snapshot of {stream.config.name}")
                connection = choose_connection_to(connections, stream.region)
                snapshots[stream.config.name] = await _save(connection, stream, directory)
            unfiltered, read = Capture(directory.path / ".unfiltered"), dict[str, SavedStream]()
            for stream in request.streams:
                name = stream.config.name
                on_stream(f"reading {name}")
                connection = choose_connection_to(connections, stream.region)
                read[name] = await read_saved(connection, snapshots[name], unfiltered, tuple(snapshots))
        on_stream("checksums")
        cut = find_cut(read.values())
        saved = {name: _keep_up_to_cut(read[name], cut, unfiltered, directory.capture) for name in snapshots}
        shutil.rmtree(unfiltered.path)
        _write_samples(saved.values(), directory.capture, cut, time.monotonic_ns() - began)
        counts = {name: _count_messages(directory.capture, name) for name in saved}
        captured = tuple(captured_stream(stream, messages=counts[stream.config.name]) for stream in request.streams)
        directory.capture.write_manifest(replace(manifest, streams=captured, is_complete=True, stopped_by=None))
        record = BackupRecord(
            format=FORMAT,
            id=token_hex(8),
            vstream=__version__,
            topology=request.topology.name,
            started=started.isoformat(timespec="seconds"),
            cut=cut,
            streams=tuple(saved[stream.config.name] for stream in reversed(order_readers_first(request.streams))),
            checksums=directory.sync_and_hash_files(),
        )
        directory.finish(record)
    except OSError as error:
        raise VstreamError(f"the backup cannot be written to {directory.path}: {error.strerror or error}") from error
    return record


def _begin_manifest(
    request: BackupRequest, connections: Mapping[str, ReconnectingConnection], started: datetime
) -> Manifest:
    virtual = {stream.virtual for stream in request.streams}
    return Manifest(
        format=CAPTURE_FORMAT,
        vstream=__version__,
        scenario=f"backup of {request.topology.name}",
        seed=0,
        started=started.isoformat(timespec="milliseconds"),
        wall=int(started.timestamp() * 1_000_000) * 1000,
        backend="none",
        regions=tuple(region.name for region in request.topology.regions),
        models={stream.name: stream.consistency.value for stream in request.topology.streams if stream.name in virtual},
        machine={},
        servers=tuple(_describe_server(region, connection) for region, connection in connections.items()),
        stopped_by="the backup was not finished",
    )


def _describe_server(region: str, connection: ReconnectingConnection) -> CapturedServer:
    name, version = connection.server_name, connection.server_version
    return CapturedServer(name=name, region=region, cluster=connection.cluster or "", version=version)


async def _save(connection: ReconnectingConnection, stream: RenderedStream, directory: BackupDirectory) -> SavedStream:
    """Write the snapshot of *stream*. Its positions are those that it said before: what it has taken since is in it, too."""
    name = stream.config.name
    if stream.config.fields.get("storage") == "memory":
        raise RefusedError(f"`{name}` is stored in memory: servers make no snapshot of it")
    admin = JetStreamAdmin(connection)
    info, (consumers, unheard) = await admin.info(name), await admin.consumers(name)
    if unheard:
        raise NotReachableError(f"no server answers for the consumers {', '.join(unheard)} of `{name}`")
    if is_paused(StreamConfig(name=name, fields=info["config"])):
        raise RefusedError(
            f"`{name}` takes no publishes, because it moves or is scaled up: so would what is restored",
            hint="run `vstream apply` first",
        )
    with directory.snapshot_file(name).open("xb") as file:
        head = await take_snapshot(connection, name, file.write)
    positions = read_positions(info, name)
    return SavedStream(
        name=name,
        virtual=stream.virtual,
        region=stream.region,
        role=stream.role.value,
        config=dict(head.config.fields),
        state=dict(head.state),
        last_before=int(info["state"]["last_seq"]),
        positions=positions,
        consumers=tuple(sorted(consumers)),
        beyond=0,
    )


async def read_saved(
    connection: ReconnectingConnection, saved: SavedStream, capture: Capture, names: Sequence[str]
) -> SavedStream:
    """
    Write what *saved* had in its snapshot into *capture*, and find how far that is in each origin.

    What has been removed since is left out. *names* are those of all streams. Raises NotReachableError where a replica
    stays behind its leader.
    """
    first, last = max(1, int(saved.state["first_seq"])), int(saved.state["last_seq"])
    positions, mirror = dict(saved.positions), _find_mirror(saved)
    if mirror is not None:
        positions[mirror] = last
    lines = RecordWriter(capture.stream_file(saved.name), StoredRecord)
    try:
        async for message in read_through(connection, saved.name, first=first, last=last, patience=_READ_TIMEOUT):
            record = stored_record(message, names, saved.name)
            lines.write(record)
            if record.origin is not None and record.origin_seq is not None:
                positions[record.origin] = max(positions.get(record.origin, 0), record.origin_seq)
    finally:
        lines.close()
    return replace(saved, positions=positions)


def _find_mirror(saved: SavedStream) -> str | None:
    return StreamConfig(name=saved.name, fields=saved.config).mirror_name


def find_cut(streams: Iterable[SavedStream]) -> dict[str, int]:
    """By origin, the sequence up to which every reader of its virtual stream has everything."""
    saved = {item.name: item for item in streams}
    cut = {}
    for origin in saved.values():
        if Role(origin.role) not in _ORIGINS:
            continue
        last = int(origin.state["last_seq"])
        beside = (item for item in saved.values() if item.virtual == origin.virtual)
        readers = [item for item in beside if Role(item.role) in {Role.READ, Role.ORDER}]
        reached = [last if _has_taken_all(item, saved) else item.positions.get(origin.name, 0) for item in readers]
        cut[origin.name] = min([last, *reached])
    return cut


def _has_taken_all(reader: SavedStream, saved: Mapping[str, SavedStream]) -> bool:
    """Whether a reader had as many messages as its origins ever had, which were asked later: its last sequence counts them."""
    sources: Any = reader.config.get("sources") or ()
    origins = {source_name(source, reader.name) for source in sources}
    if not origins or not origins <= saved.keys():
        return False
    return reader.last_before == sum(int(saved[name].state["last_seq"]) for name in origins)


def _keep_up_to_cut(saved: SavedStream, cut: Mapping[str, int], source: Capture, target: Capture) -> SavedStream:
    """Write what *saved* has up to the *cut* into *target*, and count the rest."""
    lines, beyond = RecordWriter(target.stream_file(saved.name), StoredRecord), 0
    mirror = _find_mirror(saved)
    is_origin = saved.name in cut
    try:
        for message in source.read_stored(saved.name):
            origin, seq = message.origin, message.origin_seq
            if is_origin:
                origin, seq = saved.name, message.seq
            elif mirror in cut:
                origin, seq = mirror, message.seq
            elif origin is not None and (replayed := parse_replay(origin)) is not None:
                origin = replayed[0]
            if origin is not None and seq is not None and seq > cut.get(origin, seq):
                beyond += 1
            else:
                lines.write(message)
    finally:
        lines.close()
    return replace(saved, beyond=beyond)


def _count_messages(capture: Capture, stream: str) -> int:
    with capture.stream_file(stream).open("rb") as file:
        return sum(1 for _ in file)


def _write_samples(streams: Iterable[SavedStream], capture: Capture, cut: Mapping[str, int], at: int) -> None:
    """How far readers have come, for an audit: to the cut."""
    sourced: dict[str, dict[str, dict[str, int]]] = {}
    for item in streams:
        sources: Any = item.config.get("sources") or ()
        names = {source_name(source, item.name) for source in sources}
        sourced.setdefault(item.region, {})[item.name] = {name: cut[name] for name in names if name in cut}
    samples = RecordWriter(capture.samples_file, Sample)
    try:
        for region, positions in sourced.items():
            readers = {name: reached for name, reached in positions.items() if reached}
            samples.write(Sample(at=at, region=region, control_plane=None, error=None, sourced=readers))
    finally:
        samples.close()
