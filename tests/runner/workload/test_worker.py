"""The clients of a scenario on a real server: what each operation's record says, and that no worker outlives its runner."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import nats
import psutil
import pytest
import pytest_asyncio

from tests.support.scenarios import scenario
from tests.support.single_server import SingleServer, eventually, running
from vstream.capture.digest import digest
from vstream.capture.records import OperationKind, OperationOutcome, OperationRecord
from vstream.capture.store import Capture
from vstream.jetstream.connection import connect
from vstream.runner.workers import WorkerProcess, Workers
from vstream.runner.workload.spec import WORKER, ConsumerSpec, PublisherSpec, ReaderSpec, WorkerSpec

pytestmark = pytest.mark.server

NS = 1_000_000_000
PUBLISHER = PublisherSpec(
    client="west/publish-foo",
    prefix="west/foo/",
    stream="foo",
    write_stream="foo",
    subject="foo.{key}",
    rate=200,
    size=(20, 300),
    keys=5,
    is_retrying=False,
    timeout=NS // 2,
    give_up=10 * NS,
)
RETRYING = replace(PUBLISHER, is_retrying=True, give_up=60 * NS)


@dataclass(frozen=True)
class World:
    server: SingleServer
    spec: WorkerSpec
    capture: Capture

    @asynccontextmanager
    async def working(self, spec: WorkerSpec) -> AsyncIterator[Workers]:
        """A worker that has begun. Afterwards everything has an outcome, and it has ended."""
        workers = Workers((self.helper(spec),), lambda _event: None)
        await workers.start(within=60)
        await workers.begin_load(self.now())
        try:
            yield workers
            await workers.stop_load(self.now, within=90)
            await workers.drain_and_stop(within=60)
        finally:
            await workers.end_now()

    def helper(self, spec: WorkerSpec) -> WorkerProcess:
        return WorkerProcess(
            "worker", "vstream.runner.workload.worker", WORKER.dump_json(spec), self.capture.path / "worker.err"
        )

    def now(self) -> int:
        return time.monotonic_ns() - self.spec.start

    def operations(self, kind: OperationKind = OperationKind.PUBLISH) -> list[OperationRecord]:
        return [operation for operation in self.capture.operations() if operation.kind is kind]

    async def wait_for_record(self, outcome: OperationOutcome, error: str | None = None) -> None:
        """Wait until so ended an operation has."""

        async def holds() -> bool:
            return any(
                operation.outcome is outcome and operation.error == error for operation in self.capture.operations()
            )

        await eventually(holds)


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as server:
        await server.api("STREAM.CREATE.foo", {"name": "foo", "subjects": ["foo.>"], "allow_direct": True})
        capture = tmp_path / "capture"
        spec = WorkerSpec(
            region="west",
            endpoint=server.endpoint,
            logs=server.logs,
            start=time.monotonic_ns(),
            seed=7,
            capture=capture,
            publishers=(PUBLISHER,),
            readers=(),
            consumers=(),
        )
        yield World(server, spec, Capture(capture))


async def state(world: World) -> dict[str, int]:
    return dict((await world.server.api("STREAM.INFO.foo"))["state"])


async def test_every_acknowledgement_is_recorded_with_its_sequence(world: World) -> None:
    async with world.working(world.spec):
        await world.wait_for_record(OperationOutcome.OK)

    operations = world.operations()
    assert {(operation.outcome, operation.acked_by, operation.attempts) for operation in operations} == {
        (OperationOutcome.OK, "foo", 1)
    }
    assert sorted(operation.seq or 0 for operation in operations) == list(
        range(1, (await state(world))["messages"] + 1)
    )
    assert len({operation.id for operation in operations}) == len(operations)
    assert all(operation.due <= operation.sent <= (operation.done or 0) for operation in operations)


async def test_what_is_stored_is_what_the_record_says(world: World) -> None:
    async with world.working(world.spec):
        await world.wait_for_record(OperationOutcome.OK)

    first = next(operation for operation in world.operations() if operation.seq == 1)
    stored = (await world.server.api("STREAM.MSG.GET.foo", {"seq": 1}))["message"]
    payload = base64.b64decode(stored["data"])
    assert payload.split(b" ")[0].decode() == first.id == "west/foo/0"
    assert (stored["subject"], digest(payload)) == (first.subject, first.digest)
    assert 20 <= len(payload) <= 300


async def test_the_same_seed_publishes_the_same(world: World) -> None:
    async with world.working(world.spec):
        await world.wait_for_record(OperationOutcome.OK)
    again = replace(world.spec, capture=world.capture.path.parent / "again")
    async with World(world.server, again, Capture(again.capture)).working(again):
        await World(world.server, again, Capture(again.capture)).wait_for_record(OperationOutcome.OK)

    def read_published(capture: Capture) -> dict[str | None, tuple[str | None, str | None]]:
        return {operation.id: (operation.subject, operation.digest) for operation in capture.operations()}

    original, repeated = read_published(world.capture), read_published(Capture(again.capture))
    assert {identity: original[identity] for identity in original.keys() & repeated.keys()} == {
        identity: repeated[identity] for identity in original.keys() & repeated.keys()
    }
    assert original.keys() & repeated.keys()


async def test_a_paused_server_makes_operations_indeterminate_and_a_dead_one_rejects_them(world: World) -> None:
    async with world.working(world.spec):
        await world.wait_for_record(OperationOutcome.OK)
        world.server.pause()
        await world.wait_for_record(OperationOutcome.INDETERMINATE, "no answer in time")
        world.server.resume()
        world.server.kill()
        await world.wait_for_record(OperationOutcome.REJECTED, "not connected")
        acked = sum(operation.outcome is OperationOutcome.OK for operation in world.operations())
        await world.server.start()

        async def acknowledged_again() -> bool:
            return sum(operation.outcome is OperationOutcome.OK for operation in world.operations()) > acked

        await eventually(acknowledged_again)

    operations = world.operations()
    assert all(
        (operation.done is None) == (operation.outcome is OperationOutcome.INDETERMINATE) for operation in operations
    )
    assert sum(operation.outcome is OperationOutcome.OK for operation in operations) <= (await state(world))["messages"]
    rejected = sum(operation.outcome is OperationOutcome.REJECTED for operation in operations)
    assert (await state(world))["messages"] <= len(operations) - rejected


async def test_what_is_due_without_a_connection_is_never_sent_later(world: World) -> None:
    async with world.working(world.spec):
        await world.wait_for_record(OperationOutcome.OK)
        world.server.kill()
        await world.wait_for_record(OperationOutcome.REJECTED, "not connected")
        await world.server.start()

    late = {operation.id for operation in world.operations() if operation.error == "not connected"}
    stored = {operation.seq for operation in world.operations() if operation.outcome is OperationOutcome.OK}
    assert late
    assert len(stored) + len(late) + sum(
        operation.outcome is OperationOutcome.INDETERMINATE for operation in world.operations()
    ) == len(world.operations())


async def connections(server: SingleServer) -> int:
    """How many connections *server* has had: it numbers them."""
    async with connect(server.endpoint, "west") as connection:
        return int(connection._info["client_id"])


async def test_nothing_is_sent_to_a_stranger_that_has_got_the_port(world: World, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with world.working(world.spec):
        await world.wait_for_record(OperationOutcome.OK)
        world.server.kill()
        async with running(elsewhere, port=world.server.port) as stranger:
            await stranger.api("STREAM.CREATE.foo", {"name": "foo", "subjects": ["foo.>"]})
            before = await connections(stranger)

            async def has_tried_often() -> bool:
                return await connections(stranger) > before + 100

            await eventually(has_tried_often)
            assert (await stranger.api("STREAM.INFO.foo"))["state"]["messages"] == 0
        await world.server.start()

        async def acknowledged_again() -> bool:
            latest = max(world.operations(), key=lambda one: one.due)
            return latest.outcome is OperationOutcome.OK

        await eventually(acknowledged_again)


async def test_a_retried_message_is_stored_once_and_acknowledged_in_the_end(world: World) -> None:
    async with world.working(replace(world.spec, publishers=(RETRYING,))):
        await world.wait_for_record(OperationOutcome.OK)
        world.server.pause()
        paused = world.now()

        async def waits_long_enough() -> bool:
            return world.now() - paused > 2 * RETRYING.timeout

        await eventually(waits_long_enough)
        # Now it takes both attempts, one after the other.
        world.server.resume()

        async def acknowledged_late() -> bool:
            return any(operation.attempts > 1 for operation in world.operations())

        await eventually(acknowledged_late)
        world.server.kill()
        await world.server.start()

    operations = world.operations()
    assert {operation.outcome for operation in operations} == {OperationOutcome.OK}
    assert max(operation.attempts for operation in operations) > 1
    assert (await state(world))["messages"] == len(operations) == len({operation.seq for operation in operations})


async def test_a_message_is_given_up_in_the_end(world: World) -> None:
    publisher = replace(RETRYING, give_up=NS)
    async with world.working(replace(world.spec, publishers=(publisher,))):
        await world.wait_for_record(OperationOutcome.OK)
        world.server.kill()
        await world.wait_for_record(OperationOutcome.REJECTED, "not connected")

    given_up = [operation for operation in world.operations() if operation.outcome is OperationOutcome.REJECTED]
    assert max(operation.attempts for operation in given_up) > 1


async def test_the_largest_message_that_a_scenario_can_have_is_acknowledged(world: World) -> None:
    largest, *_ = (
        publisher.size
        for publisher in scenario("workload: {size: 1020KiB}\nsteps:\n  - wait: 1s\n").workload.publishers
    )
    async with world.working(replace(world.spec, publishers=(replace(RETRYING, rate=2, size=largest),))):
        await world.wait_for_record(OperationOutcome.OK)
    assert {(operation.outcome, operation.error) for operation in world.operations()} == {(OperationOutcome.OK, None)}


async def test_a_subject_that_no_stream_listens_on_is_rejected(world: World) -> None:
    publisher = replace(PUBLISHER, subject="nobody.{n}")
    async with world.working(replace(world.spec, publishers=(publisher,))):
        await world.wait_for_record(OperationOutcome.REJECTED, "no responders")
    assert {operation.outcome for operation in world.operations()} == {OperationOutcome.REJECTED}


async def test_an_error_of_the_stream_is_kept_in_its_words(world: World) -> None:
    await world.server.api(
        "STREAM.CREATE.full", {"name": "full", "subjects": ["full.>"], "max_msgs": 1, "discard": "new"}
    )
    publisher = replace(PUBLISHER, subject="full.{key}")
    async with world.working(replace(world.spec, publishers=(publisher,))):
        await world.wait_for_record(OperationOutcome.REJECTED, "maximum messages exceeded (503/10077)")
    first, *rest = [
        (operation.outcome, operation.error) for operation in sorted(world.operations(), key=lambda one: one.due)
    ]
    assert first == (OperationOutcome.OK, None)
    assert set(rest) == {(OperationOutcome.REJECTED, "maximum messages exceeded (503/10077)")}


async def test_readers_say_who_answered_and_what_they_read(world: World) -> None:
    readers = (
        ReaderSpec(
            client="west/read-foo",
            stream="foo",
            read_stream="foo",
            rate=100,
            timeout=NS,
            is_sequential=False,
            subjects=(("foo.{key}", 5, 200.0),),
        ),
        ReaderSpec(client="west/replay-foo", stream="foo", read_stream="foo", rate=100, timeout=NS, is_sequential=True),
    )
    async with world.working(replace(world.spec, readers=readers)):

        async def has_read() -> bool:
            read = [operation for operation in world.operations(OperationKind.READ) if operation.id is not None]
            return {reading.client for reading in read} == {reader.client for reader in readers}

        await eventually(has_read)

    published = {operation.seq: operation.id for operation in world.operations()}
    reads = [operation for operation in world.operations(OperationKind.READ) if operation.id is not None]
    assert {read.acked_by for read in reads} == {"foo"}
    assert all(published[read.seq] == read.id for read in reads)
    sequence = [read.seq for read in reads if read.client == "west/replay-foo"]
    assert sequence[0] == 1


async def test_a_consumer_receives_every_message_also_after_an_outage(world: World) -> None:
    consumer = ConsumerSpec(client="west/consume-foo", stream="foo", physical="foo", name="reader", rate=20, timeout=NS)
    async with world.working(replace(world.spec, consumers=(consumer,))):

        async def has_received_and_acknowledged() -> bool:
            info = await world.server.api("CONSUMER.INFO.foo.reader")
            return bool(list(world.capture.deliveries())) and info["ack_floor"]["stream_seq"] > 0

        await eventually(has_received_and_acknowledged)
        world.server.kill()
        await world.server.start()

    deliveries = list(world.capture.deliveries())
    assert {delivery.seq for delivery in deliveries} == set(range(1, (await state(world))["last_seq"] + 1))
    assert {delivery.id for delivery in deliveries} >= {
        operation.id for operation in world.operations() if operation.outcome is OperationOutcome.OK
    }
    fetched = world.operations(OperationKind.FETCH)
    assert sum(fetch.count for fetch in fetched) == len(deliveries)
    # Whether a fetch fell into the outage depends on how soon the server was back.
    assert OperationOutcome.OK in {operation.outcome for operation in fetched}


async def test_a_consumer_waits_for_what_is_to_be_delivered_again(world: World) -> None:
    consumer = ConsumerSpec(client="west/consume-foo", stream="foo", physical="foo", name="reader", rate=20, timeout=NS)
    other_client = await nats.connect(world.server.endpoint.urls[0], connect_timeout=30)
    async with world.working(replace(world.spec, consumers=(consumer,))):
        await world.wait_for_record(OperationOutcome.OK)
        # As a delivery that was under way when its server was killed: somebody else fetches it, and says nothing.
        fetching = await other_client.jetstream(timeout=60).pull_subscribe_bind(consumer="reader", stream="foo")
        assert await fetching.fetch(1, timeout=30)
    await other_client.close()

    deliveries = list(world.capture.deliveries())
    assert {delivery.seq for delivery in deliveries} == set(range(1, (await state(world))["last_seq"] + 1))
    assert max(delivery.deliveries for delivery in deliveries) > 1


async def test_a_consumer_whose_server_never_comes_back_ends_too(world: World) -> None:
    consumer = ConsumerSpec(client="west/consume-foo", stream="foo", physical="foo", name="reader", rate=20, timeout=NS)
    async with world.working(replace(world.spec, consumers=(consumer,))):
        await world.wait_for_record(OperationOutcome.OK)
        world.server.kill()
    fetches = world.operations(OperationKind.FETCH)
    assert {fetch.outcome for fetch in fetches} >= {OperationOutcome.OK, OperationOutcome.REJECTED}
    assert len(fetches) < 1000  # without a pause, they fill the disk


RUNNER = """
import asyncio, sys
from pathlib import Path
from vstream.runner.workers import WorkerProcess, Workers

async def main():
    helper = WorkerProcess("worker", "vstream.runner.workload.worker", sys.stdin.buffer.readline().strip(), Path(sys.argv[1]))
    workers = Workers((helper,), lambda _event: None)
    await workers.start(within=60)
    await workers.begin_load(0)
    print(helper._process.pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def spawn_runner(capture: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(capture / "worker.err")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


async def test_a_worker_ends_with_its_runner_and_what_it_recorded_can_be_read(world: World) -> None:
    runner = spawn_runner(world.capture.path)
    assert runner.stdin is not None
    assert runner.stdout is not None
    with runner, runner.stdin, runner.stdout:
        runner.stdin.write(WORKER.dump_json(world.spec) + b"\n")
        runner.stdin.flush()
        worker = psutil.Process(int(await asyncio.to_thread(runner.stdout.readline)))
        await world.wait_for_record(OperationOutcome.OK)
        runner.kill()
    assert (await asyncio.to_thread(psutil.wait_procs, [worker], 60))[1] == []
    assert world.operations()


class SendQueue:
    """What the kernel holds of all that *worker* sends."""

    def __init__(self, worker: psutil.Process) -> None:
        self._worker = worker
        self._sizes: list[int] = []

    async def is_stuck(self) -> bool:
        """Whether it is as full as it was the last times: nothing is taken from it, and no more fits in."""
        size = self._size()
        self._sizes = [*self._sizes[-4:], size]
        return len(self._sizes) == 5 and set(self._sizes) == {size} != {0}

    def _size(self) -> int:
        ports = {f"{connection.laddr.port:04X}" for connection in self._worker.net_connections("tcp")}
        sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        # The local address and port, and the queues of what is to be sent and to be read, in hexadecimal digits.
        return sum(int(socket[4][:8], 16) for socket in sockets if socket[1].partition(":")[2] in ports)


async def test_a_worker_that_waits_for_a_paused_server_ends_with_its_runner_too(world: World) -> None:
    # More than a connection takes in: it waits, and the client library swallows what would end the waiting.
    greedy = replace(PUBLISHER, rate=500, size=(100_000, 100_000), timeout=60 * NS)
    runner = spawn_runner(world.capture.path)
    assert runner.stdin is not None
    assert runner.stdout is not None
    with runner, runner.stdin, runner.stdout:
        runner.stdin.write(WORKER.dump_json(replace(world.spec, publishers=(greedy,))) + b"\n")
        runner.stdin.flush()
        worker = psutil.Process(int(await asyncio.to_thread(runner.stdout.readline)))
        await world.wait_for_record(OperationOutcome.OK)
        world.server.pause()
        await eventually(SendQueue(worker).is_stuck)
        runner.kill()
    assert (await asyncio.to_thread(psutil.wait_procs, [worker], 60))[1] == []


async def test_what_a_killed_worker_had_flushed_can_be_read(world: World) -> None:
    helper = world.helper(world.spec)
    workers = Workers((helper,), lambda _event: None)
    await workers.start(within=60)
    await workers.begin_load(0)
    await world.wait_for_record(OperationOutcome.OK)
    assert helper._process is not None
    os.kill(helper._process.pid, signal.SIGKILL)
    await workers.end_now()
    assert {operation.outcome for operation in world.operations()} == {OperationOutcome.OK}
