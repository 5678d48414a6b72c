"""
What pulls would give in `routing: accounts` if they were a stream import and not a service import: speed, and answers missed.

First how fast a client that only counts fetches from one server, both ways, beside a plain stream. Then three servers: clients
away from the stream's leader subscribe to a new inbox and pull one message with it at once. Servers take the account of clients and
the hidden one over one connection or over two, by their names: FNV-1a of each, modulo `pool_size` (3). So both are tried.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_routing
import nats
from nats.js.api import AckPolicy, ConsumerConfig

from vstream.lab import lifecycle
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lint import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client

    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Topology

NAME = "bench-pulls"
NEXT = "$JS.API.CONSUMER.MSG.NEXT.>"
POOL = 3
"""Connections between two servers of a cluster, where a configuration does not say otherwise."""
HIDDEN = "R_west"
ROUNDS, TOGETHER = 20, 100
WAITS = 2.0
"""Seconds for one message that is there."""


def slot(account: str) -> int:
    """Which connection between two servers *account* is on (computeRoutePoolIdx in server/route.go)."""
    checksum = 0x811C9DC5
    for byte in account.encode():
        checksum = (checksum ^ byte) * 0x01000193 % 2**32
    return checksum % POOL


def account(*, is_shared: bool) -> str:
    """A name for the account of clients, so that it shares the connection of the hidden one, or does not."""
    names = (f"APP{number}" for number in range(100))
    return next(name for name in names if (slot(name) == slot(HIDDEN)) is is_shared)


def topology(clients: str, servers: int) -> Topology:
    """One stream in one region."""
    text = (
        f'version: 1\nname: {NAME}\nserver_version: "2.12"\nrouting: accounts\naccount: {clients}\nroots: [v.>]\n'
        f"regions: {{west: {{servers: {servers}}}}}\ndefaults: {{write: {{max_age: 1h}}}}\n"
        "streams: {s0: {subjects: [v.s0.>], storage: memory, replicas: 1}}\n"
    )
    return check_topology.check_topology(text.encode(), "bench.yaml").require()


def by_stream(bundle: Bundle, clients: str) -> Bundle:
    """*bundle* with pulls as a stream that the hidden account imports; what is pulled comes as pushed messages do."""
    at = f"_vs.at.west.{NEXT}"
    changes = (
        (f'      {{service: {{account: "{HIDDEN}", subject: "{NEXT}"}}, to: "{at}"}}\n', ""),
        (f'      {{service: "{NEXT}", accounts: ["{clients}"], response_type: stream, threshold: "1h"}}\n', ""),
        ('      {stream: "_vs.text.', f'      {{stream: "{at}", accounts: ["{HIDDEN}"]}}\n      {{stream: "_vs.text.'),
        (
            '      {stream: {account: "W_west", subject: "_vs.to.W_west.',
            (
                f'      {{stream: {{account: "{clients}", subject: "{at}"}}, to: "{NEXT}"}}\n'
                '      {stream: {account: "W_west", subject: "_vs.to.W_west.'
            ),
        ),
    )
    text = bundle.text("accounts.cfg")
    for before, after in changes:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    artifacts = tuple(
        replace(artifact, text=text) if artifact.path == "accounts.cfg" else artifact for artifact in bundle.artifacts
    )
    return replace(bundle, artifacts=artifacts)


async def pull_once(client: Client) -> bool:
    """Whether a message came to a new inbox that was pulled with at once."""
    inbox = client.new_inbox()
    came = asyncio.get_running_loop().create_future()

    async def take(message: Any) -> None:
        if not came.done():
            came.set_result("Status" not in (message.headers or {}))

    subscription = await client.subscribe(inbox, cb=take)
    await client.publish("$JS.API.CONSUMER.MSG.NEXT.s0.pulls", b'{"batch":1,"expires":%d}' % (WAITS * 1e9), reply=inbox)
    try:
        return bool(await asyncio.wait_for(came, 2 * WAITS))
    except TimeoutError:
        return False
    finally:
        await subscription.unsubscribe()


async def count_missed(render: Callable[[Any], Bundle], wanted: Topology) -> tuple[int, int]:
    """How many pulls had no message, and of how many."""
    await lifecycle.up(NAME, wanted, render, on_progress=lambda _: None, timeout=120)
    try:
        endpoint = list_endpoints(NAME)["west"]
        for role in (Role.WRITE, Role.READ):
            await bench_routing.create(endpoint, render_bundle(wanted), role)
        clients = [
            await nats.connect(
                url,
                user=endpoint.user,
                password=endpoint.password,
                inbox_prefix=endpoint.inbox,
                allow_reconnect=False,
            )
            for url in endpoint.urls
        ]
        js = clients[0].jetstream(timeout=60)
        for _ in range(ROUNDS):
            await asyncio.gather(*(js.publish("v.s0.x", b"x" * 64) for _ in range(TOGETHER)))
        await bench_routing.wait_until_sourced(clients[0], ROUNDS * TOGETHER)
        consumer = ConsumerConfig(durable_name="pulls", ack_policy=AckPolicy.NONE, max_waiting=10 * TOGETHER)
        made = await js.add_consumer("s0", consumer)
        assert made.cluster is not None
        leaders = [seat for seat in list_addresses(NAME) if seat.server.name == made.cluster.leader]
        away = [
            client
            for client, url in zip(clients, endpoint.urls, strict=True)
            if not url.endswith(f":{leaders[0].client}")
        ]
        came = []
        for _ in range(ROUNDS):
            came += await asyncio.gather(*(pull_once(away[number % len(away)]) for number in range(TOGETHER)))
        for client in clients:
            await client.close()
        return came.count(False), len(came)
    finally:
        await lifecycle.down(NAME, purge=True)


async def _table() -> None:
    plain = await bench_routing.measure("plain", 0, is_thin=True)
    for title, change in (("as it is", lambda bundle: bundle), ("a stream import", lambda one: by_stream(one, "APP"))):
        print(f"pulls: {title}", flush=True)
        bench_routing.show_thin(plain, await bench_routing.measure("accounts", 1, is_thin=True, change=change))
    print("three servers, away from the leader: pulls of clients with a new inbox that had no message")
    for is_shared in (True, False):
        clients = account(is_shared=is_shared)
        desired = topology(clients, servers=3)

        def as_it_is(addresses: Any, wanted: Topology = desired) -> Bundle:
            return render_bundle(wanted, addresses=addresses)

        def render_changed(addresses: Any, wanted: Topology = desired, clients: str = clients) -> Bundle:
            return by_stream(render_bundle(wanted, addresses=addresses), clients)

        for title, render in (("as it is", as_it_is), ("a stream import", render_changed)):
            without, tried = await count_missed(render, desired)
            how = "one connection for both accounts" if is_shared else "a connection for each account"
            print(f"  {title:16} {how:34} {without:6,} of {tried:6,}", flush=True)


def main() -> None:
    """Print both tables."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["VSTREAM_STATE_DIR"] = str(Path(scratch) / "state")
        asyncio.run(_table())
