"""VS202 to VS299: stream and consumer configurations, alone and together."""

from __future__ import annotations

from vstream.lint.rule import find_rules

RULES = find_rules(__name__, __path__)
