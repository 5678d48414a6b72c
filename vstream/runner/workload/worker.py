"""
The clients of one region in a separate process, which faults and links do not touch.

`python -m vstream.runner.workload.worker` reads a WorkerSpec and then words on standard input, and reports its progress
on standard output twice a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from vstream.jetstream.reconnecting import ReconnectingConnection, open_reconnecting
from vstream.lab.server_records import OwnServers
from vstream.runner.workload import process
from vstream.runner.workload.process import Words
from vstream.runner.workload.publisher import Publisher
from vstream.runner.workload.readers import ConsumerReader, DirectReader
from vstream.runner.workload.recorder import FLUSH_SECONDS, Recorder
from vstream.runner.workload.spec import FINISH, FIRST_CONNECT_TIMEOUT, GO, PROGRESS, STOP, WORKER, WorkerSpec


class Worker:
    """Does what *spec* says. Each client has its own connection, like separate programs."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._recorder = Recorder(spec.capture, spec.region, spec.start)
        self._connections: list[ReconnectingConnection] = []
        self._publishers: list[Publisher] = []
        self._readers: list[DirectReader] = []
        self._consumers: list[ConsumerReader] = []

    async def run(self, words: Words) -> None:
        """Connect, report it, and follow *words* to the end."""
        try:
            await self._prepare()
            async with asyncio.TaskGroup() as tasks:
                reporting = tasks.create_task(self._report())
                for task in (reporting, *await self._follow(words, tasks)):
                    task.cancel()
        finally:
            for publisher in self._publishers:
                publisher.abandon()
            self._recorder.close()
            await asyncio.gather(*(connection.close() for connection in self._connections))

    async def _prepare(self) -> None:
        spec = self._spec
        for publisher in spec.publishers:
            made = Publisher(publisher, await self._connect(publisher.client), self._recorder, spec.seed)
            await made.listen()
            self._publishers.append(made)
        for reader in spec.readers:
            self._readers.append(DirectReader(reader, await self._connect(reader.client), self._recorder, spec.seed))
        for consumer in spec.consumers:
            self._consumers.append(ConsumerReader(consumer, await self._connect(consumer.client), self._recorder))
            await self._consumers[-1].create(within=FIRST_CONNECT_TIMEOUT)

    async def _connect(self, client: str) -> ReconnectingConnection:
        spec = self._spec
        connection = await open_reconnecting(
            spec.endpoint,
            spec.region,
            name=client,
            accepts_server=OwnServers(spec.logs).includes,
            within=FIRST_CONNECT_TIMEOUT,
        )
        self._connections.append(connection)
        return connection

    def _paced_clients(self) -> Sequence[Publisher | DirectReader]:
        return [*self._publishers, *self._readers]

    async def _follow(self, words: Words, tasks: asyncio.TaskGroup) -> Sequence[asyncio.Task[None]]:
        """Return when all is done, or the runner is gone: what was begun in *tasks*."""
        begun: list[asyncio.Task[None]] = []
        while True:
            match await words.next():
                case []:
                    return begun
                case [word, nanoseconds] if word == GO:
                    for client in (*self._paced_clients(), *self._consumers):
                        begun.append(tasks.create_task(client.run(int(nanoseconds))))
                case [word] if word == STOP:
                    for client in self._paced_clients():
                        client.stop()
                case [word] if word == FINISH:
                    for consumer in self._consumers:
                        consumer.stop()
                    await asyncio.gather(*(consumer.finish() for consumer in self._consumers))
                    return begun

    async def _report(self) -> None:
        while True:
            self._recorder.flush()
            is_drained = all(client.is_drained for client in self._paced_clients())
            process.try_send_line(
                PROGRESS.dump_json(self._recorder.take_progress(is_drained=is_drained), exclude_defaults=True)
            )
            await asyncio.sleep(FLUSH_SECONDS)


async def _work(spec: WorkerSpec, words: Words) -> None:
    await Worker(spec).run(words)


if __name__ == "__main__":
    process.main(WORKER, _work)
