"""Names and fields: what servers refuse, and what older servers silently drop."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import combinations
from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.streams.api_fields import (
    CONSUMER_FIELDS,
    FIRST,
    STREAM_FIELDS,
    quote_json,
    written_fields,
    wrong_values,
)
from vstream.lint.rules.wording import format_version
from vstream.subjects.algebra import has_wildcards, is_valid, overlaps
from vstream.syntax.quoting import quote_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vstream.lint.rules.streams.api_fields import Field, FieldPath, Type, WrittenField
    from vstream.lint.workspace import ConsumerFile, StreamFile, Workspace
    from vstream.topology.model import ServerVersion

_FORBIDDEN = frozenset(" \t\r\n\f.*>\\/")
_LONGEST_NAME = 255
_MOST_REPLICAS = 5
_NOTHING: tuple[object, ...] = (None, False, "", 0, [], {}, "none", "default")
"""Values without effect: nothing is lost if an old server drops them."""


@rule("VS202", "invalid-stream-name", Severity.ERROR)
def invalid_name(workspace: Workspace) -> Iterator[Violation]:
    r"""
    A stream has a name that servers refuse.

    ## Why is this bad?
    A stream's name is one token of its API subjects, and a directory on disk. It must not contain `.`, `*`, `>`, `/`,
    `\` or white space, and has at most 255 bytes (server/stream.go, checkStreamCfg; all versions).
    """
    for stream in workspace.streams:
        # A file for `nats stream add NAME --config` has no name of its own.
        if not stream.is_named:
            continue
        name = stream.config.name
        bad = sorted(_FORBIDDEN.intersection(name))
        if not name:
            message = "the stream has no name"
        elif bad:
            message = f"the name {quote_value(name)} contains {', '.join(repr(character) for character in bad)}"
        elif len(name.encode()) > _LONGEST_NAME:
            message = f"the name has {len(name.encode())} bytes, {_LONGEST_NAME} are allowed"
        else:
            continue
        yield Violation(
            at=stream.at("name"),
            message=f"{message}: servers refuse it",
            hint="use letters, digits, `-` and `_`",
        )


@rule("VS203", "unknown-stream-field", Severity.ERROR)
def unknown_field(workspace: Workspace) -> Iterator[Violation]:
    """
    A stream configuration has a field that no server knows.

    ## Why is this bad?
    Servers from 2.12 refuse it (`invalid JSON`, 10025); before, they silently drop the field, so your setting is lost
    (`jetstream { strict }`, server/jetstream_api.go; the fields are those of server/stream.go).
    """
    for stream in workspace.streams:
        yield from _unknown_fields(stream, stream.config.fields, STREAM_FIELDS, "a stream")


@rule("VS204", "field-needs-newer-server", Severity.ERROR)
def needs_newer_server(workspace: Workspace) -> Iterator[Violation]:
    """
    A field is newer than the oldest server that must understand it.

    ## Why is this bad?
    A server that does not know a field drops it (2.11 and before) or refuses the
    stream (2.12 and later). Only checked if the oldest version is known.
    Since 2.10: `subject_transform`, `subject_transforms`, `compression`, `metadata`;
    2.11: message TTLs; 2.12: counters, atomic batches, schedules, `persist_mode`;
    2.14: `allow_batched`, `sources[].consumer` (server/stream.go of each version).
    """
    oldest = workspace.stated_version
    if oldest is not None:
        for stream in workspace.streams:
            yield from _newer_fields(stream, stream.config.fields, STREAM_FIELDS, oldest)


@rule("VS234", "wrong-stream-value", Severity.ERROR)
def wrong_stream_value(workspace: Workspace) -> Iterator[Violation]:
    """
    A field of a stream has a value of the wrong type, or a keyword that servers do not know.

    ## Why is this bad?
    Servers refuse the stream (`invalid JSON`, 10025, with an error message of Go). Durations are whole numbers of
    nanoseconds here, not `24h`; sizes are bytes; keywords must have the spelling that servers use. `nats stream add
    --config` reads the same format (server/stream.go, StreamConfig; all versions).
    """
    for stream in workspace.streams:
        yield from _wrong_values(stream, stream.config.fields, STREAM_FIELDS)


@rule("VS241", "unknown-consumer-field", Severity.ERROR)
def unknown_consumer_field(workspace: Workspace) -> Iterator[Violation]:
    """
    A consumer configuration has a field that no server knows, or that the oldest server does not know.

    ## Why is this bad?
    Servers from 2.12 refuse it (`invalid JSON`, 10025); before, they silently drop the field. Versions are only checked
    if the oldest one is known (the fields are those of server/consumer.go).
    """
    oldest = workspace.stated_version
    for consumer in workspace.consumers:
        yield from _unknown_fields(consumer, consumer.fields, CONSUMER_FIELDS, "a consumer")
        if oldest is not None:
            yield from _newer_fields(consumer, consumer.fields, CONSUMER_FIELDS, oldest)


@rule("VS242", "wrong-consumer-value", Severity.ERROR)
def wrong_consumer_value(workspace: Workspace) -> Iterator[Violation]:
    """
    A field of a consumer has a value of the wrong type, or a keyword that servers do not know.

    ## Why is this bad?
    Servers refuse the consumer (`invalid JSON`, 10025). Durations are whole numbers of nanoseconds, and keywords must
    have the spelling that servers use (server/consumer.go, ConsumerConfig; all versions).
    """
    for consumer in workspace.consumers:
        yield from _wrong_values(consumer, consumer.fields, CONSUMER_FIELDS)


@rule("VS243", "refused-consumer", Severity.ERROR)
def refused_consumer(workspace: Workspace) -> Iterator[Violation]:
    r"""
    Fields of a consumer contradict each other.

    ## Why is this bad?
    Servers refuse the consumer: a start position needs the matching policy, heartbeats and flow control are for push
    consumers, and names must not contain `.`, `*`, `>`, `/` or `\` (server/consumer.go, checkConsumerCfg; all
    versions).
    """
    for consumer in workspace.consumers:
        for name, message, hint in _contradictions(consumer.fields):
            yield Violation(at=consumer.at(name), message=f"{message}: servers refuse the consumer", hint=hint)


_START = {"by_start_sequence": "opt_start_seq", "by_start_time": "opt_start_time"}


def _contradictions(fields: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """The field, what is wrong with it, and what to do."""
    yield from _bad_names(fields)
    yield from _bad_start(fields)
    yield from _bad_delivery(fields)
    yield from _bad_words(fields)


def _bad_words(fields: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    copies, sample = fields.get("num_replicas"), fields.get("sample_freq")
    if isinstance(copies, int) and not 0 <= copies <= _MOST_REPLICAS:
        yield "num_replicas", f"{copies} replicas, and {_MOST_REPLICAS} is the most", "write 1, 3 or 5, or remove it"
    if isinstance(sample, str) and sample and not sample.removesuffix("%").lstrip("+-").isdecimal():
        yield (
            "sample_freq",
            f"{quote_value(sample)} is not a share of the messages",
            'write a percentage, such as "10%"',
        )
    target = fields.get("deliver_subject")
    if isinstance(target, str) and has_wildcards(target):
        yield "deliver_subject", f"{quote_value(target)} has wildcards", "write one subject"
    if target and fields.get("priority_groups"):
        yield "priority_groups", "priority groups are for pull consumers", "remove them, or `deliver_subject`"
    if fields.get("priority_timeout") and fields.get("priority_policy", "none") != "pinned_client":
        hint = 'write `"priority_policy": "pinned_client"`, or remove it'
        yield "priority_timeout", "`priority_timeout` is for pinned clients", hint
    filters = fields.get("filter_subjects")
    for name, subjects in (("filter_subjects", filters), ("filter_subject", [fields.get("filter_subject") or ">"])):
        for subject in subjects if isinstance(subjects, list) else ():
            if isinstance(subject, str) and not is_valid(subject):
                hint = "write tokens between single dots, `>` at the end"
                yield name, f"{quote_value(subject)} is not a subject", hint


def _bad_names(fields: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    for name in ("name", "durable_name"):
        value = fields.get(name)
        bad = sorted(_FORBIDDEN.intersection(value)) if isinstance(value, str) else []
        if bad:
            message = f"the name {quote_value(value)} contains {', '.join(map(repr, bad))}"
            yield name, message, "use letters, digits, `-` and `_`"
    if fields.get("name") and fields.get("durable_name") and fields["name"] != fields["durable_name"]:
        yield "name", "`name` and `durable_name` differ", "write the same name, or remove one of them"


def _bad_start(fields: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    policy = fields.get("deliver_policy", "all")
    for needed_policy, start in _START.items():
        if policy == needed_policy and not fields.get(start):
            yield "deliver_policy", f"`{needed_policy}` needs `{start}`", f"add `{start}`"
        if policy != needed_policy and fields.get(start):
            hint = f'write `"deliver_policy": "{needed_policy}"`, or remove it'
            yield start, f"`{start}` needs `deliver_policy: {needed_policy}`", hint
    has_filter = bool(fields.get("filter_subject") or fields.get("filter_subjects"))
    if policy == "last_per_subject" and not has_filter:
        yield "deliver_policy", "`last_per_subject` needs a filter", 'add `"filter_subject": ">"`'
    if fields.get("filter_subject") and fields.get("filter_subjects"):
        yield "filter_subject", "both `filter_subject` and `filter_subjects` are set", "keep `filter_subjects`"
    filters = fields.get("filter_subjects")
    subjects = [subject for subject in filters if isinstance(subject, str)] if isinstance(filters, list) else []
    pair = next(((left, right) for left, right in combinations(subjects, 2) if overlaps(left, right)), None)
    if pair is not None:
        message = f"the filters `{pair[0]}` and `{pair[1]}` overlap"
        yield "filter_subjects", message, "keep the wider one, or filters that exclude each other"


def _bad_delivery(fields: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    is_push = bool(fields.get("deliver_subject"))
    policy = fields.get("priority_policy", "none")
    if policy != "none" and not fields.get("priority_groups"):
        yield "priority_policy", "a priority policy needs a group", 'add `"priority_groups": ["NAME"]`'
    if policy == "none" and fields.get("priority_groups"):
        yield "priority_groups", "groups need a priority policy", 'add `"priority_policy": "overflow"`, or remove them'
    for name in ("idle_heartbeat", "flow_control", "rate_limit_bps"):
        if fields.get(name) and not is_push:
            yield name, f"`{name}` is for push consumers, but `deliver_subject` is missing", "remove it"
    if is_push and fields.get("max_waiting"):
        yield "max_waiting", "`max_waiting` is for pull consumers, but `deliver_subject` is set", "remove it"
    if is_push and fields.get("flow_control") and not fields.get("idle_heartbeat"):
        yield "flow_control", "flow control needs heartbeats", 'add `"idle_heartbeat": 5000000000`'
    backoff, most = fields.get("backoff"), fields.get("max_deliver")
    if isinstance(backoff, list) and isinstance(most, int) and 0 < most < len(backoff):
        message = f"`max_deliver` is less than the {len(backoff)} steps of `backoff`"
        yield "max_deliver", message, f"write {len(backoff)} or more"


def _unknown_fields(
    owner: StreamFile | ConsumerFile, fields: Mapping[str, object], known: Mapping[str, Field], what: str
) -> Iterator[Violation]:
    for field in written_fields(fields, known):
        if field.field is None:
            name = str(field.path[-1])
            close = get_close_matches(name.lower(), field.siblings, n=1)
            yield Violation(
                at=owner.key_at(*field.path),
                message=f"`{name}` is not a field of {_owner(field, what)}",
                hint=f"did you mean `{close[0]}`?" if close else "remove it: put your own labels under `metadata`",
            )


def _newer_fields(
    owner: StreamFile | ConsumerFile, fields: Mapping[str, object], known: Mapping[str, Field], oldest: ServerVersion
) -> Iterator[Violation]:
    for field in written_fields(fields, known):
        since = field.field.since if field.field else FIRST
        if oldest < since and field.value not in _NOTHING:
            yield Violation(
                at=owner.key_at(*field.path),
                message=f"`{field.path[-1]}` needs nats-server {format_version(since)}, the oldest is {format_version(oldest)}",
                hint=f"upgrade all servers to {format_version(since)} first, or remove it",
            )


def _wrong_values(
    owner: StreamFile | ConsumerFile, fields: Mapping[str, object], known: Mapping[str, Field]
) -> Iterator[Violation]:
    for field in written_fields(fields, known):
        for path, value, type_ in wrong_values(field):
            yield _wrong_value(owner, path, value, type_)


def _wrong_value(owner: StreamFile | ConsumerFile, path: FieldPath, value: object, type_: Type) -> Violation:
    name = next(part for part in reversed(path) if isinstance(part, str))
    described = f"`{name}`" if isinstance(path[-1], str) else f"an item of `{name}`"
    return Violation(
        at=owner.at(*path),
        message=f"{described} must be {type_.noun}, not {_describe(value)}: servers refuse it",
        hint=type_.hint(value),
    )


def _describe(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    return "an array" if isinstance(value, list) else f"`{quote_json(value)}`"


def _owner(field: WrittenField, what: str) -> str:
    owner = field.owner
    return {None: what, "sources": "a source", "subject_transforms": "a transform"}.get(owner, f"`{owner}`")
