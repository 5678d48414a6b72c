"""What a block maps: sources that the server refuses, forgets, or chooses among by chance."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from vstream.diagnostics import Related, Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.mappings.entries import MANY, place_of, view, with_server
from vstream.subjects.algebra import example_of_overlap, is_literal
from vstream.subjects.mapping_rules import MappingErrorKind
from vstream.subjects.transform import effective_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.workspace import MappingEntry, MappingsBlock, Workspace

_FEW_CLUSTERS = 64
"""In how many clusters two rules are compared before they are taken to differ."""


@rule("VS302", "overlapping-sources", Severity.ERROR)
def overlapping_sources(workspace: Workspace) -> Iterator[Violation]:
    """
    Two rules match the same message.

    ## Why is this bad?
    The server walks the rules of an account in turn and takes the first that
    matches, and their order is that of a Go map: random, and different at each
    start and reload (server/opts.go, parseAccountMappings; server/accounts.go,
    selectMappedSubject; all versions). `orders.>` beside `orders.eu.>` was chosen
    in 22 of 24 starts. The most specific rule does not win.

    Where the rules give today's example the same subject in every cluster, the
    finding is a warning.
    """
    for block in workspace.blocks:
        for first, second in islice(block.table.overlapping(), MANY):
            pair = sorted((block.entry(first), block.entry(second)), key=lambda entry: entry.key_span)
            yield _overlap(block, *pair)


def _overlap(block: MappingsBlock, first: MappingEntry, second: MappingEntry) -> Violation:
    example = example_of_overlap(effective_source(first.source), effective_source(second.source)) or ""
    names = sorted(first.clusters | second.clusters | {""})
    same = (
        len(names) <= _FEW_CLUSTERS
        and is_literal(example)
        and all(
            len(
                {
                    tuple((outcome.subject, outcome.probability_percent) for outcome in candidate.outcomes)
                    for candidate in candidates
                }
            )
            == 1
            for cluster in names
            if (candidates := block.table.resolve(example, cluster).candidates)
        )
    )
    return Violation(
        at=second.key_span,
        message=f"`{second.source}` and `{first.source}` both match `{example}`: "
        "which of them counts is drawn by lot at each start",
        hint="make the sources disjoint" + (", or keep one of the rules: they do the same" if same else ""),
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
                    message=f"`{entry.source}` is mapped a second time: the rule of line {line} is forgotten without a word",
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
    for block in workspace.blocks:
        for error in block.table.errors:
            if error.kind is MappingErrorKind.INVALID_SOURCE:
                yield Violation(
                    at=place_of(block, error),
                    message=with_server(error.message, error.server_message),
                    hint="tokens are separated by single dots and hold no spaces; `>` comes last",
                )


@rule("VS305", "unreadable-rule", Severity.ERROR)
def unreadable_rule(workspace: Workspace) -> Iterator[Violation]:
    """
    The server cannot read a rule: an unknown field, no weight, a value of the wrong kind.

    ## Why is this bad?
    The server does not start, and a reload keeps the old rules (server/opts.go,
    parseAccountMapDest; all versions). In account claims it is the resolver that
    refuses them.
    """
    for block in workspace.blocks:
        faults = [block.fault] if block.fault else []
        for entry in view(block).entries:
            faults.extend(entry.all_faults())
        for fault in faults:
            yield Violation(at=fault.span, message=with_server(fault.message, fault.server_message), hint=fault.hint)
