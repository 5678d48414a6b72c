"""The runner's side of its worker processes: start, instruct, listen and stop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from vstream.errors import VstreamError
from vstream.runner.client_checks import TriedStream
from vstream.runner.environment import Environment
from vstream.runner.events import EventObserver, WorkerProgress
from vstream.runner.workload.spec import (
    FINISH,
    GO,
    PROGRESS,
    STOP,
    ConsumerSpec,
    PublisherSpec,
    ReaderSpec,
    SampledRegion,
    SamplerSpec,
    WorkerSpec,
    WorkloadProgress,
)
from vstream.scenario.model import Publishers, ReaderKind, Readers, Retry, Scenario, Try, fill_subject
from vstream.topology import naming

_POLL_SECONDS = 0.02
_MAX_LINE_BYTES = 1 << 22
_EXIT_TIMEOUT = 5.0
"""Seconds that a process has to exit after its input has ended."""


class WorkerProcess:
    """A worker process of a run. *errors* receives its standard error."""

    def __init__(self, name: str, module: str, spec: bytes, errors: Path) -> None:
        self.name = name
        self.latest = WorkloadProgress(at=0)
        self._module = module
        self._spec = spec
        self._errors = errors
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None

    async def start(self, on_line: Callable[[WorkerProcess, bytes], None]) -> None:
        """Spawn it and send its spec. *on_line* receives its output lines."""
        self._errors.parent.mkdir(parents=True, exist_ok=True)
        with self._errors.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=_MAX_LINE_BYTES,
                start_new_session=True,  # Ctrl-C is for the runner, which says when to stop
            )
        self._process = process
        self._listening = asyncio.create_task(self._listen(process, on_line))
        await self._write(self._spec)

    async def _listen(
        self, process: asyncio.subprocess.Process, on_line: Callable[[WorkerProcess, bytes], None]
    ) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            on_line(self, line)

    async def send_words(self, *words: str) -> None:
        """Send it a word. Does nothing if it has exited."""
        await self._write(" ".join(words).encode())

    async def _write(self, line: bytes) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        with suppress(ConnectionError):
            process.stdin.write(line + b"\n")
            await process.stdin.drain()

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.returncode

    def require_running(self) -> None:
        """Raises VstreamError, with its last output, if it has exited by itself."""
        if not self.is_running:
            raise VstreamError(
                f"the {self.name} ended by itself, with exit code {self.exit_code}: {self._last_output()}",
                hint=f"`{self._errors}` says more",
            )

    def _last_output(self) -> str:
        try:
            lines = self._errors.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "it said nothing"

    async def wait(self, timeout: float) -> None:
        """Wait until it exits; after *timeout* seconds it is killed."""
        if self._process is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._listening is not None:
            await self._listening

    async def end_now(self) -> None:
        """Stop it now; it writes what it has."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self.wait(_EXIT_TIMEOUT)


class Workers:
    """All workers of a run."""

    def __init__(self, workers: tuple[WorkerProcess, ...], on_event: EventObserver) -> None:
        self._workers = workers
        self._on_event = on_event

    async def start(self, *, within: float) -> None:
        """Start them, and wait until every client is connected and every consumer created. Raises VstreamError if that fails."""
        await asyncio.gather(*(worker.start(self._take_progress) for worker in self._workers))
        await self.wait_until(lambda progress: progress.is_ready, within=within, state="connected")

    def _take_progress(self, worker: WorkerProcess, line: bytes) -> None:
        with suppress(ValidationError):  # a line may be cut where nobody has listened for long
            worker.latest = PROGRESS.validate_json(line)
            self._on_event(WorkerProgress(region=worker.name, progress=worker.latest))

    async def begin_load(self, begin: int) -> None:
        """Let all clients publish and read from *begin* on, in nanoseconds since the capture's start."""
        await self._send_words(GO, str(begin))

    async def stop_load(self, now: Callable[[], int], *, within: float) -> None:
        """Start no new operations. Returns when each has an outcome, or after *within* seconds."""
        await self._send_words(STOP)
        stopped_at = now()
        with suppress(VstreamError):
            await self.wait_until(
                lambda progress: progress.is_drained and progress.at > stopped_at, within=within, state="done"
            )

    async def drain_and_stop(self, *, within: float) -> None:
        """Let consumers take what is left, then stop. Raises VstreamError if one fails."""
        await self._send_words(FINISH)
        await asyncio.gather(*(worker.wait(within) for worker in self._workers))
        for worker in self._workers:
            if worker.exit_code != 0:
                worker.require_running()

    async def end_now(self) -> None:
        """Stop all of them now. Safe to call at any time, and repeatedly."""
        await asyncio.gather(*(worker.end_now() for worker in self._workers))

    def require_running(self) -> None:
        """Raises VstreamError if one has exited by itself."""
        for worker in self._workers:
            worker.require_running()

    async def wait_until(self, holds: Callable[[WorkloadProgress], bool], *, within: float, state: str) -> None:
        """Wait until *holds* is true of each. Raises VstreamError after *within* seconds, or if one has exited."""
        deadline = asyncio.get_running_loop().time() + within
        while missing := [worker.name for worker in self._workers if not holds(worker.latest)]:
            self.require_running()
            if asyncio.get_running_loop().time() > deadline:
                raise VstreamError(f"the {', '.join(missing)} are not {state} after {within:g} s")
            await asyncio.sleep(_POLL_SECONDS)

    async def _send_words(self, *words: str) -> None:
        await asyncio.gather(*(worker.send_words(*words) for worker in self._workers))


_Item = TypeVar("_Item", Publishers, Readers)


def specify_workers(scenario: Scenario, environment: Environment, capture: Path, start: int) -> tuple[WorkerSpec, ...]:
    """The specs of the workers, one per region with clients. *start* is the capture's start on the monotonic clock."""
    specs = []
    for region in environment.topology.regions:
        spec = WorkerSpec(
            region=region.name,
            endpoint=environment.clients[region.name],
            logs=environment.logs,
            start=start,
            seed=scenario.seed,
            capture=capture,
            publishers=tuple(_list_publishers(scenario, environment, region.name)),
            readers=tuple(_list_readers(scenario, environment, region.name)),
            consumers=tuple(_list_consumers(scenario, environment, region.name)),
        )
        if spec.publishers or spec.readers or spec.consumers:
            specs.append(spec)
    return tuple(specs)


def specify_sampler(environment: Environment, capture: Path, start: int) -> SamplerSpec:
    """The spec of the sampler: all regions, each with its physical streams."""
    names = {region.name for region in environment.topology.regions}
    elsewhere = {name: names - {name} for name in names}
    regions = []
    for region in environment.topology.regions:
        # What lives in the stretch cluster is asked for everywhere: some region may still reach it.
        asked = [stream for stream in environment.bundle.streams if stream.region not in elsewhere[region.name]]
        streams = tuple(stream.config.name for stream in asked)
        endpoint = environment.endpoints[region.name]
        regions.append(SampledRegion(name=region.name, endpoint=endpoint, streams=streams))
    return SamplerSpec(start=start, logs=environment.logs, capture=capture, regions=tuple(regions))


def list_tried_streams(
    scenario: Scenario, environment: Environment, number: int, regions: tuple[str, ...]
) -> tuple[TriedStream, ...]:
    """What `try` step *number* is about: every virtual stream in each of *regions*."""
    streams = []
    for region in regions:
        for stream in environment.topology.streams:
            if region not in stream.regions:
                continue
            read_stream = environment.read_stream_name(stream.name, region)
            sample = _make_sample_subject(scenario, stream.name, region)
            streams.append(
                TriedStream(
                    region=region,
                    cluster=environment.topology.region(region).cluster,
                    stream=stream.name,
                    read_stream=read_stream,
                    # What really bears the name is not mapped.
                    consumer_stream=naming.local_name(read_stream) if stream.consistency.has_origin else stream.name,
                    write_stream=environment.write_stream_name(stream.name, region),
                    subject=sample or naming.probe_subject(stream.subjects[0]),
                    number=number,
                )
            )
    return tuple(streams)


def list_regions_of_tries(scenario: Scenario) -> tuple[str, ...]:
    """The regions of all `try` steps."""
    tries = (step.action for step in scenario.steps if isinstance(step.action, Try))
    return tuple(dict.fromkeys(region for action in tries for region in action.regions))


def _make_sample_subject(scenario: Scenario, stream: str, region: str) -> str | None:
    for publishers in scenario.workload.publishers:
        if publishers.stream == stream:
            return fill_subject(publishers.subject, {"region": region, "key": 0, "n": 0})
    return None


def _list_publishers(scenario: Scenario, environment: Environment, region: str) -> Iterator[PublisherSpec]:
    for number, publishers in _with_numbers(scenario.workload.publishers, region):
        yield PublisherSpec(
            client=f"{region}/publish-{publishers.stream}{number}",
            prefix=f"{region}/{publishers.stream}{number}/",
            stream=publishers.stream,
            write_stream=environment.write_stream_name(publishers.stream, region),
            subject=fill_subject(publishers.subject, {"region": region}),
            rate=publishers.rate,
            size=publishers.size,
            keys=publishers.keys,
            is_retrying=publishers.retry is Retry.SAME_ID,
            timeout=publishers.timeout,
            give_up=publishers.give_up,
        )


def _list_readers(scenario: Scenario, environment: Environment, region: str) -> Iterator[ReaderSpec]:
    written = scenario.workload.publishers
    for number, readers in _with_numbers(scenario.workload.readers, region):
        if readers.kind is ReaderKind.CONSUMER:
            continue
        subjects = []
        for publishers in written:
            if publishers.stream == readers.stream:
                for origin in publishers.regions:
                    subject = fill_subject(publishers.subject, {"region": origin})
                    subjects.append((subject, publishers.keys, publishers.rate))
        yield ReaderSpec(
            client=f"{region}/{readers.kind.value}-{readers.stream}{number}",
            stream=readers.stream,
            read_stream=environment.read_stream_name(readers.stream, region),
            rate=readers.rate,
            timeout=readers.timeout,
            is_sequential=readers.kind is ReaderKind.SEQUENCE,
            subjects=tuple(subjects),
        )


def _list_consumers(scenario: Scenario, environment: Environment, region: str) -> Iterator[ConsumerSpec]:
    for number, readers in _with_numbers(scenario.workload.readers, region):
        if readers.kind is ReaderKind.CONSUMER:
            yield ConsumerSpec(
                client=f"{region}/consumer-{readers.stream}{number}",
                stream=readers.stream,
                physical=naming.local_name(environment.read_stream_name(readers.stream, region)),
                name=f"vstream-{region}{number}",
                rate=readers.rate,
                timeout=readers.timeout,
            )


def _with_numbers(items: tuple[_Item, ...], region: str) -> Iterator[tuple[str, _Item]]:
    """Those of *region*, each with what tells it from others of its stream and kind: nothing for the first."""
    seen: Counter[tuple[str, ReaderKind | None]] = Counter()
    for item in items:
        if region in item.regions:
            kind = item.stream, item.kind if isinstance(item, Readers) else None
            seen[kind] += 1
            yield ("" if seen[kind] == 1 else f"-{seen[kind]}"), item
