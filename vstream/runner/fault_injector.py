"""The faults of a run: injects and heals them, and records the evidence of their effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vstream.capture.records import FaultOutcome, FaultRecord
from vstream.capture.store import Capture, RecordWriter
from vstream.chaos import faults
from vstream.chaos.inject import HEAL_TIMEOUT, InjectionRequest, heal, inject
from vstream.errors import LabError, UnsupportedError, VstreamError
from vstream.runner.events import EventObserver, FaultState, FaultStateChanged
from vstream.scenario.model import Inject
from vstream.servers.target_servers import load_and_trust_lab, load_and_trust_lab_of
from vstream.topology.model import Topology
from vstream.value_class import value_class

_RESTART_TIMEOUT = 180.0
"""Seconds per server."""


@value_class
class _RecordedFault:
    """A fault that is to be healed: what is recorded of it so far, and its name in the lab's journal."""

    record: FaultRecord
    entry: str


class FaultInjector:
    """All faults of one run, in lab *lab_name*. The scenario asks for them, so none is refused for taking too much."""

    def __init__(self, lab_name: str, capture: Capture, now: Callable[[], int], on_event: EventObserver) -> None:
        self._lab = lab_name
        self._lines = RecordWriter(capture.faults_file, FaultRecord)
        self._now = now
        self._on_event = on_event
        self._open: dict[str, _RecordedFault] = {}

    async def inject(self, step: Inject, topology: Topology) -> int:
        """
        Inject the fault of *step* into the lab, which has *topology* now. Returns when the first signal was sent.

        Raises VstreamError if it has no effect.
        """
        begun = FaultRecord(
            id=step.id,
            command=step.fault.command,
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
            return await self._inject_and_confirm(step, topology, begun)
        except UnsupportedError as error:
            self._record_end(
                replace(begun, outcome=FaultOutcome.UNSUPPORTED, error=error.message), FaultState.UNSUPPORTED
            )
            raise
        except VstreamError as error:
            self._record_end(replace(begun, error=error.message), FaultState.FAILED)
            raise

    async def _inject_and_confirm(self, step: Inject, topology: Topology, begun: FaultRecord) -> int:
        target = load_and_trust_lab_of(topology, self._lab)
        injection = await faults.resolve(step.fault, target, topology, needs_successor=True)
        request = InjectionRequest(
            target=target,
            topology=topology,
            command=begun.command,
            is_forced=True,
            timeout=_RESTART_TIMEOUT,
            now=self._now,
        )
        injected = await inject(request, injection)
        record = replace(
            begun,
            regions=injection.regions,
            outcome=FaultOutcome.CONFIRMED,
            injected=injected.began,
            confirmed=self._now(),
            evidence=injected.evidence,
        )
        self._report_state(record, FaultState.CONFIRMED, injected.evidence)
        if injected.entry is None:
            # Restarted servers are there again; where a leader stepped down, none was ever gone.
            healed = self._now() if injected.restarted else None
            self._record_end(replace(record, healed=healed), FaultState.HEALED)
        else:
            self._open[step.id] = _RecordedFault(record=record, entry=injected.entry.id)
        return record.injected

    def is_open(self, step: Inject) -> bool:
        """Whether the fault of *step* is to be healed."""
        return step.id in self._open

    async def heal(self, ids: Sequence[str] | None) -> None:
        """
        Undo the faults of steps *ids*, or all, and return when the servers are healthy.

        Faults that never had an effect or were already healed are skipped. Raises LabError if the servers do not become
        healthy.
        """
        await self._heal([step for step in self._open if ids is None or step in ids])

    async def _heal(self, ids: Sequence[str], *, within: float = HEAL_TIMEOUT) -> None:
        chosen = {step: self._open[step] for step in ids}
        if not chosen:
            return
        healing = self._now()
        for open_fault in chosen.values():
            self._report_state(open_fault.record, FaultState.HEALING, None)
        try:
            await heal(
                load_and_trust_lab(self._lab),
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

    async def end_in_lost_regions(self, topology: Topology) -> None:
        """End the faults in regions that *topology* does not have any more: they are over."""
        living = {region.name for region in topology.regions}
        await self._heal([step for step, fault in self._open.items() if living.isdisjoint(fault.record.regions)])

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
            FaultStateChanged(
                at=self._now(), id=record.id, command=record.command, regions=record.regions, state=state, detail=detail
            )
        )
