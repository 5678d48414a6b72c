"""
What a publish and a fetched message cost a server, by routing profile and number of virtual streams.

CPU microseconds of the server, beside an account without mappings and a plain stream in it, in one run. One region of one
server, streams in memory, messages of 64 bytes. `other` are messages on a subject of no virtual stream that nobody
listens to, `core` publishes to a virtual stream that ask for no acknowledgement, `acked` those that do, `fetched` messages of
its read stream, pulled 500 at a time and not acknowledged.

Then how fast messages are fetched, by a client that does nothing but count them: with one that parses them, it is the client
that is measured.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_goals
import nats
import psutil
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from wire import Wire

from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.lab import lifecycle
from vstream.lab.endpoints import list_endpoints
from vstream.lab.status import read_lab_status
from vstream.lint import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Role, Routing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nats.aio.client import Client

    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Endpoint

COUNTS = (1, 10, 100, 1000)
CORE, CORE_OF_MANY = 100_000, 3_000
"""Messages; fewer where there are so many rules that each takes a millisecond."""
MANY_RULES = 500
STORED = 10_000
ACKED = 20_000
IN_FLIGHT = 50
BATCH = 500
ROUNDS = 3
LAYOUTS = (*(routing.value for routing in Routing), "blog")
OTHER = {"accounts": "_vs.api.none.INFO", "regional": "_vs.api.none.INFO", "domains": "$JS.ACK.none.x"}
"""A subject of no virtual stream that vstream's user may publish on; of others any."""
READ = {"plain": "s0", "mapped": "s0-read-west", "blog": "s0-read-west"}
"""Where a consumer has to be made, if not by the virtual name."""
HEADERS = ("other", "core", "acked", "fetched")
ACKED_COST = HEADERS.index("acked")
SIZES = (64, 1024)
"""Bytes of the messages that a client fetches which does nothing but count."""
FETCHES = ((1, 2_000), (100, 20_000), (500, 20_000), (1000, 20_000))
"""How many at a time, and how many in all."""
FILLED = max(count for _, count in FETCHES)
PUSHED = 0
"""In the place of how many at a time: what a push consumer delivers by itself."""
MARK = b"~"
"""What no other byte that a server sends to that client is."""


def topology(layout: str, count: int) -> str:
    """*count* virtual streams below one root, in one region of one server."""
    names = "".join(f"  s{n}: {{subjects: [v.s{n}.>], storage: memory}}\n" for n in range(count))
    how = {
        "plain": "",
        "mapped": "",
        "blog": "naming: blog\n",
    }.get(layout, f"routing: {layout}\nroots: [v.>]\n")
    streams = "streams: {}\n" if layout == "plain" else f"streams:\n{names}"
    return (
        f'version: 1\nname: bench-routing\nserver_version: "2.12"\n{how}'
        f"regions: {{west: {{servers: 1}}}}\ndefaults: {{write: {{max_age: 1h}}}}\n{streams}"
    )


async def publish(client: Client, subject: str, count: int) -> None:
    """Publishes without an acknowledgement."""
    for _ in range(count):
        await client.publish(subject, b"x" * 64)
    while client.pending_data_size:  # which the library's PING would overtake
        await asyncio.sleep(0)
    await client.flush(timeout=280)


async def core(client: Client) -> None:
    """Publishes to one virtual stream that ask for no acknowledgement, until they are stored."""
    await publish(client, "v.s0.x", STORED - 1)
    await client.jetstream(timeout=120).publish("v.s0.x", b"x" * 64)


async def publish_acknowledged(client: Client) -> None:
    """Acknowledged publishes to one virtual stream."""
    js = client.jetstream(timeout=120)
    for _ in range(ACKED // IN_FLIGHT):
        await asyncio.gather(*(js.publish("v.s0.x", b"x" * 64) for _ in range(IN_FLIGHT)))


async def fetch_messages(client: Client, made_on: str) -> None:
    """ACKED messages of one virtual stream, by a consumer of its own."""
    js = client.jetstream(timeout=120)
    created = await js.add_consumer(made_on, durable_name="bench", ack_policy="none")
    pull = await js.pull_subscribe_bind("bench", "s0")
    result = 0
    while result < ACKED:
        result += len(await pull.fetch(min(BATCH, ACKED - result), timeout=30))
    await js.delete_consumer(made_on, created.name)


def cpu(process: psutil.Process) -> float:
    """Seconds that *process* has used: to the nanosecond where the system has such a clock (Linux), else in ticks."""
    try:
        return time.clock_gettime(~process.pid << 3 | 2)  # what clock_getcpuclockid(3) makes of a process
    except (OSError, AttributeError):
        spent = process.cpu_times()
        return float(spent.user + spent.system)


async def cost(process: psutil.Process, work: Callable[[], Awaitable[None]], count: int) -> float:
    """Microseconds for each of *count*: the least of some rounds."""
    result = []
    for _ in range(ROUNDS):
        before = cpu(process)
        await work()
        result.append((cpu(process) - before) * 1e6 / count)
    return min(result)


def fill(endpoint: Endpoint) -> None:
    """Publish what is fetched: FILLED messages of each size."""
    wire = Wire(endpoint.urls[0], endpoint.user, endpoint.password)
    for size in SIZES:
        frame = f"PUB v.s0.x {size}\r\n".encode() + MARK.ljust(size, b"x") + b"\r\n"
        for _ in range(FILLED // BATCH):
            wire.send(frame * BATCH)
            wire.flush()
    wire.close()


async def thin(
    process: psutil.Process, client: Client, endpoint: Endpoint, made_on: str, first: int
) -> dict[tuple[int, int], tuple[float, float]]:
    """Microseconds of the server for a message, and messages a second, by size and how many are asked for at a time."""
    js = client.jetstream(timeout=120)
    result: dict[tuple[int, int], tuple[float, float]] = {}
    for number, size in enumerate(SIZES):
        for batch, count in FETCHES:
            rounds = []
            for _ in range(ROUNDS):
                config = ConsumerConfig(
                    durable_name="thin",
                    ack_policy=AckPolicy.NONE,
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=first + number * FILLED,
                )
                await js.add_consumer(made_on, config)
                wire = Wire(endpoint.urls[0], endpoint.user, endpoint.password)
                inbox = f"{endpoint.inbox}.thin".encode()
                wire.send(b"SUB %s 1\r\n" % inbox)
                body = b'{"batch":%d,"expires":60000000000}' % batch
                pull = b"PUB $JS.API.CONSUMER.MSG.NEXT.s0.thin %s %d\r\n%s\r\n" % (inbox, len(body), body)
                before, began = cpu(process), time.perf_counter()
                for _ in range(count // batch):
                    wire.send(pull)
                    wire.count(MARK, batch)
                rounds.append(((cpu(process) - before) * 1e6 / count, count / (time.perf_counter() - began)))
                wire.close()
                await js.delete_consumer(made_on, "thin")
            result[size, batch] = (min(cost for cost, _ in rounds), max(rate for _, rate in rounds))
        rounds = [
            await measure_push(process, client, endpoint, made_on, first + number * FILLED) for _ in range(ROUNDS)
        ]
        result[size, PUSHED] = (min(cost for cost, _ in rounds), max(rate for _, rate in rounds))
    return result


async def measure_push(
    process: psutil.Process, client: Client, endpoint: Endpoint, made_on: str, first: int
) -> tuple[float, float]:
    """As `thin`, of FILLED messages that a push consumer delivers, from the request that makes it."""
    config = ConsumerConfig(
        durable_name="pushed",
        deliver_subject=f"{endpoint.inbox}.pushed",
        ack_policy=AckPolicy.NONE,
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=first,
    )
    wire = Wire(endpoint.urls[0], endpoint.user, endpoint.password)
    wire.send(f"SUB {endpoint.inbox}.pushed 1\r\n".encode())
    wire.flush()
    before, began = cpu(process), time.perf_counter()
    made = asyncio.create_task(client.jetstream(timeout=120).add_consumer(made_on, config))
    await asyncio.to_thread(wire.count, MARK, FILLED)
    result = (cpu(process) - before) * 1e6 / FILLED, FILLED / (time.perf_counter() - began)
    await made
    wire.close()
    await client.jetstream(timeout=120).delete_consumer(made_on, "pushed")
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Microseconds by header; and how many rules there are. *thin* has what `thin` finds, where it was asked."""

    layout: str
    streams: int
    rules: int
    costs: tuple[float, ...]
    thin: dict[tuple[int, int], tuple[float, float]]


async def measure(
    layout: str, count: int, *, is_thin: bool, change: Callable[[Bundle], Bundle] = lambda bundle: bundle
) -> Row:
    """
    One layout with *count* streams, on a server of its own; *is_thin*: fetching by a client that only counts too.

    *change* is what is tried that vstream does not render.
    """
    desired = check_topology.check_topology(topology(layout, count).encode(), "bench.yaml").require()
    bundles: list[Bundle] = []

    def render(addresses: Any) -> Bundle:
        bundles.append(change(render_bundle(desired, addresses=addresses)))
        return bundles[-1]

    await lifecycle.up("bench-routing", desired, render, on_progress=lambda _: None, timeout=120)
    try:
        endpoint = list_endpoints("bench-routing")["west"]
        process = psutil.Process(read_lab_status("bench-routing").servers[0].pid)
        refused: list[Exception] = []

        async def remember(error: Exception) -> None:
            refused.append(error)

        client = await nats.connect(
            list(endpoint.urls),
            user=endpoint.user,
            password=endpoint.password,
            inbox_prefix=endpoint.inbox,
            error_cb=remember,
        )
        if layout == "plain":
            await client.jetstream().add_stream(name="s0", subjects=["v.s0.>"], storage="memory")
        await create(endpoint, bundles[-1], Role.WRITE)
        rules = len(bundles[-1].mappings)
        many = CORE_OF_MANY if rules > MANY_RULES else CORE
        unrelated = await cost(process, partial(publish, client, OTHER.get(layout, "other.x"), many), many)
        assert not refused, refused[0]  # What is refused costs something else.
        stored = await cost(process, partial(publish_acknowledged, client), ACKED)
        unanswered = await cost(process, partial(core, client), STORED)
        # Only now, as sourcing would be counted as publishing.
        await create(endpoint, bundles[-1], Role.READ)
        await wait_until_sourced(client, ROUNDS * (ACKED + STORED))
        pulled = await cost(process, partial(fetch_messages, client, READ.get(layout, "s0")), ACKED)
        quick: dict[tuple[int, int], tuple[float, float]] = {}
        if is_thin:
            published = ROUNDS * (ACKED + STORED)
            await asyncio.to_thread(fill, endpoint)
            await wait_until_sourced(client, published + len(SIZES) * FILLED)
            quick = await thin(process, client, endpoint, READ.get(layout, "s0"), published + 1)
        await client.close()
        return Row(layout=layout, streams=count, rules=rules, costs=(unrelated, unanswered, stored, pulled), thin=quick)
    finally:
        await lifecycle.down("bench-routing", purge=True)


async def create(endpoint: Endpoint, bundle: Bundle, role: Role) -> None:
    """Make the streams of the first virtual stream that have *role*, in memory."""
    async with connect(endpoint, "west") as connection:
        for stream in bundle.streams:
            if stream.virtual == "s0" and stream.role is role:
                fields = {**stream.config.fields, "storage": "memory"}
                await JetStreamAdmin(connection).create(replace(stream.config, fields=fields))


async def wait_until_sourced(client: Client, count: int) -> None:
    """Return once everything is where it is read: sourcing must not be counted as fetching."""
    async with asyncio.timeout(120):
        while (await client.jetstream(timeout=30).stream_info("s0")).state.messages < count:
            await asyncio.sleep(0.2)


async def _table(layouts: Sequence[str], counts: Sequence[int]) -> None:
    print(
        f"layout    streams   rules {''.join(f'{header:>10}' for header in HEADERS)}   acked/plain  fetched/plain",
        flush=True,
    )
    for layout in dict.fromkeys(layouts):
        plain = await measure("plain", 0, is_thin=True)  # again, as the machine may be busier by now
        _show(plain, plain)
        for count in counts:
            row = await measure(layout, count, is_thin=count == counts[0])
            _show(row, plain)
            _record(row, plain)
            if row.thin:
                show_thin(plain, row)


def _show(row: Row, plain: Row) -> None:
    ratios = [row.costs[number] / plain.costs[number] for number in (2, 3)]
    print(
        f"{row.layout:9} {row.streams:7,} {row.rules:7,} {''.join(f'{cost:10.2f}' for cost in row.costs)} "
        f"{ratios[0]:13.2f} {ratios[1]:14.2f}",
        flush=True,
    )


def _record(row: Row, plain: Row) -> None:
    """What there are goals for."""
    if row.layout not in bench_goals.PROFILES:
        return
    unrelated, _, acknowledged, _ = (mine - theirs for mine, theirs in zip(row.costs, plain.costs, strict=True))
    bench_goals.record(f"unrelated subject, {row.layout}, above plain", unrelated)
    if f"acked publish, {row.layout}, {row.streams:,} ÷ plain" in bench_goals.GOALS:
        bench_goals.record(
            f"acked publish, {row.layout}, {row.streams:,} ÷ plain", 1 + acknowledged / plain.costs[ACKED_COST]
        )
    for batch in {batch for _, batch in row.thin} - {PUSHED}:
        slowest = min(row.thin[size, batch][1] / plain.thin[size, batch][1] for size in SIZES)
        bench_goals.record(f"fetched {batch} at a time, {row.layout} ÷ plain", slowest)


def show_thin(plain: Row, row: Row) -> None:
    """Print what a client that only counts was given, beside what a plain stream gave it."""
    print(
        f"  fetched by a client that only counts, `plain` and `{row.layout}`: microseconds for each; messages a second"
    )
    for (size, batch), (spent, speed) in row.thin.items():
        beside = plain.thin[size, batch]
        how = f"{batch:3} at a time" if batch != PUSHED else "      pushed"
        print(
            f"  {size:5,} bytes, {how}: {beside[0]:7.2f} {spent:7.2f}; {beside[1]:9,.0f} {speed:9,.0f}, "
            f"{speed / beside[1]:.2f} of plain",
            flush=True,
        )


def main(layouts: Sequence[str] = LAYOUTS, counts: Sequence[int] = COUNTS) -> None:
    """Print one line for each layout and number of streams; before each layout a plain stream in a plain account."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["VSTREAM_STATE_DIR"] = str(Path(scratch) / "state")
        asyncio.run(_table(layouts, counts))
