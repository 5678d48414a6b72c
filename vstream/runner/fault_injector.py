"""The faults of a run: injects and heals them, and records the evidence of their effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from vstream.capture.records import FaultOutcome, FaultRecord
from vstream.capture.store import Capture, RecordWriter
from vstream.chaos import faults
from vstream.chaos.inject import InjectionRequest, heal, inject
from vstream.errors import LabError, UnsupportedError, VstreamError
from vstream.health.live.refresh_readers import RefreshMode, refresh_readers
from vstream.runner.environment import Environment
from vstream.runner.events import Event, FaultSeen, FaultState
from vstream.scenario.model import Inject
from vstream.servers import target_servers
from vstream.servers.target_servers import TargetServers
from vstream.value_class import value_class

Pause = Callable[[int], Awaitable[None]]

_HEAL_TIMEOUT = 120.0
_RESTART_TIMEOUT = 180.0
"""Seconds per server."""
_RESYNC_TIMEOUT = 240.0
"""Seconds. A stream of one replica cannot be stepped down: it asks again when it does so by itself."""


@value_class
class StepResult:
    """The result of a step: its window if that differs from the step, and why it is not ok."""

    window: tuple[int, int] | None = None
    problem: str | None = None
    environment: Environment | None = None
    """The servers and the topology, if the step has changed them."""


@value_class
class _OpenFault:
    """A fault that is to be healed: its record so far, and its name in the lab's journal."""

    record: FaultRecord
    entry: str


class FaultInjector:
    """All faults of one run. The scenario asks for them, so none is refused for taking too much."""

    def __init__(
        self, environment: Environment, capture: Capture, now: Callable[[], int], on_event: Callable[[Event], None]
    ) -> None:
        self._environment = environment
        self._lines = RecordWriter(capture.faults_file, FaultRecord)
        self._now = now
        self._on_event = on_event
        self._open: dict[str, _OpenFault] = {}

    @property
    def _target_lab(self) -> TargetServers:
        return target_servers.find_lab_target_of(self._environment.topology, self._environment.lab)

    async def run_step(self, step: Inject, pause: Pause) -> StepResult:
        """
        Inject the fault of *step*; a lasting fault is healed after *pause*.

        The window lasts from the first signal to the end of the step, or to the start of healing.
        """
        begun = FaultRecord(
            id=step.id,
            asked=step.fault.command,
            kind=step.fault.type.name,
            targets=step.fault.targets,
            regions=(),
            outcome=FaultOutcome.FAILED,
            injected=self._now(),
            confirmed=None,
            evidence=None,
            healing=None,
            healed=None,
        )
        try:
            return await self._inject_fault(step, begun, pause)
        except UnsupportedError as error:
            self._record_end(
                replace(begun, outcome=FaultOutcome.UNSUPPORTED, error=error.message), FaultState.UNSUPPORTED
            )
            return StepResult(problem=error.message)
        except VstreamError as error:
            if step.id in self._open:
                raise  # it does bite, and could not be healed: that is recorded
            self._record_end(replace(begun, error=error.message), FaultState.FAILED)
            return StepResult(problem=error.message)

    async def _inject_fault(self, step: Inject, begun: FaultRecord, pause: Pause) -> StepResult:
        target = self._target_lab
        injection = await faults.resolve(step.fault, target, self._environment.topology, needs_successor=True)
        began: list[int] = []
        request = InjectionRequest(
            target=target,
            topology=self._environment.topology,
            command=begun.asked,
            is_forced=True,
            timeout=_RESTART_TIMEOUT,
            on_begin=lambda: began.append(self._now()),
        )
        injected = await inject(request, injection)
        record = self._confirm(begun, injection.regions, began, injected.evidence)
        if injected.entry is None:
            # Restarted servers are there again; where a leader stepped down, none was ever gone.
            healed = self._now() if injected.restarted else None
            self._record_end(replace(record, healed=healed), FaultState.HEALED)
            return StepResult(window=(record.injected, self._now()))
        self._open[step.id] = _OpenFault(record=record, entry=injected.entry.id)
        if step.lasting is not None:
            await pause(step.lasting)
        end = self._now()
        if step.lasting is not None or not step.fault.type.stays_open:
            await self._heal([step.id])
        return StepResult(window=(record.injected, end if step.lasting is not None else self._now()))

    def _confirm(
        self, begun: FaultRecord, regions: tuple[str, ...], began: Sequence[int], evidence: str
    ) -> FaultRecord:
        record = replace(
            begun,
            regions=regions,
            outcome=FaultOutcome.CONFIRMED,
            injected=began[0] if began else begun.injected,
            confirmed=self._now(),
            evidence=evidence,
        )
        self._report_state(record, FaultState.CONFIRMED, evidence)
        return record

    async def heal(self, ids: Sequence[str] | None) -> None:
        """
        Undo the faults of steps *ids*, or all, and return when the servers are healthy.

        Faults that never had an effect or were already healed are skipped. Raises LabError if the servers do not become
        healthy.
        """
        await self._heal([step for step in self._open if ids is None or step in ids])

    async def _heal(self, ids: Sequence[str], *, within: float = _HEAL_TIMEOUT) -> None:
        chosen = {step: self._open[step] for step in ids}
        if not chosen:
            return
        healing = self._now()
        for open_fault in chosen.values():
            self._report_state(open_fault.record, FaultState.HEALING, None)
        try:
            await heal(
                self._target_lab,
                [open_fault.entry for open_fault in chosen.values()],
                timeout=within,
                skips_healed=True,
            )
        except LabError as error:
            for step in chosen:
                record = replace(self._open.pop(step).record, healing=healing, error=error.message)
                self._record_end(record, FaultState.FAILED)
            raise
        for step in chosen:
            self._record_end(
                replace(self._open.pop(step).record, healing=healing, healed=self._now()), FaultState.HEALED
            )

    async def continue_with(self, environment: Environment) -> None:
        """Go on with *environment*: faults in regions that it does not have any more are over."""
        self._environment = environment
        living = {region.name for region in environment.topology.regions}
        await self._heal([step for step, fault in self._open.items() if living.isdisjoint(fault.record.regions)])

    async def resync(self) -> str | None:
        """As `vstream repair sources`. Returns why it is not complete."""
        topology, target = self._environment.topology, self._target_lab
        result = await refresh_readers(topology, target, timeout=_RESYNC_TIMEOUT, mode=RefreshMode.ALL)
        return "; ".join(f"{stream.stream}: {stream.note}" for stream in result.behind) or None

    async def close(self, *, within: float) -> None:
        """Undo all open faults, waiting at most *within* seconds for healthy servers. Never raises."""
        try:
            await self._heal(list(self._open), within=within)
        except VstreamError:
            for left in self._open.values():
                self._record_end(left.record, FaultState.FAILED)
        self._lines.close()

    def _record_end(self, record: FaultRecord, state: FaultState) -> None:
        self._lines.write(record)
        self._lines.flush()
        self._report_state(record, state, record.error)

    def _report_state(self, record: FaultRecord, state: FaultState, detail: str | None) -> None:
        self._on_event(
            FaultSeen(
                at=self._now(), id=record.id, asked=record.asked, regions=record.regions, state=state, detail=detail
            )
        )
