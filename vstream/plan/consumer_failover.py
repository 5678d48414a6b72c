"""
A consumer's position in a form that holds in every region, and where it is in another region's stream.

Regions store the same messages in different orders, so a sequence of one read stream means nothing in another. But each
message names its origin and its sequence there, and every read stream has each origin's messages in that origin's
order. So a position is one sequence per origin.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from datetime import MAXYEAR, datetime
from typing import Any

from vstream.errors import MalformedAnswerError, PlanError
from vstream.jetstream.answers import UNREADABLE, require_config
from vstream.subjects.algebra import matches
from vstream.syntax.document import Json
from vstream.topology.consumer_config import FAILOVER_KEY, POSITION_KEY, ConsumerConfig
from vstream.value_class import value_class

FORMAT = 1
_STARTS = frozenset({"deliver_policy", "opt_start_seq", "opt_start_time"})
_SERVERS_OWN = "_nats."


@value_class
class Position:
    """How far a durable was in one region: everything that it delivers was acknowledged there, up to *origins*."""

    topology: str
    stream: str
    """The virtual stream."""
    consumer: str
    region: str
    at: str
    """When it was read (RFC 3339)."""
    origins: Mapping[str, int]
    """The last sequence of each write stream, or of the one stream that all regions mirror."""
    unknown: tuple[str, ...] = ()
    """Origins without a message before the position: none of their messages counts as acknowledged."""
    beyond: int = 0
    """Messages after the position that were acknowledged out of order: they are delivered again."""
    unacknowledged: int = 0
    """Messages delivered and not acknowledged."""
    config: Mapping[str, Json] = field(default_factory=dict)
    """The consumer's configuration, for a region without the consumer."""
    floor: int = 0
    """The position as a sequence of the region's own read stream; 0 where that is not recorded."""


@value_class
class StartPoint:
    """Where a consumer continues in one read stream."""

    stream: str
    """The physical stream."""
    seq: int
    """The first sequence that may be unacknowledged: delivery begins there."""
    redelivered: int
    """Acknowledged messages from there on, which will be delivered again."""
    remaining: int
    """All messages from there on that match the consumer's filters."""


@value_class
class SourcedMessage:
    """A stored message of a read stream. *origin* is None if it does not say where it came from."""

    seq: int
    subject: str
    origin: str | None
    origin_seq: int
    stored_at: str = ""
    """Time in RFC 3339; a mirror has that of what it mirrors."""


class BackwardScan:
    """
    Looks for where a position is, in a stream that is read from its end backwards.

    *cursors* is how far the stream is in each origin, where its server reports it: an origin without anything newer than
    the position need not be found.
    """

    def __init__(self, position: Mapping[str, int], cursors: Mapping[str, int], filters: Sequence[str]) -> None:
        self._position = position
        self._open = {
            origin for origin, seq in position.items() if cursors.get(origin) is None or cursors[origin] > seq
        }
        self._filters = filters
        self._newer: int | None = None
        self._steps: list[SourcedMessage] = []

    @property
    def is_over(self) -> bool:
        """Whether nothing further back can be newer than the position."""
        return not self._open

    def add(self, step: SourcedMessage) -> None:
        """Add the next message, going backwards."""
        self._steps.append(step)
        if self._was_acknowledged(step):
            self._open.discard(str(step.origin))
        else:
            # Whatever does not say where it came from counts as not acknowledged.
            self._newer = step.seq

    def start_point(self, stream: str, last: int) -> StartPoint:
        """The result, once the scan is over or the stream has no more. *last* is the stream's last sequence."""
        start = last + 1 if self._newer is None else self._newer
        remaining = [step for step in self._steps if step.seq >= start and receives(self._filters, step.subject)]
        redelivered = sum(map(self._was_acknowledged, remaining))
        return StartPoint(stream=stream, seq=start, redelivered=redelivered, remaining=len(remaining))

    def _was_acknowledged(self, step: SourcedMessage) -> bool:
        return step.origin is not None and step.origin_seq <= self._position.get(step.origin, 0)


def receives(filters: Sequence[str], subject: str) -> bool:
    """Whether a consumer with *filters* receives messages on *subject*."""
    return not filters or any(matches(subject, pattern) for pattern in filters)


def filters_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The filter subjects of this consumer configuration; empty for everything."""
    single = config.get("filter_subject")
    return (str(single),) if single else tuple(map(str, config.get("filter_subjects") or ()))


def move_position(base: ConsumerConfig, position: Position, start: int) -> ConsumerConfig:
    """*base*, beginning with sequence *start* of its stream."""
    return _beginning_at(base, f"{position.consumer} of {position.region} at {position.at}", start)


def continue_from(base: ConsumerConfig, stream: str, ack_floor: int) -> ConsumerConfig:
    """*base*, continuing where the durable of the same name was on *stream*, which has the same sequences."""
    return _beginning_at(base, f"{base.durable} of {stream}", ack_floor + 1)


def _beginning_at(base: ConsumerConfig, origin: str, start: int) -> ConsumerConfig:
    fields = {key: value for key, value in base.fields.items() if key not in _STARTS}
    metadata = {key: value for key, value in base.metadata.items() if not key.startswith(_SERVERS_OWN)}
    return ConsumerConfig(
        stream=base.stream,
        durable=base.durable,
        fields={
            **fields,
            "name": base.durable,
            "durable_name": base.durable,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": start,
            "metadata": {**metadata, FAILOVER_KEY: origin},
        },
    )


def as_dict(position: Position) -> dict[str, Any]:
    """*position* as plain JSON data."""
    return {"format": FORMAT, **asdict(position), "origins": dict(sorted(position.origins.items()))}


def record_config(position: Position, stream: str) -> ConsumerConfig:
    """
    A consumer of *stream* that records *position* in its metadata, and delivers nothing.

    The meta group stores its configuration on servers of all regions. It needs the same permissions as any consumer.
    """
    name = record_name(position.region, position.consumer)
    return ConsumerConfig(
        stream=stream,
        durable=name,
        fields={
            "name": name,
            "durable_name": name,
            "deliver_policy": "new",
            "ack_policy": "none",
            "mem_storage": True,
            "metadata": {POSITION_KEY: json.dumps(as_dict(position))},
        },
    )


def record_name(region: str, durable: str) -> str:
    """The name of the consumer in other regions that records the position of *durable* of *region*."""
    return f"{durable}-of-{region}"


def is_record(config: ConsumerConfig) -> bool:
    """Whether this consumer keeps a position."""
    return POSITION_KEY in config.metadata


def move_record(config: ConsumerConfig, stream: str) -> ConsumerConfig:
    """The same record, beside *stream*."""
    metadata = {POSITION_KEY: config.metadata[POSITION_KEY]}
    return ConsumerConfig(stream=stream, durable=config.durable, fields={**config.fields, "metadata": metadata})


def parse_record(config: ConsumerConfig) -> Position | None:
    """The position that this consumer keeps, None if it keeps none. Raises PlanError if it cannot be read."""
    text = config.metadata.get(POSITION_KEY)
    return None if text is None else parse_position(text, f"the metadata of `{config.name}`")


def parse_position(text: str, file: str) -> Position:
    """The position that `vstream consumer position` wrote into *file*. Raises PlanError."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise PlanError(f"{file} has format {data['format']}, this vstream reads {FORMAT}")
        return Position(
            topology=str(data["topology"]),
            stream=str(data["stream"]),
            consumer=str(data["consumer"]),
            region=str(data["region"]),
            at=_check_time(str(data["at"])),
            origins={str(name): int(seq) for name, seq in data["origins"].items()},
            unknown=tuple(map(str, data["unknown"])),
            beyond=int(data["beyond"]),
            unacknowledged=int(data["unacknowledged"]),
            config=require_config(data["config"], file),
            floor=int(data.get("floor", 0)),
        )
    except (*UNREADABLE, MalformedAnswerError):  # whoever may make a consumer may have written it
        raise PlanError(
            f"{file} does not hold a consumer position", hint="`vstream consumer position` writes one"
        ) from None


def _check_time(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or moment.year == MAXYEAR:
        raise ValueError(text)  # it cannot be compared with those of servers
    return text
