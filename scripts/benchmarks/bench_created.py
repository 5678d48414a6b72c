"""
How often servers do not find a consumer that they have just acknowledged, on a plain cluster: no mappings, no imports, one account.

Three servers, a stream with one replica on each. A consumer is created, and at once deleted, paused, or asked about: requests as
they are, at the server that has the stream. That server answers what creates it; deleting and pausing is for the meta leader, who also
says of what is not there that it is not. What is answered 10014 is asked for again until it is there.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats

from vstream.lab import ports
from vstream.lab.binaries import find_or_fetch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nats.aio.client import Client

VERSIONS = ("2.11.11", "2.12.8", "2.14.6", "2.15.1")
SERVERS = ("n1", "n2", "n3")
ASKED = ("DELETE", "PAUSE", "INFO")
TOGETHER = 4
"""Clients at each server, where all ask beside each other."""
CONSUMERS = {1: 300, TOGETHER * len(SERVERS): 1_200}
"""How many are created for each of `ASKED`, by the number of clients."""
HOGS = 2
_NOT_FOUND = 10014
_PATIENCE = 60.0


@dataclass(slots=True)
class Found:
    """What became of the second request."""

    tried: int = 0
    late: list[float] = field(default_factory=list)
    """Seconds until what was not found was."""


@contextmanager
def cluster(version: str, directory: Path) -> Iterator[tuple[dict[str, str], str]]:
    """Three servers: where clients reach each, and the monitor of one."""
    first = ports.choose_block(len(SERVERS))
    listening = {name: range(first + 4 * number, first + 4 * number + 3) for number, name in enumerate(SERVERS)}
    routes = ", ".join(f"nats-route://{ports.HOST}:{route}" for _, _, route in listening.values())
    with ExitStack() as stack:
        for name, (client, monitor, route) in listening.items():
            file = directory / f"{name}.conf"
            file.write_text(
                f'listen: "{ports.HOST}:{client}", http: "{ports.HOST}:{monitor}"\n'
                f"server_name: {name}, server_tags: [{name}]\n"
                f'jetstream: {{store_dir: "{directory / name}"}}\n'
                f'cluster: {{name: plain, listen: "{ports.HOST}:{route}", routes: [{routes}]}}\n'
            )
            log = stack.enter_context((directory / f"{name}.log").open("wb"))
            process = subprocess.Popen([find_or_fetch(version), "-c", str(file)], stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield (
            {name: f"nats://{ports.HOST}:{client}" for name, (client, _, _) in listening.items()},
            f"http://{ports.HOST}:{listening[SERVERS[0]][1]}",
        )


@contextmanager
def hogs() -> Iterator[None]:
    """As many processes that do nothing but compute."""
    with ExitStack() as stack:
        for _ in range(HOGS):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


async def ask(client: Client, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer, whatever it says."""
    payload = json.dumps(body).encode() if body is not None else b""
    answer: dict[str, Any] = json.loads((await client.request(f"$JS.API.{subject}", payload, timeout=10)).data)
    return answer


async def until_made(client: Client, server: str) -> None:
    """The stream of *server*, as soon as there is a meta leader that knows the server."""
    deadline = time.monotonic() + _PATIENCE
    config = {"name": server, "subjects": [f"{server}.>"], "num_replicas": 1, "placement": {"tags": [server]}}
    while True:
        try:
            answer = await ask(client, f"STREAM.CREATE.{server}", config)
        except (nats.errors.TimeoutError, nats.errors.NoRespondersError) as error:
            answer = {"error": str(error)}
        if "error" not in answer:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(str(answer["error"]))
        await asyncio.sleep(0.1)


async def one(client: Client, stream: str, name: str, what: str, found: Found) -> None:
    """A consumer that is created, and at once asked for."""
    config = {"durable_name": name, "name": name, "ack_policy": "explicit"}
    made = await ask(client, f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
    assert "error" not in made, made
    until = (datetime.now(UTC) + timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    subject, body = f"CONSUMER.{what}.{stream}.{name}", {"pause_until": until} if what == "PAUSE" else None
    found.tried += 1
    began = time.monotonic()
    tries = 0
    while "error" in (answer := await ask(client, subject, body)):
        assert answer["error"]["err_code"] == _NOT_FOUND, answer
        tries += 1
    if tries:
        found.late.append(time.monotonic() - began)
    if what != "DELETE":
        await ask(client, f"CONSUMER.DELETE.{stream}.{name}")


async def rounds(clients: dict[str, Client], places: Sequence[str], what: str) -> dict[str, Found]:
    """What was found by one client for each of *places*, by the server that has the consumer."""
    counts = {name: Found() for name in SERVERS}

    async def some(number: int, name: str) -> None:
        for tries in range(CONSUMERS[len(places)] // len(places)):
            await one(clients[name], name, f"{what}-{len(places)}-{number}-{tries}", what, counts[name])

    await asyncio.gather(*(some(number, name) for number, name in enumerate(places)))
    return counts


async def measure_requests(urls: dict[str, str], monitor: str) -> None:
    """Print a line for each request, with one client away from the meta leader, and with all."""

    async def silent(_: Exception) -> None:
        """Servers that do not listen yet."""

    clients = {name: await nats.connect(url, error_cb=silent) for name, url in urls.items()}
    for name, client in clients.items():
        await until_made(client, name)
    leader = (await asyncio.to_thread(state, monitor))["meta_cluster"]["leader"]
    other_names = [name for name in SERVERS if name != leader]
    for places in (other_names[:1], [name for name in SERVERS for _ in range(TOGETHER)]):
        for request in ASKED:
            began = time.monotonic()
            counts = await rounds(clients, places, request)
            rate = CONSUMERS[len(places)] / (time.monotonic() - began)
            for title, names in (("meta leader", [leader]), ("another", other_names)):
                tried = sum(counts[name].tried for name in names)
                late = sorted(1000 * seconds for name in names for seconds in counts[name].late)
                if tried:
                    waits = f"{late[len(late) // 2]:9.1f} ms{late[-1]:9.1f} ms" if late else ""
                    print(f"{request.lower():8}{len(places):7}  {title:12}{tried:8}{len(late):7}{rate:9.0f}/s{waits}")
    assert leader == (await asyncio.to_thread(state, monitor))["meta_cluster"]["leader"], "another meta leader"
    for client in clients.values():
        await client.close()


def state(monitor: str) -> dict[str, Any]:
    """What a server says of its JetStream."""
    with urllib.request.urlopen(f"{monitor}/jsz") as answer:
        document: dict[str, Any] = json.load(answer)
    return document


def main() -> None:
    """Print the table."""
    print(f"a plain cluster of three servers, {HOGS} processes beside it that compute, {os.cpu_count()} cores")
    print("asked   clients  consumer on  created  10014  together  found after, half   at most")
    for version in VERSIONS:
        print(f"nats-server {version}, load {os.getloadavg()[0]:.1f}", flush=True)
        with (
            tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory,
            cluster(version, Path(directory)) as (urls, monitor),
            hogs(),
        ):
            asyncio.run(measure_requests(urls, monitor))
