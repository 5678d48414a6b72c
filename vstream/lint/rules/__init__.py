"""
The rules, by what they look at. Nothing registers itself: what is not listed does not run.

Those of topologies are in `vstream.lint.rules.topology` alone: they take as long to import as all the others,
and most runs have no topology.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.rules.mappings import RULES as MAPPING_RULES
from vstream.lint.rules.servers import RULES as SERVER_RULES
from vstream.lint.rules.streams import RULES as STREAM_RULES

if TYPE_CHECKING:
    from vstream.lint.registry import Rule
    from vstream.lint.workspace import Workspace

__all__ = ["MAPPING_RULES", "SERVER_RULES", "STREAM_RULES", "WORKSPACE_RULES"]

WORKSPACE_RULES: tuple[Rule[Workspace], ...] = (*STREAM_RULES, *MAPPING_RULES, *SERVER_RULES)
