"""
Send one change to the servers.

A plan says what to send. Only where a source goes on, and where one ended, nobody knows before: that is measured right before
a change or after it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field
from functools import partial

from vstream.apply.interfaces import PositionReader, StreamAdmin
from vstream.apply.result import ApplyResult
from vstream.apply.retry import retry
from vstream.errors import NotPermittedError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import error_codes
from vstream.plan.consumer_failover import continue_from
from vstream.plan.model import (
    Change,
    Create,
    CreateConsumer,
    Delete,
    DeleteConsumer,
    TransitionStep,
    Update,
    UpdateConsumer,
    is_move,
    is_pause,
    is_scaled_up,
)
from vstream.plan.transitions import start_sequence
from vstream.plan.transitions.pause_publishers import require_still_paused
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
)
from vstream.value_class import value_class


@value_class
class ChangeSender:
    """Sends changes: each is completed first."""

    streams: StreamAdmin
    positions: PositionReader
    held: Mapping[str, Mapping[int, str]]
    """What streams that move held before."""
    created: dict[str, StreamConfig] = field(default_factory=dict)
    """The streams that it has created, as they were sent."""

    async def complete(self, change: Change) -> StreamConfig | ConsumerConfig:
        """What is to be sent for *change*. Raises VstreamError where that is not known."""
        config = await retry(partial(self._complete_once, change))
        # Whatever ends this run, the next one compares the replicas.
        if is_scaled_up(change) and isinstance(config, StreamConfig):
            return with_noted_scaling(config, str(int(time.time())))
        return config

    async def send(self, change: Change, config: StreamConfig | ConsumerConfig) -> ApplyResult:
        """Send *config*, which completes *change*, and note what is known only afterwards: it is done, refused or uncertain."""
        is_answered = False
        try:
            if not (isinstance(change, Update) and change.needs_only_note):
                await _send_until_answered(change, config, self.streams)
            is_answered = True
            if isinstance(change, Update) and change.dead_sources:
                await self._note_last_taken(change)
        except VstreamError as failure:
            is_unknown = isinstance(failure, NotReachableError) and not isinstance(failure, NotPermittedError)
            if is_answered or is_unknown:
                return ApplyResult(uncertain=(change,), failure=failure)
            return ApplyResult(refused=(change,), failure=failure)
        if isinstance(change, Create) and isinstance(config, StreamConfig):
            self.created[config.name] = config
        return ApplyResult(done=(change,))

    async def _note_last_taken(self, change: Update) -> None:
        """Note how far the stream was in its dead sources: only now does it take nothing more from there."""
        reader, ends = change.config.name, change.dead_sources
        last_seqs = await retry(lambda: self.positions.last_taken(reader, ends))
        noted = with_recorded_positions(change.config, last_seqs, UNTIL_KEY)
        await _send_until_answered(change, noted, self.streams)

    async def _complete_once(self, change: Change) -> StreamConfig | ConsumerConfig:
        match change:
            case Update(step=TransitionStep.STOP_SOURCING, config=config):
                ends = await self.positions.end_sequences(config.name)
                return with_recorded_positions(
                    config, {source: end for source, end in ends.items() if source not in config.source_names}
                )
            case Update(step=TransitionStep.CONTINUE_SOURCING, config=config):
                return with_start_sequences(config, await self.positions.start_sequences(config.name))
            case Update():
                return await self._complete_update(change)
            case Create(readers=readers, config=config) if readers:
                if change.role is Role.ORDER:
                    starts = await self.positions.sequences_after_mirrors(config.source_names, readers)
                    config = with_start_sequences(config, starts)
                return start_sequence.with_first_seq(config, await self.positions.sequence_after(config.name, readers))
            case CreateConsumer(config=consumer, continues=str() as stream):
                return continue_from(consumer, stream, await self.positions.ack_floor(stream, consumer.durable))
            case _:
                return change.config

    async def _complete_update(self, change: Update) -> StreamConfig:
        """What is sent for *change*, with what the next run needs, whatever ends this one."""
        config = change.config
        if change.step is TransitionStep.RESUME:
            config = _with_changed_fields(change, await self.streams.read(config.name))
        elif is_paused(config) and not is_pause(change):
            require_still_paused(await self.streams.read(config.name), change.fields)
        elif (created := self.created.get(config.name)) is not None:
            config = start_sequence.preserve_start_sequences(config, created)
        if is_move(change):  # it has servers record the move, and sees whether messages were lost
            config = with_noted_move(config, int(time.time()), self.held.get(config.name, {}))
        return with_unmeasured_dead_sources(config, change.dead_sources) if change.dead_sources else config


def _with_changed_fields(change: Update, current: StreamConfig) -> StreamConfig:
    """*current* with what *change* changes: what it notes of a move stays, and what servers refused is not tried again."""
    names = {field_change.path.partition(".")[0] for field_change in change.fields}
    if not is_paused(current):  # another run has resumed it, perhaps with other subjects
        names.discard("subjects")
    values = {name: change.config.fields.get(name) for name in names - {"metadata"}}
    if "metadata" in names:
        noted = {key: value for key, value in current.metadata.items() if key.startswith((MOVED_KEY, SCALED_KEY))}
        values["metadata"] = {**change.config.metadata, **noted}
    return current.with_fields(**values)


async def _send_until_answered(change: Change, config: StreamConfig | ConsumerConfig, streams: StreamAdmin) -> None:
    # The same create or update twice is one; a second delete could hit a stream that somebody made since. And a stream that
    # is told to move a second time, while it does, has no leader any more.
    is_delete = isinstance(change, Delete | DeleteConsumer)
    try:
        await retry(lambda: _send_once(change, config, streams), is_repeatable=not is_delete and not is_move(change))
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
