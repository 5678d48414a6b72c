"""VS244: fields of a stream that servers refuse together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

from vstream.findings import Severity
from vstream.lint.api_fields import FieldPath
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.streams.storage import find_misfits
from vstream.lint.rules.streams.values import FORBIDDEN, find_long_texts, locate_field, read_integer
from vstream.lint.workspace import StreamRole, Workspace
from vstream.subjects.algebra import is_literal, is_subset, is_valid, overlaps
from vstream.subjects.functions import TransformError
from vstream.subjects.transform import SubjectTransform
from vstream.syntax.document import object_or_empty

Refusal = tuple[FieldPath, str, str]

_SERVERS_OWN = {"$JS.>": "$JS.EVENT.>", "$JSC.>": None, "$NRG.>": None, "$SYS.>": "$SYS.ACCOUNT.>"}
"""Subjects of the servers, and what of each a stream may hold all the same."""
_EVERYTHING = ">"
_API = "$JS.API"


@rule("VS244", "refused-stream", Severity.ERROR)
def refused_stream(workspace: Workspace) -> Iterator[Violation]:
    """
    Fields of a stream contradict each other.

    ## Why is this bad?
    Servers refuse the stream, most often with error 10052: roll-ups need the right to purge, `discard_new_per_subject`
    needs `discard: new`, an asynchronous stream has one replica, a stream that captures `>` cannot acknowledge
    publishes, and subjects and transforms must be valid (server/stream.go, checkStreamCfg; all versions that know the
    fields). If the files contain server configurations, replicas need a cluster (10074), `max_bytes` needs a server
    with that much space (10047), and what accounts and servers limit counts: `max_bytes` that must be stated (10113) or
    is too large for one stream (10122) or with the streams beside it (10047), and the number of streams (10027).
    """
    for stream in workspace.streams:
        # VS233 is about asynchronous write streams, and says more.
        checks = (*_CHECKS, _check_persistence) if stream.role is not StreamRole.WRITE else _CHECKS
        for check in checks:
            for path, message, hint in check(stream.config.fields):
                yield Violation(at=stream.locate(*path), message=f"{message}: servers refuse the stream", hint=hint)
    for stream, path, message, hint in find_misfits(workspace):
        yield Violation(at=locate_field(stream, *path), message=f"{message}: servers refuse the stream", hint=hint)


def _check_subjects(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    subjects = fields.get("subjects")
    has_ack = not fields.get("no_ack")
    for index, subject in enumerate(subjects if isinstance(subjects, list) else ()):
        path, hint = ("subjects", index), "list the subjects that it is for"
        if not isinstance(subject, str):
            continue
        if not is_valid(subject):
            yield path, f"`{subject}` is not a subject", "write tokens between single dots, `>` at the end"
        elif subject == _EVERYTHING and has_ack:
            yield path, "a stream of `>` cannot acknowledge publishes", hint
        elif subject == _EVERYTHING and read_integer(fields, "num_replicas") > 1:
            yield ("num_replicas",), "a stream of `>` has one replica", f"write 1, or {hint}"
        elif has_ack and _takes_servers_own(subject):
            yield path, f"`{subject}` captures the servers' own messages", hint


def _takes_servers_own(subject: str) -> bool:
    exceptions = [free for reserved, free in _SERVERS_OWN.items() if overlaps(subject, reserved)]
    return any(free is None or not is_subset(subject, free) for free in exceptions)


def _check_flags(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    if fields.get("sealed") is True:
        yield ("sealed",), "a new stream cannot be sealed", "remove `sealed`, and seal the stream when it is full"
    if fields.get("allow_rollup_hdrs") is True and fields.get("deny_purge") is True:
        yield ("allow_rollup_hdrs",), "roll-ups purge messages, but `deny_purge` forbids that", "remove one of the two"
    if fields.get("mirror_direct") is True and not fields.get("mirror"):
        message = "`mirror_direct` is for mirrors, and this stream is not one"
        yield ("mirror_direct",), message, "write `allow_direct` instead"
    if fields.get("discard_new_per_subject") is True:
        if fields.get("discard") != "new":
            yield ("discard_new_per_subject",), "it needs `discard: new`", 'write `"discard": "new"`'
        elif read_integer(fields, "max_msgs_per_subject") <= 0:
            yield ("discard_new_per_subject",), "it needs `max_msgs_per_subject`", 'add `"max_msgs_per_subject": 1`'
    if fields.get("allow_msg_schedules") is True and fields.get("discard") == "new":
        yield ("discard",), "message schedules cannot be combined with `discard: new`", 'write `"discard": "old"`'
    if object_or_empty(fields.get("placement")).get("preferred"):
        yield ("placement", "preferred"), "a new stream cannot have a preferred server", "remove `preferred`"


def _check_limits(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    for name, message, hint in find_long_texts(dict(fields)):
        yield (name,), message, hint
    for name in ("max_age", "subject_delete_marker_ttl"):
        if read_integer(fields, name) < 0:
            yield (name,), f"`{name}` is negative", "write 0 for none"


def _check_transforms(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    copies = read_integer(fields, "num_replicas")
    if copies < 0:
        yield ("num_replicas",), f"there cannot be {copies} replicas", "write 1, 3 or 5"
    for name in ("republish", "subject_transform"):
        yield from _check_transform((name,), fields.get(name))


def _check_persistence(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    if fields.get("persist_mode") != "async":
        return
    replicas = read_integer(fields, "num_replicas")
    if fields.get("storage") == "memory":
        yield ("persist_mode",), "`async` needs file storage, but the stream is in memory", "remove `persist_mode`"
    elif replicas > 1:
        yield ("persist_mode",), f"`async` needs a single replica, but there are {replicas}", "remove `persist_mode`"
    elif fields.get("allow_atomic") is True:
        yield ("persist_mode",), "`async` cannot be combined with atomic batches", "remove `persist_mode`"


def _check_counter(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    # VS208 says that a mirror is no counter.
    if fields.get("allow_msg_counter") is not True or fields.get("mirror"):
        return
    if fields.get("allow_msg_ttl") is True:
        yield ("allow_msg_ttl",), "counters cannot have message TTLs", "remove `allow_msg_ttl`"
    if fields.get("discard") == "new":
        yield ("discard",), "counters cannot be combined with `discard: new`", 'write `"discard": "old"`'
    if fields.get("allow_msg_schedules") is True:
        yield ("allow_msg_schedules",), "counters cannot have message schedules", "remove `allow_msg_schedules`"
    if fields.get("retention", "limits") not in {"limits", 0}:
        yield ("retention",), "counters need `retention: limits`", 'write `"retention": "limits"`'


def _check_sources(fields: Mapping[str, Any]) -> Iterator[Refusal]:
    sources = fields.get("sources")
    listed = [(("sources", index), source) for index, source in enumerate(sources if isinstance(sources, list) else ())]
    places: list[tuple[FieldPath, Any]] = [*listed, (("mirror",), fields.get("mirror"))]
    for path, source in places:
        if not isinstance(source, dict):
            continue
        name, filtered, external = (source.get(field) for field in ("name", "filter_subject", "external"))
        if not name:
            yield path, "the source has no `name`", "add the name of the stream"
        elif isinstance(name, str) and FORBIDDEN.intersection(name) and (path[0] == "sources" or not external):
            yield (*path, "name"), f"`{name}` is not the name of a stream", "use letters, digits, `-` and `_`"
        if isinstance(filtered, str) and filtered and not is_valid(filtered):
            hint = "write tokens between single dots, `>` at the end"
            yield (*path, "filter_subject"), f"`{filtered}` is not a subject", hint
        if isinstance(external, dict):
            yield from _check_external((*path, "external"), external)
        yield from _check_durable(path, source)
        transforms = source.get("subject_transforms")
        for index, transform in enumerate(transforms if isinstance(transforms, list) else ()):
            yield from _check_transform((*path, "subject_transforms", index), transform)
        yield from _check_overlap((*path, "subject_transforms"), transforms, is_mirror=path[0] == "mirror")


def _check_external(path: FieldPath, external: Mapping[str, Any]) -> Iterator[Refusal]:
    api, deliver = external.get("api"), external.get("deliver")
    if isinstance(api, str) and api and not is_literal(api):
        is_extended = is_literal(api.removesuffix(".>"))
        hint = f"write `{api.removesuffix('.>')}`" if is_extended else "write a prefix such as `$JS.hub.API`"
        yield (*path, "api"), f"`{api}` is not the prefix of an API", hint
    elif api == _API:
        yield (*path, "api"), f"`{_API}` is the API of this account itself", "write a prefix such as `$JS.hub.API`"
    if isinstance(deliver, str) and deliver and not is_literal(deliver):
        yield (*path, "deliver"), f"`{deliver}` is not a prefix of subjects", "write a subject without wildcards"


def _check_durable(path: FieldPath, source: Mapping[str, Any]) -> Iterator[Refusal]:
    consumer = source.get("consumer")
    if not isinstance(consumer, dict):
        return
    name, target = consumer.get("name"), consumer.get("deliver_subject")
    if not isinstance(name, str) or not name or FORBIDDEN.intersection(name):
        yield (*path, "consumer"), "the consumer needs a `name`", "add the name of the durable consumer"
    if not isinstance(target, str) or not is_literal(target):
        yield (*path, "consumer"), "the consumer needs a `deliver_subject` without wildcards", "add it"
    for field in ("opt_start_seq", "opt_start_time", "filter_subject"):
        if source.get(field):
            yield (*path, field), f"`{field}` cannot be combined with a consumer, which has its own", "remove it"


def _check_overlap(path: FieldPath, transforms: Any, *, is_mirror: bool) -> Iterator[Refusal]:
    """Of a mirror, what transforms take must not overlap; of a source, one must not take all that another takes."""
    listed = transforms if isinstance(transforms, list) else []
    patterns = [object_or_empty(transform).get("src") for transform in listed]
    subjects = [subject for subject in patterns if isinstance(subject, str) and is_valid(subject)]
    for left, right in combinations(subjects, 2):
        if is_subset(left, right) or is_subset(right, left) or (is_mirror and overlaps(left, right)):
            hint = "let each transform take subjects that no other one takes"
            yield path, f"the transforms of `{left}` and `{right}` overlap", hint
            return


def _check_transform(path: FieldPath, transform: Any) -> Iterator[Refusal]:
    source, destination = (object_or_empty(transform).get(name) for name in ("src", "dest"))
    if not isinstance(source, str) or not isinstance(destination, str) or not destination:
        return
    parsed = SubjectTransform.parse(source or _EVERYTHING, destination)
    if isinstance(parsed, TransformError):
        message = f"`{destination}` cannot be made of `{source}`, {parsed.message}"
        yield (*path, "dest"), message, "name the wildcards of `src` by their numbers, from 1 on"


_CHECKS: tuple[Callable[[Mapping[str, Any]], Iterator[Refusal]], ...] = (
    _check_subjects,
    _check_flags,
    _check_limits,
    _check_counter,
    _check_sources,
    _check_transforms,
)
