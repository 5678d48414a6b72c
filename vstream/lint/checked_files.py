"""What goes into the check of some files beside their contents, and what comes out: findings, at the user's places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vstream.findings import Finding, Related
from vstream.lint.parse_files import DisplayPlace, Read
from vstream.syntax.natsconf.nodes import Comment
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.topology.bundle import Bundle


@value_class
class LintContext:
    """What lies outside of the files that were given: other files, the environment, what topologies are rendered with."""

    read: Read
    env: Mapping[str, str] | None
    """The variables of the server's environment; None if nobody said which there are."""
    overlays: Mapping[str, bytes] = field(default_factory=dict)
    """Files that are laid over each topology, by name."""
    templates: Path | None = None
    """Those that win over the built-in ones."""
    is_directory: Callable[[str], bool] = lambda _: True
    """Whether a directory that a scenario names is there."""


@dataclass(slots=True)
class CheckedFiles:
    """What is wrong with some files, and what it takes to place and suppress that: their texts and comments."""

    findings: list[Finding]
    texts: dict[str, str]
    comments: list[Comment]
    display_places: dict[str, DisplayPlace] = field(default_factory=dict)
    bundles: list[Bundle] = field(default_factory=list)

    def add(self, other: CheckedFiles) -> None:
        """Let *other* be a part of this."""
        self.findings += other.findings
        self.texts |= other.texts
        self.comments += other.comments
        self.display_places |= other.display_places
        self.bundles += other.bundles

    def place_findings(self) -> Iterator[Finding]:
        """
        The findings, each at a place in a file that the user has, and one for each cause.

        What nine rendered servers have from one line of a topology is said once.
        """
        merged: dict[tuple[object, ...], Finding] = {}
        for finding in dict.fromkeys(self._place(finding) for finding in self.findings):
            key = (finding.code, finding.severity, finding.where, finding.message, finding.hint)
            earlier = merged.get(key, finding)
            related = dict.fromkeys((*earlier.related, *finding.related))
            merged[key] = replace(earlier, related=tuple(related))
        yield from merged.values()

    def _place(self, finding: Finding) -> Finding:
        """*finding* at a place in a file that the user has: what is not in one stays as a related place."""
        span = finding.span
        if span is None or not self.display_places:
            return finding
        related = tuple(near for near in finding.related if near.span.file not in self.display_places)
        if span.file not in self.display_places:
            return replace(finding, related=related)
        place = self.display_places[span.file]
        return replace(finding, where=place.span, related=(Related(span=span, message=place.message), *related), fix=())
