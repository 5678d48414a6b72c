"""VS244: fields of a stream that servers refuse together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.streams.storage import find_misfits
from vstream.lint.workspace import StreamRole
from vstream.subjects.algebra import has_wildcards, is_subset, is_valid, overlaps
from vstream.subjects.transform import SubjectTransform, TransformError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vstream.lint.rules.streams.api_fields import FieldPath
    from vstream.lint.workspace import Workspace

    Refusal = tuple[FieldPath, str, str]

_SERVERS_OWN = {"$JS.>": "$JS.EVENT.>", "$JSC.>": None, "$NRG.>": None, "$SYS.>": "$SYS.ACCOUNT.>"}
"""Subjects of the servers, and what of each a stream may hold all the same."""
_EVERYTHING = ">"


@rule("VS244", "refused-stream", Severity.ERROR)
def refused_stream(workspace: Workspace) -> Iterator[Violation]:
    """
    Fields of a stream contradict each other.

    ## Why is this bad?
    Servers refuse the stream, most often with error 10052: roll-ups need the right to purge, `discard_new_per_subject`
    needs `discard: new`, an asynchronous stream has one replica, who captures `>` cannot acknowledge, and subjects and
    transforms must be ones (server/stream.go, checkStreamCfg; all versions that know the fields). Beside the
    configurations of servers, replicas need a cluster (10074), and `max_bytes` a server that has as much (10047).
    """
    for stream in workspace.streams:
        # VS233 is about asynchronous write streams, and says more.
        checks = (*_CHECKS, _check_persistence) if stream.role is not StreamRole.WRITE else _CHECKS
        for check in checks:
            for path, message, hint in check(stream.config.fields):
                yield Violation(at=stream.at(*path), message=f"{message}: servers refuse the stream", hint=hint)
        for path, message, hint in find_misfits(workspace, stream.config.fields):
            yield Violation(at=stream.at(*path), message=f"{message}: servers refuse the stream", hint=hint)


def _check_subjects(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    subjects = fields.get("subjects")
    has_ack = not fields.get("no_ack")
    for index, subject in enumerate(subjects if isinstance(subjects, list) else ()):
        if not isinstance(subject, str):
            continue
        if not is_valid(subject):
            yield (
                ("subjects", index),
                f"`{subject}` is not a subject",
                "write tokens between single dots, `>` at the end",
            )
        elif subject == _EVERYTHING and has_ack:
            yield ("subjects", index), "a stream of `>` may not acknowledge", "list the subjects that it is for"
        elif has_ack and _takes_servers_own(subject):
            yield ("subjects", index), f"`{subject}` takes messages of the servers", "list the subjects that it is for"


def _takes_servers_own(subject: str) -> bool:
    exceptions = [free for reserved, free in _SERVERS_OWN.items() if overlaps(subject, reserved)]
    return any(free is None or not is_subset(subject, free) for free in exceptions)


def _check_flags(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    if fields.get("sealed") is True:
        yield ("sealed",), "a new stream cannot be sealed", "remove `sealed`, and seal the stream when it is full"
    if fields.get("allow_rollup_hdrs") is True and fields.get("deny_purge") is True:
        yield ("allow_rollup_hdrs",), "roll-ups purge, and `deny_purge` forbids it", "remove one of the two"
    if fields.get("mirror_direct") is True and not fields.get("mirror"):
        yield ("mirror_direct",), "`mirror_direct` is for mirrors, and this is none", "write `allow_direct` instead"
    if fields.get("discard_new_per_subject") is True:
        if fields.get("discard") != "new":
            yield ("discard_new_per_subject",), "it needs `discard: new`", 'write `"discard": "new"`'
        elif not _is_positive(fields.get("max_msgs_per_subject")):
            yield ("discard_new_per_subject",), "it needs `max_msgs_per_subject`", 'add `"max_msgs_per_subject": 1`'


def _check_republish(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    copies = fields.get("num_replicas")
    if isinstance(copies, int) and copies < 0:
        yield ("num_replicas",), f"there cannot be {copies} replicas", "write 1, 3 or 5"
    yield from _check_transform(("republish",), fields.get("republish"))


def _check_persistence(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    if fields.get("persist_mode") != "async":
        return
    replicas = fields.get("num_replicas")
    if isinstance(replicas, int) and replicas > 1:
        yield ("persist_mode",), f"`async` is for one replica, and there are {replicas}", "remove `persist_mode`"
    elif fields.get("allow_atomic") is True:
        yield ("persist_mode",), "`async` does not go with atomic batches", "remove `persist_mode`"


def _check_counter(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    if fields.get("allow_msg_counter") is not True:
        return
    if fields.get("allow_msg_ttl") is True:
        yield ("allow_msg_ttl",), "counters have no TTLs of messages", "remove `allow_msg_ttl`"
    if fields.get("discard") == "new":
        yield ("discard",), "counters cannot `discard: new`", 'write `"discard": "old"`'
    if fields.get("retention", "limits") not in {"limits", 0}:
        yield ("retention",), "counters need `retention: limits`", 'write `"retention": "limits"`'


def _check_sources(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    sources = fields.get("sources")
    listed = [(("sources", index), source) for index, source in enumerate(sources if isinstance(sources, list) else ())]
    places: list[tuple[FieldPath, Any]] = [*listed, (("mirror",), fields.get("mirror"))]
    for path, source in places:
        if not isinstance(source, dict):
            continue
        if not source.get("name"):
            yield path, "the source has no `name`", "add the name of the stream"
        external = source.get("external")
        api = external.get("api") if isinstance(external, dict) else None
        if isinstance(api, str) and (has_wildcards(api) or not is_valid(api)):
            hint = (
                f"write `{api.removesuffix('.>')}`"
                if is_valid(api.removesuffix(".>"))
                else "write a prefix such as `$JS.hub.API`"
            )
            yield (*path, "external", "api"), f"`{api}` is not the prefix of an API", hint
        transforms = source.get("subject_transforms")
        for index, transform in enumerate(transforms if isinstance(transforms, list) else ()):
            yield from _check_transform((*path, "subject_transforms", index), transform)


def _check_own_transform(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    yield from _check_transform(("subject_transform",), fields.get("subject_transform"))


def _check_transform(path: FieldPath, transform: Any) -> Iterator[Refusal]:
    source, destination = (
        (transform.get(name) for name in ("src", "dest")) if isinstance(transform, dict) else (None, None)
    )
    if not isinstance(source, str) or not isinstance(destination, str) or not destination:
        return
    parsed = SubjectTransform.parse(source or _EVERYTHING, destination)
    if isinstance(parsed, TransformError):
        message = f"`{destination}` cannot be made of `{source}`, {parsed.message}"
        yield (*path, "dest"), message, "name the wildcards of `src` by their numbers, from 1 on"


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and value > 0


_CHECKS: tuple[Callable[[Mapping[str, Any]], Iterator[Refusal]], ...] = (
    _check_subjects,
    _check_flags,
    _check_counter,
    _check_sources,
    _check_own_transform,
    _check_republish,
)
