"""Fields of streams and consumers in the JetStream API: types, first versions (server/stream.go, consumer.go)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, TypeAlias

from vstream.formatting import quote_names
from vstream.topology.model import ServerVersion
from vstream.topology.units import parse_duration, parse_size
from vstream.value_class import value_class

FieldPath: TypeAlias = "tuple[str | int, ...]"
Check: TypeAlias = "Callable[[Any], bool]"

FIRST: Final[ServerVersion] = (0, 0)
_INT64: Final = 1 << 63
_INT32: Final = 1 << 31
_MAX_LENGTH: Final = 60
_CUTOFF: Final = 0.8
_TIME: Final = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)"
)


@value_class
class Type:
    """A type of values: checks a value, and says what to write instead of a wrong one."""

    noun: str
    accepts: Check
    hint: Callable[[Any], str]
    fields: Mapping[str, Field] | None = None
    """The fields of an object. None if names are free, or if this is not an object."""
    items: Type | None = None
    """The type of the items of an array."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field, and the version of the server that brought it."""

    type: Type
    since: ServerVersion = FIRST


def _is_int(value: Any, least: int, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < below


def _whole_number(least: int = -_INT64, below: int = _INT64) -> Type:
    limits = {0: " from 0", -_INT32: f" below {_INT32}"}.get(least, "")

    def hint(value: Any) -> str:
        if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
            return f"write {int(value)}, without quotes"
        try:
            return f"sizes are bytes: write {parse_size(value)}" if isinstance(value, str) else "write another number"
        except ValueError:
            return "write a whole number"

    return Type(noun=f"a whole number{limits}", accepts=lambda value: _is_int(value, least, below), hint=hint)


def _duration_hint(value: Any) -> str:
    try:
        return f"durations are nanoseconds: write {parse_duration(str(value))}"
    except ValueError:
        return "durations are nanoseconds: an hour is 3600000000000"


def _choice(*words: str) -> Type:
    def hint(value: Any) -> str:
        folded = re.sub(r"[^a-z0-9]", "", str(value).lower())
        bare = {word.replace("_", ""): word for word in words if word}
        meant = _SYNONYMS.get(folded) or bare.get(next(iter(get_close_matches(folded, bare, n=1, cutoff=_CUTOFF)), ""))
        listed = quote_names(filter(None, words))
        return f"did you mean `{meant}`?" if meant in words else f"write one of {listed}"

    *first, last = [f"`{word}`" for word in words if word]
    return Type(noun=f"{', '.join(first)} or {last}", accepts=lambda value: value in words, hint=hint)


_SYNONYMS: Final = {
    "disk": "file",
    "mem": "memory",
    "ram": "memory",
    "work": "workqueue",
    "queue": "workqueue",
    "limit": "limits",
    "oldest": "old",
    "newest": "new",
    "snappy": "s2",
    "off": "none",
    "manual": "explicit",
    "sequence": "by_start_sequence",
    "startsequence": "by_start_sequence",
    "time": "by_start_time",
    "starttime": "by_start_time",
    "lastpersubject": "last_per_subject",
}


def _array(items: Type) -> Type:
    def hint(value: Any) -> str:
        return (
            f"write [{quote_json(value)}]"
            if items.accepts(value)
            else f"write an array of {items.noun.removeprefix('a ')}s"
        )

    return Type(noun="an array", accepts=lambda value: isinstance(value, list), hint=hint, items=items)


def _object(fields: Mapping[str, Field] | None = None, items: Type | None = None) -> Type:
    return Type(
        noun="an object",
        accepts=lambda value: isinstance(value, dict),
        hint=lambda _: "write `{…}`",
        fields=fields,
        items=items,
    )


def quote_json(value: Any) -> str:
    """A value as JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"


TEXT: Final = Type(
    noun="a text",
    accepts=lambda value: isinstance(value, str),
    hint=lambda value: f'write "{value}"' if isinstance(value, (int, float)) else "write a text in double quotes",
)
FLAG: Final = Type(
    noun="`true` or `false`",
    accepts=lambda value: isinstance(value, bool),
    hint=lambda value: (
        f"write {value.lower()}, without quotes"
        if isinstance(value, str) and value.lower() in {"true", "false"}
        else "write `true` or `false`"
    ),
)
INTEGER: Final = _whole_number()
SMALL: Final = _whole_number(-_INT32, _INT32)
POSITION: Final = _whole_number(0, 2 * _INT64)
DURATION: Final = Type(
    noun="a duration in nanoseconds", accepts=lambda value: _is_int(value, -_INT64, _INT64), hint=_duration_hint
)
TIME: Final = Type(
    noun="a time",
    accepts=lambda value: isinstance(value, str) and _TIME.fullmatch(value) is not None,
    hint=lambda _: 'write a time such as "2026-01-31T00:00:00Z"',
)
_TRANSFORM: Final = _object({"src": Field(TEXT), "dest": Field(TEXT)})
_SOURCE_FIELDS: Final[Mapping[str, Field]] = {
    "consumer": Field(_object({"name": Field(TEXT), "deliver_subject": Field(TEXT)}), (2, 14)),
    "external": Field(_object({"api": Field(TEXT), "deliver": Field(TEXT)})),
    "filter_subject": Field(TEXT),
    "name": Field(TEXT),
    "opt_start_seq": Field(POSITION),
    "opt_start_time": Field(TIME),
    "subject_transforms": Field(_array(_TRANSFORM), (2, 10)),
}
_LABELS: Final = _object(items=TEXT)

STREAM_FIELDS: Final[Mapping[str, Field]] = {
    "allow_atomic": Field(FLAG, (2, 12)),
    "allow_batched": Field(FLAG, (2, 14)),
    "allow_direct": Field(FLAG),
    "allow_msg_counter": Field(FLAG, (2, 12)),
    "allow_msg_schedules": Field(FLAG, (2, 12)),
    "allow_msg_ttl": Field(FLAG, (2, 11)),
    "allow_rollup_hdrs": Field(FLAG),
    "compression": Field(_choice("none", "s2"), (2, 10)),
    "consumer_limits": Field(
        _object({"inactive_threshold": Field(DURATION), "max_ack_pending": Field(INTEGER)}), (2, 10)
    ),
    "deny_delete": Field(FLAG),
    "deny_purge": Field(FLAG),
    "description": Field(TEXT),
    "discard": Field(_choice("old", "new")),
    "discard_new_per_subject": Field(FLAG),
    "duplicate_window": Field(DURATION),
    "first_seq": Field(POSITION, (2, 10)),
    "max_age": Field(DURATION),
    "max_bytes": Field(INTEGER),
    "max_consumers": Field(INTEGER),
    "max_msg_size": Field(SMALL),
    "max_msgs": Field(INTEGER),
    "max_msgs_per_subject": Field(INTEGER),
    "metadata": Field(_LABELS, (2, 10)),
    "mirror": Field(_object(_SOURCE_FIELDS)),
    "mirror_direct": Field(FLAG),
    "name": Field(TEXT),
    "no_ack": Field(FLAG),
    "num_replicas": Field(INTEGER),
    "persist_mode": Field(_choice("default", "async", ""), (2, 12)),
    "placement": Field(_object({"cluster": Field(TEXT), "preferred": Field(TEXT), "tags": Field(_array(TEXT))})),
    "republish": Field(_object({"dest": Field(TEXT), "headers_only": Field(FLAG), "src": Field(TEXT)})),
    "retention": Field(_choice("limits", "interest", "workqueue")),
    "sealed": Field(FLAG),
    "sources": Field(_array(_object(_SOURCE_FIELDS))),
    "storage": Field(_choice("file", "memory")),
    "subject_delete_marker_ttl": Field(DURATION, (2, 11)),
    "subject_transform": Field(_TRANSFORM, (2, 10)),
    "subjects": Field(_array(TEXT)),
}

CONSUMER_FIELDS: Final[Mapping[str, Field]] = {
    "ack_policy": Field(_choice("none", "all", "explicit", "flow_control")),
    "ack_wait": Field(DURATION),
    "backoff": Field(_array(DURATION)),
    "deliver_group": Field(TEXT),
    "deliver_policy": Field(
        _choice("all", "last", "last_per_subject", "new", "by_start_sequence", "by_start_time", "undefined")
    ),
    "deliver_subject": Field(TEXT),
    "description": Field(TEXT),
    "direct": Field(FLAG),
    "durable_name": Field(TEXT),
    "filter_subject": Field(TEXT),
    "filter_subjects": Field(_array(TEXT), (2, 10)),
    "flow_control": Field(FLAG),
    "headers_only": Field(FLAG),
    "idle_heartbeat": Field(DURATION),
    "inactive_threshold": Field(DURATION),
    "max_ack_pending": Field(INTEGER),
    "max_batch": Field(INTEGER),
    "max_bytes": Field(INTEGER),
    "max_deliver": Field(INTEGER),
    "max_expires": Field(DURATION),
    "max_waiting": Field(INTEGER),
    "mem_storage": Field(FLAG),
    "metadata": Field(_LABELS, (2, 10)),
    "name": Field(TEXT),
    "num_replicas": Field(INTEGER),
    "opt_start_seq": Field(POSITION),
    "opt_start_time": Field(TIME),
    "pause_until": Field(TIME, (2, 11)),
    "priority_groups": Field(_array(TEXT), (2, 11)),
    "priority_policy": Field(_choice("none", "overflow", "pinned_client", "prioritized"), (2, 11)),
    "priority_timeout": Field(DURATION, (2, 11)),
    "rate_limit_bps": Field(POSITION),
    "replay_policy": Field(_choice("instant", "original")),
    "sample_freq": Field(TEXT),
    "sourcing": Field(FLAG, (2, 14)),
}


class WrittenField(NamedTuple):
    """A field as written: where, its value, and what is known about it (None: no server has it there)."""

    path: FieldPath
    value: Any
    field: Field | None
    siblings: Mapping[str, Field]

    @property
    def owner(self) -> str | None:
        """The name of the object it is in, None at the top."""
        return next((part for part in reversed(self.path[:-1]) if isinstance(part, str)), None)


def list_written_fields(
    fields: Mapping[str, Any], valid: Mapping[str, Field], path: FieldPath = ()
) -> Iterator[WrittenField]:
    """Every field of an object and of the objects in it. Go accepts names in any case."""
    for name, value in fields.items():
        field = valid.get(name) or valid.get(name.lower())
        place = (*path, name)
        yield WrittenField(place, value, field, valid)
        if field is not None and isinstance(value, (dict, list)):
            for inner_path, inner, type_ in _objects_in(place, value, field.type):
                if type_.fields is not None:
                    yield from list_written_fields(inner, type_.fields, inner_path)


def find_wrong_values(field: WrittenField) -> Iterator[tuple[FieldPath, Any, Type]]:
    """Values that do not have the type of *field*: the value itself, or its items. Go ignores `null`."""
    if field.field is not None:
        yield from _find_wrong(field.path, field.value, field.field.type)


def _find_wrong(path: FieldPath, value: Any, type_: Type) -> Iterator[tuple[FieldPath, Any, Type]]:
    if value is None:
        return
    if not type_.accepts(value):
        yield path, value, type_
    elif type_.items is not None:
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in inner:
            yield from _find_wrong((*path, key), item, type_.items)


def _objects_in(path: FieldPath, value: Any, type_: Type) -> Iterator[tuple[FieldPath, dict[str, Any], Type]]:
    """The value if it is an object, or the objects in it if it is an array."""
    if isinstance(value, dict):
        yield path, value, type_
    elif isinstance(value, list) and type_.items is not None:
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield (*path, index), item, type_.items
