"""VS1xx: checks of a topology as a whole."""

from __future__ import annotations

from vstream.lint.rule import find_rules

RULES = find_rules(__name__, __path__)
