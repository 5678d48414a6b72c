"""Names and fields: what servers refuse, and what older servers silently drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vstream.findings import Severity
from vstream.formatting import quote_value, suggest_name
from vstream.lint import api_fields
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.streams.values import FORBIDDEN, MAX_NAME_BYTES
from vstream.lint.workspace import ConsumerFile, StreamFile, Workspace
from vstream.topology.model import ServerVersion
from vstream.topology.units import format_version

_TRANSFORMS = "subject_transforms"
_EMPTY_SINCE: ServerVersion = (2, 11)
_NOTHING: tuple[object, ...] = (None, False, "", 0, [], {}, "none", "default")
"""Values without effect: nothing is lost if an old server drops them."""


@rule("VS202", "invalid-stream-name", Severity.ERROR)
def invalid_stream_name(workspace: Workspace) -> Iterator[Violation]:
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
        bad = sorted(FORBIDDEN.intersection(name))
        if not name:
            message = "the stream has no name"
        elif bad:
            message = f"the name {quote_value(name)} contains {', '.join(repr(character) for character in bad)}"
        elif len(name.encode()) > MAX_NAME_BYTES:
            message = f"the name has {len(name.encode())} bytes, {MAX_NAME_BYTES} are allowed"
        else:
            continue
        yield Violation(
            at=stream.locate("name"), message=f"{message}: servers refuse it", hint="use letters, digits, `-` and `_`"
        )


@rule("VS203", "unknown-stream-field", Severity.ERROR)
def unknown_stream_field(workspace: Workspace) -> Iterator[Violation]:
    """
    A stream configuration has a field that no server knows, or that only old ones know.

    ## Why is this bad?
    Servers from 2.12 refuse it (`invalid JSON`, 10025); before, they silently drop the field, so your setting is lost
    (`jetstream { strict }`, server/jetstream_api.go; the fields are those of server/stream.go). `template_owner` was
    removed in 2.14.
    """
    for stream in workspace.streams:
        yield from _check_unknown_fields(stream, stream.config.fields, api_fields.STREAM_FIELDS, "a stream")


@rule("VS204", "field-needs-newer-server", Severity.ERROR)
def field_needs_newer_server(workspace: Workspace) -> Iterator[Violation]:
    """
    A field is newer than the oldest server that must understand it.

    ## Why is this bad?
    A server that does not know a field drops it (2.11 and before) or refuses the stream (2.12 and later). Only checked
    if the oldest version is known. Since 2.10: `subject_transform`, `subject_transforms`, `compression`, `metadata`;
    2.11: message TTLs; 2.12: counters, atomic batches, schedules, `persist_mode`; 2.14: `allow_batched`,
    `sources[].consumer` (server/stream.go of each version).
    """
    oldest = workspace.stated_version
    if oldest is not None:
        for stream in workspace.streams:
            yield from _check_newer_fields(stream, stream.config.fields, api_fields.STREAM_FIELDS, oldest)


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
        yield from _check_wrong_values(stream, stream.config.fields, api_fields.STREAM_FIELDS)


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
        yield from _check_unknown_fields(consumer, consumer.fields, api_fields.CONSUMER_FIELDS, "a consumer")
        if oldest is not None:
            yield from _check_newer_fields(consumer, consumer.fields, api_fields.CONSUMER_FIELDS, oldest)


@rule("VS242", "wrong-consumer-value", Severity.ERROR)
def wrong_consumer_value(workspace: Workspace) -> Iterator[Violation]:
    """
    A field of a consumer has a value of the wrong type, or a keyword that servers do not know.

    ## Why is this bad?
    Servers refuse the consumer (`invalid JSON`, 10025). Durations are whole numbers of nanoseconds, and keywords must
    have the spelling that servers use (server/consumer.go, ConsumerConfig; all versions).
    """
    for consumer in workspace.consumers:
        yield from _check_wrong_values(consumer, consumer.fields, api_fields.CONSUMER_FIELDS)


def _check_unknown_fields(
    owner: StreamFile | ConsumerFile, fields: Mapping[str, object], valid: Mapping[str, api_fields.Field], whole: str
) -> Iterator[Violation]:
    for field in api_fields.list_written_fields(fields, valid):
        if field.field is None:
            name = str(field.path[-1])
            yield Violation(
                at=owner.key_at(*field.path),
                message=f"`{name}` is not a field of {_name_owner(field, whole)}",
                hint=suggest_name(name.lower(), field.siblings) or "remove it: put your own labels under `metadata`",
            )


def _check_newer_fields(
    owner: StreamFile | ConsumerFile,
    fields: Mapping[str, object],
    valid: Mapping[str, api_fields.Field],
    oldest: ServerVersion,
) -> Iterator[Violation]:
    for field in api_fields.list_written_fields(fields, valid):
        since = field.field.since if field.field else api_fields.FIRST
        if oldest < _EMPTY_SINCE and field.path[-1] == "src" and field.value == "" and field.owner == _TRANSFORMS:
            yield Violation(
                at=owner.locate(*field.path),
                message=f"before nats-server {format_version(_EMPTY_SINCE)}, servers refuse an empty `src` of a source",
                hint='write `">"`',
            )
        if oldest < since and field.value not in _NOTHING:
            yield Violation(
                at=owner.key_at(*field.path),
                message=f"`{field.path[-1]}` needs nats-server {format_version(since)}, the oldest is {format_version(oldest)}",
                hint=f"upgrade all servers to {format_version(since)} first, or remove it",
            )


def _check_wrong_values(
    owner: StreamFile | ConsumerFile, fields: Mapping[str, object], valid: Mapping[str, api_fields.Field]
) -> Iterator[Violation]:
    for field in api_fields.list_written_fields(fields, valid):
        for path, value, type_ in api_fields.find_wrong_values(field):
            yield _report_wrong_value(owner, path, value, type_)


def _report_wrong_value(
    owner: StreamFile | ConsumerFile, path: api_fields.FieldPath, value: object, type_: api_fields.Type
) -> Violation:
    name = next(part for part in reversed(path) if isinstance(part, str))
    described = f"`{name}`" if isinstance(path[-1], str) else f"an item of `{name}`"
    return Violation(
        at=owner.locate(*path),
        message=f"{described} must be {type_.noun}, not {_describe(value)}: servers refuse it",
        hint=type_.hint(value),
    )


def _describe(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    return "an array" if isinstance(value, list) else f"`{api_fields.quote_json(value)}`"


def _name_owner(field: api_fields.WrittenField, whole: str) -> str:
    owner = field.owner
    return {None: whole, "sources": "a source", "subject_transforms": "a transform"}.get(owner, f"`{owner}`")
