"""VS403 to VS499: server configurations, alone and as one super-cluster. Included files are not checked alone."""

from __future__ import annotations

from vstream.lint.rule import find_rules

RULES = find_rules(__name__, __path__)
