"""
Decode what servers answer: bytes become typed values, and anything unexpected becomes one error.

Whatever answers at an address may be old, new, broken or hostile. What is decoded here has the types that the rest of
vstream relies on; everything else raises MalformedAnswerError.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vstream.errors import MalformedAnswerError, ServerError, shorten
from vstream.jetstream import error_codes
from vstream.timing import ELECTION_SECONDS, SECOND_NS

MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
"""Largest possible message, in bytes. Servers accept no higher `max_payload` (server/const.go)."""
MOST_JSON, MOST_VALUES = 32 * 1024 * 1024, 1_000_000
"""Bytes of the longest answer in JSON, and values in it. An empty list takes 64 bytes."""
MOST_LIST_JSON, MOST_LIST_VALUES = 4 * MOST_JSON, 4 * MOST_VALUES
"""The same of a list: /jsz of 20,000 streams of three regions has 56 MB and 1.5 million values."""
MAX_LISTED = 1_000_000
"""Largest believable number of streams or consumers in one list. A higher total is treated as malformed."""

REFUSED = re.compile(r'permissions violation for (publish|subscri)[a-z]* to "([^"]*)"', re.IGNORECASE)
"""What a server says about a subject that the user may not publish or subscribe to."""
UNREADABLE = (TypeError, KeyError, IndexError, AttributeError, ValueError, OverflowError, RecursionError)
"""Exceptions raised where a value of an answer is missing or has the wrong type."""
_NO_LEADER = "do more than half of all servers run, and reach each other? `vstream repair meta` says who answers"
"""The hint where the meta group or a stream has no leader."""
_MAX_DIGITS = 20
"""Digits of the largest 64-bit number."""
_LONG = b"0" * 19
_ZEROS = bytes(ord("0") if chr(byte).isdecimal() else byte for byte in range(256))
"""Makes every digit a 0."""
_INTEGERS = (
    "max_age max_bytes max_msgs max_msgs_per_subject max_msg_size max_consumers num_replicas duplicate_window first_seq "
    "subject_delete_marker_ttl ack_wait max_deliver max_ack_pending max_waiting max_batch max_expires opt_start_seq "
    "inactive_threshold priority_timeout"
)
_FLAGS = (
    "sealed deny_delete deny_purge allow_rollup_hdrs allow_direct mirror_direct no_ack discard_new_per_subject "
    "allow_msg_ttl allow_msg_counter allow_atomic allow_msg_schedules allow_batched headers_only mem_storage"
)
_TEXTS = (
    "name description retention storage discard compression durable_name deliver_policy ack_policy replay_policy "
    "filter_subject opt_start_time"
)
_NAMES = {int: "a whole number", str: "a text", bool: "true or false"}
_TRANSFORM = {"src": str, "dest": str}
_SOURCE = {
    "name": str,
    "opt_start_seq": int,
    "opt_start_time": str,
    "filter_subject": str,
    "external": {"api": str, "deliver": str},
    "subject_transforms": [_TRANSFORM],
}
CONFIG_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(_INTEGERS.split(), int),
    **dict.fromkeys(_FLAGS.split(), bool),
    **dict.fromkeys(_TEXTS.split(), str),
    "subjects": [str],
    "filter_subjects": [str],
    "backoff": [int],
    "metadata": {None: str},
    "placement": {"cluster": str, "tags": [str]},
    "republish": {**_TRANSFORM, "headers_only": bool},
    "consumer_limits": {None: int},
    "subject_transform": _TRANSFORM,
    "mirror": _SOURCE,
    "sources": [_SOURCE],
}
"""Types of the stream and consumer fields that vstream reads. Unknown fields may hold anything."""

_SOURCE_INFO = {"name": str, "active": int, "lag": int, "seq": int}
_SOURCE_INFOS = {"sources": [_SOURCE_INFO], "mirror": _SOURCE_INFO}
_STATE = dict.fromkeys(["messages", "first_seq", "last_seq"], int)
INFO_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(
        ["server_id", "server_name", "version", "cluster", "domain", "nonce", "client_ip", "host", "xkey"], str
    ),
    **dict.fromkeys(["max_payload", "client_id", "port", "proto"], int),
    **dict.fromkeys(
        ["auth_required", "tls_required", "tls_available", "tls_verify", "jetstream", "headers", "ldm"], bool
    ),
    "connect_urls": [str],
}
"""Types of the fields in a server's INFO line that the client library and vstream read."""


class _Object(dict[str, Any]):
    """A JSON object of an answer: a key that it lacks is an error of whoever sent it, wherever it is read."""

    __slots__ = ("asked",)  # answers have millions of them
    asked: str

    def __missing__(self, key: str) -> object:
        raise MalformedAnswerError(self.asked, f"no '{key}'")


def decode_object(data: bytes, asked: str) -> dict[str, Any]:
    """
    The JSON object in *data*, the answer of what was *asked*. Raises MalformedAnswerError if *data* is something else.

    Reading a missing key from the object, or from an object in it, raises MalformedAnswerError too. Numbers must be
    ones that servers have: finite, and at most 64 bits.
    """

    def as_object(pairs: list[tuple[str, Any]]) -> _Object:
        value = _Object(pairs)
        value.asked = asked
        if value.get("leader") is not None:
            require_text(value["leader"])  # of a stream, a consumer or the meta group: who counts votes compares names
        return value

    return _decode(data, asked, (MOST_JSON, MOST_VALUES), object_pairs_hook=as_object)


def decode_large(data: bytes, asked: str) -> dict[str, Any]:
    """
    Like `decode_object`, at a sixth of the cost: for thousands of entries, which are read with `convert_malformed_errors`.

    Reading a missing key raises KeyError, and nothing has looked at the names of leaders.
    """
    return _decode(data, asked, (MOST_LIST_JSON, MOST_LIST_VALUES))


def _decode(data: bytes, asked: str, most: tuple[int, int], **hooks: Any) -> dict[str, Any]:
    most_bytes, most_values = most
    is_long = len(data) > most_bytes and not data.isascii()  # then a text takes four times as many
    # What is shorter has not as many values.
    if is_long or (len(data) > most_values and sum(map(data.count, (b"[", b"{", b","))) > most_values):
        raise MalformedAnswerError(asked, f"it has more than {most_bytes:,} bytes or {most_values:,} values")
    if _may_be_too_large(data):
        hooks["parse_int"] = _parse_int
    with convert_malformed_errors(asked):
        value = json.loads(data, parse_float=_parse_float, parse_constant=_refuse_constant, **hooks)
        if b"\\ud" in data or b"\\uD" in data:
            json.dumps(value, ensure_ascii=False).encode()  # raises for half a character, which cannot be printed
    if not isinstance(value, dict):
        raise MalformedAnswerError(asked, "it is not a JSON object")
    return value


def _may_be_too_large(data: bytes) -> bool:
    """Whether digits in *data* may be a number of more than 64 bits. To look at each number takes longer than all else."""
    zeros, end = data.translate(_ZEROS), 0
    while (start := zeros.find(_LONG, end)) >= 0:  # what is shorter has less
        run = zeros[start : start + _MAX_DIGITS + 1]
        end = start + len(run) - len(run.lstrip(b"0"))
        if int(data[start:end]) >= 1 << 64 or data[start - 1 : start] == b"-":
            return True
    return False


@contextmanager
def convert_malformed_errors(asked: str) -> Iterator[None]:
    """Turn errors from reading missing or wrong values of the answer of what was *asked* into MalformedAnswerError."""
    try:
        yield
    except UNREADABLE as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise MalformedAnswerError(asked, reason) from error


def require_config(config: object, asked: str) -> dict[str, Any]:
    """Return *config* (of a stream or a consumer) if its fields have the types that vstream relies on; null ones go."""
    if not isinstance(config, dict):
        raise MalformedAnswerError(asked, "it has no configuration")
    _require_fields(config, CONFIG_FIELDS, "config", asked)
    mirror = config.get("mirror")
    if any("name" not in source for source in (*config.get("sources", ()), *([mirror] if mirror else []))):
        raise MalformedAnswerError(asked, "it has a source without a name")
    return config


def require_state(state: object, asked: str) -> dict[str, Any]:
    """Return *state*, of a stream, if its numbers are there."""
    with convert_malformed_errors(asked):
        checked: dict[str, Any] = dict(state)  # type: ignore[call-overload]  # what is no object raises
        problem = _find_problem({key: checked[key] for key in _STATE}, _STATE, "state")
    if problem is not None or None in (checked[key] for key in _STATE):
        raise MalformedAnswerError(asked, problem or "its state lacks a number")
    return checked


def require_source_infos(info: dict[str, Any], asked: str) -> dict[str, Any]:
    """Return *info*, a STREAM.INFO, if what it says of sources and mirrors has the right types; null fields go."""
    _require_fields(info, _SOURCE_INFOS, "info", asked)
    return info


def require_info(info: object, asked: str) -> dict[str, Any]:
    """Return *info*, a server's INFO on connect, without its null fields."""
    if not isinstance(info, dict):
        raise MalformedAnswerError(asked, "it is not a JSON object")
    _require_fields(info, INFO_FIELDS, "INFO", asked)
    return info


def is_from_leader(info: Mapping[str, Any]) -> bool:
    """
    Whether *info*, a STREAM.INFO or an entry of `/jsz`, is from a leader beside whom there can be no other.

    It has heard most replicas a moment ago. Else they may have elected another and stored more: it may be cut off.
    """
    cluster = info.get("cluster")
    if not cluster:
        return True
    replicas = cluster.get("replicas") or ()
    soonest_ns = ELECTION_SECONDS[0] * SECOND_NS
    heard = [not replica.get("offline") and int(replica.get("active") or 0) < soonest_ns for replica in replicas]
    return bool(cluster.get("leader")) and 2 * (1 + sum(heard)) > 1 + len(replicas)


def api_error(answer: Mapping[str, Any], subject: str) -> ServerError | None:
    """The error in an *answer* of the JetStream API on *subject*; None if the request succeeded."""
    error = answer.get("error")
    if not error:
        return None
    with convert_malformed_errors(subject):
        err_code = int(error.get("err_code", 0))
        return ServerError(
            code=int(error.get("code", 0)),
            err_code=err_code,
            description=str(error.get("description", "no description")),
            subject=subject,
            hint=_NO_LEADER if err_code == error_codes.CLUSTER_NOT_AVAILABLE else None,
        )


def describe_error(error: Mapping[str, Any]) -> str:
    """What an answer says is wrong, with its codes, whatever their types are."""
    description, code, err_code = (shorten(str(error.get(key))) for key in ("description", "code", "err_code"))
    return f"{description} ({code}/{err_code})"


def parse_total(answer: Mapping[str, Any], subject: str) -> int:
    """The total number of entries that a list on *subject* announces."""
    with convert_malformed_errors(subject):
        total = int(answer.get("total", 0))
    if not 0 <= total <= MAX_LISTED:
        raise MalformedAnswerError(subject, f"it announces {total:,} entries")
    return total


def parse_list(answer: Mapping[str, Any], key: str, subject: str) -> list[Any]:
    """The list at *key* of an answer on *subject*; empty if the key is missing."""
    value = answer.get(key)
    if value is not None and not isinstance(value, list):
        raise MalformedAnswerError(subject, f"`{key}` is not a list")
    return value or []


def require_text(value: object) -> str:
    """*value* if it is a string. Raises TypeError otherwise, for `convert_malformed_errors`."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not a text")
    return value


def parse_sequence(text: str) -> int | None:
    """The sequence number in the header value *text*; None if it is not a number that a server writes."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None


def _require_fields(value: object, expected: Any, path: str, asked: str) -> None:
    """Raise MalformedAnswerError if *value* is not as *expected*; what is null in it goes."""
    problem = _find_problem(value, expected, path)
    if problem is not None:
        raise MalformedAnswerError(asked, problem)


def _find_problem(value: object, expected: Any, path: str) -> str | None:
    """
    What is wrong with *value*. *expected* is a type, [type of items] or {key: type}, where the key None means any.

    What is null in such objects is removed: servers mean the same by it as by nothing.
    """
    if value is None:
        return None
    if isinstance(expected, list):
        return _find_list_problem(value, expected[0], path)
    if isinstance(expected, dict):
        return _find_object_problem(value, expected, path)
    is_right = isinstance(value, expected) and (expected is not int or not isinstance(value, bool))
    return None if is_right else f"`{path}` is not {_NAMES[expected]}"


def _find_list_problem(value: object, expected: Any, path: str) -> str | None:
    if not isinstance(value, list):
        return f"`{path}` is not a list"
    for item in value:
        problem = f"`{path}` has an entry that is null" if item is None else _find_problem(item, expected, path)
        if problem is not None:
            return problem
    return None


def _find_object_problem(value: object, expected: Any, path: str) -> str | None:
    if not isinstance(value, dict):
        return f"`{path}` is not an object"
    if None in value.values():
        for key in [key for key, item in value.items() if item is None]:
            del value[key]
    every = expected.get(None, object)
    for key, item in value.items():
        # Most fields are right at first sight: then nothing more is asked, and no path is written.
        if type(item) is not (shape := expected.get(key, every)) and shape is not object:
            problem = _find_problem(item, shape, f"{path}.{key}")
            if problem is not None:
                return problem
    return None


def _parse_int(text: str) -> int:
    value = int(text)
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"{text:.40} is too large for a number from a server")
    return value


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is too large for a number from a server")
    return value


def _refuse_constant(name: str) -> object:
    raise ValueError(f"`{name}` is not a JSON value")
