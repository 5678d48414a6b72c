"""Rules for streams that need none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.mappings.entries import pattern, sources, view
from vstream.subjects.algebra import is_subset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.workspace import MappingEntry, Workspace


@rule("VS318", "origin-mapped", Severity.ERROR)
def origin_mapped(workspace: Workspace) -> Iterator[Violation]:
    """
    A rule maps the subjects or the name of a virtual stream that has an origin.

    ## Why is this bad?
    A `stretch` or `homed` stream is one stream that is really called like the virtual
    stream and really listens on its subjects. A rule that is left from another
    consistency model sends publishes and requests somewhere else. Only files that are
    checked against a topology (`--topology`) can show this.
    """
    topology = workspace.topology
    origins = [stream for stream in topology.streams if stream.consistency.has_origin] if topology else []
    names = {stream.name for stream in topology.streams if stream.has_namesake} if topology else set()
    for block in workspace.blocks if names else ():
        trie, entries = sources(block)
        mapped: dict[str, tuple[MappingEntry, str]] = {}
        for stream in origins:
            for subject in stream.subjects:
                for number in trie.overlapping(subject):
                    if not _stays(entries[number], stream.subjects):
                        mapped[entries[number].source] = (entries[number], stream.name)
        for api_rule in view(block).api:
            for name in sorted(api_rule.renames & names)[:1]:
                mapped[api_rule.entry.source] = (api_rule.entry, name)
        for entry, name in mapped.values():
            yield Violation(
                at=entry.key_span,
                message=f"`{entry.source}` is mapped, but `{name}` has "
                f"{'an origin' if name in {api_rule.name for api_rule in origins} else 'an order of that name'} that takes it as it is",
                hint="remove the rule, or render the topology again",
            )


def _stays(entry: MappingEntry, subjects: tuple[str, ...]) -> bool:
    """Whether all destinations of *entry* lie among *subjects*: an alias within the stream."""
    patterns = [pattern(destination.model.subject) for destination in entry.destinations]
    return all(
        destination is not None and any(is_subset(destination, subject) for subject in subjects)
        for destination in patterns
    )
