"""VS302 to VS399: how servers interpret subject mappings, and how that affects clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.registry import find_rules

if TYPE_CHECKING:
    from vstream.lint.registry import Rule
    from vstream.lint.workspace import Workspace

__all__ = ["RULES"]

RULES: tuple[Rule[Workspace], ...] = find_rules(__name__, __path__)
