"""VS248: the streams of key-value and object stores."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.streams.values import flag, number, place, strings, word
from vstream.lint.workspace import StreamFile, Workspace
from vstream.subjects.algebra import is_subset

_MOST_HISTORY = 64
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
        if prefix is not None and strings(stream, "subjects") and not is_copy:
            yield from _check(stream, prefix)


def _check(stream: StreamFile, prefix: str) -> Iterator[Violation]:
    bucket = stream.config.name.removeprefix(prefix)
    expected = [subject.format(bucket) for subject in _BUCKETS[prefix]]
    subjects = strings(stream, "subjects")
    missing = [subject for subject in expected if not any(is_subset(subject, stored) for stored in subjects)]
    if missing:
        yield Violation(
            at=stream.at("subjects"),
            message=f"the bucket `{bucket}` needs `{missing[0]}`, and the stream does not hold it",
            hint=f"add `{missing[0]}` to `subjects`, or give the stream the name of its bucket",
        )
    if not flag(stream, "allow_rollup_hdrs"):
        yield Violation(
            at=place(stream, "allow_rollup_hdrs"),
            message=f"the bucket `{bucket}` does not allow roll-ups: clients cannot purge keys or replace objects",
            hint='add `"allow_rollup_hdrs": true`',
        )
    if word(stream, "retention") in {"workqueue", "interest"}:
        yield Violation(
            at=stream.at("retention"),
            message=f"with this retention, the bucket `{bucket}` forgets what nobody waits for, or what one has read",
            hint='write `"retention": "limits"`',
        )
    limits = [name for name in ("max_bytes", "max_msgs") if number(stream, name) > 0]
    if prefix == "KV_" and limits and word(stream, "discard") != "new":
        yield Violation(
            at=place(stream, "discard"),
            message=f"with `{limits[0]}` and without `discard: new`, a full bucket forgets its oldest keys silently",
            hint='write `"discard": "new"`: writes then fail instead',
        )
    if prefix == "KV_" and number(stream, "max_msgs_per_subject") > _MOST_HISTORY:
        yield Violation(
            at=stream.at("max_msgs_per_subject"),
            message=f"a history of {number(stream, 'max_msgs_per_subject')}, and clients allow {_MOST_HISTORY}",
            hint=f"write {_MOST_HISTORY} or less",
        )
