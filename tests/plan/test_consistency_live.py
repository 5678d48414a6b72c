"""Each consistency model keeps its promise on real servers: applied, planned again, probed, and tried with messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import nats.js.errors
import psutil
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.support import labs
from tests.support.command import vstream
from tests.support.night import with_night
from tests.support.probe_lab import until
from tests.support.publish_load import Load, check_contents, under_load
from tests.support.shared_lab import own_lab
from tests.support.topologies import begin_topology
from vstream.errors import VstreamError
from vstream.jetstream import direct
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection, open_connection
from vstream.jetstream.direct import DirectMessage
from vstream.lab.endpoints import list_endpoints
from vstream.lab.status import read_lab_status

pytestmark = pytest.mark.lab

VERSIONS = with_night(["2.15.1"], ["2.12.8"])
REGIONS = ("west", "central", "east")
PATIENCE = 60.0
HEAD = (
    begin_topology("models", west=1, central=1, east=1)
    + """\
stretch: {members: all}
defaults: {write: {max_age: 1h}}
streams:
"""
)
LEDGER = (
    "  ledger: {subjects: [ledger.>], consistency: ordered, canary: ledger._canary.*, order: {duplicate_window: 2m}}\n"
)
STOCK = "  stock: {subjects: [stock.>], consistency: stretch, canary: stock._canary.*}\n"
PRICES = "  prices: {subjects: [prices.>], consistency: homed, home: east, canary: prices._canary.*}\n"
SENSORS = "  sensors: {subjects: [sensors.>], canary: sensors._canary.*}\n"
JOURNAL = "  journal: {subjects: [journal.>], consistency: ordered, virtual_name: order, canary: journal._canary.*}\n"
SHARED_TOPOLOGY = HEAD + SENSORS + LEDGER + STOCK + PRICES
USERS = "kv:\n  users: {consistency: ordered, virtual_name: order, writers: one-per-key}\n"
WRONG_LAST_SEQUENCE = 10071


@pytest.fixture
def file(state: Path, tmp_path: Path) -> Iterator[Path]:
    with own_lab(state, tmp_path, "models", SHARED_TOPOLOGY) as path:
        yield path


@asynccontextmanager
async def open_connections() -> AsyncIterator[Mapping[str, Connection]]:
    connections = {
        region: await open_connection(endpoint, region) for region, endpoint in list_endpoints("models").items()
    }
    try:
        yield connections
    finally:
        await asyncio.gather(*(connection.close() for connection in connections.values()))


def apply_file(file: Path) -> None:
    ran = vstream("apply", file, "--yes")
    assert ran.code == 0, ran.out + ran.err


async def publish_acked(
    connection: Connection, subject: str, data: str = "", headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    reply = await connection.request(subject, data.encode(), headers=headers, timeout=PATIENCE)
    ack: dict[str, Any] = json.loads(reply.data)
    return ack


async def contents(connection: Connection, stream: str, pattern: str) -> list[DirectMessage]:
    """Everything on *pattern* that the copy called *stream* holds, in its order."""
    result: list[DirectMessage] = []
    while message := await direct.get_next(connection, stream, pattern, result[-1].seq + 1 if result else 1):
        result.append(message)
    return result


@pytest.mark.versions
@pytest.mark.parametrize("version", VERSIONS)
async def test_every_model_keeps_its_promise(file: Path, version: str) -> None:
    await asyncio.to_thread(file.write_text, SHARED_TOPOLOGY + JOURNAL)
    up = vstream("lab", "up", file, "--server-version", version)
    assert up.code == 0, up.err
    apply_file(file)
    again = vstream("plan", file, "--detailed-exitcode")
    assert again.code == 0, again.out
    probed = vstream("probe", file, "--forms", "--format", "json")
    assert probed.code == 0, probed.out
    report = probed.json()
    assert {check["form"] for check in report["checks"] if check["status"] == "skipped"} == {"more than 1024 subjects"}
    created = {
        (check["stream"], check["detail"])
        for check in report["checks"]
        if check["form"] == "create by the virtual name"
    }
    mapped = "10056: by the physical name"
    assert created == {
        ("sensors", mapped),
        ("ledger", mapped),
        ("stock", "created"),
        ("prices", "created"),
        ("journal", "created"),
    }
    pairs = [check for check in report["checks"] if check["hop"] == "canary"]
    assert len(pairs) == 5 * len(REGIONS) ** 2
    async with open_connections() as connections:
        listed = await connections["west"].request_json("$JS.API.STREAM.LIST")
        # The probe has left nothing: neither where canaries were stored first, nor in the order, nor in mirrors.
        assert {stream["config"]["name"]: stream["state"]["messages"] for stream in listed["streams"]} == dict.fromkeys(
            (stream for check in report["checks"] if (stream := check["answered_by"]) and check["hop"] == "cleanup"), 0
        )
        assert len(listed["streams"]) == 27
        await _stretch_compares_and_sets(connections)
        await _ordered_agrees_everywhere(connections)
        await _homed_takes_all_and_is_read_locally(connections)
        await _order_that_carries_the_name_is_consumed_by_it(connections)
    apply_changed(file, SHARED_TOPOLOGY + JOURNAL + USERS)
    await _bucket_is_read_by_its_name()


async def _stretch_compares_and_sets(connections: Mapping[str, Connection]) -> None:
    expect = "Nats-Expected-Last-Subject-Sequence"
    last = 0
    for region in REGIONS:
        refused = await publish_acked(connections[region], "stock.a", headers={expect: "4711"})
        assert refused["error"]["err_code"] == WRONG_LAST_SEQUENCE, refused
        # What another region has just written counts at once.
        ack = await publish_acked(connections[region], "stock.a", region, headers={expect: str(last)})
        assert ack["stream"] == "stock", ack
        last = ack["seq"]

    async def stale() -> str | None:
        for region, connection in connections.items():
            message = await direct.get_newest(connection, "stock", "stock.a")
            if message is None or (message.stream, message.seq) != (f"stock-read-{region}", last):
                return f"{region}: {message}"
        return None

    await until(stale)


async def _ordered_agrees_everywhere(connections: Mapping[str, Connection]) -> None:
    each = 50

    async def write(region: str) -> None:
        for number in range(each):
            ack = await publish_acked(connections[region], f"ledger.{number % 3}", f"{region} {number}")
            assert ack["stream"] == f"ledger-write-{region}", ack

    await asyncio.gather(*map(write, REGIONS))
    for region in REGIONS:
        # Accepted in each region, and one message of them all in the order, which remembers ids.
        await publish_acked(connections[region], "ledger.once", region, headers={"Nats-Msg-Id": "the same"})
    copies: dict[str, list[DirectMessage]] = {}

    async def incomplete() -> str | None:
        for region, connection in connections.items():
            copies[region] = await contents(connection, "ledger", "ledger.*")
        counts = {region: len(copy) for region, copy in copies.items()}
        return None if set(counts.values()) == {len(REGIONS) * each + 1} else str(counts)

    await until(incomplete)
    seen = {
        region: [(message.seq, message.subject, message.data, tuple(message.headers.items())) for message in copy]
        for region, copy in copies.items()
    }
    assert seen["west"] == seen["central"] == seen["east"]
    assert {message.stream for message in copies["west"]} == {"ledger-read-west"}


async def _homed_takes_all_and_is_read_locally(connections: Mapping[str, Connection]) -> None:
    acks = {region: await publish_acked(connections[region], f"prices.{region}") for region in REGIONS}
    assert {ack["stream"] for ack in acks.values()} == {"prices"}
    copies = {region: "prices" if region == "east" else f"prices-read-{region}" for region in REGIONS}

    async def missing() -> str | None:
        for region, connection in connections.items():
            for origin, ack in acks.items():
                message = await direct.get_newest(connection, "prices", f"prices.{origin}")
                if message is None or (message.stream, message.seq) != (copies[region], ack["seq"]):
                    return f"{origin} in {region}: {message}"
        return None

    await until(missing)


async def _order_that_carries_the_name_is_consumed_by_it(connections: Mapping[str, Connection]) -> None:
    each = 40

    async def write(client: Client, region: str) -> None:
        for number in range(each):
            ack = await client.jetstream(timeout=PATIENCE).publish(f"journal.{region}", f"acked {number}".encode())
            assert ack.stream == f"journal-write-{region}", ack
            await client.publish(f"journal.{region}", f"core {number}".encode())
        await client.flush()

    async with AsyncExitStack() as stack:
        clients = {region: await stack.enter_async_context(labs.client("models", region)) for region in REGIONS}
        await asyncio.gather(*(write(client, region) for region, client in clients.items()))
        readings = [
            reading for client in clients.values() for reading in await _consume(client, 2 * each * len(REGIONS))
        ]
    assert readings == [readings[0]] * len(readings)
    order = [(subject, data) for _, subject, data in readings[0]]
    for region in REGIONS:
        mine = [data.decode() for subject, data in order if subject == f"journal.{region}"]
        assert mine == [f"{kind} {number}" for number in range(each) for kind in ("acked", "core")]

    async def differs() -> str | None:
        for region, connection in connections.items():
            copy = await contents(connection, "journal", "journal.>")
            if [(message.seq, message.subject, message.data) for message in copy] != readings[0]:
                return f"{region}: {len(copy)}"
            if {message.stream for message in copy} != {f"journal-read-{region}"}:
                return f"{region}: answered by { ({message.stream for message in copy}) }"
        return None

    await until(differs)


async def _consume(client: Client, count: int) -> list[list[tuple[int, str, bytes]]]:
    """Sequence, subject and data of all *count* messages, by each kind of consumer; the stream is found by its subject."""
    js = client.jetstream(timeout=PATIENCE)
    pull = await js.pull_subscribe("journal.>")
    subscribed = [await js.subscribe("journal.>"), await js.subscribe("journal.>", ordered_consumer=True)]
    fetched: list[Msg] = []

    async def incomplete() -> str | None:
        try:
            fetched.extend(await pull.fetch(count - len(fetched), timeout=1))
        except (nats.errors.TimeoutError, nats.js.errors.ServiceUnavailableError) as error:
            return repr(error)  # gateways hear of a new consumer a moment after its client
        return None if len(fetched) == count else str(len(fetched))

    await until(incomplete, within=PATIENCE)
    pushed = [[await subscription.next_msg(timeout=PATIENCE) for _ in range(count)] for subscription in subscribed]
    await asyncio.gather(pull.unsubscribe(), *(subscription.unsubscribe() for subscription in subscribed))
    return [
        [(message.metadata.sequence.stream, message.subject, message.data) for message in batch]
        for batch in (fetched, *pushed)
    ]


async def _bucket_is_read_by_its_name() -> None:
    async with AsyncExitStack() as stack:
        clients = {region: await stack.enter_async_context(labs.client("models", region)) for region in REGIONS}
        buckets = [await client.jetstream(timeout=PATIENCE).key_value("users") for client in clients.values()]
        for region, bucket in zip(REGIONS, buckets, strict=True):
            await bucket.put(region, region.encode())

        async def unread() -> str | None:
            try:
                contents = [{key: (await bucket.get(key)).value for key in await bucket.keys()} for bucket in buckets]
            except (nats.js.errors.NoKeysError, nats.js.errors.KeyNotFoundError) as error:
                return repr(error)
            return (
                None if contents == [{region: region.encode() for region in REGIONS}] * len(REGIONS) else str(contents)
            )

        await until(unread)


async def test_a_stretch_stream_and_the_order_outlive_a_region(shared_file: Path) -> None:
    apply_file(shared_file)
    async with open_connections() as connections:
        await publish_acked(connections["west"], "ledger.x", "before")

        async def unseen(*wanted: bytes) -> str | None:
            copies = [await contents(connections[region], "ledger", "ledger.x") for region in ("central", "east")]
            seen = [[message.data for message in copy] for copy in copies]
            return None if seen == [list(wanted)] * 2 else str(seen)

        await until(lambda: unseen(b"before"))
        lost = [server for server in read_lab_status("models").servers if server.region == "west"]
        assert {server.name for server in lost} == {"west-1", "stretch-west"}
        for server in lost:
            psutil.Process(server.pid).kill()

        async def find_refusal() -> str | None:
            # What went to the leader that was killed is never answered: a client asks again.
            try:
                reply = await connections["east"].request("stock.a", b"after", timeout=5)
            except VstreamError as error:
                return str(error)
            ack = json.loads(reply.data)
            return None if ack.get("stream") == "stock" else str(ack)

        await until(find_refusal, within=60)
        assert (await publish_acked(connections["east"], "ledger.x", "after"))["stream"] == "ledger-write-east"
        await until(lambda: unseen(b"before", b"after"), within=60)


@pytest.mark.parametrize("version", VERSIONS)
async def test_origins_and_orders_that_somebody_deleted_go_on_where_their_copies_end(file: Path, version: str) -> None:
    """From sequence 1 on, nothing would reach the copies that are further; and an order would take all of it again."""
    await asyncio.to_thread(file.write_text, SHARED_TOPOLOGY + JOURNAL)
    up = await asyncio.to_thread(vstream, "lab", "up", file, "--server-version", version)
    assert up.code == 0, up.out + up.err
    await asyncio.to_thread(apply_file, file)
    made_again = {"ledger": "ledger-order-stretch", "journal": "journal", "stock": "stock", "prices": "prices"}
    loads = {name: (Load(20, prefix=name), Load(20, prefix=name, tag="b")) for name in made_again}
    endpoints = {region: list_endpoints("models")[region] for region in REGIONS}
    copies = {name: {region: f"{name}-read-{region}" for region in ("west", "central")} for name in made_again}
    for number in range(2):
        async with AsyncExitStack() as stack:
            for before_and_after in loads.values():
                await stack.enter_async_context(under_load(before_and_after[number], endpoints))
            for before_and_after in loads.values():
                # Fewer than before, so that a stream that began anew is not as far in the end.
                await before_and_after[number].wait_for_acknowledged(20 - 10 * number)
        for name, before_and_after in loads.items():
            both = [load.acked for load in before_and_after[: number + 1]]
            acked = {region: set().union(*(load[region] for load in both)) for region in REGIONS}
            await check_contents("models", copies[name], Load(0, acked=acked), within=180)
        if number == 0:
            async with open_connections() as connections:
                for stream in made_again.values():
                    await JetStreamAdmin(connections["west"]).delete(stream)
            await asyncio.to_thread(apply_file, file)
    assert (await asyncio.to_thread(vstream, "plan", file, "--detailed-exitcode")).code == 0


def apply_changed(file: Path, text: str) -> None:
    file.write_text(text)
    ran = vstream("apply", file, "--yes", "--allow-destructive")
    assert ran.code == 0, ran.out + ran.err
    assert vstream("plan", file, "--detailed-exitcode").code == 0


@pytest.mark.night
async def test_a_homed_stream_moves_into_the_stretch_cluster_and_to_another_home(shared_file: Path) -> None:
    apply_file(shared_file)
    async with open_connections() as connections:
        for number in range(20):
            await publish_acked(connections["west"], "prices.x", str(number))
        consumer = {"stream_name": "prices", "config": {"durable_name": "d", "ack_policy": "explicit"}}
        # By the virtual name and from anywhere: nothing is mapped.
        created = await connections["west"].request_json("$JS.API.CONSUMER.DURABLE.CREATE.prices.d", consumer)
        assert "error" not in created, created

        wide, west = PRICES.replace("homed, home: east", "stretch"), PRICES.replace("east", "west")
        for text in (HEAD + SENSORS + LEDGER + STOCK + variant for variant in (wide, west)):
            # Servers move or scale a stream, not both at once: one replica all the way.
            apply_changed(shared_file, text.replace("canary:", "write: {replicas: 1}, canary:"))

            async def incomplete() -> str | None:
                for region, connection in connections.items():
                    copy = await contents(connection, "prices", "prices.x")
                    if [message.data for message in copy] != [str(number).encode() for number in range(20)]:
                        return f"{region}: {len(copy)}"
                return None

            await until(incomplete, within=60)

            async def forgotten() -> str | None:
                info = await connections["central"].request_json("$JS.API.CONSUMER.INFO.prices.d")
                # While its stream moves, nobody may answer for a consumer.
                return None if info.get("num_pending") == 20 else str(info)

            await until(forgotten, within=60)
    probed = vstream("probe", shared_file)
    assert probed.code == 0, probed.out


@pytest.mark.parametrize("model", ["ordered", "stretch", "homed, home: east"])
def test_a_model_that_servers_cannot_change_to_is_blocked_and_nothing_is_done(shared_file: Path, model: str) -> None:
    shared_file.write_text(HEAD + SENSORS)
    apply_file(shared_file)
    shared_file.write_text(HEAD + SENSORS.replace("canary:", f"consistency: {model}, canary:"))
    blocked = vstream("apply", shared_file, "--yes", "--allow-destructive", "--allow-many")
    assert blocked.code == 1
    assert "changes the consistency model" in blocked.out
    assert "another name" in blocked.out
    shared_file.write_text(HEAD + SENSORS)
    assert vstream("plan", shared_file, "--detailed-exitcode").code == 0


async def test_a_copy_that_is_missing_is_named_and_others_answer_for_it(shared_file: Path) -> None:
    apply_file(shared_file)
    async with open_connections() as connections:
        ack = await publish_acked(connections["west"], "stock.a")
        deleted = await connections["west"].request_json("$JS.API.STREAM.DELETE.stock-read-west")
        assert deleted["success"], deleted

        async def find_late_answer() -> str | None:
            message = await direct.get_by_seq(connections["west"], "stock", ack["seq"])
            return None if message and message.stream in {"stock", "stock-read-central", "stock-read-east"} else "late"

        await until(find_late_answer)
    probed = vstream("probe", shared_file, "-s", "stock", "--format", "json")
    assert probed.code == 1
    checks = probed.json()["checks"]
    bad = {(check["hop"], check["origin"], check["region"]) for check in checks if check["status"] != "ok"}
    assert bad == {("own_read", "west", "west"), *(("canary", origin, "west") for origin in REGIONS)}
    details = {check["detail"] for check in checks if (check["hop"], check["region"]) == ("canary", "west")}
    assert details == {"`stock-read-west` cannot be read: `stock-read-west` does not exist"}
    (read,) = [check for check in checks if (check["hop"], check["region"]) == ("direct_get", "west")]
    assert "`stock-read-west` takes part once it takes a message" in read["detail"]
    assert "1 to create, 0 to update, 0 to delete" in vstream("plan", shared_file).out
