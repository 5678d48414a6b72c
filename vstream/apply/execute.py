"""
Carry out a plan on the servers: it says what to do, and in which order.

Only where a source goes on, and where one ended, nobody knows before: that is measured right before a change or after it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from vstream.apply.interfaces import LEFT_TO_OTHERS, Administration, GateChecker, ReaderAdmin, StreamAdmin
from vstream.errors import NoRespondersError, NotPermittedError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import error_codes
from vstream.jetstream.error_codes import ELECTION_TIMEOUT
from vstream.plan.consumer_failover import continue_from
from vstream.plan.model import (
    Change,
    Create,
    CreateConsumer,
    Delete,
    DeleteConsumer,
    Gate,
    GateKind,
    Plan,
    TransitionStep,
    Update,
    UpdateConsumer,
    is_move,
    is_pause,
    is_resumption,
    is_scaled_up,
)
from vstream.plan.stages import PlanStage, Stage, list_stages
from vstream.plan.transitions import start_sequence
from vstream.plan.transitions.pause_publishers import require_still_paused
from vstream.timing import MOVE_START_SECONDS
from vstream.topology.consumer_config import ConsumerConfig
from vstream.topology.model import Role
from vstream.topology.naming import is_paused
from vstream.topology.stream_config import (
    MOVED_KEY,
    SCALED_KEY,
    UNTIL_KEY,
    StreamConfig,
    with_noted_move,
    with_noted_scaling,
    with_recorded_positions,
    with_start_sequences,
    with_unmeasured_dead_sources,
    without_noted_move,
)
from vstream.value_class import value_class

_Answer = TypeVar("_Answer")
MAX_PARALLEL_REQUESTS = 32
"""Parallel requests. More are hardly faster (measured: 418/s at 32, 472/s at 128)."""
MAX_ATTEMPTS = 3
"""How often a request is sent that gets no answer."""
PAUSE_SECONDS = 0.5
_REFUSAL_TIMEOUTS = {
    error_codes.CLUSTER_NOT_AVAILABLE: ELECTION_TIMEOUT,
    error_codes.CLUSTER_NOT_LEADER: ELECTION_TIMEOUT,
    # Servers report every 10 seconds that they are there: of one that has just started, two reports may be lost or late.
    error_codes.NO_SUITABLE_PEERS: 32.0,
    # Until its former servers let the stream go.
    error_codes.STREAM_MOVE_IN_PROGRESS: 60.0,
}
"""Seconds for which a request is repeated that was refused with one of these codes: nothing has happened."""
GATE_TIMEOUT: float = 300
"""Maximum seconds for a gate: servers retry a lost source after at most two minutes."""
GATE_POLL_SECONDS = 0.25
INTERRUPTED_SECONDS = 3.0
"""Seconds that an interrupted run takes to resume what it has paused."""


@value_class
class GateTimeout:
    """A gate that was not satisfied before the deadline, and what was missing."""

    gate: Gate
    missing: str


@value_class
class ApplyResult:
    """
    What became of each change of a plan.

    A request without an answer may have taken effect: it is *uncertain*, neither done nor skipped.
    """

    done: tuple[Change, ...]
    uncertain: tuple[Change, ...] = ()
    refused: tuple[Change, ...] = ()
    skipped: tuple[Change, ...] = ()
    mappings_loaded: bool = False
    mappings_pending: bool = False
    """Whether servers still have different rules or accounts loaded, which only their operator can change."""
    unread_servers: tuple[str, ...] = ()
    """Servers whose loaded rules are unknown, so that removals were skipped."""
    gate_timeouts: tuple[GateTimeout, ...] = ()
    """Gates that were not satisfied in time: later stages were skipped."""
    retired: tuple[str, ...] = ()
    """Servers that were stopped and removed from the meta group."""
    resynced: tuple[str, ...] = ()
    """Read streams that were resynced after their source had moved or changed replicas."""
    not_resynced: tuple[str, ...] = ()
    """A sentence for each reader that was not resynced, and asks again later by itself."""
    failure: VstreamError | None = None

    def list_paused(self) -> tuple[str, ...]:
        """The streams that take no publishes: they were paused, in this run or an earlier one, and not resumed."""
        open_streams = {change.config.name for change in (*self.refused, *self.skipped) if is_pause(change)}
        left = [change for change in (*self.refused, *self.skipped, *self.uncertain) if is_resumption(change)]
        return tuple(change.config.name for change in left if change.config.name not in open_streams)

    @property
    def is_complete(self) -> bool:
        """Whether everything in the plan was done."""
        return not (
            self.uncertain
            or self.refused
            or self.skipped
            or self.mappings_pending
            or self.gate_timeouts
            or self.failure
        )


@value_class
class ApplyObserver:
    """Who is told what happens."""

    on_done: Callable[[Change], None] = lambda _change: None
    on_wait: Callable[[Gate, str], None] = lambda _gate, _missing: None
    """Told what a gate lacks, at each look."""
    on_interrupted: Callable[[ApplyResult], None] = lambda _result: None
    """Told what has become of the plan if it is cancelled."""


NO_OBSERVER = ApplyObserver()


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
    run = _PlanRun(plan, administration, await _note_before_moves(plan, administration.checker), gate_timeout, observer)
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
    return run.outcome.as_result(plan)


@value_class
class _BeforeMoves:
    """What nobody can ask once streams move or are scaled."""

    leaders: Mapping[str, str | None]
    """Of the streams that will."""
    held: Mapping[str, Mapping[int, str]]
    """What is in each stream that will move."""


async def _note_before_moves(plan: Plan, checker: GateChecker) -> _BeforeMoves:
    settling = (gate.stream for gate in plan.gates if gate.kind is GateKind.REPLICAS_ARE_CURRENT)
    scaled_or_moving = tuple(dict.fromkeys([*settling, *plan.moving_streams]))
    leaders = await asyncio.gather(*map(checker.leader, scaled_or_moving))
    held = await asyncio.gather(*map(checker.note_before_move, plan.moving_streams))
    return _BeforeMoves(
        leaders=dict(zip(scaled_or_moving, leaders, strict=True)),
        held=dict(zip(plan.moving_streams, held, strict=True)),
    )


@dataclass(slots=True)
class _Outcome:
    """What has become of a plan so far: the fields of ApplyResult, as they grow."""

    done: list[Change] = field(default_factory=list)
    uncertain: list[Change] = field(default_factory=list)
    refused: list[Change] = field(default_factory=list)
    skipped: list[Change] = field(default_factory=list)
    skipped_stages: list[PlanStage] = field(default_factory=list)
    created: dict[str, StreamConfig] = field(default_factory=dict)
    """Streams as they were sent."""
    mappings_loaded: bool = False
    mappings_pending: bool = False
    gate_timeouts: list[GateTimeout] = field(default_factory=list)
    retired: tuple[str, ...] = ()
    resynced: list[str] = field(default_factory=list)
    not_resynced: list[str] = field(default_factory=list)
    failure: VstreamError | None = None
    """The first one."""

    @property
    def left_paused(self) -> frozenset[str]:
        """The streams whose new servers did not hold everything in time."""
        return frozenset(
            timeout.gate.stream for timeout in self.gate_timeouts if timeout.gate.kind is GateKind.QUORUM_IS_CURRENT
        )

    def has_stopped_before(self, stage: PlanStage) -> bool:
        """Whether something has failed, was skipped, or waits for mappings: *stage* and later ones do not begin."""
        if self.failure is not None or self.mappings_pending or self.skipped_stages:
            return True
        # What goes may hold what a paused stream lacks, and mappings may lead publishers to it that others served so far.
        waits = stage.stage.is_removal or bool(stage.rule_changes)
        return any(waits or timeout.gate.stream not in self.left_paused for timeout in self.gate_timeouts)

    def list_open(self, plan: Plan) -> list[Change]:
        """The changes of *plan* of which nothing has become yet."""
        ended = {id(change) for change in (*self.done, *self.uncertain, *self.refused, *self.skipped)}
        return [change for change in plan.changes if id(change) not in ended]

    def as_result(self, plan: Plan) -> ApplyResult:
        """What has become of *plan*."""
        is_held = not self.mappings_loaded and any(stage.waits_for_mappings for stage in self.skipped_stages)
        return ApplyResult(
            done=tuple(self.done),
            uncertain=tuple(self.uncertain),
            refused=tuple(self.refused),
            skipped=tuple(self.skipped),
            mappings_loaded=self.mappings_loaded,
            mappings_pending=self.mappings_pending,
            unread_servers=plan.unread_servers if is_held else (),
            gate_timeouts=tuple(self.gate_timeouts),
            retired=self.retired,
            resynced=tuple(self.resynced),
            not_resynced=tuple(self.not_resynced),
            failure=self.failure,
        )


@dataclass(frozen=True, slots=True)
class _PlanRun:
    """What carries out the stages of a plan. Only its *outcome* changes."""

    plan: Plan
    administration: Administration
    before: _BeforeMoves
    gate_timeout: float
    observer: ApplyObserver
    outcome: _Outcome = field(default_factory=_Outcome)

    async def carry_out(self, stage: PlanStage) -> None:
        """Do what *stage* consists of once it may begin; skip it otherwise."""
        if stage.stage is Stage.RESUME_STREAMS:
            await self._resume_streams(stage, self.gate_timeout)
            return
        stage = _without_gates_of(self.outcome.left_paused, stage)
        if not await self._wait_for_start(stage):
            self.outcome.skipped_stages.append(stage)
            self.outcome.skipped.extend(stage.changes)
            return
        if stage.rule_changes:
            await self._load_mappings()
        if stage.readers:
            await self._resync_moved_readers(stage)
        if stage.servers:
            await self._retire(stage.servers)
        if stage.stage in {Stage.COMPARE_REPLICAS, Stage.RECORD_MOVES}:
            await self._forget_notes(stage)
        await self._make_changes(stage.changes)

    async def _forget_notes(self, stage: PlanStage) -> None:
        """Remove the notes of what was scaled up and has been compared, or has moved and is recorded: no later run needs them."""
        streams = self.administration.streams
        try:
            for gate in stage.gates:
                current = await _retry(partial(streams.read, gate.stream))
                if gate.kind is GateKind.REPLICAS_ARE_COMPLETE:
                    await _retry(partial(streams.update, with_noted_scaling(current, None)))
                elif await self._is_done_moving(current):
                    await _retry(partial(streams.update, without_noted_move(current)))
        except VstreamError as failure:
            self.outcome.failure = failure

    async def _is_done_moving(self, config: StreamConfig) -> bool:
        """Whether a note of a move may go: an update of a stream that has not even begun to move leaves it without a leader."""
        moved_at = config.metadata_value(MOVED_KEY)
        if moved_at is None or not moved_at.isdecimal():
            return False
        before = self.before.leaders.get(config.name)
        has_moved = before is not None and await self.administration.checker.leader(config.name) not in {before, None}
        return has_moved or time.time() > int(moved_at) + MOVE_START_SECONDS

    async def end_early(self) -> None:
        """Resume what is paused where that can be done at once, and tell who watches how it ended."""
        outcome = self.outcome
        outcome.skipped.extend(change for change in outcome.list_open(self.plan) if not is_resumption(change))
        try:
            async with asyncio.timeout(INTERRUPTED_SECONDS):
                for stage in list_stages(self.plan):
                    if stage.stage is Stage.RESUME_STREAMS:
                        await self._resume_streams(stage, INTERRUPTED_SECONDS / 2)
        except TimeoutError:
            pass
        finally:
            outcome.skipped.extend(outcome.list_open(self.plan))
            self.observer.on_interrupted(outcome.as_result(self.plan))

    async def _resume_streams(self, stage: PlanStage, gate_timeout: float) -> None:
        """Let streams take publishes again, whatever has failed since they were paused: nobody else does it."""
        open_streams = {
            change.config.name for change in (*self.outcome.refused, *self.outcome.skipped) if is_pause(change)
        }
        # What may move later, nobody may touch. The next run sees whether it does.
        unknown = {change.config.name for change in self.outcome.uncertain if not is_pause(change)}
        changes = [change for change in self.outcome.list_open(self.plan) if is_resumption(change)]
        left = [change for change in changes if change.config.name in open_streams | unknown]
        deadline = time.monotonic() + gate_timeout
        gates = {gate.stream: gate for gate in stage.gates}

        async def resume(change: Change) -> None:
            name = change.config.name
            try:
                timeout = await self._wait_for_gate(gates[name], deadline)
            except VstreamError as failure:
                self.outcome.failure = self.outcome.failure or failure
                self.outcome.skipped.append(change)
                return
            if timeout is None:
                await self._make_change(change)
            else:
                self.outcome.gate_timeouts.append(timeout)
                self.outcome.skipped.append(change)

        self.outcome.skipped.extend(left)
        await asyncio.gather(*(resume(change) for change in changes if change not in left))

    async def _wait_for_start(self, stage: PlanStage) -> bool:
        """Whether *stage* may begin, once its gates hold; readers are resynced gate by gate, as these hold."""
        outcome, unread = self.outcome, self.plan.unread_servers
        if outcome.has_stopped_before(stage) or (unread and stage.waits_for_mappings and not outcome.mappings_loaded):
            return False
        if not stage.readers:
            await self._wait_for_gates(stage.gates)
        return not outcome.has_stopped_before(stage)

    async def _wait_for_gates(self, gates: Sequence[Gate]) -> None:
        """Wait until all of *gates* hold or time is up."""
        deadline = time.monotonic() + self.gate_timeout
        try:
            timeouts = await asyncio.gather(*(self._wait_for_gate(gate, deadline) for gate in gates))
        except VstreamError as failure:
            self.outcome.failure = failure
        else:
            self.outcome.gate_timeouts.extend(timeout for timeout in timeouts if timeout is not None)

    async def _wait_for_gate(self, gate: Gate, deadline: float) -> GateTimeout | None:
        while (missing := await self.administration.checker.find_missing(gate)) is not None:
            self.observer.on_wait(gate, missing)
            if time.monotonic() > deadline:
                return GateTimeout(gate=gate, missing=missing)
            await self.administration.checker.push(gate)
            await asyncio.sleep(GATE_POLL_SECONDS)
        return None

    async def _resync_moved_readers(self, stage: PlanStage) -> None:
        """Resync the readers of *stage*, and meanwhile have servers record what moves: a later stage asks whether they have."""
        pushing = (self._wait_for_gate(gate, math.inf) for gate in stage.gates_meanwhile)
        recording = asyncio.gather(*pushing, return_exceptions=True)
        try:
            await self._resync_readers(stage.gates)
        finally:
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)

    async def _resync_readers(self, gates: Sequence[Gate]) -> None:
        """
        Have the readers of what moved take from it at once, as soon as *gates* say that it is there.

        What fails ends nothing, as they do it by themselves later; but a stream without a leader does.
        """
        if (readers := self.administration.readers) is LEFT_TO_OTHERS:
            return
        waiting, began = list(gates), time.monotonic()
        try:
            while waiting:
                missing = await self._poll(waiting)
                settled = await self._list_settled(missing, began)
                if settled:
                    await self._resync_settled(settled, readers)
                elif time.monotonic() > began + self.gate_timeout:
                    await self._give_up_resyncing(missing)
                    return
                else:
                    await asyncio.sleep(GATE_POLL_SECONDS)
                waiting = [gate for gate in waiting if gate not in settled]
        except VstreamError as failure:
            self.outcome.not_resynced.append(failure.message)

    async def _list_settled(self, missing: Mapping[Gate, str], began: float) -> list[Gate]:
        """The gates that lack nothing. A stream that moves looks so until it has begun to, soon after *began*."""
        settled = [gate for gate, lack in missing.items() if not lack]
        if time.monotonic() >= began + MOVE_START_SECONDS:
            return settled
        return [gate for gate in settled if gate.stream not in self.plan.moving_streams or await self._has_moved(gate)]

    async def _give_up_resyncing(self, missing: Mapping[Gate, str]) -> None:
        self.outcome.not_resynced.extend(filter(None, missing.values()))
        for gate, lack in missing.items():
            if await self.administration.checker.leader(gate.stream) is None:  # nobody can publish into it
                self.outcome.gate_timeouts.append(GateTimeout(gate=gate, missing=lack))

    async def _has_moved(self, gate: Gate) -> bool:
        leader = await self.administration.checker.leader(gate.stream)
        return leader is None or leader != self.before.leaders.get(gate.stream)

    async def _resync_settled(self, settled: Sequence[Gate], readers: ReaderAdmin) -> None:
        """Those of what has another leader now: the others have lost nothing, and would only be interrupted."""
        names: dict[str, None] = {}
        for gate in settled:
            if await self._has_moved(gate):
                names.update(dict.fromkeys(gate.counterparts))
        if names:
            self.outcome.not_resynced.extend(await readers.resync(tuple(names)))
            self.outcome.resynced.extend(name for name in names if name not in self.outcome.resynced)

    async def _poll(self, gates: Collection[Gate]) -> dict[Gate, str]:
        """What each of *gates* lacks, nothing if it holds."""
        missing = await asyncio.gather(*(self.administration.checker.find_missing(gate) for gate in gates))
        for gate, reason in zip(gates, missing, strict=True):
            if reason:
                self.observer.on_wait(gate, reason)
        return {gate: reason or "" for gate, reason in zip(gates, missing, strict=True)}

    async def _load_mappings(self) -> None:
        mappings = self.administration.mappings
        if mappings is LEFT_TO_OTHERS:
            self.outcome.mappings_pending = True
            return
        try:
            await mappings.ensure_loaded()
        except VstreamError as failure:
            self.outcome.failure = failure
        else:
            self.outcome.mappings_loaded = True

    async def _retire(self, servers: tuple[str, ...]) -> None:
        if (server_admin := self.administration.servers) is LEFT_TO_OTHERS:
            return
        try:
            await server_admin.retire(servers)
        except VstreamError as failure:
            self.outcome.failure = failure
        else:
            self.outcome.retired = servers

    async def _make_changes(self, changes: Sequence[Change]) -> None:
        waiting = iter(changes)

        async def worker() -> None:
            for change in waiting:
                if self.outcome.failure is not None:
                    self.outcome.skipped.append(change)
                else:
                    await self._make_change(change)

        await asyncio.gather(*(worker() for _ in range(min(MAX_PARALLEL_REQUESTS, len(changes)))))

    async def _make_change(self, change: Change) -> None:
        try:
            config = await _retry(lambda: self._complete_config(change))
            # Whatever ends this run, the next one compares the replicas.
            if is_scaled_up(change) and isinstance(config, StreamConfig):
                config = with_noted_scaling(config, str(int(time.time())))
        except VstreamError as failure:
            self.outcome.skipped.append(change)
            self.outcome.failure = self.outcome.failure or failure
            return
        may_have_changed = False
        try:
            if not (isinstance(change, Update) and change.needs_only_note):
                await _send_change(change, config, self.administration.streams)
            may_have_changed = True
            if isinstance(change, Update) and change.dead_sources:
                # Only now does it take nothing more from there.
                reader, ends = change.config.name, change.dead_sources
                last_seqs = await _retry(lambda: self.administration.positions.last_taken(reader, ends))
                noted = with_recorded_positions(change.config, last_seqs, UNTIL_KEY)
                await _send_change(change, noted, self.administration.streams)
        except VstreamError as failure:
            is_unknown = isinstance(failure, NotReachableError) and not isinstance(failure, NotPermittedError)
            (self.outcome.uncertain if may_have_changed or is_unknown else self.outcome.refused).append(change)
            self.outcome.failure = self.outcome.failure or failure
        except asyncio.CancelledError:
            if not is_resumption(change):  # that is sent again
                self.outcome.uncertain.append(change)
            raise
        else:
            self.outcome.done.append(change)
            if isinstance(change, Create) and isinstance(config, StreamConfig):
                self.outcome.created[config.name] = config
            self.observer.on_done(change)

    async def _complete_config(self, change: Change) -> StreamConfig | ConsumerConfig:
        """What is sent for *change*: a copy's step says where its sources go on, which nobody knows before."""
        match change:
            case Update(step=TransitionStep.STOP_SOURCING, config=config):
                ends = await self.administration.positions.end_sequences(config.name)
                return with_recorded_positions(
                    config, {source: end for source, end in ends.items() if source not in config.source_names}
                )
            case Update(step=TransitionStep.CONTINUE_SOURCING, config=config):
                return with_start_sequences(config, await self.administration.positions.start_sequences(config.name))
            case Update():
                return await self._complete_update(change)
            case Create(readers=readers, config=config) if readers:
                if change.role is Role.ORDER:
                    starts = await self.administration.positions.sequences_after_mirrors(config.source_names, readers)
                    config = with_start_sequences(config, starts)
                return start_sequence.with_first_seq(
                    config, await self.administration.positions.sequence_after(config.name, readers)
                )
            case CreateConsumer(config=consumer, continues=str() as stream):
                return continue_from(
                    consumer, stream, await self.administration.positions.ack_floor(stream, consumer.durable)
                )
            case _:
                return change.config

    async def _complete_update(self, change: Update) -> StreamConfig:
        """What is sent for *change*, with what the next run needs, whatever ends this one."""
        config = change.config
        if change.step is TransitionStep.RESUME:
            config = _with_changed_fields(change, await self.administration.streams.read(config.name))
        elif is_paused(config) and not is_pause(change):
            require_still_paused(await self.administration.streams.read(config.name), change.fields)
        elif (created := self.outcome.created.get(config.name)) is not None:
            config = start_sequence.preserve_start_sequences(config, created)
        if is_move(change):  # it has servers record the move, and sees whether messages were lost
            config = with_noted_move(config, int(time.time()), self.before.held.get(config.name, {}))
        return with_unmeasured_dead_sources(config, change.dead_sources) if change.dead_sources else config


def _without_gates_of(streams: Collection[str], stage: PlanStage) -> PlanStage:
    """*stage* without what it waits for of *streams*: that was waited for."""
    gates, meanwhile = (
        tuple(gate for gate in gates if gate.stream not in streams) for gates in (stage.gates, stage.gates_meanwhile)
    )
    return replace(stage, gates=gates, gates_meanwhile=meanwhile)


def _with_changed_fields(change: Update, current: StreamConfig) -> StreamConfig:
    """*current* with what *change* changes: what it notes of a move stays, and what servers refused is not tried again."""
    names = {field.path.partition(".")[0] for field in change.fields}
    if not is_paused(current):  # another run has resumed it, perhaps with other subjects
        names.discard("subjects")
    values = {name: change.config.fields.get(name) for name in names - {"metadata"}}
    if "metadata" in names:
        noted = {key: value for key, value in current.metadata.items() if key.startswith((MOVED_KEY, SCALED_KEY))}
        values["metadata"] = {**change.config.metadata, **noted}
    return current.with_fields(**values)


async def _retry(request: Callable[[], Awaitable[_Answer]], *, is_repeatable: bool = True) -> _Answer:
    """The result of *request*: repeated where nothing has happened yet, and where it may be, also without an answer."""
    began, unanswered = time.monotonic(), 0
    while True:
        try:
            return await request()
        except NotPermittedError:
            raise
        except NotReachableError:
            unanswered += 1
            if not is_repeatable or unanswered == MAX_ATTEMPTS:
                raise
        except NoRespondersError:
            if time.monotonic() - began > ELECTION_TIMEOUT:
                raise
        except ServerError as failure:
            if time.monotonic() - began > _REFUSAL_TIMEOUTS.get(failure.err_code, -1):
                raise
        await asyncio.sleep(PAUSE_SECONDS)


async def _send_change(change: Change, config: StreamConfig | ConsumerConfig, streams: StreamAdmin) -> None:
    # The same create or update twice is one; a second delete could hit a stream that somebody made since. And a stream that
    # is told to move a second time, while it does, has no leader any more.
    is_delete = isinstance(change, Delete | DeleteConsumer)
    try:
        await _retry(lambda: _send_once(change, config, streams), is_repeatable=not is_delete and not is_move(change))
    except ServerError as failure:
        not_found = {error_codes.STREAM_NOT_FOUND, error_codes.CONSUMER_NOT_FOUND}
        if not is_delete or failure.err_code not in not_found:
            raise  # else somebody was faster: it is as the plan wants it


async def _send_once(change: Change, config: StreamConfig | ConsumerConfig, streams: StreamAdmin) -> None:
    if isinstance(config, ConsumerConfig):
        return await _send_consumer_once(change, config, streams)
    match change:
        case Create():
            await streams.create(config)
        case Update():
            await streams.update(config)
        case Delete(is_dead=True):
            await streams.forget(config.name)
        case Delete():
            await streams.delete(config.name)
    return None


async def _send_consumer_once(change: Change, config: ConsumerConfig, streams: StreamAdmin) -> None:
    match change:
        case CreateConsumer():
            await streams.create_consumer(config)
        case UpdateConsumer():
            await streams.update_consumer(config)
        case DeleteConsumer():
            await streams.delete_consumer(config)
