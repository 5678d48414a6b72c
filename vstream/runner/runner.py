"""
One run: a lab, a workload, faults, and a capture of all of it. It judges nothing.

    lab up → topology applied → probed → clients and sampler → steps → load stops → all
    healed → converged → every stream read → logs → manifest → lab down

Interrupted anywhere, it heals, ends its processes, writes what it has, and takes the lab down.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, assert_never

from pydantic import TypeAdapter, ValidationError

from vstream.capture.records import OperationRecord, Sample, Window
from vstream.capture.store import Capture, RecordWriter
from vstream.errors import VstreamError
from vstream.jetstream.reconnecting import ReconnectingConnection, open_reconnecting
from vstream.lab import lab
from vstream.lab.server_records import OwnServers
from vstream.lab.start import finish_despite_cancellation
from vstream.lab.state import lab_directory
from vstream.lab.status import list_lab_names
from vstream.runner import manifest
from vstream.runner.client_checks import OperationChecks
from vstream.runner.convergence import ConvergenceWait
from vstream.runner.environment import Environment, change_region, prepare_lab, repair_meta, topology_of
from vstream.runner.events import (
    Activity,
    Event,
    ProgressWriter,
    Sampled,
    StepBegan,
    StepEnded,
    WorkerProgress,
    WorkloadBegan,
    describe_action,
)
from vstream.runner.fault_injector import FaultInjector, StepResult
from vstream.runner.read_back import read_back
from vstream.runner.workers import (
    WorkerProcess,
    Workers,
    list_tried_regions,
    list_tried_streams,
    specify_sampler,
    specify_workers,
)
from vstream.runner.workload.spec import SAMPLER, WORKER
from vstream.scenario import model
from vstream.topology.model import Topology

Watcher = Callable[[Event], None]

_NS = 1_000_000_000
_START_DELAY = 200_000_000
"""Nanoseconds from the start signal until the first message is due."""
_REST_BEFORE_FAULT = 300_000_000
"""Nanoseconds between a window and the next fault."""
_CONNECT_TIMEOUT = 20.0
_READY_TIMEOUT = 60.0
_DRAIN_TIMEOUT = 60.0
_FINISH_TIMEOUT = 30.0
_CONVERGENCE_TIMEOUT = 240.0
"""Seconds, for the last one. A lost source is retried after at most two minutes."""
_READ_BACK_TIMEOUT = 120.0
"""Seconds per stream."""
_READ_BACK_APART = 20.0
"""The same, where regions have had their time already, and do not agree."""
_GIVE_UP_TIMEOUT = 1.0
"""Seconds for servers to become healthy if they are taken down anyway."""
_HEAL_TIMEOUT = 60.0
_TICK = 0.1
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO})


async def run(
    scenario: model.Scenario, *, capture_dir: Path, lab_name: str, keep_lab: bool = False, on_event: Watcher
) -> Capture:
    """
    Run *scenario* in a new lab *lab_name*, and capture it in *capture_dir*, which must not hold a capture yet.

    Raises VstreamError, with the lab taken down, if the load could not begin. What
    goes wrong later makes the capture incomplete, and its manifest says why. The same
    if it is cancelled: then it heals and takes everything down first. *keep_lab* leaves the lab running.
    """
    topology = topology_of(scenario)
    if lab_name in list_lab_names():
        raise VstreamError(
            f"lab `{lab_name}` already exists", hint="a scenario needs a lab of its own: choose another name"
        )
    capture = manifest.begin_capture(capture_dir, scenario)
    progress = ProgressWriter(lab_directory(lab_name), scenario.name, len(scenario.steps))

    def watch(event: Event) -> None:
        progress.record_event(event)
        on_event(event)

    active_run = _ScenarioRun(scenario, topology, capture, lab_name, watch)
    try:
        try:
            return await active_run.run()
        finally:
            await finish_despite_cancellation(active_run.clean_up(keep_lab=keep_lab))
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise VstreamError(
            f"the capture in `{capture_dir}` cannot be written: {error.strerror or error}",
            hint="`--output` with a directory elsewhere",
        ) from error


class _ScenarioRun:
    def __init__(
        self, scenario: model.Scenario, topology: Topology, capture: Capture, lab_name: str, on_event: Watcher
    ) -> None:
        self._scenario = scenario
        self._topology = topology
        self._capture = capture
        self._lab = lab_name
        self._on_event = on_event
        self._started_at = time.monotonic_ns()
        self._manifest = manifest.ManifestWriter(
            capture, scenario, topology, wall=time.time_ns(), started=datetime.now(UTC)
        )
        self._windows = RecordWriter(capture.windows_file, Window)
        self._workers: Workers | None = None
        self._sampler: WorkerProcess | None = None
        self._faults: FaultInjector | None = None
        self._connections: dict[str, ReconnectingConnection] = {}
        self._try_files: dict[str, RecordWriter[OperationRecord]] = {}
        self._workload_began_at = 0
        self._last_activity = ""

    def _now(self) -> int:
        return time.monotonic_ns() - self._started_at

    def _report_activity(self, text: str) -> None:
        if text != self._last_activity:
            self._last_activity = text
            self._on_event(Activity(at=self._now(), description=text))

    async def run(self) -> Capture:
        self._manifest.write()
        try:
            environment = await prepare_lab(self._scenario, self._topology, self._lab, self._report_activity)
            self._report_activity("connecting clients")
            await self._start_workload(environment)
        except VstreamError as error:
            self._manifest.mark_stopped(error.message)
            raise
        except asyncio.CancelledError:
            self._manifest.mark_stopped("interrupted")
            raise
        try:
            for number, step in enumerate(self._scenario.steps, 1):
                environment = await self._run_step(step, number, environment)
            await self._settle_and_read_back(environment)
        except VstreamError as error:
            self._manifest.mark_stopped(error.message)
        except asyncio.CancelledError:
            self._manifest.mark_stopped("interrupted")
            raise
        return self._capture

    async def _start_workload(self, environment: Environment) -> None:
        """Start clients and sampler, then the load: faults can come at any moment from then on."""
        self._faults = FaultInjector(environment, self._capture, self._now, self._on_event)
        for region in self._topology.regions:
            self._connections[region.name] = await open_reconnecting(
                environment.endpoints[region.name],
                region.name,
                name=f"{region.name}/runner",
                accepts_server=OwnServers(environment.logs).includes,
                within=_CONNECT_TIMEOUT,
            )
        for tried in list_tried_streams(self._scenario, environment, 0, list_tried_regions(self._scenario)):
            await OperationChecks(tried, self._connections[tried.region], self._now).create_fetch_consumer()
        specs = specify_workers(self._scenario, environment, self._capture.path, self._started_at)
        self._workers = Workers(
            tuple(self._make_process(spec.region, "vstream.runner.workload.worker", WORKER, spec) for spec in specs),
            lambda region, progress: self._on_event(WorkerProgress(region=region, progress=progress)),
        )
        sampler = specify_sampler(environment, self._capture.path, self._started_at)
        self._sampler = self._make_process("sampler", "vstream.runner.workload.sampler", SAMPLER, sampler)
        await self._sampler.start(self._report_sample)
        await self._workers.start(within=_READY_TIMEOUT)
        self._workload_began_at = self._now() + _START_DELAY
        self._manifest.record_load_start(self._workload_began_at)
        self._manifest.write()
        self._on_event(WorkloadBegan(at=self._workload_began_at))
        await self._workers.begin_load(self._workload_began_at)
        await self._pause(self._workload_began_at - self._now())

    def _make_process(self, name: str, module: str, adapter: TypeAdapter[Any], spec: object) -> WorkerProcess:
        return WorkerProcess(name, module, adapter.dump_json(spec), self._capture.path / "errors" / f"{name}.txt")

    def _report_sample(self, _: WorkerProcess, line: bytes) -> None:
        with suppress(ValidationError):  # a line may be cut where nobody has listened for long
            self._on_event(Sampled(sample=manifest.SAMPLE.validate_json(line)))

    async def _run_step(self, step: model.Step, number: int, environment: Environment) -> Environment:
        """Run *step*. Returns what the next one finds."""
        if step.at is not None:
            await self._pause(self._workload_began_at + step.at - self._now())
        if isinstance(step.action, model.Inject):
            # Answers that were due at the end of the window before do not count against this one.
            await self._pause(_REST_BEFORE_FAULT)
        description, began = describe_action(step.action), self._now()
        total = len(self._scenario.steps)
        self._on_event(StepBegan(at=began, number=number, total=total, name=step.name, description=description))
        try:
            result = await self._perform(step.action, number, environment)
        except VstreamError as error:
            result = StepResult(problem=error.message)
        problem = result.problem
        self._require_running()
        ended = self._now()
        start, end = result.window or (began, ended)
        self._windows.write(
            Window(
                name=step.name or f"step {number}",
                start=start,
                end=end,
                action=description,
                is_ok=problem is None,
                detail=problem,
            )
        )
        self._windows.flush()
        self._on_event(StepEnded(at=ended, number=number, is_ok=problem is None, detail=problem))
        return result.environment or environment

    async def _perform(self, action: model.Action, number: int, environment: Environment) -> StepResult:
        assert self._faults is not None
        match action:
            case model.Wait():
                await self._pause(action.nanoseconds)
            case model.Inject():
                return await self._faults.run_step(action, self._pause)
            case model.Heal():
                await self._faults.heal(action.ids)
            case model.Resync():
                return StepResult(problem=await self._faults.resync())
            case model.Converge():
                result = await self._make_convergence_wait(environment).wait_until_reached(within=action.within / _NS)
                return StepResult(problem=result.missing)
            case model.Try():
                await self._try_operations(action, number, environment)
            case model.ChangeRegion():
                return await self._change_region(action, environment, self._faults)
            case model.RepairMeta():
                await repair_meta(environment)
            case _:
                assert_never(action)
        return StepResult()

    async def _change_region(
        self, action: model.ChangeRegion, environment: Environment, faults: FaultInjector
    ) -> StepResult:
        began = self._now()
        changed = await change_region(environment, action)
        self._manifest.record_region_change(changed, began)
        await faults.continue_with(changed.environment)
        return StepResult(problem=changed.problem, environment=changed.environment)

    def _make_convergence_wait(self, environment: Environment) -> ConvergenceWait:
        return ConvergenceWait(environment.bundle.streams, self._connections)

    async def _try_operations(self, action: model.Try, number: int, environment: Environment) -> None:
        streams = list_tried_streams(self._scenario, environment, number, action.regions)
        checks = [OperationChecks(tried, self._connections[tried.region], self._now) for tried in streams]
        for tried, operations in zip(streams, await asyncio.gather(*(check.run() for check in checks)), strict=True):
            if tried.region not in self._try_files:
                file = self._capture.operations_file(f"{tried.region}.try")
                self._try_files[tried.region] = RecordWriter(file, OperationRecord)
            for operation in operations:
                self._try_files[tried.region].write(operation)
            self._try_files[tried.region].flush()

    async def _pause(self, nanoseconds: int) -> None:
        """Let the load run. Raises VstreamError if clients end by themselves meanwhile."""
        until = self._now() + nanoseconds
        while (left := until - self._now()) > 0:
            await asyncio.sleep(min(left / _NS, _TICK))
            self._require_running()

    def _require_running(self) -> None:
        assert self._workers is not None
        assert self._sampler is not None
        self._workers.require_running()
        self._sampler.require_running()

    async def _settle_and_read_back(self, environment: Environment) -> None:
        """After the last step: until nothing can change any more, and all of it is written down."""
        assert self._workers is not None
        assert self._faults is not None
        self._report_activity("waiting for the last answers")
        self._manifest.record_load_end(self._now())
        waits = [publishers.give_up / _NS for publishers in self._scenario.workload.publishers]
        await self._workers.stop_load(self._now, within=_DRAIN_TIMEOUT + max(waits, default=0.0))
        self._report_activity("healing what is open")
        await self._faults.heal(None)
        began = self._now()
        self._report_activity("waiting until regions agree")
        result = await self._make_convergence_wait(environment).wait_until_settled(within=_CONVERGENCE_TIMEOUT)
        self._windows.write(
            Window(
                name="quiesce",
                start=began,
                end=self._now(),
                action="wait until regions agree",
                is_ok=result.is_reached,
                detail=result.missing,
            )
        )
        self._report_activity("reading every stream")
        await self._workers.drain_and_stop(within=_FINISH_TIMEOUT)
        await self._read_back(environment, within=_READ_BACK_TIMEOUT if result.is_reached else _READ_BACK_APART)
        self._manifest.mark_complete()

    async def _read_back(self, environment: Environment, *, within: float) -> None:
        streams = []
        names = [stream.config.name for stream in environment.bundle.streams]
        for stream in environment.bundle.streams:
            connection = self._connections.get(stream.region) or next(iter(self._connections.values()))
            streams.append(await read_back(connection, stream, names, self._capture, within=within))
        self._manifest.record_streams(streams)

    async def clean_up(self, *, keep_lab: bool) -> None:
        """End everything that this run has started, and write what there is."""
        try:
            await self._end_clients()
            if self._faults is not None:
                await self._faults.close(within=_HEAL_TIMEOUT if keep_lab else _GIVE_UP_TIMEOUT)
            self._close(self._windows, *self._try_files.values())
            self._manifest.collect_server_logs(self._lab)
            self._manifest.record_line_counts()
            self._manifest.write()
        finally:
            # A disk without room for the capture must not leave servers behind.
            if not keep_lab:
                await lab.down(self._lab, purge=True)

    async def _end_clients(self) -> None:
        if self._workers is not None:
            await self._workers.end_now()
        if self._sampler is not None:
            await self._sampler.end_now()
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    @staticmethod
    def _close(*files: RecordWriter[Window] | RecordWriter[OperationRecord] | RecordWriter[Sample]) -> None:
        for file in files:
            file.close()
