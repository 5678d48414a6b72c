"""Sources and destinations that servers refuse, misread or choose at random."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from vstream.findings import Related, Severity
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.mappings.entries import MAX_FINDINGS, find_errors, view_block, with_server_wording
from vstream.lint.workspace import MappingEntry, MappingForm, MappingsBlock, Workspace
from vstream.subjects.algebra import PARTIAL_WILDCARD, SEPARATOR, example_of_overlap, is_literal
from vstream.subjects.compile_mapping import MappingError, MappingErrorKind
from vstream.subjects.functions import ErrorKind, looks_like_call
from vstream.subjects.transform import SubjectTransform, effective_source

_FIELD = {MappingForm.CONF: "destination", MappingForm.CLAIMS: "subject"}
_MARKER_AND_MORE = re.compile(r"\$[0-9]+[^0-9]")
_NO_PARTITION = re.compile(r"\{\{\s*[pP]artition\s*\(\s*0+\s*[,)]")
_SURVIVES_SINCE = (2, 12)
"""Servers before divide by the number of partitions, whatever it is: seen with 2.10.26, and not with 2.12.8."""
_FUNCTIONS = (
    "wildcard, partition, random, split, splitFromLeft, splitFromRight, sliceFromLeft, sliceFromRight, left, right"
)


@rule("VS306", "missing-destination", Severity.ERROR)
def missing_destination(workspace: Workspace) -> Iterator[Violation]:
    """
    A destination has no subject.

    ## Why is this bad?
    `nats-server -t` accepts the file. The first message that the rule matches crashes the server: it dereferences a nil
    pointer (server/accounts.go, selectMappedSubject; seen with 2.10 to 2.15). Any client that may publish can trigger
    this, again after each restart.
    """
    for block in workspace.blocks:
        for error in block.table.errors:
            if error.kind is not MappingErrorKind.PANICS:
                continue
            entry = block.entry(error.mapping)
            if entry.source not in view_block(block).faulty:
                yield Violation(
                    at=block.locate_error(error),
                    message=f"no destination: `nats-server -t` accepts this, but the first publish to `{entry.source}` crashes the server",
                    hint=f"add `{_FIELD[block.form]}: some.subject`",
                )


@rule("VS307", "bad-destination", Severity.ERROR)
def bad_destination(workspace: Workspace) -> Iterator[Violation]:
    """
    A destination does not fit its source, or calls a function incorrectly.

    ## Why is this bad?
    The server does not start, and a reload keeps the old rules (server/subject_transform.go, NewSubjectTransform;
    server/sublist.go, ValidateMapping; all versions). The finding also shows the server's own message, which is often
    just "invalid subject". `partition(0,…)` is accepted, and before 2.12 the first message crashes the server.
    """
    kinds = (MappingErrorKind.INVALID_DESTINATION, MappingErrorKind.INVALID_REMAINDER)
    for block in workspace.blocks:
        for error in block.table.errors:
            if error.kind in kinds:
                yield Violation(
                    at=block.locate_error(error),
                    message=with_server_wording(error.message, error.server_message),
                    hint=_write_hint(error),
                )
        for entry in view_block(block).accepted:
            for destination in entry.destinations:
                if _NO_PARTITION.search(destination.model.subject):
                    is_new = (workspace.stated_version or (0, 0)) >= _SURVIVES_SINCE
                    effect = (
                        "every message goes to number 0" if is_new else "servers before 2.12 crash at the first message"
                    )
                    yield Violation(
                        at=destination.locate(),
                        message=f"0 partitions in `{destination.model.subject}`: {effect}",
                        hint="write the number of partitions, such as `{{partition(10,1)}}`",
                        severity=Severity.WARNING if is_new else None,
                    )


def _write_hint(error: MappingError) -> str:
    source = error.mapping.source
    count = source.split(SEPARATOR).count(PARTIAL_WILDCARD)
    numbers = {0: "there is none", 1: "number 1"}.get(count, f"they are numbered 1 to {count}")
    match error.transform.kind if error.transform else None:
        case ErrorKind.INDEX_OUT_OF_RANGE:
            return f"count the `*` of `{source}`: {numbers}"
        case ErrorKind.UNKNOWN_FUNCTION:
            return f"the functions are {_FUNCTIONS}"
        case ErrorKind.NOT_ENOUGH_ARGUMENTS | ErrorKind.TOO_MANY_ARGUMENTS | ErrorKind.INVALID_ARGUMENT:
            return "write functions like `{{wildcard(1)}}`, `{{partition(10,1,2)}}` and `{{splitFromLeft(1,3)}}`"
        case _:
            return "end both or neither in `>`, and write `{{wildcard(1)}}` for the first `*` of the source"


@rule("VS308", "literal-function", Severity.WARNING)
def literal_function(workspace: Workspace) -> Iterator[Violation]:
    """
    Text that looks like a mapping function is treated as plain text.

    ## Why is this bad?
    The server replaces a token only if the whole token is a function call. `{{wildcard(1)}}-read` is not: messages go
    to a subject with braces in its name, and no wildcard is replaced (server/subject_transform.go, indexPlaceHolders;
    all versions). A source cannot contain functions.
    """
    for block in workspace.blocks:
        for entry in view_block(block).accepted:
            for token in _list_literal_calls(entry.source, is_source=True):
                yield Violation(
                    at=entry.key_span,
                    message=f"`{token}` is plain text in a source: it matches only messages with these braces",
                    hint="write `*` to match any token",
                )
            for written_destination in entry.destinations:
                for token in _list_literal_calls(written_destination.model.subject, is_source=False):
                    yield Violation(
                        at=written_destination.locate(),
                        message=f"`{token}` is plain text: a function must be a whole token",
                        hint="put the function between dots",
                    )


def _list_literal_calls(subject: str, *, is_source: bool) -> Iterator[str]:
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
    That server does not start with the file, and refuses to reload it. In mappings, servers accept `random`,
    `partition` without wildcards, and functions with a source without `*` since 2.12, and `left` and `right` since 2.15
    (server/subject_transform.go). If no version is set, 2.10 is assumed, and the finding is a note.
    """
    oldest = workspace.server_version
    is_stated = workspace.stated_version is not None
    for block in workspace.blocks:
        for entry in view_block(block).accepted:
            for written_destination in entry.destinations:
                transform = _make_transform(entry, written_destination.model.subject)
                if transform is not None and transform.since[:2] > oldest:
                    since = f"{transform.since[0]}.{transform.since[1]}"
                    yield Violation(
                        at=written_destination.locate(),
                        message=f"`{written_destination.model.subject}` needs nats-server {since}"
                        + (f", and the oldest is {oldest[0]}.{oldest[1]}" if is_stated else ""),
                        hint=f"raise the server version if all servers are at least {since}, or use `partition` with wildcards",
                        severity=None if is_stated else Severity.NOTE,
                    )


def _make_transform(entry: MappingEntry, destination: str) -> SubjectTransform | None:
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
    hint = "give each cluster its own subject, and add both to the stream; a destination without `cluster` serves all clusters that are not listed"
    yield from find_errors(workspace, MappingErrorKind.DUPLICATE_DESTINATION, hint)


_MAX_CLUSTERS = 64
"""The maximum number of clusters in which two rules are compared; beyond it they count as different."""


@rule("VS302", "overlapping-sources", Severity.ERROR)
def overlapping_sources(workspace: Workspace) -> Iterator[Violation]:
    """
    Two rules match the same message.

    ## Why is this bad?
    The server tries the rules of an account in order and uses the first that matches. Their order is that of a Go map:
    random, and different at each start and reload (server/opts.go, parseAccountMappings; server/accounts.go,
    selectMappedSubject; all versions). `orders.>` beside `orders.eu.>` was chosen in 22 of 24 starts. The most specific
    rule does not win.

    If both rules map the example to the same subject in every cluster, the finding is a warning.
    """
    for block in workspace.blocks:
        for first, second in islice(block.table.overlapping(), MAX_FINDINGS):
            pair = sorted((block.entry(first), block.entry(second)), key=lambda entry: entry.key_span)
            yield _make_overlap_violation(block, *pair)


def _candidates_agree(block: MappingsBlock, example: str, cluster: str) -> bool:
    """Whether a publish on *example* has the same outcomes in *cluster* by whichever rule the server uses."""
    outcomes = set()
    for candidate in block.table.resolve(example, cluster).candidates:
        outcomes.add(tuple((outcome.subject, outcome.probability_percent) for outcome in candidate.outcomes))
    return len(outcomes) <= 1


def _make_overlap_violation(block: MappingsBlock, first: MappingEntry, second: MappingEntry) -> Violation:
    example = example_of_overlap(effective_source(first.source), effective_source(second.source)) or ""
    names = sorted(first.clusters | second.clusters | {""})
    same = (
        len(names) <= _MAX_CLUSTERS
        and is_literal(example)
        and all(_candidates_agree(block, example, cluster) for cluster in names)
    )
    return Violation(
        at=second.key_span,
        message=f"`{second.source}` and `{first.source}` both match `{example}`: each start of a server chooses one of them at random",
        hint="make the sources disjoint" + (", or keep only one rule: both do the same" if same else ""),
        related=(Related(span=first.key_span, message="the other rule"),),
        severity=Severity.WARNING if same else None,
    )


@rule("VS303", "duplicate-source", Severity.ERROR)
def duplicate_source(workspace: Workspace) -> Iterator[Violation]:
    """
    A source is written twice in one block.

    ## Why is this bad?
    The later rule replaces the earlier one, and `nats-server -t` says nothing
    (conf/parse.go keeps a map; all versions). Clusters that only the earlier rule
    names are no longer mapped.
    """
    for block in workspace.blocks:
        seen: dict[str, MappingEntry] = {}
        for entry in block.entries:
            earlier = seen.get(entry.source)
            seen[entry.source] = entry
            if earlier is not None:
                line = earlier.key_span.line
                yield Violation(
                    at=entry.key_span,
                    message=f"`{entry.source}` is mapped a second time: the rule in line {line} is silently replaced",
                    hint="put all destinations of a source into one rule",
                    related=(Related(span=earlier.key_span, message="this rule has no effect"),),
                )


@rule("VS304", "invalid-source", Severity.ERROR)
def invalid_source(workspace: Workspace) -> Iterator[Violation]:
    """
    A source is not a valid subject.

    ## Why is this bad?
    The server does not start, and a reload keeps the old rules (server/opts.go,
    parseAccountMappings; all versions).
    """
    hint = "tokens are separated by single dots and contain no spaces; `>` comes last"
    yield from find_errors(workspace, MappingErrorKind.INVALID_SOURCE, hint)


@rule("VS305", "unreadable-rule", Severity.ERROR)
def unreadable_rule(workspace: Workspace) -> Iterator[Violation]:
    """
    The server cannot read a rule: an unknown field, no weight, a value of the wrong kind.

    ## Why is this bad?
    The server does not start, and a reload keeps the old rules (server/opts.go,
    parseAccountMapDest; all versions). In account claims, the resolver refuses them.
    """
    for block in workspace.blocks:
        faults = [block.fault] if block.fault else []
        for entry in view_block(block).entries:
            faults.extend(entry.list_faults())
        for fault in faults:
            yield Violation(
                at=fault.span, message=with_server_wording(fault.message, fault.server_message), hint=fault.hint
            )
