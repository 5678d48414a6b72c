"""What a change of one field does to data and to clients: a table, from the server's source and from experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from vstream.syntax.document import Json
from vstream.topology.model import Role
from vstream.topology.stream_config import ObservedStream
from vstream.topology.stream_limits import GROWTH_LIMITS
from vstream.value_class import value_class

_PUBLISHED_TO = frozenset({Role.WRITE, Role.ORIGIN})
_HARMLESS = {
    "allow_atomic": "batches become possible",
    "allow_direct": "Direct Get becomes possible",
    "allow_msg_ttl": "messages may carry a TTL; this can never be turned off again",
    "compression": "new blocks are stored this way",
    "description": "a text",
    "discard_new_per_subject": "applies from now on",
    "duplicate_window": "applies from now on",
}
_Judge = Callable[["Json", "Json", "Role | None"], "Rating"]


class Risk(Enum):
    """The worst that a change can do."""

    SAFE = "safe"
    DISRUPTIVE = "disruptive"
    """Clients or replication notice, no data is lost."""
    RESOURCING = "re-sourcing"
    """A source starts over: messages that are there already arrive again."""
    DATA_LOSS = "data loss"

    @property
    def is_destructive(self) -> bool:
        """Whether it needs to be allowed by name."""
        return self in {Risk.RESOURCING, Risk.DATA_LOSS}


class Rating(NamedTuple):
    """The risk of a change, and why."""

    risk: Risk
    why: str


def classify(field: str, before: Json, after: Json, role: Role | None) -> Rating:
    """The risk of changing *field* from *before* to *after*, and why. *role* is None where it is not known."""
    judge = _JUDGES.get(field)
    if judge is not None:
        return judge(before, after, role)
    if field in _HARMLESS and after not in (False, None):
        return Rating(Risk.SAFE, _HARMLESS[field])
    return Rating(Risk.DISRUPTIVE, "vstream does not know what this change does to clients")


def _judge_limit(before: Json, after: Json, role: Role | None) -> Rating:
    if not _is_tighter(before, after):
        return Rating(Risk.SAFE, "keeps more than before")
    text = "messages beyond the new limit are removed at once"
    if role in {Role.WRITE, Role.ORDER}:
        text += ", perhaps before another region has sourced them"
    return Rating(Risk.DATA_LOSS, text)


def _judge_max_msg_size(before: Json, after: Json, role: Role | None) -> Rating:
    if not _is_tighter(before, after):
        return Rating(Risk.SAFE, "allows more than before")
    stalls = "" if role in _PUBLISHED_TO else ", and their source stalls"
    return Rating(Risk.DISRUPTIVE, f"larger messages are refused{stalls}")


def _judge_replicas(before: Json, after: Json, _role: Role | None) -> Rating:
    is_fewer = isinstance(before, int) and isinstance(after, int) and after < before
    why = "fewer copies survive fewer failures" if is_fewer else "new replicas copy the whole stream"
    return Rating(Risk.DISRUPTIVE, why)


def _judge_rollup(_before: Json, after: Json, _role: Role | None) -> Rating:
    return Rating(Risk.SAFE, "rollups become possible") if after else Rating(Risk.DISRUPTIVE, "rollups are refused")


def _judge_discard(_before: Json, after: Json, _role: Role | None) -> Rating:
    if after == "new":
        return Rating(Risk.DISRUPTIVE, "publishers are refused when the stream is full")
    return Rating(Risk.DATA_LOSS, "a full stream removes its oldest messages")


def _rate_as(risk: Risk, why: str) -> _Judge:
    return lambda _before, _after, _role: Rating(risk, why)


_JUDGES: Mapping[str, _Judge] = {
    "max_age": _judge_limit,
    "max_bytes": _judge_limit,
    "max_msgs": _judge_limit,
    "max_msgs_per_subject": _judge_limit,
    "max_msg_size": _judge_max_msg_size,
    "num_replicas": _judge_replicas,
    "placement": _rate_as(Risk.DISRUPTIVE, "the stream moves to other servers"),
    "subjects": _rate_as(Risk.DISRUPTIVE, "from now on other messages are stored"),
    "metadata": _rate_as(Risk.SAFE, "a label"),
    "allow_rollup_hdrs": _judge_rollup,
    "deny_delete": _rate_as(Risk.DISRUPTIVE, "can never be turned off again"),
    "deny_purge": _rate_as(Risk.DISRUPTIVE, "can never be turned off again"),
    "discard": _judge_discard,
    "subject_transform": _rate_as(Risk.RESOURCING, "what is stored and what is sourced no longer agree"),
    "republish": _rate_as(Risk.SAFE, "core subscribers get other messages"),
    "first_seq": _rate_as(Risk.RESOURCING, "what is stored and what is sourced no longer agree"),
}


def classify_source(before: Json, after: Json) -> Rating:
    """The risk of adding (*before* None), removing (*after* None) or changing one source."""
    if before is None:
        return Rating(Risk.SAFE, "its messages are sourced from the first that it still holds")
    if after is None:
        return Rating(Risk.DATA_LOSS, "what has not been sourced yet will never arrive")
    return Rating(Risk.RESOURCING, "all messages that it still holds arrive a second time")


@value_class
class Removal:
    """How many messages a tighter limit removes if it applies now: at most *at_most* of *held*."""

    at_most: int
    held: int

    def __str__(self) -> str:
        """As a clause: `removes up to 3 of 9 messages now`."""
        if not self.at_most:
            return "removes nothing now"
        return f"removes up to {self.at_most:,} of {self.held:,} messages now"


def estimate_removal(field: str, limit: Json, stream: ObservedStream, at: datetime | None) -> Removal | None:
    """What the *limit* removes of *stream*, as it was *at* that moment; None where that is not known."""
    if field not in GROWTH_LIMITS or not isinstance(limit, int) or limit <= 0:
        return None
    held, removed = stream.messages, stream.messages
    if field == "max_msgs":
        removed = max(0, held - limit)
    elif field == "max_bytes":
        removed = held if stream.bytes > limit else 0
    elif field == "max_msgs_per_subject":
        # Each subject keeps at least one message.
        removed = max(0, held - (stream.subject_count or 0))
    elif held and (at is None or stream.first_at is None):
        return None
    elif held and at is not None and stream.first_at is not None:
        removed = held if at - stream.first_at > timedelta(microseconds=limit / 1_000) else 0
    return Removal(at_most=removed, held=held)


def _is_tighter(before: Json, after: Json) -> bool:
    """Whether *after* keeps less. 0 and below mean that there is no limit."""
    if not isinstance(before, int) or not isinstance(after, int):
        return True
    return after > 0 and (before <= 0 or after < before)


def _is_any(_before: Json, _after: Json) -> bool:
    return True


def _is_turned_off(before: Json, after: Json) -> bool:
    return bool(before) and not after


def _is_workqueue(before: Json, after: Json) -> bool:
    return "workqueue" in (before, after)


IMMUTABLE: tuple[tuple[str, Callable[[Json, Json], bool], str], ...] = (
    ("storage", _is_any, "servers cannot change the storage of a stream"),
    ("retention", _is_workqueue, "servers cannot change retention to or from workqueue"),
    (
        "mirror",
        _is_any,
        "this changes the consistency model or the name of the order, and servers cannot turn a stream into a mirror or point a mirror elsewhere",
    ),
    ("deny_delete", _is_turned_off, "servers never allow deletes again once they are denied"),
    ("deny_purge", _is_turned_off, "servers never allow purges again once they are denied"),
    ("sealed", _is_turned_off, "a sealed stream stays sealed"),
    ("allow_msg_ttl", _is_turned_off, "servers cannot turn message TTLs off again"),
    ("allow_msg_schedules", _is_turned_off, "servers cannot turn message schedules off again"),
    ("allow_msg_counter", _is_any, "servers cannot turn a stream into a counter or back"),
    ("persist_mode", _is_any, "servers cannot change how a stream persists"),
    ("template_owner", _is_any, "a stream template owns this stream"),
)
"""What servers refuse (server/stream.go, configUpdateCheck): field, when, and the reason in plain words."""


def explain_refusal(field: str, before: Json, after: Json) -> str | None:
    """Why servers would refuse this change, None if they would not."""
    for name, applies, reason in IMMUTABLE:
        if name == field and applies(before, after):
            return reason
    return None
