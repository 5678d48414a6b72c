"""VS302 to VS399: how servers interpret subject mappings, and how that affects clients."""

from __future__ import annotations

from vstream.lint.rule import find_rules

RULES = find_rules(__name__, __path__)
