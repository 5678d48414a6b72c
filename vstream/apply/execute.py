"""
Carry out a plan on the servers: it says what to do, and in which order.

Only where a source goes on, and where one ended, nobody knows before: that is measured right before a change or after it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from vstream.apply.port import LEFT_TO_OTHERS, Administration, ReaderAdmin, StreamAdmin
from vstream.errors import NoRespondersError, NotPermittedError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import error_codes
from vstream.jetstream.error_codes import ELECTION_TIMEOUT
from vstream.plan.consumer_failover import continue_from
from vstream.plan.plan import (
    Change,
    Create,
    CreateConsumer,
    Delete,
    DeleteConsumer,
    Gate,
    GateKind,
    Handover,
    Plan,
    Update,
    UpdateConsumer,
    is_move,
    is_pause,
)
from vstream.plan.stages import PlanStage, Stage, list_stages
from vstream.plan.transitions import start_sequence
from vstream.topology.consumer_config import ConsumerConfig
from vstream.topology.model import Role
from vstream.topology.stream_config import (
    MOVED_KEY,
    UNTIL_KEY,
    StreamConfig,
    with_noted_move,
    with_recorded_positions,
    with_start_sequences,
    with_unmeasured_ends,
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
MOVE_START_TIMEOUT = 15.0
"""Seconds within which a moved stream gets another leader. Before that, it looks settled."""


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
    refreshed: tuple[str, ...] = ()
    """Read streams that were refreshed after their source had moved or changed replicas."""
    unrefreshed: tuple[str, ...] = ()
    """A sentence for each reader that resumes by itself later."""
    failure: VstreamError | None = None

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
class ApplyWatch:
    """Who is told what happens, and for how many seconds a gate may keep a stage waiting."""

    on_done: Callable[[Change], None] = lambda _change: None
    on_wait: Callable[[Gate, str], None] = lambda _gate, _missing: None
    """Told what a gate lacks, at each look."""
    gate_timeout: float = GATE_TIMEOUT


WITHOUT_WATCH = ApplyWatch()


async def execute_plan(plan: Plan, administration: Administration, *, watch: ApplyWatch = WITHOUT_WATCH) -> ApplyResult:
    """
    Carry out *plan*, stage by stage, up to 32 requests at a time; stop at the first failure.

    A stage begins once its gates hold; one that does not within the `gate_timeout` of *watch* ends it. Where nobody can make
    servers load mappings, everything that must wait for them is skipped, which is all of it where accounts come first.
    Removals are skipped where a server's loaded rules are unknown, since it may still send publishes there. Never raises
    for what servers answer.
    """
    run = _PlanRun(plan, administration, watch)
    await run.note_before_moves()
    for stage in list_stages(plan):
        await run.carry_out(stage)
    return run.make_result()


class _StageStart(Enum):
    """How a stage begins."""

    WAIT = "wait"
    """As soon as its gates hold."""
    REFRESH = "refresh"
    """As soon as readers are refreshed, each once a gate says that what it reads is there."""
    SKIP = "skip"
    """Not at all."""


class _PlanRun:
    def __init__(self, plan: Plan, administration: Administration, watch: ApplyWatch) -> None:
        self._plan = plan
        self._administration = administration
        self._streams = administration.streams
        self._checker = administration.checker
        self._positions = administration.positions
        self._watch = watch
        self._done: list[Change] = []
        self._uncertain: list[Change] = []
        self._refused: list[Change] = []
        self._skipped: list[Change] = []
        self._mappings_loaded = False
        self._mappings_pending = False
        self._skipped_stages: list[PlanStage] = []
        self._gate_timeouts: tuple[GateTimeout, ...] = ()
        self._retired: tuple[str, ...] = ()
        self._refreshed: list[str] = []
        self._unrefreshed: list[str] = []
        self._failure: VstreamError | None = None
        self._leaders: dict[str, str | None] = {}
        self._held: dict[str, Mapping[int, str]] = {}
        self._created: dict[str, StreamConfig] = {}

    def make_result(self) -> ApplyResult:
        """What has become of the plan so far."""
        is_held = not self._mappings_loaded and any(stage.waits_for_mappings for stage in self._skipped_stages)
        return ApplyResult(
            done=tuple(self._done),
            uncertain=tuple(self._uncertain),
            refused=tuple(self._refused),
            skipped=tuple(self._skipped),
            mappings_loaded=self._mappings_loaded,
            mappings_pending=self._mappings_pending,
            unread_servers=self._plan.unread_servers if is_held else (),
            gate_timeouts=self._gate_timeouts,
            retired=self._retired,
            refreshed=tuple(self._refreshed),
            unrefreshed=tuple(self._unrefreshed),
            failure=self._failure,
        )

    @property
    def _has_stopped(self) -> bool:
        """Whether something has failed, was skipped, or waits for mappings: no later stage begins."""
        is_waiting = self._mappings_pending or bool(self._gate_timeouts)
        return self._failure is not None or is_waiting or bool(self._skipped_stages)

    def _choose_start(self, stage: PlanStage) -> _StageStart:
        is_unread = stage.waits_for_mappings and not self._mappings_loaded and bool(self._plan.unread_servers)
        if is_unread or self._has_stopped:
            return _StageStart.SKIP
        return _StageStart.REFRESH if stage.readers else _StageStart.WAIT

    async def note_before_moves(self) -> None:
        """Record the leaders of the streams that will move or be scaled, and what is in those that move."""
        streams = [gate.stream for gate in self._plan.gates if gate.kind is GateKind.SETTLED]
        leaders = await asyncio.gather(*(self._checker.leader(stream) for stream in streams))
        self._leaders = dict(zip(streams, leaders, strict=True))
        moving = self._plan.moving
        held = await asyncio.gather(*map(self._checker.note_before_move, moving))
        self._held = dict(zip(moving, held, strict=True))

    async def carry_out(self, stage: PlanStage) -> None:
        """Do what *stage* consists of once it may begin; skip it otherwise."""
        if stage.stage is Stage.RESUMED_STREAMS:
            await self._resume_streams(stage)
            return
        if not await self._wait_for_start(stage):
            self._skipped_stages.append(stage)
            self._skipped.extend(stage.changes)
            return
        if stage.rules:
            await self._load_mappings()
        if stage.servers:
            await self._retire(stage.servers)
        await self._make_changes(stage.changes)

    async def _resume_streams(self, stage: PlanStage) -> None:
        """Let streams take publishes again, whatever has failed since they were paused: nobody else does it."""
        not_sent = [*self._refused, *self._skipped]
        running = {change.config.name for change in not_sent if is_pause(change)}
        deadline = time.monotonic() + self._watch.gate_timeout
        gates = {gate.stream: gate for gate in stage.gates}

        async def resume(change: Change) -> None:
            name = change.config.name
            try:
                timeout = await self._wait_for_gate(gates[name], deadline)
            except VstreamError as failure:
                self._failure = self._failure or failure
                self._skipped.append(change)
                return
            if timeout is None:
                await self._make_change(change)
            else:
                self._gate_timeouts += (timeout,)
                self._skipped.append(change)

        self._skipped.extend(change for change in stage.changes if change.config.name in running)
        await asyncio.gather(*(resume(change) for change in stage.changes if change.config.name not in running))

    async def _wait_for_start(self, stage: PlanStage) -> bool:
        """Whether *stage* may begin."""
        match self._choose_start(stage):
            case _StageStart.SKIP:
                return False
            case _StageStart.REFRESH:
                await self._end_moves(stage)
            case _StageStart.WAIT:
                await self._wait_for_gates(stage.gates)
        return not self._has_stopped

    async def _wait_for_gates(self, gates: Sequence[Gate]) -> None:
        """Wait until all of *gates* hold or time is up."""
        deadline = time.monotonic() + self._watch.gate_timeout
        try:
            timeouts = await asyncio.gather(*(self._wait_for_gate(gate, deadline) for gate in gates))
        except VstreamError as failure:
            self._failure = failure
        else:
            self._gate_timeouts += tuple(timeout for timeout in timeouts if timeout is not None)

    async def _wait_for_gate(self, gate: Gate, deadline: float) -> GateTimeout | None:
        while (missing := await self._checker.find_missing(gate)) is not None:
            self._watch.on_wait(gate, missing)
            if time.monotonic() > deadline:
                return GateTimeout(gate=gate, missing=missing)
            await asyncio.sleep(GATE_POLL_SECONDS)
        return None

    async def _end_moves(self, stage: PlanStage) -> None:
        """Refresh readers, and have servers record what moves to them: whether they have is asked in a stage of its own."""
        pushing = (self._wait_for_gate(gate, math.inf) for gate in stage.gates_meanwhile)
        recording = asyncio.gather(*pushing, return_exceptions=True)
        try:
            await self._refresh_readers(stage.gates)
        finally:
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)

    async def _refresh_readers(self, gates: Sequence[Gate]) -> None:
        """
        Have the readers of what moved take from it at once, as soon as *gates* say that it is there.

        What fails ends nothing, as they do it by themselves later; but a stream without a leader does.
        """
        if (readers := self._administration.readers) is LEFT_TO_OTHERS:
            return
        waiting: dict[Gate, str] = dict.fromkeys(gates, "")
        moving = self._plan.moving
        began = time.monotonic()
        deadline = began + self._watch.gate_timeout
        try:
            while waiting:
                waiting = await self._poll(waiting)
                settled = [gate for gate, missing in waiting.items() if not missing]
                if time.monotonic() < began + MOVE_START_TIMEOUT:
                    settled = [gate for gate in settled if gate.stream not in moving or await self._has_moved(gate)]
                if settled:
                    await self._refresh_settled(settled, readers)
                elif time.monotonic() > deadline:
                    self._unrefreshed.extend(filter(None, waiting.values()))
                    for gate, missing in waiting.items():
                        if await self._checker.leader(gate.stream) is None:  # nobody can publish into it
                            self._gate_timeouts += (GateTimeout(gate=gate, missing=missing),)
                    return
                else:
                    await asyncio.sleep(GATE_POLL_SECONDS)
                waiting = {gate: missing for gate, missing in waiting.items() if gate not in settled}
        except VstreamError as failure:
            self._unrefreshed.append(failure.message)

    async def _has_moved(self, gate: Gate) -> bool:
        leader = await self._checker.leader(gate.stream)
        return leader is None or leader != self._leaders.get(gate.stream)

    async def _refresh_settled(self, settled: Sequence[Gate], readers: ReaderAdmin) -> None:
        """Those of what has another leader now: the others have lost nothing, and would only be interrupted."""
        names: dict[str, None] = {}
        for gate in settled:
            if await self._has_moved(gate):
                names.update(dict.fromkeys(gate.counterparts))
        if names:
            self._unrefreshed.extend(await readers.refresh(tuple(names)))
            self._refreshed.extend(name for name in names if name not in self._refreshed)

    async def _poll(self, gates: Collection[Gate]) -> dict[Gate, str]:
        """What each of *gates* lacks, nothing if it holds."""
        missing = await asyncio.gather(*(self._checker.find_missing(gate) for gate in gates))
        for gate, reason in zip(gates, missing, strict=True):
            if reason:
                self._watch.on_wait(gate, reason)
        return {gate: reason or "" for gate, reason in zip(gates, missing, strict=True)}

    async def _load_mappings(self) -> None:
        mappings = self._administration.mappings
        if mappings is LEFT_TO_OTHERS:
            self._mappings_pending = True
            return
        try:
            await mappings.ensure_loaded()
        except VstreamError as failure:
            self._failure = failure
        else:
            self._mappings_loaded = True

    async def _retire(self, servers: tuple[str, ...]) -> None:
        if (server_admin := self._administration.servers) is LEFT_TO_OTHERS:
            return
        try:
            await server_admin.retire(servers)
        except VstreamError as failure:
            self._failure = failure
        else:
            self._retired = servers

    async def _make_changes(self, changes: Sequence[Change]) -> None:
        waiting = iter(changes)

        async def worker() -> None:
            for change in waiting:
                if self._failure is not None:
                    self._skipped.append(change)
                else:
                    await self._make_change(change)

        await asyncio.gather(*(worker() for _ in range(min(MAX_PARALLEL_REQUESTS, len(changes)))))

    async def _make_change(self, change: Change) -> None:
        try:
            config = await _retry(lambda: self._complete_config(change))
        except VstreamError as failure:
            self._skipped.append(change)
            self._failure = self._failure or failure
            return
        may_have_changed = False
        try:
            if not (isinstance(change, Update) and change.needs_only_note):
                await _send_change(change, config, self._streams)
            may_have_changed = True
            if isinstance(change, Update) and change.dead_sources:
                # Only now does it take nothing more from there.
                reader, ends = change.config.name, change.dead_sources
                last_seqs = await _retry(lambda: self._positions.last_taken(reader, ends))
                noted = with_recorded_positions(change.config, last_seqs, UNTIL_KEY)
                await _send_change(change, noted, self._streams)
        except VstreamError as failure:
            is_unknown = isinstance(failure, NotReachableError) and not isinstance(failure, NotPermittedError)
            (self._uncertain if may_have_changed or is_unknown else self._refused).append(change)
            self._failure = self._failure or failure
        else:
            self._done.append(change)
            if isinstance(change, Create) and isinstance(config, StreamConfig):
                self._created[config.name] = config
            self._watch.on_done(change)

    async def _complete_config(self, change: Change) -> StreamConfig | ConsumerConfig:
        """What is sent for *change*: a copy's handover says where its sources go on, which nobody knows before."""
        match change:
            case Update(handover=Handover.STOP, config=config):
                ends = await self._positions.end_sequences(config.name)
                return with_recorded_positions(
                    config, {source: end for source, end in ends.items() if source not in config.source_names}
                )
            case Update(handover=Handover.SOURCE, config=config):
                return with_start_sequences(config, await self._positions.start_sequences(config.name))
            case Update(config=config):
                if change.handover is Handover.RESUME:
                    config = _with_changed_fields(change, await self._streams.read(config.name))
                elif (created := self._created.get(config.name)) is not None:
                    config = start_sequence.preserve_start_sequences(config, created)
                # Whatever ends this run, the next one has servers record the move, sees whether messages were lost, and
                # measures what is not noted.
                if is_move(change):
                    config = with_noted_move(config, int(time.time()), self._held.get(config.name, {}))
                return with_unmeasured_ends(config, change.dead_sources) if change.dead_sources else config
            case Create(readers=readers, config=config) if readers:
                if change.role is Role.ORDER:
                    starts = await self._positions.sequences_after_mirrors(config.source_names, readers)
                    config = with_start_sequences(config, starts)
                return start_sequence.with_first_seq(config, await self._positions.sequence_after(config.name, readers))
            case CreateConsumer(config=consumer, continues=str() as stream):
                return continue_from(consumer, stream, await self._positions.ack_floor(stream, consumer.durable))
            case _:
                return change.config


def _with_changed_fields(change: Update, current: StreamConfig) -> StreamConfig:
    """*current* with what *change* changes: what it notes of a move stays, and what servers refused is not tried again."""
    names = {field.field.partition(".")[0] for field in change.fields}
    values = {name: change.config.fields.get(name) for name in names - {"metadata"}}
    if "metadata" in names:
        noted = {key: value for key, value in current.metadata.items() if key.startswith(MOVED_KEY)}
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
    # The same create or update twice is one; a second delete could hit a stream that somebody made since.
    is_delete = isinstance(change, Delete | DeleteConsumer)
    try:
        await _retry(lambda: _send_once(change, config, streams), is_repeatable=not is_delete)
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
