"""VS1xx: checks of a topology as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.registry import find_rules
from vstream.lint.rules.topology.context import TopologySubject

if TYPE_CHECKING:
    from vstream.lint.registry import Rule

__all__ = ["RULES", "TopologySubject"]

RULES: tuple[Rule[TopologySubject], ...] = find_rules(__name__, __path__)
