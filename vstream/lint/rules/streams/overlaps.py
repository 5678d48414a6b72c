"""Streams that listen on the same subjects."""

from __future__ import annotations

import posixpath
from itertools import islice
from typing import TYPE_CHECKING

from vstream.diagnostics import Related, Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.streams.values import strings
from vstream.subjects.algebra import SubjectTrie, is_valid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.workspace import StreamFile, Workspace

_MOST = 50


@rule("VS235", "overlapping-streams", Severity.ERROR)
def overlapping_streams(workspace: Workspace) -> Iterator[Violation]:
    """
    Two subjects of streams overlap: of two streams in one directory, or of one stream.

    ## Why is this bad?
    Servers refuse the second stream (`subjects overlap with an existing stream`, 10065), and a stream whose own
    subjects overlap (10052). Streams in different directories may belong to different accounts; those that vstream
    rendered say where they belong, and are not compared (server/jetstream_cluster.go, server/stream.go; all versions).
    """
    directories: dict[str, list[StreamFile]] = {}
    for stream in workspace.streams:
        if stream.config.owner is None:
            directories.setdefault(posixpath.dirname(stream.file), []).append(stream)
    for streams in directories.values():
        places = [place for stream in streams for place in _places(stream)]
        pairs = SubjectTrie(subject for _, _, subject in places).overlapping_pairs()
        for earlier, later in islice(pairs, _MOST):
            yield from _overlap(places[later], places[earlier])


def _places(stream: StreamFile) -> Iterator[tuple[StreamFile, int, str]]:
    for index, subject in enumerate(strings(stream, "subjects")):
        if is_valid(subject):
            yield stream, index, subject


def _overlap(later: tuple[StreamFile, int, str], earlier: tuple[StreamFile, int, str]) -> Iterator[Violation]:
    stream, index, subject = later
    other_stream, other_index, other_subject = earlier
    related = (Related(span=other_stream.at("subjects", other_index), message="the other subject"),)
    at = stream.at("subjects", index)
    if stream is other_stream:
        hint = f"remove one of them: `{other_subject}` and `{subject}` may not both be there"
        yield Violation(
            at=at, message=f"`{subject}` overlaps with `{other_subject}` of the same stream", hint=hint, related=related
        )
    elif stream.config.name != other_stream.config.name:
        yield Violation(
            at=at,
            message=f"`{subject}` overlaps with `{other_subject}` of stream `{other_stream.config.name}`",
            hint="give each stream subjects of its own; to hold messages of another stream, source it",
            related=related,
        )
