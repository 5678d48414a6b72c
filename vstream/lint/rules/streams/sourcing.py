"""Sources and mirrors: how one stream copies messages from another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations, count

from vstream.findings import Edit, Severity, Span
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.streams.values import (
    ANYTHING,
    SourceEntry,
    has_flag,
    read_limit,
    read_mirror,
    read_sources,
    read_strings,
    read_table,
)
from vstream.lint.workspace import StreamFile, Workspace
from vstream.subjects import algebra
from vstream.subjects.functions import FUNCTION

_WILDCARD = re.compile(r"\{\{\s*[wW]ild[cC]ard\s*\(\s*([0-9]{1,3})\s*\)\s*\}\}|\$([0-9]{1,3})")


@rule("VS205", "filter-with-stream-transform", Severity.ERROR)
def filter_with_stream_transform(workspace: Workspace) -> Iterator[Violation]:
    """
    A source has a `filter_subject`, and the stream renames what it filters.

    ## Why is this bad?
    After a restart, a server looks for stored messages that match the source's filter to find out where the source
    stopped. They are stored under their new subjects, so none matches: the whole source is stored a second time, or, if
    its first message has been removed, messages that have not arrived yet are skipped for ever. `lag` is 0 in both
    cases. This happens from 2.11.12, 2.12.3 and 2.14.0 on at each restart or change of leader (6 messages become 12),
    on 2.15 after a crash, and on older servers once, when they are upgraded (server/stream.go,
    startingSequenceForSources).

    If you change the transforms of an existing stream, it sources everything again: start each source with
    `opt_start_seq`, or create the stream again.
    """
    for stream in workspace.streams:
        transform = read_table(stream, "subject_transform")
        source, destination = transform.get("src") or ANYTHING, transform.get("dest")
        if not isinstance(source, str) or not isinstance(destination, str):
            continue
        fix = _move_into_sources(stream, source, destination)
        for each_source in read_sources(stream):
            filtered = each_source.filter_subject
            if not filtered or not algebra.overlaps(source, filtered):
                continue
            if algebra.is_subset(FUNCTION.sub("*", destination), filtered):
                continue  # What is stored still matches the filter.
            way_out = json.dumps(
                [{"src": filtered, "dest": _rename_hint(filtered, source, destination) or destination}]
            )
            yield Violation(
                at=stream.locate(*each_source.path, "filter_subject"),
                message=f"`{each_source.name}` is filtered by `{filtered}`, but stored as `{destination}`: after a restart, all messages are stored again",
                hint=f'replace the filter by `"subject_transforms": {way_out}`, and remove `subject_transform`',
                fix=fix,
            )
            fix = ()  # One set of edits mends all sources of the stream.


@rule("VS206", "filter-and-transforms", Severity.ERROR)
def filter_and_transforms(workspace: Workspace) -> Iterator[Violation]:
    """
    A source has both a `filter_subject` and `subject_transforms`.

    ## Why is this bad?
    Servers refuse it: `source with multiple subject transforms cannot also have a single subject filter` (400, 10144),
    for a mirror 10150. The `src` of a transform is already a filter. All versions from 2.10 (server/stream.go,
    checkStreamCfg).
    """
    for stream in workspace.streams:
        mirrored = read_mirror(stream)
        for source in [*read_sources(stream), *([mirrored] if mirrored else [])]:
            if source.filter_subject and source.transforms:
                yield Violation(
                    at=stream.key_at(*source.path, "filter_subject"),
                    message=f"`{source.name}` has a `filter_subject` and `subject_transforms`: servers refuse both",
                    hint="remove `filter_subject`: the `src` of a transform also filters",
                )


@rule("VS207", "sourced-twice", Severity.ERROR)
def sourced_twice(workspace: Workspace) -> Iterator[Violation]:
    """
    A stream sources the same messages twice.

    ## Why is this bad?
    A read stream with its own subjects stores messages that no other region gets, or a second copy of messages that it
    also sources. Two equal sources are refused: `duplicate source configuration detected` (400, 10140). Two different
    sources that overlap are accepted, and each message that matches both is stored twice. All versions
    (server/stream.go, composeIName).
    """
    for stream in workspace.streams:
        # What is rendered may carry the virtual name in an account where nobody publishes.
        is_beside = stream.config.name == f"{stream.virtual}-read-{stream.region}"
        if is_beside and read_strings(stream, "subjects") and read_sources(stream):
            yield Violation(
                at=stream.key_at("subjects"),
                message=f"`{stream.config.name}` stores publishes besides: in this region alone, or a second time",
                hint="remove `subjects`: a read stream stores only what it sources",
            )
        by_name: dict[tuple[str, str], list[SourceEntry]] = {}
        for source in read_sources(stream):
            by_name.setdefault((source.name, json.dumps(source.api)), []).append(source)
        for same in by_name.values():
            for first, second in combinations(same[:50], 2):
                both = _find_overlap(first, second)
                if both is None:
                    continue
                is_equal = _copy_key(first) == _copy_key(second)
                refused = "servers refuse it" if is_equal else f"a message on `{both}` is stored twice"
                yield Violation(
                    at=stream.locate(*second.path, "name"),
                    message=f"`{second.name}` is sourced twice: {refused}",
                    hint="remove one of the sources, or give them filters that do not overlap",
                )
                break


@rule("VS208", "mirror-conflict", Severity.ERROR)
def mirror_conflict(workspace: Workspace) -> Iterator[Violation]:
    """
    A mirror has a setting that mirrors cannot have.

    ## Why is this bad?
    A mirror is an exact copy, so servers refuse one with subjects (10034), sources
    (10031), a `first_seq` (10143), counters, atomic or fast batches, schedules or
    delete markers. All versions that know the field (server/stream.go, checkStreamCfg).
    """
    for stream in workspace.streams:
        mirrored = read_mirror(stream)
        if mirrored is None:
            continue
        switches = ("allow_msg_counter", "allow_atomic", "allow_batched", "allow_msg_schedules")
        refused = [
            *(field for field in ("subjects", "sources") if stream.config.fields.get(field)),
            *(field for field in ("first_seq", "subject_delete_marker_ttl") if read_limit(stream, field)),
            *(field for field in switches if has_flag(stream, field)),
        ]
        for field in refused:
            yield Violation(
                at=stream.key_at(field),
                message=f"a mirror cannot have `{field}`: servers refuse it",
                hint=f"remove `{field}`, or use a source instead of a mirror",
            )


@rule("VS209", "schedules-on-read-stream", Severity.ERROR)
def schedules_on_read_stream(workspace: Workspace) -> Iterator[Violation]:
    """
    A stream with sources allows message schedules.

    ## Why is this bad?
    Servers refuse it: `stream source can not also schedule messages` (400, 10187). The schedule would fire in each
    region. Put the schedules into the write stream. From 2.12 on (server/stream.go, checkStreamCfg).
    """
    for stream in workspace.streams:
        if has_flag(stream, "allow_msg_schedules") and read_sources(stream):
            span = stream.locate("allow_msg_schedules")
            yield Violation(
                at=span,
                message="a stream with sources cannot have message schedules: servers refuse it",
                hint="set `allow_msg_schedules` on the write stream only",
                fix=(Edit(span=span, text="false"),),
            )


def _copy_key(source: SourceEntry) -> tuple[object, ...]:
    """What tells two sources of one stream apart (server/stream.go, composeIName)."""
    return source.patterns, source.transforms, json.dumps(source.fields.get("consumer"))


def _find_overlap(first: SourceEntry, second: SourceEntry) -> str | None:
    """A pattern of *first* that overlaps a pattern of *second*, or None."""
    return next(
        (narrow for narrow in first.patterns if any(algebra.overlaps(narrow, wide) for wide in second.patterns)), None
    )


def _rename_hint(filtered: str, source: str, destination: str) -> str | None:
    """
    The destination that does to *filtered* what the transform from *source* to *destination* does.

    None if there is no such destination: not all of *filtered* is transformed, or a function other than `wildcard` is
    used.
    """
    if not algebra.is_subset(filtered, source):
        return None
    narrow, wide = filtered.split("."), source.split(".")
    placeholders = _list_placeholders(narrow)
    head = len(wide) - 1 if wide[-1] == ANYTHING else len(wide)
    stars = [placeholders[index] for index, part in enumerate(wide) if part == "*"]
    renamed: list[str] = []
    for part in destination.split("."):
        match = _WILDCARD.fullmatch(part)
        if part == ANYTHING:
            renamed.extend(placeholders[head:])
        elif match:
            position = int(match[1] or match[2])
            if not 1 <= position <= len(stars):
                return None
            renamed.append(stars[position - 1])
        elif FUNCTION.search(part):
            return None
        else:
            renamed.append(part)
    return ".".join(renamed)


def _list_placeholders(tokens: list[str]) -> list[str]:
    """*tokens* as a destination repeats them."""
    numbers = count(1)
    return [f"{{{{wildcard({next(numbers)})}}}}" if part == "*" else part for part in tokens]


def _move_into_sources(stream: StreamFile, source: str, destination: str) -> tuple[Edit, ...]:
    """The edits that move the stream's transform into its sources; none if the transform does more than that."""
    listed = stream.config.fields.get("sources")
    all_sources = read_sources(stream)
    if stream.config.fields.get("subjects") or not isinstance(listed, list) or len(all_sources) != len(listed):
        return ()
    edits = []
    for each_source in all_sources:
        renamed = _rename_hint(each_source.filter_subject, source, destination) if each_source.filter_subject else None
        if renamed is None or each_source.transforms:
            return ()
        path = (*each_source.path, "filter_subject")
        key, value = stream.key_at(*path), stream.locate(*path)
        text = json.dumps([{"src": each_source.filter_subject, "dest": renamed}])
        span = Span(key.file, key.line, key.column, value.end_line, value.end_column)
        edits.append(Edit(span=span, text=f'"subject_transforms": {text}'))
    return (*edits, Edit(span=_member(stream, "subject_transform"), text=""))


def _member(stream: StreamFile, field: str) -> Span:
    """The text of *field*, its value and the comma that has to go with them."""
    fields = list(stream.config.fields)
    index = fields.index(field)
    key, value = stream.key_at(field), stream.locate(field)
    if index + 1 < len(fields):
        following = stream.key_at(fields[index + 1])
        return Span(key.file, key.line, key.column, following.line, following.column)
    before = stream.locate(fields[index - 1])
    return Span(key.file, before.end_line, before.end_column, value.end_line, value.end_column)
