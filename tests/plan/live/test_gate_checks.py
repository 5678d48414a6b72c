"""What gates wait for, on real servers: replicas that are current, and how far a reader of a stream that is gone has come."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.command import vstream
from tests.support.jetstream import JetStreamServer, fill
from tests.support.labs import eventually, pids
from vstream.errors import RefusedError, VstreamError
from vstream.jetstream.connection import Connection, connect
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.plan.live import gate_checks, reader_positions
from vstream.plan.live.gate_checks import LiveGateChecker
from vstream.plan.live.reader_positions import LivePositionReader
from vstream.plan.model import Gate, GateKind
from vstream.servers.find_servers import Servers
from vstream.servers.leaders import find_meta_leader
from vstream.servers.replica_reader import ReplicaReader
from vstream.timing import SECOND_NS
from vstream.topology.model import Endpoint, Topology
from vstream.topology.stream_config import StreamConfig, with_noted_move

pytestmark = pytest.mark.server

OTHERS = 70_000
"""More than were looked through once."""


def count(server: JetStreamServer, stream: str = "foo") -> int:
    with ThreadPoolExecutor(1) as pool:  # it has an event loop of its own
        return int(pool.submit(server.api, f"STREAM.INFO.{stream}").result()["state"]["messages"])


@pytest.fixture
def old(tmp_path: Path) -> Iterator[JetStreamServer]:
    """A server before 2.15, which does not say how far a reader has come."""
    server = JetStreamServer(tmp_path, "2.12.8")
    server.start()
    yield server
    server.stop()


async def test_a_reader_that_kept_everything_and_has_nothing_of_a_source_goes_on_with_its_first_message(
    old: JetStreamServer,
) -> None:
    await asyncio.to_thread(fill, old, "foo-write-west", [("foo-write-west.a", b"", None)] * 7)
    await asyncio.to_thread(fill, old, "foo-write-east", [("foo-write-east.a", b"", None)] * 7)
    sources = [{"name": "foo-write-west"}, {"name": "foo-write-east", "filter_subject": "foo-write-east.none"}]
    await asyncio.to_thread(fill, old, "foo", [], sources=sources)
    await eventually(lambda: count(old) == 7)
    async with connect(Endpoint(urls=(old.url,)), "east") as connection:
        positions = LivePositionReader(connection)
        assert await positions.end_sequences("foo") == {
            "foo-write-west": 8,
            "foo-write-east": 1,
            "foo": 8,
        }
        await asyncio.to_thread(old.api, "STREAM.MSG.DELETE.foo", {"seq": 1})
        with pytest.raises(VstreamError, match="how much of `foo-write-east` is in `foo` cannot be told"):
            await positions.end_sequences("foo")


async def test_a_note_is_taken_instead_of_reading_back_unless_it_may_be_old(
    old: JetStreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def note(sources: list[str], noted: dict[str, int]) -> None:
        metadata = {key: str(seq) for key, seq in noted.items()}
        config = (await asyncio.to_thread(old.api, "STREAM.INFO.foo"))["config"]
        changed = {**config, "sources": [{"name": name} for name in sources], "metadata": metadata}
        await asyncio.to_thread(old.api, "STREAM.UPDATE.foo", changed)

    origin = "foo-write-west"
    until, since, of_foo = f"vstream.until.{origin}", f"vstream.from.{origin}", "vstream.from.foo"
    written: list[tuple[str, bytes, dict[str, str] | None]] = [(f"{origin}.a", b"", None)] * 5
    await asyncio.to_thread(fill, old, origin, written)
    await asyncio.to_thread(fill, old, "foo", [], sources=[{"name": origin}])
    await eventually(lambda: count(old) == 5)
    async with connect(Endpoint(urls=(old.url,)), "east") as connection:
        positions = LivePositionReader(connection)
        await note([], {until: 7})
        with monkeypatch.context() as patch:
            patch.setattr(reader_positions, "read_headers", None)
            assert await positions.sequence_after(origin, ["foo"]) == 8
        # It may have taken more since.
        await note([origin], {until: 3})
        assert await positions.sequence_after(origin, ["foo"]) == 6
        # What it took between the plan and the update is found, and nothing before that is looked at.
        await note([], {})
        assert await positions.last_taken("foo", {origin: (3, 3)}) == {origin: 5}
        assert await positions.last_taken("foo", {origin: (9, 5)}) == {origin: 9}
        await note([], {since: 4, of_foo: 4})
        assert await positions.start_sequences("foo") == {origin: 6}
        await note([], {since: 4, of_foo: 6})
        assert await positions.start_sequences("foo") == {origin: 4}


async def test_an_origin_of_which_readers_hold_nothing_more_goes_on_after_all_that_they_can_have_taken(
    old: JetStreamServer,
) -> None:
    origin = "foo-write-west"
    written: list[tuple[str, bytes, dict[str, str] | None]] = [(f"{origin}.a", b"", None)] * 5
    await asyncio.to_thread(fill, old, origin, written)
    await asyncio.to_thread(fill, old, "foo", [], sources=[{"name": origin, "opt_start_seq": 3}])
    await eventually(lambda: count(old) == 3)
    await asyncio.to_thread(old.api, "STREAM.PURGE.foo")
    async with connect(Endpoint(urls=(old.url,)), "east") as connection:
        positions = LivePositionReader(connection)
        # At least after 5: it sources nothing before 3, and it has stored three messages.
        assert await positions.sequence_after(origin, ["foo"]) == 3 + 3 + 1
        # Who never sourced it can have taken nothing.
        assert await positions.sequence_after("foo-write-north", ["foo"]) == 1


async def test_an_origin_whose_newest_messages_are_gone_from_a_reader_goes_on_after_all_that_it_can_have_taken(
    old: JetStreamServer,
) -> None:
    """Where another region has published the same subjects since, with `max_msgs_per_subject`, or their TTL is over."""
    origin = "foo-write-west"
    written: list[tuple[str, bytes, dict[str, str] | None]] = [(f"{origin}.{number}", b"", None) for number in range(8)]
    await asyncio.to_thread(fill, old, origin, written)
    await asyncio.to_thread(fill, old, "foo", [("foo.b", b"", None)], sources=[{"name": origin}])
    await eventually(lambda: count(old) == 9)
    newest = (await asyncio.to_thread(old.api, "STREAM.INFO.foo"))["state"]["last_seq"]
    for seq in range(newest - 2, newest + 1):
        await asyncio.to_thread(old.api, "STREAM.MSG.DELETE.foo", {"seq": seq})
    await asyncio.to_thread(fill, old, "foo", [("foo.b", b"", None)])
    async with connect(Endpoint(urls=(old.url,)), "east") as connection:
        positions = LivePositionReader(connection)
        held = await positions.find_position_in_lost(origin, "foo")
        assert held.seq is not None
        assert held.seq < len(written)
        # It may have stood anywhere up to the last one, and asks for what comes after that.
        assert await positions.sequence_after(origin, ["foo"]) == len(written) + 1
        # A reader that holds nothing of it any more may be further than one that does.
        await asyncio.to_thread(fill, old, "bar", [], sources=[{"name": origin}])
        await eventually(lambda: count(old, "bar") == len(written))
        await asyncio.to_thread(old.api, "STREAM.PURGE.foo")
        assert await positions.sequence_after(origin, ["foo", "bar"]) >= len(written) + 1


async def test_a_lost_origins_end_is_found_however_much_others_have_published_since(tmp_path: Path) -> None:
    with JetStreamServer(tmp_path) as server:
        written: list[tuple[str, bytes, dict[str, str] | None]] = [("foo-write-west.a", b"", None)] * 7
        await asyncio.to_thread(fill, server, "foo-write-west", written)
        await asyncio.to_thread(fill, server, "foo", [], sources=[{"name": "foo-write-west"}])
        await eventually(lambda: count(server) == len(written))
        config = await asyncio.to_thread(server.api, "STREAM.INFO.foo")
        await asyncio.to_thread(server.api, "STREAM.UPDATE.foo", {**config["config"], "sources": []})
        await asyncio.to_thread(fill, server, "foo", [("foo.b", b"", None)] * OTHERS)
        async with connect(Endpoint(urls=(server.url,)), "east") as connection:
            positions = LivePositionReader(connection)
            assert await positions.sequence_after("foo-write-west", ["foo"]) == 8
            position = await positions.find_position_in_lost("foo-write-north", "foo")
            assert (position.seq, position.last_heard_of) == (None, 0)


async def test_a_copy_holds_all_of_a_stream_whose_newest_messages_were_deleted(tmp_path: Path) -> None:
    """Such as the canaries of a probe: a mirror counts them when another message comes, which may be never."""
    gate = Gate(kind=GateKind.COPY_IS_COMPLETE, stream="foo", counterparts=("donor",))
    with JetStreamServer(tmp_path) as server:
        await asyncio.to_thread(fill, server, "donor", [("donor.a", b"", None)] * 7)
        for seq in (6, 7):
            await asyncio.to_thread(server.api, "STREAM.MSG.DELETE.donor", {"seq": seq})
        copy = {"mirror": {"name": "donor"}, "metadata": {"vstream.copy": "donor"}, "subjects": None}
        await asyncio.to_thread(fill, server, "foo", [], **copy)
        await eventually(lambda: count(server) == 5)
        async with connect(Endpoint(urls=(server.url,)), "east") as connection:
            checker = LiveGateChecker(connection)
            assert await checker.find_missing(gate) is None
            cut = {**(await asyncio.to_thread(server.api, "STREAM.INFO.foo"))["config"], "mirror": None}
            await asyncio.to_thread(server.api, "STREAM.UPDATE.foo", cut)
            await asyncio.to_thread(fill, server, "donor", [("donor.a", b"", None)])
            assert await checker.find_missing(gate) == "`foo` is at 5 of 8"


@pytest.mark.parametrize("version", ["2.12.8", None], ids=["2.12.8", "newest"])
async def test_a_copy_goes_only_if_its_origin_holds_the_same(version: str | None, tmp_path: Path) -> None:
    """A server that dies while a stream moves to it may have a part of it, and go on with that."""
    server = JetStreamServer(tmp_path, version)
    server.start()
    gate = Gate(kind=GateKind.COPIES_HOLD_NO_MORE, stream="foo", counterparts=("foo-read-west",))

    async def publish(number: int) -> None:
        await asyncio.to_thread(fill, server, "foo", [("foo.a", b"", None)] * number)

    try:
        await publish(900)
        await asyncio.to_thread(fill, server, "foo-read-west", [], subjects=None, mirror={"name": "foo"})
        async with connect(Endpoint(urls=(server.url,)), "west") as connection:
            checker = LiveGateChecker(connection)
            await eventually(lambda: count(server, "foo-read-west") == 900)
            assert await checker.find_missing(gate) is None
            await asyncio.to_thread(server.api, "STREAM.DELETE.foo", {})
            await publish(700)
            missing = await checker.find_missing(gate)
            ends = "`foo` ends at 700, and its copy `foo-read-west` at 900"
            assert missing == f"{ends}: it has lost messages that the copy holds"
            await publish(300)
            missing = await checker.find_missing(gate)
            assert missing is not None
            assert "has another message at" in missing
    finally:
        server.stop()


class EarlyClock(datetime):
    """That of a machine whose time is two hours ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(hours=2)


@pytest.mark.parametrize(
    ("limits", "may_be_removed"),
    [
        ({}, False),
        ({"max_age": 3600 * SECOND_NS}, False),
        ({"max_age": SECOND_NS}, True),
        ({"allow_rollup_hdrs": True}, True),
    ],
    ids=["unlimited", "1 h", "1 s", "rolled up"],
)
async def test_a_stream_that_has_moved_holds_what_it_held(
    limits: dict[str, Any], may_be_removed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless its age, by the servers' clock, or newer messages, may have removed that."""
    monkeypatch.setattr(gate_checks, "datetime", EarlyClock)
    server, gate = JetStreamServer(tmp_path, "2.12.8"), Gate(kind=GateKind.MOVE_IS_RECORDED, stream="foo")
    server.start()

    async def publish(number: int) -> None:
        await asyncio.to_thread(fill, server, "foo", [("foo.a", b"", None)] * number, **limits)

    try:
        await publish(900)
        async with connect(Endpoint(urls=(server.url,)), "west") as connection:
            checker = LiveGateChecker(connection)
            await checker.note_before_move("foo")
            await publish(10)
            assert await checker.find_missing(gate) is None
            await asyncio.to_thread(server.api, "STREAM.PURGE.foo", {"keep": 200})
            if may_be_removed:
                assert await checker.find_missing(gate) is None
                return
            lost = "`foo` has lost messages while it moved: it held 1 to 900, and now 711 to 910"
            with pytest.raises(VstreamError, match=lost):
                await checker.find_missing(gate)
            await asyncio.to_thread(server.api, "STREAM.DELETE.foo", {})
            await publish(1000)
            with pytest.raises(VstreamError, match="and now 1 to 1,000"):
                await checker.find_missing(gate)
    finally:
        server.stop()


async def test_what_an_earlier_run_noted_of_a_stream_that_moves_is_looked_for(tmp_path: Path) -> None:
    """That run was killed, and the stream's new server began with what came after the move."""
    server = JetStreamServer(tmp_path, "2.12.8")
    server.start()
    arrived = Gate(kind=GateKind.COPIES_HOLD_NO_MORE, stream="foo", counterparts=("foo-read-west",))
    recorded = Gate(kind=GateKind.MOVE_IS_RECORDED, stream="foo")

    async def api(name: str, request: Mapping[str, Any]) -> Any:
        return await asyncio.to_thread(server.api, name, request)

    try:
        await asyncio.to_thread(fill, server, "foo", [("foo.a", b"", None)] * 900)
        await asyncio.to_thread(fill, server, "foo-read-west", [], subjects=None, mirror={"name": "foo"})
        async with connect(Endpoint(urls=(server.url,)), "west") as connection:
            held = await LiveGateChecker(connection).note_before_move("foo")
            assert [*held] == [1, 900]
            config = StreamConfig(name="foo", fields=(await api("STREAM.INFO.foo", {}))["config"])
            await api("STREAM.UPDATE.foo", with_noted_move(config, 0, held).fields)
            await asyncio.to_thread(fill, server, "foo", [("foo.a", b"", None)] * 10)
            await eventually(lambda: count(server, "foo-read-west") == 910)
            checker = LiveGateChecker(connection)
            assert [await checker.find_missing(gate) for gate in (arrived, recorded)] == [None, None]
            await api("STREAM.PURGE.foo", {"seq": 902})
            with pytest.raises(VstreamError, match="held 1 to 900, and now 902 to 910, and 2 of 2 compared are gone"):
                await checker.find_missing(recorded)
            missing = await checker.find_missing(arrived)
            assert missing is not None
            assert missing.startswith("`foo` begins at 902, and held 900 before it moved: it has lost messages")
            await api("STREAM.PURGE.foo-read-west", {"seq": 902})
            assert await checker.find_missing(arrived) is None
    finally:
        server.stop()


async def test_every_gate_is_checked(tmp_path: Path) -> None:
    with JetStreamServer(tmp_path) as server:
        async with connect(Endpoint(urls=(server.url,)), "west") as connection:
            for kind in GateKind:
                gate = Gate(kind=kind, stream="foo", counterparts=("foo-read-west",))
                assert "stream not found" in (await LiveGateChecker(connection).find_missing(gate) or "")


async def test_what_a_former_read_stream_lacks_is_waited_for_but_not_what_comes_meanwhile(old: JetStreamServer) -> None:
    gate = Gate(kind=GateKind.HAS_ALL_OF_FORMER, stream="foo", counterparts=("foo-read-west",))
    written, skipped = "foo-write-west.written", "foo-write-west.skipped"
    source = {"name": "foo-write-west", "filter_subject": written}
    await asyncio.to_thread(fill, old, "foo-write-west", [(written, b"", None), (skipped, b"", None)])
    await asyncio.to_thread(fill, old, "foo-read-west", [], subjects=None, sources=[source])
    await asyncio.to_thread(fill, old, "foo", [], subjects=None, sources=[{"name": "foo-read-west"}])
    await eventually(lambda: count(old) == 1)
    async with connect(Endpoint(urls=(old.url,)), "west") as connection:
        checker = LiveGateChecker(connection)
        lacks = "`foo-read-west` is at 1 of 2 in `foo-write-west`"
        assert await checker.find_missing(gate) == lacks
        await asyncio.to_thread(fill, old, "foo-write-west", [(written, b"", None), (skipped, b"", None)])
        await eventually(lambda: count(old) == 2)
        assert await checker.find_missing(gate) is None
        assert await LiveGateChecker(connection).find_missing(gate) is not None


async def test_a_copy_in_which_there_never_was_a_message_may_go(tmp_path: Path) -> None:
    gate = Gate(kind=GateKind.COPIES_HOLD_NO_MORE, stream="foo", counterparts=("foo-read-west",))
    with JetStreamServer(tmp_path) as server:
        await asyncio.to_thread(fill, server, "foo", [])
        await asyncio.to_thread(fill, server, "foo-read-west", [], subjects=None, mirror={"name": "foo"})
        async with connect(Endpoint(urls=(server.url,)), "west") as connection:
            assert await LiveGateChecker(connection).find_missing(gate) is None


async def test_a_stream_that_another_run_has_resumed_is_not_waited_for(tmp_path: Path) -> None:
    """Clients publish into it: it is never at rest."""
    gate = Gate(kind=GateKind.PUBLISHES_ARE_STORED, stream="foo")
    with JetStreamServer(tmp_path) as server:
        await asyncio.to_thread(fill, server, "foo", [])
        async with connect(Endpoint(urls=(server.url,)), "west") as connection:
            with pytest.raises(RefusedError, match="does another `apply` run"):
                await LiveGateChecker(connection).find_missing(gate)


async def test_a_stream_that_still_grows_is_not_at_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_checks, "STEADY_SECONDS", 0.2)
    gate = Gate(kind=GateKind.SOURCED_MESSAGES_ARE_STORED, stream="foo")
    with JetStreamServer(tmp_path) as server:
        await asyncio.to_thread(fill, server, "foo", [])
        async with connect(Endpoint(urls=(server.url,)), "east") as connection:
            checker, until = LiveGateChecker(connection), time.monotonic() + 3 * gate_checks.STEADY_SECONDS
            while time.monotonic() < until:
                await connection.request_json("foo.a")
                missing = await checker.find_missing(gate)
                assert missing is not None
                assert missing.startswith("`foo` is at ")
            deadline = time.monotonic() + 60
            while await checker.find_missing(gate) is not None:
                assert time.monotonic() < deadline


@pytest.mark.lab
async def test_a_stream_that_is_scaled_is_there_when_all_of_its_replicas_are_current(
    state: Path, tmp_path: Path
) -> None:
    file, name = tmp_path / "scaled.yaml", "foo-write-west"
    file.write_text(
        'version: 1\nname: scaled\nserver_version: "2.12"\nregions: {west: {servers: 3}}\n'
        "streams: {foo: {subjects: [foo.>], replicas: 1, write: {max_age: unlimited}}}\n"
    )
    for arguments in (("lab", "up", file), ("apply", file, "--yes")):
        ran = await asyncio.to_thread(vstream, *arguments)
        assert ran.code == 0, ran.err
    west = list_endpoints("scaled")["west"]
    async with connect(west, "west") as connection:
        info = await connection.request_json(f"$JS.API.STREAM.INFO.{name}")
    leader = next(address for address in list_addresses("scaled") if address.server.name == info["cluster"]["leader"])
    async with connect(replace(west, urls=(f"nats://127.0.0.1:{leader.client}",)), "west") as connection:
        checker, gate = LiveGateChecker(connection), Gate(kind=GateKind.REPLICAS_ARE_CURRENT, stream=name)
        assert await checker.find_missing(gate) is None
        asked = {leader.server.name, await find_meta_leader(west.monitor)}
        stopped = next(pid for server, pid in pids("scaled").items() if server not in asked and pid is not None)
        os.kill(stopped, signal.SIGSTOP)
        try:
            larger = json.dumps({**info["config"], "num_replicas": 3}).encode()
            await connection.request(f"$JS.API.STREAM.UPDATE.{name}", larger, timeout=30)
            assert await checker.find_missing(gate) in {
                f"`{name}` has 1 replicas on its way to 3",
                f"not all replicas of `{name}` are current",
                f"`{name}` has no leader",
            }
        finally:
            os.kill(stopped, signal.SIGCONT)
        await wait_for_gate(checker, gate)
        topology = check_topology(await asyncio.to_thread(file.read_bytes), file.name).require()
        await check_that_replicas_are_compared(connection, topology, name)
    await asyncio.to_thread(vstream, "lab", "down", "scaled", "--purge")


async def wait_for_gate(checker: LiveGateChecker, gate: Gate) -> None:
    async with asyncio.timeout(60):
        while await checker.find_missing(gate) is not None:
            await asyncio.sleep(0.1)


async def check_that_replicas_are_compared(connection: Connection, topology: Topology, name: str) -> None:
    """Also where a replica is current, and has begun with what came after the stream was scaled up."""
    gate, read = Gate(kind=GateKind.REPLICAS_ARE_COMPLETE, stream=name), []
    replicas = ReplicaReader(topology, Servers(endpoints={}, lab="scaled", description=""))
    for number in range(3):
        await connection.request(f"_vs.foo.west.foo.{number}", b"", timeout=30)

    async def read_first_sequences(stream: str, created: str) -> Mapping[str, int]:
        read.append(await replicas.read_first_sequences(stream, created))
        return read[-1]

    async def read_late(stream: str, created: str) -> Mapping[str, int]:
        return {server: first + 2 for server, first in read[-1].items()}

    checker = LiveGateChecker(connection, read_replicas=read_first_sequences)
    await wait_for_gate(checker, gate)
    assert read[-1] == {"west-1": 1, "west-2": 1, "west-3": 1}
    late = LiveGateChecker(connection, read_replicas=read_late)
    lacks = rf"`{name}`: the replica on `west-\d` begins at 3, the leader on `west-\d` at 1: it lacks messages"
    with pytest.raises(VstreamError, match=lacks):
        await wait_for_gate(late, gate)

    async def read_nothing(stream: str, created: str) -> Mapping[str, int]:
        return dict.fromkeys(read[-1], 0)

    empty = LiveGateChecker(connection, read_replicas=read_nothing)
    for kind in (GateKind.REPLICAS_ARE_COMPLETE, GateKind.QUORUM_IS_CURRENT):
        assert "hold nothing of" in (await empty.find_missing(Gate(kind=kind, stream=name)) or "")
    # What limits remove from the front meanwhile, they may have removed from a replica first.
    limited = LiveGateChecker(connection, read_replicas=read_late)
    assert await limited.find_missing(gate) is not None
    await connection.request(f"$JS.API.STREAM.PURGE.{name}", b'{"seq": 3}', timeout=30)
    await wait_for_gate(limited, gate)
