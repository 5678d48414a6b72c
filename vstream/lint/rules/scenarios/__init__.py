"""VS5xx: checks of a scenario as a whole, and against its topology."""

from __future__ import annotations

from vstream.lint.rule import find_rules

RULES = find_rules(__name__, __path__)
