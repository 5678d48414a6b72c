"""VS403 to VS499: server configurations, alone and as one super-cluster. Included files are not checked alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.registry import find_rules

if TYPE_CHECKING:
    from vstream.lint.registry import Rule
    from vstream.lint.workspace import Workspace

__all__ = ["RULES"]

RULES: tuple[Rule[Workspace], ...] = find_rules(__name__, __path__)
