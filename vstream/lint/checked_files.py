"""What goes into the check of some files beside their contents, and what comes out, to be placed and suppressed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vstream.findings import Finding
from vstream.lint.gather import DisplayPlace, Read
from vstream.syntax.natsconf.nodes import Comment
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.topology.bundle import Bundle


@value_class
class Surroundings:
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
    shown: dict[str, DisplayPlace] = field(default_factory=dict)
    bundles: list[Bundle] = field(default_factory=list)

    def add(self, other: CheckedFiles) -> None:
        """Let *other* be a part of this."""
        self.findings += other.findings
        self.texts |= other.texts
        self.comments += other.comments
        self.shown |= other.shown
        self.bundles += other.bundles
