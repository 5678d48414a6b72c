"""VS5xx: checks of a scenario as a whole, and against its topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.registry import find_rules
from vstream.lint.rules.scenarios.context import ScenarioSubject

if TYPE_CHECKING:
    from vstream.lint.registry import Rule

__all__ = ["RULES", "ScenarioSubject"]

RULES: tuple[Rule[ScenarioSubject], ...] = find_rules(__name__, __path__)
