"""VS245, VS248 and VS249: values of streams, buckets and consumers that servers take, and that nobody means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from vstream.findings import Severity
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.streams.values import (
    has_flag,
    locate_field,
    read_mirror,
    read_number,
    read_sources,
    read_strings,
    read_word,
)
from vstream.lint.workspace import ConsumerFile, StreamFile, Workspace
from vstream.subjects.algebra import is_subset
from vstream.syntax.document import object_or_empty
from vstream.timing import SECOND_NS

_MS_NS: Final = 10**6


class _Floor(NamedTuple):
    """Below *plausible* nobody means it, below *accepted* servers refuse it."""

    plausible: int
    accepted: int = 0


_DURATIONS: Final[Mapping[tuple[str, ...], _Floor]] = {
    ("max_age",): _Floor(SECOND_NS, 100 * _MS_NS),
    ("subject_delete_marker_ttl",): _Floor(SECOND_NS, SECOND_NS),
    ("consumer_limits", "inactive_threshold"): _Floor(SECOND_NS),
}
_CONSUMER_DURATIONS: Final[Mapping[tuple[str, ...], _Floor]] = {
    ("ack_wait",): _Floor(50 * _MS_NS),
    ("backoff",): _Floor(_MS_NS),
    ("inactive_threshold",): _Floor(SECOND_NS),
    ("max_expires",): _Floor(_MS_NS, _MS_NS),
    ("idle_heartbeat",): _Floor(100 * _MS_NS, 100 * _MS_NS),
    ("priority_timeout",): _Floor(SECOND_NS),
}
_TELLING: Final = frozenset({"retention", "storage", "num_replicas", "max_age", "discard", "max_bytes", "max_msgs"})
"""What streams have, and other files rarely."""
_TOKENS_OF_API: Final = 3
_SIZES: Final[Mapping[str, int]] = {"max_bytes": 1024, "max_msg_size": 16}
"""In bytes. A message alone takes about 30 more than its payload."""


@rule("VS245", "implausible-value", Severity.WARNING)
def implausible_value(workspace: Workspace) -> Iterator[Violation]:
    """
    A duration or a size is so small that another unit was meant, or an address that nobody has.

    ## Why is this bad?
    Durations of streams and consumers are nanoseconds, and sizes are bytes. `"max_age": 3600` is not an hour but 3.6
    microseconds. Servers refuse some of these values and accept others: with `"ack_wait": 30` every message is
    delivered again and again, and with `"max_age": 604800000` a stream removes messages after 0.6 seconds
    (server/stream.go, consumer.go; all versions). What servers refuse is an error.
    """
    for stream in workspace.streams:
        yield from _find_short(stream, stream.config.fields, _DURATIONS)
        yield from _find_small(stream)
        yield from _check_strange_api(stream)
    for consumer in workspace.consumers:
        skipped = _find_skipped(consumer.fields)
        floors = {path: floor for path, floor in _CONSUMER_DURATIONS.items() if path[0] not in skipped}
        yield from _find_short(consumer, consumer.fields, floors)


@rule("VS249", "unmeant-subjects", Severity.WARNING)
def unmeant_subjects(workspace: Workspace) -> Iterator[Violation]:
    """
    A stream has no subjects and no sources, or it stores the replies to requests.

    ## Why is this bad?
    Servers give a stream without subjects, sources and mirror its own name as the only subject: it stays empty. A stream
    of `_INBOX.>` stores every reply, those of JetStream and what consumers deliver included. It fills with what nobody
    needs, and who may read it reads the answers to everybody (server/stream.go, checkStreamCfg; all versions).
    """
    for stream in workspace.streams:
        fields = stream.config.fields
        is_whole = stream.is_named and len(_TELLING & fields.keys()) > 1
        if is_whole and not any(fields.get(name) for name in ("subjects", "sources", "mirror")):
            yield Violation(
                at=stream.locate("name"),
                message=f"the stream has no subjects, sources or mirror: it stores the subject `{stream.config.name}` only",
                hint="add `subjects`",
            )
        for index, subject in enumerate(read_strings(stream, "subjects")):
            if subject.startswith("_INBOX."):
                yield Violation(
                    at=stream.locate("subjects", index),
                    message=f"`{subject}` are the replies to requests: the stream stores each of them",
                    hint="list the subjects that clients publish to",
                )


def _find_skipped(fields: Mapping[str, Any]) -> set[str]:
    """What servers do not look at, or replace: limits of requests where messages are pushed, and heartbeats."""
    has_own_heartbeat = fields.get("ack_policy") == "flow_control"
    is_push = bool(fields.get("deliver_subject"))
    return {*(["max_expires"] if is_push else ()), *(["idle_heartbeat"] if has_own_heartbeat else ())}


def _find_short(
    owner: StreamFile | ConsumerFile, fields: Mapping[str, Any], floors: Mapping[tuple[str, ...], _Floor]
) -> Iterator[Violation]:
    for path, floor in floors.items():
        for field_path, value in _numbers_at(fields, path):
            if 0 < value < floor.plausible:
                is_refused = value < floor.accepted
                yield Violation(
                    at=owner.locate(*field_path),
                    message=f"`{path[-1]}` is {_format_duration(value)}, as durations are nanoseconds"
                    + (": servers refuse it" if is_refused else ""),
                    hint=f"write {value * SECOND_NS} for {value} seconds, {value * _MS_NS} for {value} milliseconds",
                    severity=Severity.ERROR if is_refused else None,
                )


def _find_small(stream: StreamFile) -> Iterator[Violation]:
    for name, least in _SIZES.items():
        for field_path, value in _numbers_at(stream.config.fields, (name,)):
            if 0 < value < least:
                yield Violation(
                    at=stream.locate(*field_path),
                    message=f"`{name}` is {value} bytes, which is too little for a message",
                    hint=f"sizes are bytes: write {value << 20} for {value} MiB",
                )


def _check_strange_api(stream: StreamFile) -> Iterator[Violation]:
    """The API of another domain is called `$JS.DOMAIN.API`; of another account it may have any name."""
    mirrored = read_mirror(stream)
    for source in (*read_sources(stream), *([mirrored] if mirrored else [])):
        api, tokens = source.api, str(source.api).split(".")
        if tokens[:1] == ["$JS"] and len(tokens) == _TOKENS_OF_API and tokens[-1] != "API":
            yield Violation(
                at=stream.locate(*source.path, "external", "api"),
                message=f"`{api}` is no API of a domain: nobody answers there",
                hint=f"write `$JS.{tokens[1]}.API`",
            )


def _numbers_at(fields: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """The number at *path*, or the first number of the array there: one finding says it for all."""
    value: Any = fields
    for name in path:
        value = object_or_empty(value).get(name)
    if isinstance(value, list) and value:
        yield from ((tuple[str | int, ...]((*path, 0)), number) for number in value[:1] if _is_number(number))
    elif _is_number(value):
        yield path, value


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _format_duration(nanoseconds: int) -> str:
    for name, unit in (("ms", _MS_NS), ("µs", 10**3)):
        if nanoseconds >= unit:
            return f"{nanoseconds / unit:g} {name}"
    return f"{nanoseconds} ns"


_MAX_HISTORY = 64
_BUCKETS = {"KV_": ("$KV.{}.>",), "OBJ_": ("$O.{}.C.>", "$O.{}.M.>")}


@rule("VS248", "broken-bucket", Severity.WARNING)
def broken_bucket(workspace: Workspace) -> Iterator[Violation]:
    """
    The stream of a key-value or object store lacks what clients need.

    ## Why is this bad?
    Clients publish the keys of the bucket `config` to `$KV.config.>`, and expect them in the stream `KV_config`. If the
    stream does not hold these subjects, each write fails. Clients purge keys with roll-ups, which servers refuse
    without `allow_rollup_hdrs`, and do not accept a history of more than 64 (ADR-8, ADR-20; all versions). A work queue
    loses each value that somebody reads, and a full bucket that discards old messages its oldest keys. Streams that
    source or mirror a bucket, and those of virtual streams, are not checked.
    """
    for stream in workspace.streams:
        fields = stream.config.fields
        prefix = next((prefix for prefix in _BUCKETS if stream.config.name.startswith(prefix)), None)
        is_copy = bool(fields.get("sources") or fields.get("mirror")) or stream.role.is_of_virtual
        if prefix is not None and read_strings(stream, "subjects") and not is_copy:
            yield from _check(stream, prefix)


def _check(stream: StreamFile, prefix: str) -> Iterator[Violation]:
    bucket = stream.config.name.removeprefix(prefix)
    expected = [subject.format(bucket) for subject in _BUCKETS[prefix]]
    subjects = read_strings(stream, "subjects")
    missing = [subject for subject in expected if not any(is_subset(subject, stored) for stored in subjects)]
    if missing:
        yield Violation(
            at=stream.locate("subjects"),
            message=f"the bucket `{bucket}` needs `{missing[0]}`, and the stream does not hold it",
            hint=f"add `{missing[0]}` to `subjects`, or give the stream the name of its bucket",
        )
    if not has_flag(stream, "allow_rollup_hdrs"):
        yield Violation(
            at=locate_field(stream, "allow_rollup_hdrs"),
            message=f"the bucket `{bucket}` does not allow roll-ups: clients cannot purge keys or replace objects",
            hint='add `"allow_rollup_hdrs": true`',
        )
    if read_word(stream, "retention") in {"workqueue", "interest"}:
        yield Violation(
            at=stream.locate("retention"),
            message=f"with this retention, the bucket `{bucket}` forgets what nobody waits for, or what one has read",
            hint='write `"retention": "limits"`',
        )
    limits = [name for name in ("max_bytes", "max_msgs") if read_number(stream, name) > 0]
    if prefix == "KV_" and limits and read_word(stream, "discard") != "new":
        yield Violation(
            at=locate_field(stream, "discard"),
            message=f"with `{limits[0]}` and without `discard: new`, a full bucket forgets its oldest keys silently",
            hint='write `"discard": "new"`: writes then fail instead',
        )
    if prefix == "KV_" and read_number(stream, "max_msgs_per_subject") > _MAX_HISTORY:
        yield Violation(
            at=stream.locate("max_msgs_per_subject"),
            message=f"a history of {read_number(stream, 'max_msgs_per_subject')}, and clients allow {_MAX_HISTORY}",
            hint=f"write {_MAX_HISTORY} or less",
        )
