"""
Samples every region twice a second, in a separate process.

`python -m vstream.runner.workload.sampler` reads a SamplerSpec on standard input, and ends with it. Each sample waits
for its answers independently: a silent region delays no other.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from vstream.capture.records import Sample
from vstream.capture.store import Capture, RecordWriter
from vstream.errors import VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.answers import api_error
from vstream.jetstream.reconnecting import ReconnectingConnection, open_reconnecting
from vstream.jetstream.source_header import read_positions
from vstream.lab.server_records import OwnServers
from vstream.runner.workload import process
from vstream.runner.workload.process import Words
from vstream.runner.workload.spec import FIRST_CONNECT_TIMEOUT, SAMPLER, SampledRegion, SamplerSpec
from vstream.topology import naming

PERIOD_SECONDS = 0.5
ANSWER_TIMEOUT = 2.0
"""Seconds for each answer."""
_API = "$JS.API"
_SAMPLE = TypeAdapter(Sample)
_CONTROL = f"{_API}.STREAM.NAMES"
"""A request that only the meta leader answers, and every server refuses that knows of no meta leader."""
_NOBODY = "_vstream_nobody"


class Sampler:
    """Samples as *spec* says."""

    def __init__(self, spec: SamplerSpec) -> None:
        self._spec = spec
        self._lines = RecordWriter(Capture(spec.capture).samples_file, Sample)

    async def run(self, words: Words) -> None:
        """Sample until the runner is gone."""
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._sample_region(region)) for region in self._spec.regions]
                while await words.next():
                    pass
                for task in running:
                    task.cancel()
        finally:
            self._lines.close()

    async def _sample_region(self, region: SampledRegion) -> None:
        monitoring.trust_ca(region.endpoint.monitor, region.endpoint.tls_ca)
        connection = await open_reconnecting(
            region.endpoint,
            region.name,
            name=f"{region.name}/sampler",
            accepts_server=OwnServers(self._spec.logs).includes,
            within=FIRST_CONNECT_TIMEOUT,
        )
        under_way: asyncio.Queue[asyncio.Task[Sample]] = asyncio.Queue()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_in_order(under_way))
            try:
                while True:
                    under_way.put_nowait(tasks.create_task(self._sample(region, connection)))
                    await asyncio.sleep(PERIOD_SECONDS)
            finally:
                await connection.close()

    async def _write_in_order(self, under_way: asyncio.Queue[asyncio.Task[Sample]]) -> None:
        """Write samples in the order in which they were begun."""
        while True:
            sample = await (await under_way.get())
            self._lines.write(sample)
            self._lines.flush()
            process.try_send_line(_SAMPLE.dump_json(sample, exclude_defaults=True))

    async def _sample(self, region: SampledRegion, connection: ReconnectingConnection) -> Sample:
        at = time.monotonic_ns() - self._spec.start
        (took, error), links, *infos = await asyncio.gather(
            _measure_control_plane(connection),
            _read_links(region),
            *(_read_stream_info(connection, stream) for stream in region.streams),
        )
        by_stream = {stream: info for stream, info in zip(region.streams, infos, strict=True) if info is not None}
        return Sample(
            at=at,
            region=region.name,
            control_plane=took,
            error=error,
            last_seq={stream: int(info["state"]["last_seq"]) for stream, info in by_stream.items()},
            sourced={
                stream: cursors for stream, info in by_stream.items() if (cursors := read_positions(info, stream))
            },
            links=links,
        )


async def _measure_control_plane(connection: ReconnectingConnection) -> tuple[int | None, str | None]:
    began = time.monotonic_ns()
    try:
        answer = await connection.request_json(_CONTROL, {"subject": _NOBODY}, timeout=ANSWER_TIMEOUT)
    except VstreamError as error:
        return None, error.message
    failure = api_error(answer, _CONTROL)
    return (time.monotonic_ns() - began, None) if failure is None else (None, str(failure))


async def _read_stream_info(connection: ReconnectingConnection, stream: str) -> dict[str, Any] | None:
    try:
        answer = await connection.request_json(naming.api_subject("STREAM.INFO", stream), timeout=ANSWER_TIMEOUT)
    except VstreamError:
        return None
    return answer if "state" in answer else None


async def _read_links(region: SampledRegion) -> dict[str, int]:
    async def read_gateways(url: str) -> Mapping[str, int]:
        try:
            return await monitoring.read_gateway_bytes(url, ANSWER_TIMEOUT)
        except VstreamError:
            return {}

    answers = await asyncio.gather(*(read_gateways(url) for url in region.endpoint.monitor))
    return dict(sorted(Counter(cluster for clusters in answers for cluster in clusters).items()))


async def _work(spec: SamplerSpec, words: Words) -> None:
    await Sampler(spec).run(words)


if __name__ == "__main__":
    process.main(SAMPLER, _work)
