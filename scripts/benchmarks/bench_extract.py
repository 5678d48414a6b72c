"""
What reading a stream costs: through Spark, by an ordinary client, and by a socket reader that throws everything away.

CPU microseconds per message, of readers and of the server together and apart; on one server, in one run, in turn.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import socket
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats
import psutil
import pyarrow as pa
from nats.js.api import AckPolicy, ConsumerConfig

from vstream.audit.connector import register, stream_snapshots
from vstream.audit.connector.client import api_request, connect
from vstream.audit.connector.reading import read_range
from vstream.audit.connector.values import CONSUMER, DIRECT, Access, StreamRef, split_tasks
from vstream.audit.spark.session import open_session
from vstream.capture.digest import digest, to_signed_int64
from vstream.lab import binaries, ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = (64, 256, 1024)
USUAL = "nats-py"
_FEW = 100_000
"""Messages that the ordinary client reads: each costs it the same."""
_LAST = re.compile(rb" \$JS\.ACK\.[^ ]+\.0 (?:\d+ )?\d+\r\n")
_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("virtual", "stream", "region", "role")),
        *(pa.field(name, pa.int64()) for name in ("seq", "time_ns")),
        *(pa.field(name, pa.string()) for name in ("subject", "msg_id", "source")),
        pa.field("size", pa.int32()),
        pa.field("digest", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Server:
    access: Access
    process: psutil.Process

    @property
    def cpu(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system


@contextmanager
def server(directory: Path) -> Iterator[Server]:
    port = next(port for port in range(24_000, 25_000) if ports.is_free(port))
    conf = directory / "server.conf"
    conf.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{directory}/store", max_file: 20GB }}\nmax_pending: 2GB\n'
    )
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen([binaries.find_or_fetch(), "-c", conf], stdout=log, stderr=log)
    try:
        access = Access(servers=(f"nats://127.0.0.1:{port}",), timeout=60)
        while ports.is_free(port):
            time.sleep(0.05)
        yield Server(access, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait()


def fill(one: Server, size: int, count: int) -> None:
    """A write stream `w` and a read stream `r` that sources it, with *count* messages of *size* bytes."""
    with connect(one.access) as client:
        for name in ("r", "w"):
            client.request_many([(f"$JS.API.STREAM.DELETE.{name}", b"")])
        common = {"allow_direct": True, "num_replicas": 1}
        api_request(client, one.access, "STREAM.CREATE.w", {"name": "w", "subjects": ["w.>"], **common})
        payloads = texts(size)
        sent = 0
        while sent < count:
            part = min(5_000, count - sent)
            numbers = range(sent, sent + part)
            lines = b"".join(
                b"PUB w.%d.orders %d\r\n%s\r\n" % (n % 1000, size, payloads[n % len(payloads)]) for n in numbers
            )
            client.send(lines)
            sent += part
            while api_request(client, one.access, "STREAM.INFO.w")["state"]["messages"] < sent:
                time.sleep(0.01)
        transforms = [{"src": "w.>", "dest": "r.>"}]
        body = {"name": "r", "sources": [{"name": "w", "subject_transforms": transforms}], **common}
        api_request(client, one.access, "STREAM.CREATE.r", body)
        while api_request(client, one.access, "STREAM.INFO.r")["state"]["messages"] < count:
            time.sleep(0.1)


def texts(size: int) -> list[bytes]:
    """Payloads such as people have, of *size* bytes and four MiB in all."""
    choose = random.Random(size)
    result = []
    for _ in range((4 << 20) // size):
        text = ""
        while len(text) < size:
            order = {"id": choose.randrange(10**9), "customer": f"c-{choose.randrange(10**5)}"}
            text += json.dumps(
                {**order, "amount": choose.randrange(10**5) / 100, "state": choose.choice(["new", "sent"])}
            )
        result.append(text[:size].encode())
    return result


def bare(one: Server, stream: str, count: int) -> None:
    """The same consumer, and everything that it sends thrown away."""
    host, _, port = one.access.servers[0].removeprefix("nats://").partition(":")
    name = secrets.token_hex(4)
    with connect(one.access) as client:
        config = {"name": name, "ack_policy": "none", "mem_storage": True, "inactive_threshold": 60 * 10**9}
        api_request(client, one.access, f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
    with socket.create_connection((host, int(port))) as conversation:
        body = json.dumps({"batch": count, "expires": 60 * 10**9}).encode()
        request = b"PUB $JS.API.CONSUMER.MSG.NEXT.%s.%s in %d\r\n%s\r\n" % (
            stream.encode(),
            name.encode(),
            len(body),
            body,
        )
        conversation.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB in 1\r\n' + request)
        buffer = bytearray(1 << 20)
        view = memoryview(buffer)
        tail = b""
        while True:
            if not (length := conversation.recv_into(buffer)):
                raise ConnectionError("the server has closed the bare socket's connection; its log says why")
            tail = (tail + bytes(view[max(0, length - 3_000) : length]))[-3_000:]
            if _LAST.search(tail):
                return


async def ordinary(one: Server, stream: str, count: int) -> None:
    """What anybody would write with the client library, and the same columns."""
    client = await nats.connect(one.access.servers[0])
    subscription = await client.jetstream().pull_subscribe(
        "", stream=stream, config=ConsumerConfig(ack_policy=AckPolicy.NONE)
    )
    result: list[Any] = []
    while len(result) < count:
        for message in await subscription.fetch(1000):
            headers = message.headers or {}
            result.append(
                (
                    message.metadata.sequence.stream,
                    message.metadata.timestamp,
                    message.subject,
                    headers.get("Nats-Msg-Id"),
                    headers.get("Nats-Stream-Source"),
                    len(message.data),
                    to_signed_int64(digest(message.data)),
                )
            )
    await client.close()


def alone(one: Server, stream: str, path: str) -> None:
    """Our reader without Spark."""
    stream_ref = StreamRef(stream=stream, region="", virtual=stream, role="read")
    snapshots = stream_snapshots.take_snapshots([stream_ref], {"": one.access}, path=path)
    for job in split_tasks(snapshots, {"": one.access}, rows=10**9):
        for _ in read_range(job, _SCHEMA):
            pass


def tree() -> dict[int, float]:
    """CPU seconds of this process and of everything that it has started, apart from servers."""
    this = psutil.Process()
    result = {}
    for process in [this, *this.children(recursive=True)]:
        try:
            if process.name() != "nats-server":
                times = process.cpu_times()
                result[process.pid] = times.user + times.system
        except psutil.Error:
            continue
    return result


def measure_work(one: Server, count: int, work: Callable[[], object]) -> tuple[float, float, float]:
    """Microseconds of CPU per message of readers and of the server, and seconds."""
    server_before, before, began = one.cpu, tree(), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    mine = sum(used - before.get(pid, 0.0) for pid, used in tree().items())
    return mine / count * 1e6, (one.cpu - server_before) / count * 1e6, seconds


def main(count: int, rounds: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory,
        server(Path(directory)) as nats_server,
        open_session(master="local[2,4]") as spark,
    ):
        register(spark)
        columns = "virtual string, stream string, region string, role string, seq bigint, time_ns bigint, "
        columns += "subject string, msg_id string, source string, size int, digest bigint"

        def extract(stream: str, path: str, target: str | None) -> None:
            reader = spark.read.schema(columns).format("jetstream").option("servers", nats_server.access.servers[0])
            frame = reader.options(stream=stream, read_by=path, rows_per_task=-(-count // 4), timeout=60).load()
            writer = frame.write.mode("overwrite")
            writer.format("noop").save() if target is None else writer.parquet(target)

        few = min(count, _FEW)
        print(
            f"\n{count:,} messages (nats-py {few:,}), medians of {rounds}: µs of CPU per message, readers + server; seconds"
        )
        for size in SIZES:
            fill(nats_server, size, count)
            for stream, kind in (("w", "write stream"), ("r", "read stream")):
                readers: dict[str, Callable[[], object]] = {
                    "bare socket": lambda s=stream: bare(nats_server, s, count),  # type: ignore[misc]
                    USUAL: lambda s=stream: asyncio.run(ordinary(nats_server, s, few)),  # type: ignore[misc]
                    "our reader, consumer": lambda s=stream: alone(nats_server, s, CONSUMER),  # type: ignore[misc]
                    "our reader, direct": lambda s=stream: alone(nats_server, s, DIRECT),  # type: ignore[misc]
                    "Spark, nothing kept": lambda s=stream: extract(s, CONSUMER, None),  # type: ignore[misc]
                    "Spark, to Parquet": lambda s=stream: extract(s, CONSUMER, f"{directory}/out"),  # type: ignore[misc]
                    "Spark, direct": lambda s=stream: extract(s, DIRECT, None),  # type: ignore[misc]
                }
                extract(stream, CONSUMER, f"{directory}/out")  # the first time compiles
                results = {
                    name: [measure_work(nats_server, few if name == USUAL else count, work) for _ in range(rounds)]
                    for name, work in readers.items()
                }
                medians = {
                    name: tuple(statistics.median(column) for column in zip(*result, strict=True))
                    for name, result in results.items()
                }
                floor = sum(medians["bare socket"][:2])
                usual = sum(medians[USUAL][:2])
                print(f"\n  {size} B, {kind}")
                for name, (mine, theirs, seconds) in medians.items():
                    total = mine + theirs
                    print(
                        f"    {name:<22} {mine:6.2f} + {theirs:5.2f} = {total:6.2f}   {seconds:6.2f} s"
                        f"   {total / floor:5.2f} × bare   {usual / total:5.1f} × better than nats-py",
                        flush=True,
                    )
