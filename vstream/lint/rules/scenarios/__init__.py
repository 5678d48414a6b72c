"""VS5xx: checks of a scenario as a whole, and against its topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.rules.scenarios.context import ScenarioSubject
from vstream.lint.rules.scenarios.faults import already_down, converge_while_cut_off, impossible_fault
from vstream.lint.rules.scenarios.references import nothing_to_heal, unknown_name, unknown_operation, unknown_window
from vstream.lint.rules.scenarios.steps import begins_late, name_taken, not_one_action, wrong_option
from vstream.lint.rules.scenarios.workload import bad_publish_subject, not_measured, nothing_published

if TYPE_CHECKING:
    from vstream.lint.registry import Rule

__all__ = ["RULES", "ScenarioSubject"]

RULES: tuple[Rule[ScenarioSubject], ...] = (
    not_one_action,
    wrong_option,
    unknown_name,
    unknown_window,
    name_taken,
    nothing_to_heal,
    impossible_fault,
    already_down,
    bad_publish_subject,
    not_measured,
    unknown_operation,
    converge_while_cut_off,
    nothing_published,
    begins_late,
)
"""In the order of their codes."""
