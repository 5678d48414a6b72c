"""
The rules, by what they look at. A folder has every rule of its modules.

Those of a folder take as long to import as a small file takes to check, so each is imported where there is something
that it looks at.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from vstream.findings import Finding
from vstream.lint.rule import Rule, run_rules

if TYPE_CHECKING:
    from vstream.lint.workspace import Workspace

_FOLDERS = ("streams", "mappings", "servers")


def rules_of(folder: str) -> tuple[Rule[Workspace], ...]:
    """The rules of `vstream.lint.rules.FOLDER`, in the order of their codes."""
    rules: tuple[Rule[Workspace], ...] = import_module(f"{__name__}.{folder}").RULES
    return rules


def check_workspace(workspace: Workspace) -> tuple[Finding, ...]:
    """What the rules find in files of servers, mappings, accounts and streams."""
    return run_rules(rules_for(workspace), workspace)


def rules_for(workspace: Workspace) -> tuple[Rule[Workspace], ...]:
    """The rules that look at something that *workspace* has."""
    has_topology = workspace.topology is not None
    needed = {
        "streams": has_topology or workspace.streams or workspace.consumers,
        "mappings": has_topology
        or workspace.blocks
        or any(server.accounts or server.users for server in workspace.servers),
        "servers": has_topology or workspace.servers,
    }
    return tuple(rule for folder in _FOLDERS if needed[folder] for rule in rules_of(folder))
