"""
One executor and two, where readers wait for the network: messages a second.

Each connection goes over a relay with a round trip and a window, as TCP has over a long way: no more
bytes are under way than the window holds, whatever the server could send. Executors are Java
processes of their own (`local-cluster`) with one core each.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bench_extract import fill, server

from vstream.audit.connector import register
from vstream.audit.connector.values import CONSUMER
from vstream.audit.spark.session import open_session
from vstream.lab import ports

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 256
DELAY = 0.05
"""Seconds, one way."""
WINDOW = 1 << 18
"""Bytes of one connection."""
_TASKS = 16


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Bytes arrive `DELAY` after they were sent, and their place in the window is free after another one."""
    under_way: deque[tuple[float, int]] = deque()
    coming: deque[bytes] = deque()
    received = 0
    loop = asyncio.get_running_loop()

    def arrive() -> None:
        data = coming.popleft()
        if not sink.is_closing():
            sink.write(data)

    with suppress(OSError):
        while data := await source.read(min(WINDOW - received, 1 << 16)):
            now = loop.time()
            coming.append(data)
            loop.call_at(now + DELAY, arrive)
            under_way.append((now + 2 * DELAY, len(data)))
            received += len(data)
            while under_way and (under_way[0][0] <= loop.time() or received >= WINDOW):
                due, size = under_way.popleft()
                await asyncio.sleep(due - loop.time())
                received -= size
    loop.call_later(DELAY, sink.close)


async def _relay(port: int, target: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_target, back = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(_pump(reader, back), _pump(from_target, writer))

    listener = await asyncio.start_server(serve, "127.0.0.1", port)
    await listener.serve_forever()


def _run(port: int, target: int) -> None:
    asyncio.run(_relay(port, target))


@contextmanager
def relay(target: int) -> Iterator[int]:
    """The port of a relay to *target*, in a process of its own."""
    port = next(port for port in range(25_000, 26_000) if ports.is_free(port))
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(port, target), daemon=True)
    process.start()
    while ports.is_free(port):
        time.sleep(0.05)
    try:
        yield port
    finally:
        process.terminate()
        process.join()


def main(count: int, rounds: int) -> None:
    """Reads *count* messages with one executor and with two, over the relay and straight from the server."""
    with tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory, server(Path(directory)) as nats_server:
        fill(nats_server, SIZE, count)
        target = int(nats_server.access.servers[0].rpartition(":")[2])
        with relay(target) as far:
            print(
                f"\n{count:,} messages of {SIZE} bytes, nothing kept, medians of {rounds}; far: "
                f"{2000 * DELAY:.0f} ms to and fro, a window of {WINDOW >> 10} KiB for each connection"
            )
            result: dict[tuple[str, int], float] = {}
            for executors in (1, 2):
                conf = {"spark.executor.memory": "512m", "spark.driver.memory": "1g"}
                with open_session(master=f"local-cluster[{executors},1,512]", conf=conf) as spark:
                    register(spark)

                    def read(port: int, spark: object = spark) -> float:
                        reader = spark.read.format("jetstream").option("servers", f"nats://127.0.0.1:{port}")  # type: ignore[attr-defined]
                        options = {"stream": "r", "path": CONSUMER, "rows_per_task": -(-count // _TASKS), "timeout": 60}
                        began = time.monotonic()
                        reader.options(**options).load().write.mode("overwrite").format("noop").save()
                        return time.monotonic() - began

                    read(target)  # the first time starts executors' Python
                    for place, port in (("far", far), ("near", target)):
                        seconds = statistics.median(read(port) for _ in range(rounds))
                        result[place, executors] = count / seconds
                        print(f"  {place:<5} {executors} executor(s)  {count / seconds:10,.0f} messages/s", flush=True)
            for place in ("far", "near"):
                print(f"  {place:<5} two executors / one: {result[place, 2] / result[place, 1]:.2f}")
