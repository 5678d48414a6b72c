"""Messages put in, copies deleted and leftovers cleared, on one server that plays all three regions."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import pytest_asyncio
from rich.progress import Progress

from tests.support import single_server
from tests.support.probe_lab import REGIONS, render, topology
from tests.support.topologies import begin_topology
from vstream.cli.views.repair import RepairView
from vstream.errors import RefusedError, VstreamError
from vstream.health.live import gaps, lag
from vstream.health.repair import pipeline
from vstream.health.repair.contents import Duplicates, Replay
from vstream.health.repair.live import duplicates, missing, newest, replay, scan
from vstream.health.repair.live.scan import ignore_progress
from vstream.health.snapshot import Gap, Lag, StreamSnapshot, parse_stream
from vstream.jetstream import direct
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.reconnecting import ReconnectingConnection, open_reconnecting
from vstream.jetstream.source_header import parse_provenance, parse_replay
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle

if TYPE_CHECKING:
    from vstream.servers.target_servers import TargetServers
    from vstream.topology.model import Topology

pytestmark = pytest.mark.server

Message = tuple[str, int, str, bytes]
"""Origin, sequence there, subject, payload."""
EAST = "foo-read-east"
WEST = "foo-write-west"
READ = tuple(f"foo-read-{region}" for region in REGIONS)
(STREAM,) = topology().streams
HOMED = begin_topology("probed", "2.10", west=1, central=1, east=1) + (
    "streams: {foo: {subjects: [foo.>], consistency: homed, home: west}}\n"
)
LATE_CLOCK = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() - 600)
"""That of a machine whose time is ten minutes behind that of the servers."""


class Regions:
    """The physical streams of all regions on one server."""

    def __init__(self, server: single_server.SingleServer, connections: Mapping[str, ReconnectingConnection]) -> None:
        self.server = server
        self.connections = connections
        self.connection = connections["east"]
        self.configs: dict[str, dict[str, Any]] = {
            stream.config.name: {**stream.config.fields, "placement": None} for stream in render(()).streams
        }

    async def api(self, subject: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        answer = await self.connection.request_json(f"$JS.API.{subject}", body, timeout=20)
        assert "error" not in answer, answer
        return answer

    async def create(self, changes: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        for name, config in self.configs.items():
            await self.api(f"STREAM.CREATE.{name}", {**config, **(changes or {}).get(name, {})})

    async def publish(self, region: str, subject: str, data: bytes = b"data", msg_id: str | None = None) -> Message:
        headers = {"X-Own": "y"} if msg_id is None else {"X-Own": "y", "Nats-Msg-Id": msg_id}
        reply = await self.connection.request(f"_vs.foo.{region}.{subject}", data, headers=headers)
        return f"foo-write-{region}", int(json.loads(reply.data)["seq"]), subject, data

    async def publish_after_a_crash(self, subject: str) -> Message:
        """What the west publishes as soon as the server, which is killed and started again, takes it."""
        self.server.kill()
        await self.server.start()
        return await self.publish_when_taken(subject)

    async def publish_when_taken(self, subject: str) -> Message:
        deadline = time.monotonic() + 60
        while True:
            try:
                return await self.publish("west", subject)
            except VstreamError:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)

    async def read_held(self, stream: str = EAST) -> list[Message]:
        result: list[Message] = []
        seq = 1
        while (message := await direct.get_next_from_leader(self.connection, stream, ">", seq)) is not None:
            provenance = parse_provenance(message.headers)
            assert provenance is not None
            result.append((provenance.origin, provenance.seq, message.subject, message.data))
            seq = message.seq + 1
        return result

    async def until_held(self, wanted: set[Message], *streams: str) -> None:
        """Return once *streams* hold *wanted*, each once, and nothing else."""
        deadline = time.monotonic() + 60
        while True:
            contents = {stream: Counter(await self.read_held(stream)) for stream in streams or (EAST,)}
            if all(messages == Counter(wanted) for messages in contents.values()):
                return
            assert time.monotonic() < deadline, contents
            await asyncio.sleep(0.02)

    async def until_count(self, number: int) -> None:
        deadline = time.monotonic() + 60
        while (count := (await self.api(f"STREAM.INFO.{EAST}"))["state"]["messages"]) != number:
            assert time.monotonic() < deadline, (count, number)
            await asyncio.sleep(0.02)

    async def find_reused_sequences(self, of: Topology | None = None) -> dict[str, str]:
        """By reader, what the west has stored again under sequences that the reader had taken."""
        request = pipeline.RepairRequest(
            topology=of or topology(),
            target=cast("TargetServers", None),
            kinds=frozenset({pipeline.RepairKind.REPLAY}),
            streams=frozenset({STREAM.name}),
            timeout=single_server.DEADLINE,
            is_approved=True,
        )
        observer = RepairView(Progress(disable=True), is_text=False)
        _, plan = await pipeline._plan_contents(request, request.kinds, self.connections, observer)
        result = pipeline.RepairResult(request=request, contents=plan)
        assert not plan.unread, "unread"
        assert (result.outcome is pipeline.RepairEnd.OPEN) == bool(plan.reused)
        assert result.as_dict()["reused"] == [reused.as_dict() for reused in plan.reused]
        assert {reused.origin for reused in plan.reused} <= {WEST, STREAM.name}
        return {reused.reader: reused.sequences.describe() for reused in plan.reused}

    async def look(self) -> tuple[Replay, ...]:
        """What is missing, and why it stays so."""
        contents = await missing.read_contents(STREAM, self.connections, ignore_progress)
        return (await missing.plan_replays(topology(), contents, self.connections, ignore_progress)).replays

    async def read_states(self) -> dict[str, StreamSnapshot]:
        return {name: parse_stream(await self.api(f"STREAM.INFO.{name}"), name) for name in self.configs}

    async def find_lag(self, origin: str) -> Lag:
        """Of the read stream of the east."""
        lags = await lag.measure_lag(topology(), await self.read_states(), self.connections, time.monotonic() + 60)
        return lags[origin, EAST]

    async def repair(self) -> int:
        """Put in what is missing; returns how many messages that were."""
        replays = await self.look()
        for gap in replays:
            assert not await replay.replay_missing(topology(), gap, self.connections, ignore_progress)
        return sum(gap.count for gap in replays)

    async def doubles(self) -> Duplicates | None:
        contents = await missing.read_contents(STREAM, self.connections, ignore_progress)
        copies = await duplicates.find_duplicates(contents, ignore_progress)
        return next((each for each in copies if each.reader == EAST), None)

    async def delete(self) -> tuple[int, int]:
        contents = await missing.read_contents(STREAM, self.connections, ignore_progress)
        (scan,) = [scan for scan in contents.scans if scan.name == EAST]
        return await duplicates.delete_duplicates(scan, ignore_progress)

    def narrow(self) -> dict[str, Any]:
        """The read stream of the east, which passes what is not on `foo.>` in the west as if it had skipped it."""
        return {
            "sources": [
                source | {"subject_transforms": [{"src": "_vs.foo.west.foo.>", "dest": "foo.>"}]}
                if source["name"] == WEST
                else source
                for source in self.configs[EAST]["sources"]
            ]
        }


@asynccontextmanager
async def open_regions(server: single_server.SingleServer) -> AsyncIterator[Regions]:
    """Without the checks of `connect_reconnecting`: the server is in no region's cluster."""
    async with AsyncExitStack() as stack:
        connections = {}
        for region in REGIONS:
            connection = await open_reconnecting(
                server.endpoint,
                region,
                name="vstream",
                accepts_server=lambda *_: True,
                within=single_server.DEADLINE,
                is_rehearsal=False,
            )
            stack.push_async_callback(connection.close)
            connections[region] = connection
        yield Regions(server, connections)


@pytest_asyncio.fixture(params=["2.15.1", "2.12.8"])
async def regions(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Regions]:
    """On servers that store how far they are in their sources, and on some that look it up in what they hold."""
    async with single_server.running(tmp_path, request.param) as server, open_regions(server) as regions:
        yield regions


class KilledError(Exception):
    """Stands for SIGKILL: nothing is cleaned up after it."""


async def until_killed(regions: Regions, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """A replay that ends when *after* messages were put in; 0 is before the reader sources."""
    (gap,) = await regions.look()

    async def nothing(*_: object) -> None:
        pass

    async def die(*_: object) -> None:
        raise KilledError

    running: list[bool] = []

    async def ask() -> None:
        running.extend(leftover.is_running for leftover in await replay.find_leftovers(topology(), regions.connection))

    def tick(done: int, _: int) -> None:
        if done == after:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(replay, "remove_leftover", nothing)
        patch.setattr(replay._TemporaryStream, "stop_answering", lambda _: ask())
        if not after:
            patch.setattr(JetStreamAdmin, "update", die)
        with pytest.raises(KilledError):
            await replay.replay_missing(topology(), gap, regions.connections, tick)
    # As long as it runs, nobody takes away what it uses.
    assert running == [True]


async def test_a_killed_repair_goes_on(regions: Regions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await regions.create({EAST: regions.narrow()})
    expected: set[Message] = set()
    for number in range(6):
        expected.add(await regions.publish("west", f"foo.{number}"))
        for more in range(number + 1):
            expected.add(await regions.publish("west", f"bar.{number}-{more}.baz", msg_id=f"{number}-{more}"))
        expected.add(await regions.publish("central", f"foo.{number}"))
    # What comes last has to arrive: before, nobody can tell whether the others are on their way.
    expected.add(await regions.publish("west", "foo.last"))
    await regions.until_held(expected, "foo-read-west", "foo-read-central")
    await regions.until_held({message for message in expected if message[2].startswith("foo.")})
    left = 21
    for after, readers in ((0, ()), (1, (EAST,)), (4, (EAST,))):
        # A connection of its own, as the process that is killed has it: nobody answers there afterwards.
        async with open_regions(regions.server) as killed:
            await until_killed(killed, monkeypatch, after)
        (leftover,) = await replay.find_leftovers(topology(), regions.connection)
        assert (leftover.readers, leftover.is_running) == (readers, False)
        await replay.remove_leftover(regions.connection, leftover)
        assert not await replay.find_leftovers(topology(), regions.connection)
        (gap,) = await regions.look()
        assert left - after <= gap.count <= left
        left = gap.count
    assert await regions.repair() == left
    await regions.until_held(expected)
    assert not [name for name in (await regions.api("STREAM.NAMES"))["streams"] if parse_replay(name)]
    assert await regions.repair() == 0
    # A server that looks for where to go on passes what was put in.
    expected.add(await regions.publish_after_a_crash("foo.after"))
    await regions.until_held(expected)


async def test_two_repairs_at_the_same_time_put_nothing_in_twice(regions: Regions) -> None:
    await regions.create({EAST: regions.narrow()})
    expected = {await regions.publish("west", f"bar.{number}") for number in range(40)}
    expected.add(await regions.publish("west", "foo.last"))
    await regions.until_held(expected, "foo-read-west", "foo-read-central")
    await regions.until_count(1)
    (gap,), second = await regions.look(), list[asyncio.Task[object]]()

    def begin_another(done: int, _: int) -> None:
        if done == 1:
            second.append(
                asyncio.ensure_future(replay.replay_missing(topology(), gap, regions.connections, ignore_progress))
            )

    assert not await replay.replay_missing(topology(), gap, regions.connections, begin_another)
    with pytest.raises(RefusedError, match="another repair puts messages into `foo-read-east`"):
        await second[0]
    # Of one that ended meanwhile, all that is left to see is what it has put in.
    assert not await replay.replay_missing(topology(), gap, regions.connections, ignore_progress)
    await regions.until_held(expected)
    assert not await replay.find_leftovers(topology(), regions.connection)


async def test_only_what_is_the_same_in_everything_is_deleted(regions: Regions) -> None:
    await regions.create()
    expected = {await regions.publish("west", f"foo.{number}", b"%d" % number) for number in (1, 2)}
    await regions.until_held(expected)
    # Somebody has left a stream as a repair makes it, with something else in it.
    left, config = f"{WEST}:RplBBBBB", regions.configs[EAST]
    subjects = "_vsr.RplBBBBB"
    await regions.api(
        f"STREAM.CREATE.{left}",
        {
            "name": left,
            "subjects": [f"{subjects}.>"],
            "subject_transform": {"src": f"{subjects}.>", "dest": ">"},
            "metadata": {replay.REPAIR_KEY: "probed"},
        },
    )
    for number, data in ((1, b"another"), (2, b"2")):
        await regions.connection.request(f"{subjects}._vs.foo.west.foo.{number}", data, headers={"X-Own": "y"})
    source = next(source for source in config["sources"] if source["name"] == WEST)
    sources = [*config["sources"], {**source, "name": left}]
    await regions.api(f"STREAM.UPDATE.{EAST}", {**config, "sources": sources})
    await regions.until_count(4)
    (leftover,) = await replay.find_leftovers(topology(), regions.connection)
    assert leftover.readers == (EAST,)
    await replay.remove_leftover(regions.connection, leftover)
    doubles = await regions.doubles()
    assert doubles is not None
    assert (doubles.count, dict(doubles.differing)) == (1, {"their payloads differ": 1})
    assert await regions.delete() == (1, 1)
    again = await regions.doubles()
    assert again is not None
    assert (again.count, again.differing_examples) == (0, doubles.differing_examples)
    await regions.until_held(expected | {(WEST, 1, "foo.1", b"another")})


async def test_what_a_source_that_was_changed_brings_again_is_deleted(regions: Regions) -> None:
    await regions.create()
    expected = {await regions.publish("west", f"foo.{number}") for number in range(5)}
    await regions.until_held(expected)
    # For servers it is another source, which begins at the beginning.
    await regions.api(f"STREAM.UPDATE.{EAST}", {**regions.configs[EAST], **regions.narrow()})
    await regions.until_count(10)
    assert await regions.delete() == (5, 0)
    expected.add(await regions.publish("west", "foo.5"))
    await regions.until_held(expected)
    # Back again: it goes on behind the last message that it has left there, whatever `opt_start_seq` says.
    sources = [
        source | {"opt_start_seq": 7} if source["name"] == WEST else source
        for source in regions.configs[EAST]["sources"]
    ]
    await regions.api(f"STREAM.UPDATE.{EAST}", {**regions.configs[EAST], "sources": sources})
    await regions.until_count(8)
    doubles = await regions.doubles()
    assert doubles is not None
    assert await regions.delete() == (doubles.count, 0)
    await regions.until_held(expected)
    # Servers before 2.15 find where to go on in what was left for them.
    expected.add(await regions.publish_after_a_crash("foo.6"))
    await regions.until_held(expected)
    assert await regions.doubles() is None


async def test_where_the_last_of_a_subject_counts_only_that_comes_back(regions: Regions) -> None:
    await regions.create({EAST: {**regions.narrow(), "max_msgs_per_subject": 1}})
    first = {await regions.publish("west", "foo.before")}
    for number in range(3):
        last = await regions.publish("west", "bar.key.baz", b"%d" % number)
    stale = await regions.publish("west", "bar.other.baz", b"old")
    last_one = await regions.publish("west", "foo.after")
    await regions.until_held(first | {last_one})
    # Somebody has written this one later, in another region.
    newer = await regions.publish("central", "bar.other.baz", b"new")
    await regions.until_held(first | {last_one, newer})
    assert stale[1] == 5
    assert await regions.repair() == 1
    await regions.until_held(first | {last_one, newer, last})
    assert await regions.repair() == 0


async def test_of_a_key_that_several_regions_have_written_only_the_last_value_comes_back(regions: Regions) -> None:
    await regions.create({EAST: {"max_msgs_per_subject": 1}})
    for region, value in (("central", b"old"), ("west", b"new")):
        last = await regions.publish(region, "bar.key.baz", value)
        await regions.until_held({last})
    # Servers before 2.15 show by a later message that they have come past one.
    later = {await regions.publish(region, f"foo.{region}") for region in ("central", "west")}
    await regions.until_held({last, *later})
    await regions.api(f"STREAM.MSG.DELETE.{EAST}", {"seq": 2})
    assert await regions.repair() == 1
    await regions.until_held({last, *later})
    assert await regions.repair() == 0


@pytest.mark.parametrize("keeps", [1, 3])
async def test_what_later_arrivals_have_replaced_comes_back_only_where_one_value_counts(
    regions: Regions, keeps: int
) -> None:
    """The east hears the centre last: what that wrote first arrives behind the value that was written last."""
    sources = {source["name"]: source for source in regions.configs[EAST]["sources"]}
    await regions.create({EAST: {"max_msgs_per_subject": keeps, "sources": [sources[WEST]]}})
    earlier = [await regions.publish("central", "bar.key.baz", b"%d" % number) for number in range(3)]
    last = await regions.publish("west", "bar.key.baz", b"last")
    await regions.until_held({last})
    await regions.api(f"STREAM.UPDATE.{EAST}", {**regions.configs[EAST], "max_msgs_per_subject": keeps})
    # Servers before 2.15 show by a later message that they have come past one.
    later = {await regions.publish(region, f"foo.{region}") for region in ("central", "west")}
    await regions.until_held({*earlier[-keeps:], *later})
    # Of three, it would push out another, and regions that hold it before others would not follow.
    is_wanted = keeps == 1
    assert await regions.repair() == is_wanted
    await regions.until_held({last if is_wanted else earlier[-1], *earlier[-keeps:-1], *later})
    assert await regions.repair() == 0


async def test_the_newest_of_a_subject_comes_back_before_older_ones_and_of_these_it_is_told(regions: Regions) -> None:
    await regions.create({EAST: {"max_msgs_per_subject": 3}})
    sent = [await regions.publish("west", f"foo.{number % 2}", b"%d" % number) for number in range(12)]
    # Servers before 2.15 show by a later message that they have come past one.
    sent.append(await regions.publish("west", "foo.later"))
    await regions.until_held(set(sent[-7:]))
    # What limits have removed is not missing, and neither is what came for it.
    assert await regions.look() == ()
    await regions.api(f"STREAM.MSG.DELETE.{EAST}", {"seq": 12})
    assert await regions.repair() == 1
    await regions.until_held(set(sent[-7:]))
    assert await regions.repair() == 0
    # One that is not the newest would come back as the newest.
    held = await regions.read_held()
    assert held[-1] == sent[11]
    await regions.api(f"STREAM.MSG.DELETE.{EAST}", {"seq": 9})
    (gap,) = await regions.look()
    assert (gap.count, {reason: len(lost) for reason, lost in gap.irreparable.items()}) == (0, {newest.OLDER: 1})
    assert gap.irreparable[newest.OLDER].runs() == [(9, 9)]
    # Nor is it forgotten once its subject is full again: older ones are there, which a limit would have removed first.
    await regions.publish("west", "foo.0")
    await regions.until_count(7)
    (full,) = await regions.look()
    assert full.irreparable == gap.irreparable


async def test_what_is_lost_of_a_key_is_judged_over_all_that_write_it(
    regions: Regions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest, "CLOCK_SKEW_SECONDS", 0.0)
    await regions.create({EAST: {"max_msgs_per_subject": 2}})
    held: list[Message] = []
    for region in ("west", "west", "central", "east"):
        held.append(await regions.publish(region, "foo.key"))
        await regions.until_held(set(held[-2:]))
    # Servers before 2.15 show by a later message that they have come past one.
    later = {await regions.publish(region, f"foo.{region}") for region in REGIONS}
    await regions.until_held({*held[-2:], *later})
    await regions.api(f"STREAM.PURGE.{EAST}", {"filter": "foo.key"})
    # The first two were replaced before: of the other two, the last one comes back.
    assert {gap.origin: (gap.count, *map(len, gap.irreparable.values())) for gap in await regions.look()} == {
        "foo-write-central": (0, 1),
        "foo-write-east": (1,),
    }
    assert await regions.repair() == 1
    await regions.until_held({held[-1], *later})
    # A message that is older than what the west writes now is still there when its subject is full again.
    lost = await regions.publish("west", "foo.key")
    await regions.until_held({held[-1], lost, *later})
    state = (await regions.api(f"STREAM.INFO.{EAST}"))["state"]
    await regions.api(f"STREAM.MSG.DELETE.{EAST}", {"seq": state["last_seq"]})
    last = await regions.publish("central", "foo.key")
    later.add(await regions.publish("west", "foo.west"))
    await regions.until_held({held[-1], last, *later})
    left = {gap.origin: [sequences.runs() for sequences in gap.irreparable.values()] for gap in await regions.look()}
    assert left[WEST] == [[(lost[1], lost[1])]]


async def test_what_a_counter_lacks_is_told_and_not_put_in(regions: Regions) -> None:
    counting = {name: {"allow_msg_counter": True} for name in regions.configs}
    await regions.create(counting)
    for _ in range(4):
        await regions.connection.request("_vs.foo.west.foo.hits", b"", headers={"Nats-Incr": "+2"})
    await regions.until_count(4)
    await regions.api(f"STREAM.MSG.DELETE.{EAST}", {"seq": 2})
    (gap,) = await regions.look()
    assert (gap.count, [len(lost) for lost in gap.irreparable.values()]) == (0, [1])


async def test_what_was_purged_comes_back_where_age_cannot_have_removed_it(regions: Regions) -> None:
    await regions.create({EAST: {"max_age": 30 * 86_400 * 10**9}})
    sent = {await regions.publish("west", f"foo.{number}") for number in range(5)}
    await regions.until_held(sent)
    await regions.api(f"STREAM.PURGE.{EAST}")
    later = await regions.publish("west", "foo.later")
    await regions.until_held({later})
    assert await regions.repair() == 5
    await regions.until_held({*sent, later})


async def test_what_has_expired_does_not_come_back_where_the_clock_here_is_late(
    regions: Regions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "time", LATE_CLOCK)
    await regions.create({EAST: {"max_age": 10**9}})
    sent = {await regions.publish("west", f"foo.{number}") for number in range(3)}
    await regions.until_held(sent, READ[0])
    await regions.until_held(set())
    await regions.publish("west", "foo.later")
    assert await regions.look() == ()


async def publish_until(done: asyncio.Event, regions: Regions) -> set[Message]:
    published = set()
    while not done.is_set():
        published.add(await regions.publish("west", "foo.busy"))
        await asyncio.sleep(0.01)
    return published


async def test_what_a_write_stream_has_no_more_comes_back_before_it_stores_anything_else(regions: Regions) -> None:
    """As of a region that was away for longer than `max_age`: nothing that arrives says how far it is."""
    await regions.create()
    sent = {await regions.publish("west", f"foo.{number}") for number in range(3)}
    await regions.until_held(sent)
    config = regions.configs[EAST]
    other_sources = [source for source in config["sources"] if source["name"] != WEST]
    await regions.api(f"STREAM.UPDATE.{EAST}", {**config, "sources": other_sources})
    missed = {await regions.publish("west", f"foo.{number}") for number in range(3, 5)}
    await regions.until_held({*sent, *missed}, "foo-read-west", "foo-read-central")
    await regions.api(f"STREAM.PURGE.{WEST}")
    # While more comes of that origin elsewhere, what it has no more may be on its way.
    done = asyncio.Event()
    publishing = asyncio.create_task(publish_until(done, regions))
    replays = await regions.look()
    done.set()
    missed |= await publishing
    assert replays == ()
    await regions.until_held({*sent, *missed}, "foo-read-west", "foo-read-central")
    await regions.api(f"STREAM.PURGE.{WEST}")
    await regions.api(f"STREAM.UPDATE.{EAST}", config)
    assert await regions.repair() == len(missed)
    await regions.until_held({*sent, *missed})
    assert await regions.repair() == 0


async def test_what_was_dropped_as_a_duplicate_is_neither_late_nor_skipped_nor_missing(
    regions: Regions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that got no answer publishes again in another region. What has only the same id is lost."""
    monkeypatch.setattr(lag, "BEHIND_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(lag, "time", LATE_CLOCK)
    await regions.create({EAST: {"duplicate_window": 120 * 10**9}})
    sent = {await regions.publish("west", "foo.a", msg_id="same")}
    sent |= {await regions.publish(region, "foo.a") for region in REGIONS}
    await regions.until_held(sent)
    await regions.publish("central", "foo.a", msg_id="same")
    assert (await regions.find_lag("foo-write-central")).oldest_seq is None
    await regions.publish("east", "foo.a", b"other", msg_id="same")
    assert (await regions.find_lag("foo-write-east")).oldest_seq == 2
    for number, region in ((5, "central"), (6, "east")):
        await regions.publish(region, "foo.b")
        await regions.until_count(number)
    skipped = await gaps.find_gaps_and_repeats(
        topology(), await regions.read_states(), regions.connections, time.monotonic() + 60
    )
    assert [gap for gap in skipped if gap.reader == EAST] == [
        Gap(reader=EAST, origin="foo-write-east", first=2, last=2)
    ]
    replays = [planned for planned in await regions.look() if planned.reader == EAST]
    assert [(planned.origin, list(planned.sequences)) for planned in replays] == [("foo-write-east", [2])]


async def test_a_subject_that_is_no_text_hides_nothing_else_and_is_not_put_in_under_another(regions: Regions) -> None:
    await regions.create()
    reader, writer = await asyncio.open_connection("127.0.0.1", regions.server.port)
    writer.write(b"CONNECT {}\r\nPUB _vs.foo.west.foo.\xff 1\r\nx\r\nPING\r\n")
    await reader.readuntil(b"PONG")
    writer.close()
    await regions.publish("west", "foo.a")
    await regions.until_count(2)
    assert await regions.repair() == 0
    await regions.api(f"STREAM.PURGE.{EAST}")
    await regions.publish("west", "foo.b")
    await regions.until_count(1)
    (planned,) = [planned for planned in await regions.look() if planned.reader == EAST]
    assert (planned.count, list(planned.irreparable)) == (1, ["its subject is not UTF-8"])
    assert await regions.repair() == 1
    await regions.until_count(2)


class LostEnd:
    """A power loss: *stream* comes back as its disk had it once."""

    def __init__(self, regions: Regions, directory: Path, stream: str = WEST) -> None:
        self.regions = regions
        self.stored = directory / "store" / "jetstream" / "$G" / "streams" / stream
        self.kept = directory / "kept"

    async def keep(self) -> None:
        """Take what the disk has now."""
        self.regions.server.kill()
        shutil.copytree(self.stored, self.kept)
        await self.regions.server.start()

    async def lose(self) -> None:
        """Lose what was stored since, and stay away for as long as machines do that start again."""
        self.regions.server.kill()
        back_at = time.monotonic() + 1
        shutil.rmtree(self.stored)
        shutil.copytree(self.kept, self.stored)
        while time.monotonic() < back_at:
            await asyncio.sleep(0.05)
        await self.regions.server.start()


async def test_what_took_the_sequences_of_lost_messages_is_told(regions: Regions, tmp_path: Path) -> None:
    await regions.create()
    disk = LostEnd(regions, tmp_path)
    sent = {await regions.publish("west", f"foo.{number}") for number in range(4)}
    await regions.until_held(sent, *READ)
    await disk.keep()
    lost = {await regions.publish_when_taken("foo.lost")}
    lost |= {await regions.publish("west", f"foo.lost.{number}") for number in range(5)}
    await regions.until_held({*sent, *lost}, *READ)
    assert await regions.find_reused_sequences() == {}
    await disk.lose()
    # The same message again, as a client publishes it that got no answer, is where it was.
    await regions.publish_when_taken("foo.lost")
    skipped = [await regions.publish("west", f"foo.new.{number}") for number in range(3)]
    assert [message[1] for message in skipped] == [6, 7, 8]
    # Not only once it is past them: before, what comes next is not lost, either.
    assert await regions.find_reused_sequences() == dict.fromkeys(READ, "6-8")
    skipped += [await regions.publish("west", f"foo.new.{number}", msg_id=f"{number}") for number in range(3, 5)]
    later = {await regions.publish("west", f"foo.later.{number}") for number in range(3)}
    await regions.until_held({*sent, *lost, *later}, *READ)
    assert await regions.repair() == 0
    assert await regions.find_reused_sequences() == dict.fromkeys(READ, "6-10")
    # One that was published again under its id is there, and one that was published under another may be deleted.
    later.add(await regions.publish("central", "foo.new.4", msg_id="4"))
    await regions.until_held({*sent, *lost, *later}, *READ)
    assert await regions.find_reused_sequences() == dict.fromkeys(READ, "6-9")
    for _, seq, _, _ in skipped[:-1]:
        await regions.api(f"STREAM.MSG.DELETE.{WEST}", {"seq": seq})
    assert await regions.find_reused_sequences() == {}


async def test_what_took_the_sequences_of_lost_messages_is_told_of_mirrors(regions: Regions, tmp_path: Path) -> None:
    homed = check_topology(HOMED.encode(), "homed.yaml").require()
    configs = {stream.config.name: stream.config.fields for stream in render_bundle(homed).streams}
    for name, config in configs.items():
        await regions.api(f"STREAM.CREATE.{name}", {**config, "placement": None})

    async def publish(*texts: str) -> None:
        deadline = time.monotonic() + 60
        for text in texts:
            while True:
                try:
                    await regions.connection.request("foo.a", text.encode())
                    break
                except VstreamError:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.05)

    async def until_mirrored(last: int) -> None:
        deadline = time.monotonic() + 60
        while {(await regions.api(f"STREAM.INFO.{name}"))["state"]["last_seq"] for name in configs} != {last}:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    disk = LostEnd(regions, tmp_path, STREAM.name)
    await publish("1", "2")
    await until_mirrored(2)
    await disk.keep()
    await publish("same", "lost", "lost")
    await until_mirrored(5)
    assert await regions.find_reused_sequences(homed) == {}
    await disk.lose()
    await publish("same", "new", "new", "later")
    await until_mirrored(6)
    mirrors = configs.keys() - {STREAM.name}
    assert await regions.find_reused_sequences(homed) == dict.fromkeys(mirrors, "4-5")
    await regions.api(f"STREAM.DELETE.{min(mirrors)}")
    with pytest.raises(AssertionError, match="unread"):
        await regions.find_reused_sequences(homed)


async def test_where_the_last_of_a_subject_counts_what_was_replaced_since_is_not_told(
    regions: Regions, tmp_path: Path
) -> None:
    await regions.create({name: {"max_msgs_per_subject": 1} for name in (WEST, EAST)})
    disk = LostEnd(regions, tmp_path)
    sent = await regions.publish("west", "foo.first")
    await regions.until_held({sent})
    await disk.keep()
    lost = [await regions.publish_when_taken("foo.0")]
    lost += [await regions.publish("west", f"foo.{number}") for number in range(1, 5)]
    await regions.until_held({sent, *lost})
    await disk.lose()
    await regions.publish_when_taken("foo.a")
    for key in ("b", "c", "d", "a"):
        last = await regions.publish("west", f"foo.{key}", b"new")
    assert last[1] == 6
    by_another = await regions.publish("central", "foo.b", b"newer")
    again = {await regions.publish("west", f"foo.{key}", b"newer") for key in ("c", "e")}
    await regions.until_held({sent, *lost, by_another, *again})
    # The first of `a` and the one of `c` were replaced in the west itself, and that of `b` in the centre.
    assert (await regions.find_reused_sequences())[EAST] == "5-6"
