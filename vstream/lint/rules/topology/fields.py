"""Fields of the JetStream API that are set, or passed through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.wording import format_version
from vstream.topology import reserved_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject
    from vstream.syntax.yaml import Path

_WORDS = {
    "num_replicas": "replicas",
    "allow_rollup_hdrs": "allow_rollup",
    **{
        word: word
        for word in (
            "storage", "max_age", "max_bytes", "max_msgs", "max_msgs_per_subject", "max_msg_size", "max_consumers",
            "discard", "compression", "duplicate_window", "allow_msg_ttl", "deny_delete", "deny_purge", "description",
            "metadata",
        )
    },
}  # fmt: skip
"""Keys that have a word in the language."""
_SINCE = {
    "allow_msg_ttl": (2, 11),
    "subject_delete_marker_ttl": (2, 11),
    "allow_atomic": (2, 12),
    "allow_msg_counter": (2, 12),
    "allow_msg_schedules": (2, 12),
    "persist_mode": (2, 12),
    "allow_batched": (2, 14),
}
"""The first nats-server that knows a key."""
_MAX_DESCRIPTION = 4 * 1024
_MAX_METADATA = 128 * 1024
_SERVER_METADATA = 1024
"""Room for what servers add to the metadata (`_nats.*`)."""


@rule("VS111", "field-belongs-to-vstream", Severity.ERROR)
def field_belongs_to_vstream(subject: TopologySubject) -> Iterator[Violation]:
    """
    `config` or `metadata` sets something that vstream itself decides.

    ## Why is this bad?
    Names, subjects, sources, placement and retention make the virtual stream work;
    another value would break it in a way that only shows in an outage. Fields that
    have a word of their own in the language are set by that word.
    """
    for path, level in subject.setting_levels():
        for key in level.config or {}:
            # Servers read keys in any mixture of cases.
            name, at = key.lower(), (*path, "config", key)
            if name in reserved_fields.STREAM_FIELDS:
                yield Violation(
                    at=at,
                    message=f"`{key}` is vstream's own: {reserved_fields.STREAM_FIELDS[name]}",
                    hint=reserved_fields.advice_for(name),
                    on_key=True,
                )
            elif name in _WORDS:
                yield Violation(
                    at=at,
                    message=f"`{key}` has a word of its own in the topology language",
                    hint=f"write `{_WORDS[name]}` beside `config`",
                    on_key=True,
                )
        for key in level.metadata or {}:
            if key.startswith(("vstream.", "_nats.")):
                yield Violation(
                    at=(*path, "metadata", key),
                    message=f"metadata `{key}` is written by {'vstream' if key[0] == 'v' else 'the servers'}",
                    hint="choose another prefix",
                    on_key=True,
                )


@rule("VS112", "needs-newer-server", Severity.ERROR)
def needs_newer_server(subject: TopologySubject) -> Iterator[Violation]:
    """
    A setting needs a newer server than the topology promises to run on.

    ## Why is this bad?
    An older server drops fields that it does not know, without a word (2.11 and
    before) or refuses them (2.12 and later).
    """
    oldest = subject.topology.server_version
    for path, level in subject.setting_levels():
        written: list[tuple[Path, str]] = [((*path, "config", key), key) for key in level.config or {}]
        if level.allow_msg_ttl is not None:
            written.append(((*path, "allow_msg_ttl"), "allow_msg_ttl"))
        for at, key in written:
            since = _SINCE.get(key.lower())
            if since and oldest < since:
                yield Violation(
                    at=at,
                    message=f"`{key}` needs nats-server {format_version(since)}, the topology says {format_version(oldest)}",
                    hint=f'raise `server_version` to "{format_version(since)}" if all servers are that new',
                    on_key=True,
                )


@rule("VS124", "too-much-text", Severity.ERROR)
def too_much_text(subject: TopologySubject) -> Iterator[Violation]:
    """
    A description or metadata longer than servers accept.

    ## Why is this bad?
    Servers take 4 KiB of description and 128 KiB of metadata, keys and values
    together (server/stream.go, checkStreamCfg). They refuse the stream, and `apply`
    stops there. A description of that length is a document: keep it elsewhere.
    """
    seen: set[Path] = set()
    for physical in subject.physical:
        length = len(str(physical.fields.get("description", "")).encode())
        if length > _MAX_DESCRIPTION:
            at = subject.place(physical, "description")
            message = f"a description of {length:,} bytes, servers take {_MAX_DESCRIPTION:,}"
            if at not in seen:
                seen.add(at)
                yield Violation(at=at, message=message, hint="shorten it")
        length = sum(len(key.encode()) + len(value.encode()) for key, value in physical.fields["metadata"].items())
        if length > _MAX_METADATA - _SERVER_METADATA:
            at = subject.place(physical, "metadata")
            message = f"metadata of {length:,} bytes in all, servers take {_MAX_METADATA:,} with their own"
            if at not in seen:
                seen.add(at)
                yield Violation(at=at, message=message, hint="shorten it", on_key=True)
