"""
Carry out a plan on the servers, stage by stage: it says what to do, and in which order.

A stage begins once its gates hold (`wait_for_gates`). Then servers load mappings, readers are resynced (`resync_moved`), servers
are retired, notes are removed (`forget_notes`), and changes are sent (`send`): each stage consists of some of these. What
becomes of each is a part of the result (`result`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from vstream.apply.before_moves import BeforeMoves, note_before_moves
from vstream.apply.forget_notes import forget_notes
from vstream.apply.interfaces import LEFT_TO_OTHERS, Administration, LeftToOthers, MappingAdmin, ServerAdmin
from vstream.apply.result import NO_OBSERVER, ApplyObserver, ApplyResult
from vstream.apply.resync_moved import MovedReaderResync
from vstream.apply.send import ChangeSender
from vstream.apply.wait_for_gates import GATE_TIMEOUT, GateWaiter
from vstream.errors import VstreamError
from vstream.plan.model import Change, Plan, is_pause, is_resumption
from vstream.plan.stages import PlanStage, Stage, list_stages

MAX_PARALLEL_REQUESTS = 32
"""Parallel requests. More are hardly faster (measured: 418/s at 32, 472/s at 128)."""
INTERRUPTED_SECONDS = 3.0
"""Seconds that an interrupted run takes to resume what it has paused."""


async def execute_plan(
    plan: Plan,
    administration: Administration,
    *,
    gate_timeout: float = GATE_TIMEOUT,
    observer: ApplyObserver = NO_OBSERVER,
) -> ApplyResult:
    """
    Carry out *plan*, stage by stage, up to 32 requests at a time; stop at the first failure.

    A stage begins once its gates hold; one that does not within *gate_timeout* seconds ends it. Where nobody can make
    servers load mappings, everything that must wait for them is skipped, which is all of it where accounts come first.
    Removals are skipped where a server's loaded rules are unknown, since it may still send publishes there. Never raises
    for what servers answer.

    A paused stream whose new servers do not hold everything in time stays paused; what servers load, and removals, are
    skipped then. If this is cancelled, it resumes what it can at once, and tells *observer* how it ended.
    """
    checker = administration.checker
    before = await note_before_moves(plan, checker)
    run = _PlanRun(
        plan=plan,
        administration=administration,
        before=before,
        gate_timeout=gate_timeout,
        observer=observer,
        waiter=GateWaiter(checker=checker, observer=observer),
        sender=ChangeSender(streams=administration.streams, positions=administration.positions, held=before.held),
    )
    try:
        for stage in list_stages(plan):
            await run.carry_out(stage)
    except asyncio.CancelledError as interruption:
        try:
            await run.end_early()
        except Exception as error:
            context = {"message": "what was paused could not be resumed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            raise interruption from error
        raise
    return run.result


@dataclass(kw_only=True, slots=True)
class _PlanRun:
    """What carries out the stages of a plan. Only its *result* changes: what becomes of each step is joined to it."""

    plan: Plan
    administration: Administration
    before: BeforeMoves
    gate_timeout: float
    observer: ApplyObserver
    waiter: GateWaiter
    sender: ChangeSender
    result: ApplyResult = field(default_factory=ApplyResult)

    async def carry_out(self, stage: PlanStage) -> None:
        """Do what *stage* consists of once it may begin; skip it otherwise."""
        if stage.stage is Stage.RESUME_STREAMS:
            await self._resume_streams(stage, self.gate_timeout)
            return
        stage = _without_gates_of(self.result.left_paused, stage)
        if not await self._wait_for_start(stage):
            unread = self.plan.unread_servers if self._waits_for_mappings(stage) else ()
            self._note(ApplyResult(skipped=stage.changes, skipped_stages=(stage,), unread_servers=unread))
            return
        if stage.rule_changes:
            self._note(await _load_mappings(self.administration.mappings))
        if stage.readers:
            self._note(await self._resync_moved_readers(stage))
        if stage.servers:
            self._note(await _retire(self.administration.servers, stage.servers))
        if stage.stage in {Stage.COMPARE_REPLICAS, Stage.RECORD_MOVES}:
            self._note(await forget_notes(stage.gates, self.administration, self.before))
        await self._make_changes(stage.changes)

    def _note(self, part: ApplyResult) -> None:
        """Say in the result what became of *part* of the plan."""
        self.result = self.result.join(part)

    async def _wait_for_start(self, stage: PlanStage) -> bool:
        """Whether *stage* may begin, once its gates hold; readers are resynced gate by gate, as these hold."""
        if self._has_stopped_before(stage) or (self.plan.unread_servers and self._waits_for_mappings(stage)):
            return False
        if not stage.readers:
            self._note(await self.waiter.wait_for_all(stage.gates, self.gate_timeout))
        return not self._has_stopped_before(stage)

    def _waits_for_mappings(self, stage: PlanStage) -> bool:
        return stage.waits_for_mappings and not self.result.mappings_loaded

    def _has_stopped_before(self, stage: PlanStage) -> bool:
        """Whether something has failed, was skipped, or waits for mappings: *stage* and later ones do not begin."""
        result = self.result
        if result.failure is not None or result.mappings_pending or result.skipped_stages:
            return True
        # What goes may hold what a paused stream lacks, and mappings may lead publishers to it that others served so far.
        waits = stage.stage.is_removal or bool(stage.rule_changes)
        return any(waits or timeout.gate.stream not in result.left_paused for timeout in result.gate_timeouts)

    async def _resync_moved_readers(self, stage: PlanStage) -> ApplyResult:
        if (readers := self.administration.readers) is LEFT_TO_OTHERS:
            return ApplyResult()
        resync = MovedReaderResync(
            readers=readers,
            waiter=self.waiter,
            moving=self.plan.moving_streams,
            leaders=self.before.leaders,
            timeout=self.gate_timeout,
        )
        return await resync.run(stage.gates, stage.gates_meanwhile)

    async def _make_changes(self, changes: Sequence[Change]) -> None:
        waiting = iter(changes)

        async def worker() -> None:
            for change in waiting:
                if self.result.failure is not None:
                    self._note(ApplyResult(skipped=(change,)))
                else:
                    await self._make_change(change)

        await asyncio.gather(*(worker() for _ in range(min(MAX_PARALLEL_REQUESTS, len(changes)))))

    async def _make_change(self, change: Change) -> None:
        try:
            config = await self.sender.complete(change)
        except VstreamError as failure:
            self._note(ApplyResult(skipped=(change,), failure=failure))
            return
        try:
            sent = await self.sender.send(change, config)
        except asyncio.CancelledError:
            if not is_resumption(change):  # that is sent again
                self._note(ApplyResult(uncertain=(change,)))
            raise
        self._note(sent)
        if sent.done:
            self.observer.on_done(change)

    async def _resume_streams(self, stage: PlanStage, gate_timeout: float) -> None:
        """Let streams take publishes again, whatever has failed since they were paused: nobody else does it."""

        async def resume(change: Change) -> None:
            gates = [gate for gate in stage.gates if gate.stream == change.config.name]
            waited = await self.waiter.wait_for_all(gates, gate_timeout)
            if waited.failure is None and not waited.gate_timeouts:
                await self._make_change(change)
            else:
                self._note(waited.join(ApplyResult(skipped=(change,))))

        # What may move later, nobody may touch. The next run sees whether it does.
        unknown = {change.config.name for change in self.result.uncertain if not is_pause(change)}
        untouched = self.result.never_paused | unknown
        resumptions = [change for change in self.result.list_open(self.plan) if is_resumption(change)]
        self._note(ApplyResult(skipped=tuple(change for change in resumptions if change.config.name in untouched)))
        await asyncio.gather(*(resume(change) for change in resumptions if change.config.name not in untouched))

    async def end_early(self) -> None:
        """Resume what is paused where that can be done at once, and tell who watches how it ended."""
        left = self.result.list_open(self.plan)
        self._note(ApplyResult(skipped=tuple(change for change in left if not is_resumption(change))))
        try:
            async with asyncio.timeout(INTERRUPTED_SECONDS):
                for stage in list_stages(self.plan):
                    if stage.stage is Stage.RESUME_STREAMS:
                        await self._resume_streams(stage, INTERRUPTED_SECONDS / 2)
        except TimeoutError:
            pass
        finally:
            self._note(ApplyResult(skipped=self.result.list_open(self.plan)))
            self.observer.on_interrupted(self.result)


def _without_gates_of(streams: Collection[str], stage: PlanStage) -> PlanStage:
    """*stage* without what it waits for of *streams*: that was waited for."""
    gates, meanwhile = (
        tuple(gate for gate in gates if gate.stream not in streams) for gates in (stage.gates, stage.gates_meanwhile)
    )
    return replace(stage, gates=gates, gates_meanwhile=meanwhile)


async def _load_mappings(mappings: MappingAdmin | LeftToOthers) -> ApplyResult:
    if mappings is LEFT_TO_OTHERS:
        return ApplyResult(mappings_pending=True)
    try:
        await mappings.ensure_loaded()
    except VstreamError as failure:
        return ApplyResult(failure=failure)
    return ApplyResult(mappings_loaded=True)


async def _retire(admin: ServerAdmin | LeftToOthers, servers: tuple[str, ...]) -> ApplyResult:
    if admin is LEFT_TO_OTHERS:
        return ApplyResult()
    try:
        await admin.retire(servers)
    except VstreamError as failure:
        return ApplyResult(failure=failure)
    return ApplyResult(retired=servers)
