"""Names and fields: what servers refuse, and what older servers drop without a word."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.streams.values import mirror, sources, stated_version
from vstream.lint.rules.wording import format_version
from vstream.syntax.quoting import quote_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from vstream.lint.workspace import StreamFile, Workspace
    from vstream.topology.model import ServerVersion

_FORBIDDEN = frozenset(" \t\r\n\f.*>\\/")
_LONGEST_NAME = 255

_FIRST: ServerVersion = (0, 0)
_STREAM: Mapping[str, ServerVersion] = {
    "allow_atomic": (2, 12),
    "allow_batched": (2, 14),
    "allow_direct": _FIRST,
    "allow_msg_counter": (2, 12),
    "allow_msg_schedules": (2, 12),
    "allow_msg_ttl": (2, 11),
    "allow_rollup_hdrs": _FIRST,
    "compression": (2, 10),
    "consumer_limits": (2, 10),
    "deny_delete": _FIRST,
    "deny_purge": _FIRST,
    "description": _FIRST,
    "discard": _FIRST,
    "discard_new_per_subject": _FIRST,
    "duplicate_window": _FIRST,
    "first_seq": (2, 10),
    "max_age": _FIRST,
    "max_bytes": _FIRST,
    "max_consumers": _FIRST,
    "max_msg_size": _FIRST,
    "max_msgs": _FIRST,
    "max_msgs_per_subject": _FIRST,
    "metadata": (2, 10),
    "mirror": _FIRST,
    "mirror_direct": _FIRST,
    "name": _FIRST,
    "no_ack": _FIRST,
    "num_replicas": _FIRST,
    "persist_mode": (2, 12),
    "placement": _FIRST,
    "republish": _FIRST,
    "retention": _FIRST,
    "sealed": _FIRST,
    "sources": _FIRST,
    "storage": _FIRST,
    "subject_delete_marker_ttl": (2, 11),
    "subject_transform": (2, 10),
    "subjects": _FIRST,
    "template_owner": _FIRST,
}
"""Every field of a stream configuration, with the version that brought it (server/stream.go, StreamConfig)."""
_SOURCE: Mapping[str, ServerVersion] = {
    "consumer": (2, 14),
    "external": _FIRST,
    "filter_subject": _FIRST,
    "name": _FIRST,
    "opt_start_seq": _FIRST,
    "opt_start_time": _FIRST,
    "subject_transforms": (2, 10),
}
_INNER: Mapping[str, frozenset[str]] = {
    "consumer": frozenset({"name", "deliver_subject"}),
    "consumer_limits": frozenset({"inactive_threshold", "max_ack_pending"}),
    "external": frozenset({"api", "deliver"}),
    "placement": frozenset({"cluster", "preferred", "tags"}),
    "republish": frozenset({"dest", "headers_only", "src"}),
    "subject_transform": frozenset({"dest", "src"}),
}
"""The fields of the objects within."""


@rule("VS202", "invalid-stream-name", Severity.ERROR)
def invalid_name(workspace: Workspace) -> Iterator[Violation]:
    r"""
    A stream has a name that servers refuse.

    ## Why is this bad?
    A stream's name is one token of its API subjects, and a directory on disk. It
    may hold no `.`, `*`, `>`, `/`, `\` or white space, and no more than 255 bytes
    (server/stream.go, checkStreamCfg; all versions).
    """
    for stream in workspace.streams:
        name = stream.config.name
        bad = sorted(_FORBIDDEN.intersection(name))
        if not name:
            message = "the stream has no name"
        elif bad:
            message = f"the name {quote_value(name)} holds {', '.join(repr(one) for one in bad)}"
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
    Servers from 2.12 refuse it (`invalid JSON`, 10025); before, they drop the field
    without a word, and with it what you wanted to say (`jetstream { strict }`,
    server/jetstream_api.go; the fields are those of server/stream.go).
    """
    for stream in workspace.streams:
        for path, known in _objects(stream):
            key = str(path[-1])
            # Go takes the name of a field in any mixture of cases.
            if key.lower() not in known:
                close = get_close_matches(key.lower(), known, n=1)
                yield Violation(
                    at=stream.key_at(*path),
                    message=f"`{key}` is no field of {_what(path)}",
                    hint=f"did you mean `{close[0]}`?"
                    if close
                    else "remove it: labels of your own go under `metadata`",
                )


@rule("VS204", "field-needs-newer-server", Severity.ERROR)
def needs_newer_server(workspace: Workspace) -> Iterator[Violation]:
    """
    A field is newer than the oldest server that has to understand it.

    ## Why is this bad?
    A server that does not know a field drops it (2.11 and before) or refuses the
    stream (2.12 and later). Looked at only where the oldest version is stated.
    Since 2.10: `subject_transform`, `subject_transforms`, `compression`, `metadata`;
    2.11: message TTLs; 2.12: counters, atomic batches, schedules, `persist_mode`;
    2.14: `allow_batched`, `sources[].consumer` (server/stream.go of each version).
    """
    oldest = stated_version(workspace)
    if oldest is None:
        return
    for stream in workspace.streams:
        for path, value, since in _versioned(stream):
            # Without effect, an old server loses nothing by dropping it.
            if oldest < since and value not in (None, False, "", 0, [], {}, "none", "default"):
                yield Violation(
                    at=stream.key_at(*path),
                    message=f"`{path[-1]}` needs nats-server {format_version(since)}, the oldest is {format_version(oldest)}",
                    hint=f"upgrade all servers to {format_version(since)} first, or do without",
                )


def _objects(stream: StreamFile) -> Iterator[tuple[tuple[str | int, ...], Iterable[str]]]:
    """The path of every field, each with the names that are known beside it."""
    yield from (((key,), _STREAM) for key in stream.config.fields)
    yield from _within((), stream.config.fields)
    several = [*sources(stream), *(one for one in [mirror(stream)] if one is not None)]
    for source in several:
        yield from (((*source.path, key), _SOURCE) for key in source.fields)
        yield from _within(source.path, source.fields)
        transforms = source.fields.get("subject_transforms")
        for index, one in enumerate(transforms if isinstance(transforms, list) else ()):
            if isinstance(one, dict):
                path = (*source.path, "subject_transforms", index)
                yield from (((*path, key), _INNER["subject_transform"]) for key in one)


def _within(
    path: tuple[str | int, ...], fields: Mapping[str, Any]
) -> Iterator[tuple[tuple[str | int, ...], Iterable[str]]]:
    for name in _INNER.keys() & fields.keys():
        inner = fields[name]
        if isinstance(inner, dict):
            yield from (((*path, name, key), _INNER[name]) for key in inner)


def _versioned(stream: StreamFile) -> Iterator[tuple[tuple[str | int, ...], Any, ServerVersion]]:
    for key, value in stream.config.fields.items():
        yield (key,), value, _STREAM.get(key, _FIRST)
    for source in sources(stream):
        for key, value in source.fields.items():
            yield (*source.path, key), value, _SOURCE.get(key, _FIRST)


def _what(path: tuple[str | int, ...]) -> str:
    owner = next((part for part in reversed(path[:-1]) if isinstance(part, str)), None)
    return {None: "a stream", "sources": "a source", "subject_transforms": "a transform"}.get(owner, f"`{owner}`")
