"""Where rules send messages: destinations that are missing, wrong, not what they look like, or too new."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.mappings.entries import place, place_of, view, with_server
from vstream.lint.workspace import MappingForm
from vstream.subjects.algebra import PARTIAL_WILDCARD, SEPARATOR
from vstream.subjects.functions import ErrorKind, looks_like_call
from vstream.subjects.mapping_rules import MappingErrorKind
from vstream.subjects.transform import SubjectTransform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.workspace import MappingEntry, Workspace
    from vstream.subjects.mapping_rules import MappingError

_FIELD = {MappingForm.CONF: "destination", MappingForm.CLAIMS: "subject"}
_MARKER_AND_MORE = re.compile(r"\$[0-9]+[^0-9]")
_FUNCTIONS = (
    "wildcard, partition, random, split, splitFromLeft, splitFromRight, sliceFromLeft, sliceFromRight, left, right"
)


@rule("VS306", "missing-destination", Severity.ERROR)
def missing_destination(workspace: Workspace) -> Iterator[Violation]:
    """
    A destination has no subject.

    ## Why is this bad?
    `nats-server -t` accepts the file. The first message that the rule matches
    kills the server: it follows a nil pointer (server/accounts.go,
    selectMappedSubject; seen with 2.10 to 2.15). Any client that may publish can
    do that, again after each restart.
    """
    for block in workspace.blocks:
        for error in block.table.errors:
            if error.kind is not MappingErrorKind.PANICS:
                continue
            entry = block.entry(error.mapping)
            if entry.source not in view(block).faulty:
                yield Violation(
                    at=place_of(block, error),
                    message=f"no destination: `nats-server -t` accepts it, and the first publish to `{entry.source}` "
                    "crashes the server",
                    hint=f"add `{_FIELD[block.form]}: some.subject`",
                )


@rule("VS307", "bad-destination", Severity.ERROR)
def bad_destination(workspace: Workspace) -> Iterator[Violation]:
    """
    A destination does not go with its source, or calls a function wrongly.

    ## Why is this bad?
    The server does not start, and a reload keeps the old rules
    (server/subject_transform.go, NewSubjectTransform; server/sublist.go,
    ValidateMapping; all versions). Its own reason is shown beside ours: it is
    often no more than "invalid subject".
    """
    kinds = (MappingErrorKind.INVALID_DESTINATION, MappingErrorKind.INVALID_REMAINDER)
    for block in workspace.blocks:
        for error in block.table.errors:
            if error.kind in kinds:
                yield Violation(
                    at=place_of(block, error),
                    message=with_server(error.message, error.server_message),
                    hint=_hint(error),
                )


def _hint(error: MappingError) -> str:
    source = error.mapping.source
    count = source.split(SEPARATOR).count(PARTIAL_WILDCARD)
    numbers = {0: "there is none", 1: "number 1"}.get(count, f"they are numbered 1 to {count}")
    match error.transform.kind if error.transform else None:
        case ErrorKind.INDEX_OUT_OF_RANGE:
            return f"count the `*` of `{source}`: {numbers}"
        case ErrorKind.UNKNOWN_FUNCTION:
            return f"the functions are {_FUNCTIONS}"
        case ErrorKind.NOT_ENOUGH_ARGUMENTS | ErrorKind.TOO_MANY_ARGUMENTS | ErrorKind.INVALID_ARGUMENT:
            return "functions are called as in `{{wildcard(1)}}`, `{{partition(10,1,2)}}` and `{{splitFromLeft(1,3)}}`"
        case _:
            return "end both in `>` or neither, and write `{{wildcard(1)}}` for the first `*` of the source"


@rule("VS308", "literal-function", Severity.WARNING)
def literal_function(workspace: Workspace) -> Iterator[Violation]:
    """
    What looks like a mapping function is taken as plain text.

    ## Why is this bad?
    The server replaces a token only if it is a function call and nothing else.
    `{{wildcard(1)}}-read` is no call: messages go to a subject with braces in its
    name, and no wildcard is replaced (server/subject_transform.go,
    indexPlaceHolders; all versions). A source has no functions at all.
    """
    for block in workspace.blocks:
        for entry in view(block).accepted:
            for token in _literal_calls(entry.source, is_source=True):
                yield Violation(
                    at=entry.key_span,
                    message=f"`{token}` is plain text in a source: only messages with these braces match",
                    hint="write `*` for any one token",
                )
            for written_destination in entry.destinations:
                for token in _literal_calls(written_destination.model.subject, is_source=False):
                    yield Violation(
                        at=place(written_destination),
                        message=f"`{token}` is plain text: a function is replaced only if it is a whole token",
                        hint="give the function a token of its own, between dots",
                    )


def _literal_calls(subject: str, *, is_source: bool) -> Iterator[str]:
    if "{{" in subject or "$" in subject:
        for token in subject.split(SEPARATOR):
            is_call = looks_like_call(token)
            if ("{{" in token and (is_source or not is_call)) or (not is_source and _MARKER_AND_MORE.match(token)):
                yield token


@rule("VS309", "function-too-new", Severity.ERROR)
def function_too_new(workspace: Workspace) -> Iterator[Violation]:
    """
    A destination uses a function that the oldest server does not know.

    ## Why is this bad?
    That server does not start with the file, and refuses to reload it. In
    mappings, `random`, `partition` without wildcards, and functions with a source
    that has no `*` are taken since 2.12, `left` and `right` since 2.15
    (server/subject_transform.go). If no version is stated, 2.10 is assumed, and the
    finding is a note.
    """
    oldest = workspace.server_version
    is_stated = workspace.stated_version is not None
    for block in workspace.blocks:
        for entry in view(block).accepted:
            for written_destination in entry.destinations:
                transform = _transform(entry, written_destination.model.subject)
                if transform is not None and transform.since[:2] > oldest:
                    since = f"{transform.since[0]}.{transform.since[1]}"
                    yield Violation(
                        at=place(written_destination),
                        message=f"`{written_destination.model.subject}` needs nats-server {since}"
                        + (f", and the oldest is {oldest[0]}.{oldest[1]}" if is_stated else ""),
                        hint=f"state a newer server version if all servers are at least {since}, "
                        "or use `partition` with wildcards",
                        severity=None if is_stated else Severity.NOTE,
                    )


def _transform(entry: MappingEntry, destination: str) -> SubjectTransform | None:
    calls = destination.count("{{")
    if not calls or (calls == destination.count("{{wildcard(") and PARTIAL_WILDCARD in entry.source):
        return None  # `wildcard` is as old as clusters in mappings, and by far the most frequent.
    parsed = SubjectTransform.parse(entry.source, destination)
    return parsed if isinstance(parsed, SubjectTransform) else None


@rule("VS310", "duplicate-destination", Severity.ERROR)
def duplicate_destination(workspace: Workspace) -> Iterator[Violation]:
    """
    A rule names one destination twice.

    ## Why is this bad?
    The server refuses it even if the two are for different clusters: two clusters
    cannot share a destination (server/accounts.go, AddWeightedMappings; all
    versions). In account claims, servers up to 2.14 drop the rule silently
    (nats-server#8468).
    """
    for block in workspace.blocks:
        for error in block.table.errors:
            if error.kind is MappingErrorKind.DUPLICATE_DESTINATION:
                yield Violation(
                    at=place_of(block, error),
                    message=with_server(error.message, error.server_message),
                    hint="give each cluster a subject of its own, and let the stream listen on both; "
                    "one destination without a cluster serves all clusters that are not named",
                )
