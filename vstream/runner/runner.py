"""
One run: a lab, a workload, faults, and a capture of all of it. It judges nothing.

    lab up → topology applied → probed → clients and sampler → steps → load stops → all
    healed → converged → every stream read → logs → manifest → lab down

However it ends, what was begun by then is ended in this order, which no cancellation interrupts:

    clients → sampler → connections → open faults healed → windows, logs and manifest written → lab down

Each is a context of `_run_and_capture`: what is begun last ends first.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, assert_never

from pydantic import TypeAdapter, ValidationError

from vstream.capture.records import OperationRecord, Window
from vstream.capture.store import Capture, RecordWriter
from vstream.chaos.inject import HEAL_TIMEOUT
from vstream.errors import VstreamError
from vstream.jetstream.reconnecting import ReconnectingConnection, open_reconnecting
from vstream.lab import lifecycle
from vstream.lab.server_records import OwnServers
from vstream.lab.start import finish_despite_cancellation
from vstream.lab.state import lab_directory
from vstream.lab.status import list_lab_names
from vstream.runner import manifest
from vstream.runner.client_checks import OperationChecks
from vstream.runner.convergence import ConvergenceWait
from vstream.runner.environment import Environment, change_region_in_lab, prepare_lab, repair_meta, resync_streams
from vstream.runner.events import (
    Activity,
    Event,
    EventObserver,
    ProgressWriter,
    SampleTaken,
    StepBegan,
    StepEnded,
    WorkloadBegan,
    describe_action,
)
from vstream.runner.fault_injector import FaultInjector
from vstream.runner.read_back import read_back
from vstream.runner.workers import (
    WorkerProcess,
    Workers,
    list_regions_of_tries,
    list_tried_streams,
    specify_sampler,
    specify_workers,
)
from vstream.runner.workload.spec import SAMPLER, WORKER
from vstream.scenario import model
from vstream.timing import SECOND_NS

Interval = tuple[int, int]
"""From when to when, in nanoseconds since the capture's start."""

_START_DELAY_NS = 200_000_000
"""Nanoseconds from the start signal until the first message is due."""
_REST_BEFORE_FAULT_NS = 300_000_000
_CONNECT_TIMEOUT = 20.0
_CLIENTS_TIMEOUT = 60.0
"""Seconds until all clients are connected and have their consumers."""
_DRAIN_TIMEOUT = 60.0
_FINISH_TIMEOUT = 30.0
_CONVERGENCE_TIMEOUT = 240.0
"""Seconds, for the last one. A lost source is retried after at most two minutes."""
_READ_BACK_TIMEOUT = 120.0
"""Seconds per stream."""
_SHORT_READ_BACK_TIMEOUT = 20.0
"""The same, where regions have had their time already, and do not agree."""
_GIVE_UP_TIMEOUT = 1.0
"""Seconds for servers to become healthy if they are taken down anyway."""
_TICK_SECONDS = 0.1
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO})


async def capture_scenario(
    scenario: model.Scenario, *, capture_dir: Path, lab_name: str, keep_lab: bool = False, on_event: EventObserver
) -> Capture:
    """
    Run *scenario* in a new lab *lab_name*, and capture it in *capture_dir*, which must not hold a capture yet.

    Raises VstreamError, with the lab taken down, if the load could not begin. What
    goes wrong later makes the capture incomplete, and its manifest says why. The same
    if it is cancelled: then it heals and takes everything down first. *keep_lab* leaves the lab running.
    """
    if lab_name in list_lab_names():
        raise VstreamError(
            f"lab `{lab_name}` already exists", hint="a scenario needs a lab of its own: choose another name"
        )
    capture = manifest.begin_capture(capture_dir, scenario)
    progress = ProgressWriter(lab_directory(lab_name), scenario.name, len(scenario.steps))

    def watch(event: Event) -> None:
        progress.record_event(event)
        on_event(event)

    try:
        await _run_and_capture(_Recording(scenario, capture, watch), lab_name, keep_lab=keep_lab)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise VstreamError(
            f"the capture in `{capture_dir}` cannot be written: {error.strerror or error}",
            hint="`--output` with a directory elsewhere",
        ) from error
    return capture


async def _run_and_capture(recording: _Recording, lab_name: str, *, keep_lab: bool) -> None:
    """From the start of the lab to the last stream read. What is begun last ends first, and nothing interrupts that."""
    faults = FaultInjector(lab_name, recording.capture, recording.now, recording.on_event)
    heal_within = HEAL_TIMEOUT if keep_lab else _GIVE_UP_TIMEOUT
    async with (
        # The last of all, and always: a disk without room for the capture must not leave servers behind.
        nullcontext() if keep_lab else _end_with(partial(lifecycle.down, lab_name, purge=True)),
        _end_with(partial(recording.finish, lab_name)),
        _end_with(partial(faults.close, within=heal_within)),
    ):
        recording.manifest.write()
        has_begun = False
        try:
            environment = await prepare_lab(recording.scenario, lab_name, recording.report_activity)
            recording.report_activity("connecting clients")
            async with (
                _connect_regions(recording, environment) as connections,
                _start_sampler(recording, environment) as sampler,
                _start_clients(recording, environment) as workers,
            ):
                run = _ScenarioRun(recording, environment, connections, sampler, workers, faults)
                await run.begin_load()
                has_begun = True
                await run.take_steps()
                await run.settle_and_read_back()
        except VstreamError as error:
            recording.manifest.mark_stopped(error.message)
            if not has_begun:
                raise
        except asyncio.CancelledError:
            recording.manifest.mark_stopped("interrupted")
            raise


@asynccontextmanager
async def _end_with(end: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Whatever becomes of the block, *end* is done after it."""
    try:
        yield
    finally:
        await finish_despite_cancellation(end())


@asynccontextmanager
async def _connect_regions(
    recording: _Recording, environment: Environment
) -> AsyncIterator[Mapping[str, ReconnectingConnection]]:
    """The runner's own connections; where `try` steps will fetch, there is a consumer."""
    connections: dict[str, ReconnectingConnection] = {}
    async with AsyncExitStack() as opened:
        for region in environment.topology.regions:
            connections[region.name] = await open_reconnecting(
                environment.endpoints[region.name],
                region.name,
                name=f"{region.name}/runner",
                accepts_server=OwnServers(environment.logs).includes,
                within=_CONNECT_TIMEOUT,
            )
            await opened.enter_async_context(_end_with(connections[region.name].close))
        regions = list_regions_of_tries(recording.scenario)
        for tried in list_tried_streams(recording.scenario, environment, 0, regions):
            await OperationChecks(tried, connections[tried.region], recording.now).create_fetch_consumer()
        yield connections


@asynccontextmanager
async def _start_sampler(recording: _Recording, environment: Environment) -> AsyncIterator[WorkerProcess]:
    spec = specify_sampler(environment, recording.capture.path, recording.started_at)
    sampler = recording.make_process("sampler", "vstream.runner.workload.sampler", SAMPLER, spec)
    async with _end_with(sampler.end_now):
        await sampler.start(recording.report_sample)
        yield sampler


@asynccontextmanager
async def _start_clients(recording: _Recording, environment: Environment) -> AsyncIterator[Workers]:
    """Start the clients of all regions; they wait for the load."""
    specs = specify_workers(recording.scenario, environment, recording.capture.path, recording.started_at)
    workers = Workers(
        tuple(recording.make_process(spec.region, "vstream.runner.workload.worker", WORKER, spec) for spec in specs),
        recording.on_event,
    )
    async with _end_with(workers.end_now):
        await workers.start(within=_CLIENTS_TIMEOUT)
        yield workers


class _Recording:
    """What a run has from its start to its end, whatever happens: its clock, what is written down, and who is told."""

    def __init__(self, scenario: model.Scenario, capture: Capture, on_event: EventObserver) -> None:
        self.scenario = scenario
        self.capture = capture
        self.on_event = on_event
        self.started_at = time.monotonic_ns()
        self.manifest = manifest.ManifestWriter(capture, scenario, wall=time.time_ns(), started=datetime.now(UTC))
        self._windows = RecordWriter(capture.windows_file, Window)
        self._try_files: dict[str, RecordWriter[OperationRecord]] = {}
        self._last_activity = ""

    def now(self) -> int:
        """Nanoseconds since the capture's start."""
        return time.monotonic_ns() - self.started_at

    def report_activity(self, text: str) -> None:
        """Tell what goes on now, once."""
        if text != self._last_activity:
            self._last_activity = text
            self.on_event(Activity(at=self.now(), description=text))

    def report_sample(self, _: WorkerProcess, line: bytes) -> None:
        """Tell what the sampler has seen."""
        with suppress(ValidationError):  # a line may be cut where nobody has listened for long
            self.on_event(SampleTaken(sample=manifest.SAMPLE.validate_json(line)))

    def make_process(self, name: str, module: str, adapter: TypeAdapter[Any], spec: object) -> WorkerProcess:
        """A process that is not started yet; the capture keeps what it says of errors."""
        return WorkerProcess(name, module, adapter.dump_json(spec), self.capture.path / "errors" / f"{name}.txt")

    def record_window(self, name: str, window: Interval, action: str, problem: str | None) -> None:
        """Write down when *action* had its effect, and why it is not ok."""
        start, end = window
        self._windows.write(
            Window(name=name, start=start, end=end, action=action, is_ok=problem is None, detail=problem)
        )
        self._windows.flush()

    def record_tried(self, region: str, operations: Iterable[OperationRecord]) -> None:
        """Write down what a `try` step has done in *region*."""
        if region not in self._try_files:
            self._try_files[region] = RecordWriter(self.capture.operations_file(f"{region}.try"), OperationRecord)
        for operation in operations:
            self._try_files[region].write(operation)
        self._try_files[region].flush()

    async def finish(self, lab_name: str) -> None:
        """Write what there is."""
        self._windows.close()
        for file in self._try_files.values():
            file.close()
        await asyncio.to_thread(self.manifest.keep_servers, lab_name)  # logs may be long
        self.manifest.record_line_counts()
        self.manifest.write()


@dataclass(slots=True)
class _ScenarioRun:
    """A run whose lab and clients are ready."""

    _recording: _Recording
    _environment: Environment
    _connections: Mapping[str, ReconnectingConnection]
    _sampler: WorkerProcess
    _workers: Workers
    _faults: FaultInjector
    _workload_began_at: int = 0

    async def begin_load(self) -> None:
        """Let clients begin: faults can come at any moment from then on."""
        self._workload_began_at = self._recording.now() + _START_DELAY_NS
        self._recording.manifest.record_load_start(self._workload_began_at)
        self._recording.manifest.write()
        self._recording.on_event(WorkloadBegan(at=self._workload_began_at))
        await self._workers.begin_load(self._workload_began_at)
        await self._pause(self._workload_began_at - self._recording.now())

    async def take_steps(self) -> None:
        """Take all steps, one after the other. Raises VstreamError if clients end by themselves meanwhile."""
        for number, step in enumerate(self._recording.scenario.steps, 1):
            await self._take_step(step, number)

    async def _take_step(self, step: model.Step, number: int) -> None:
        if step.at is not None:
            await self._pause(self._workload_began_at + step.at - self._recording.now())
        if isinstance(step.action, model.Inject):
            # Answers that were due at the end of the window before do not count against this one.
            await self._pause(_REST_BEFORE_FAULT_NS)
        description, began = describe_action(step.action), self._recording.now()
        total = len(self._recording.scenario.steps)
        self._recording.on_event(
            StepBegan(at=began, number=number, total=total, name=step.name, description=description)
        )
        in_effect, problem = None, None
        try:
            in_effect = await self._perform(step.action, number)
        except VstreamError as error:
            problem = error.message
        self._require_running()
        ended = self._recording.now()
        window = in_effect or (began, ended)
        self._recording.record_window(step.name or f"step {number}", window, description, problem)
        self._recording.on_event(StepEnded(at=ended, number=number, is_ok=problem is None, detail=problem))

    async def _perform(self, action: model.Action, number: int) -> Interval | None:
        """Returns when it had its effect, if not all the time. Raises VstreamError if the step fails."""
        match action:
            case model.Wait():
                await self._pause(action.nanoseconds)
            case model.Inject():
                return await self._inject(action)
            case model.Heal():
                await self._faults.heal(action.ids)
            case model.Resync():
                await resync_streams(self._environment)
            case model.Converge():
                await self._make_convergence_wait().wait_until_reached(within=action.within / SECOND_NS)
            case model.Try():
                await self._try_operations(action, number)
            case model.ChangeRegion():
                await self._change_region(action)
            case model.RepairMeta():
                await repair_meta(self._environment)
            case _:
                assert_never(action)
        return None

    async def _inject(self, step: model.Inject) -> Interval:
        """Returns from the first signal to the end of the step, or to the start of healing."""
        began = await self._faults.inject(step, self._environment.topology)
        if step.lasting is not None and self._faults.is_open(step):
            await self._pause(step.lasting)
            ended = self._recording.now()
            await self._faults.heal([step.id])
            return began, ended
        if not step.fault.type.stays_open:
            await self._faults.heal([step.id])
        return began, self._recording.now()

    async def _change_region(self, action: model.ChangeRegion) -> None:
        began = self._recording.now()
        changed = await change_region_in_lab(self._environment, action)
        self._environment = changed.environment
        self._recording.manifest.record_region_change(changed, began)
        await self._faults.end_in_lost_regions(changed.environment.topology)
        if changed.problem is not None:
            raise VstreamError(changed.problem)

    def _make_convergence_wait(self) -> ConvergenceWait:
        return ConvergenceWait(self._environment.bundle.streams, self._connections)

    async def _try_operations(self, action: model.Try, number: int) -> None:
        streams = list_tried_streams(self._recording.scenario, self._environment, number, action.regions)
        checks = [OperationChecks(tried, self._connections[tried.region], self._recording.now) for tried in streams]
        for tried, operations in zip(streams, await asyncio.gather(*(check.run() for check in checks)), strict=True):
            self._recording.record_tried(tried.region, operations)

    async def _pause(self, nanoseconds: int) -> None:
        """Let the load run. Raises VstreamError if clients end by themselves meanwhile."""
        until = self._recording.now() + nanoseconds
        while (left := until - self._recording.now()) > 0:
            await asyncio.sleep(min(left / SECOND_NS, _TICK_SECONDS))
            self._require_running()

    def _require_running(self) -> None:
        self._workers.require_running()
        self._sampler.require_running()

    async def settle_and_read_back(self) -> None:
        """After the last step: until nothing can change any more, and all of it is written down."""
        self._recording.report_activity("waiting for the last answers")
        self._recording.manifest.record_load_end(self._recording.now())
        waits = [publishers.give_up / SECOND_NS for publishers in self._recording.scenario.workload.publishers]
        await self._workers.stop_load(self._recording.now, within=_DRAIN_TIMEOUT + max(waits, default=0.0))
        self._recording.report_activity("healing what is open")
        await self._faults.heal(None)
        began = self._recording.now()
        self._recording.report_activity("waiting until regions agree")
        problem = None
        try:
            await self._make_convergence_wait().wait_until_settled(within=_CONVERGENCE_TIMEOUT)
        except VstreamError as error:
            problem = error.message
        window = (began, self._recording.now())
        self._recording.record_window("quiesce", window, "wait until regions agree", problem)
        self._recording.report_activity("reading every stream")
        await self._workers.drain_and_stop(within=_FINISH_TIMEOUT)
        await self._read_back(within=_READ_BACK_TIMEOUT if problem is None else _SHORT_READ_BACK_TIMEOUT)
        self._recording.manifest.mark_complete()

    async def _read_back(self, *, within: float) -> None:
        streams = []
        names = [stream.config.name for stream in self._environment.bundle.streams]
        for stream in self._environment.bundle.streams:
            connection = self._connections.get(stream.region) or next(iter(self._connections.values()))
            streams.append(await read_back(connection, stream, names, self._recording.capture, within=within))
        self._recording.manifest.record_streams(streams)
