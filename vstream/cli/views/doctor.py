"""What labs can do on this machine, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.lab.doctor import Capability


def table(findings: Sequence[Capability]) -> Table:
    """One row for each finding."""
    view = Table(box=box.SIMPLE_HEAD, title="labs on this machine", title_justify="left")
    for heading in ("", "", "why, or how"):
        view.add_column(heading)
    for capability in findings:
        problem = Text("no", style="bold red" if capability.is_needed else "yellow")
        view.add_row(capability.what, Text("yes", style="green") if capability.can else problem, capability.detail)
    return view


def ways_out(findings: Sequence[Capability]) -> list[str]:
    """A line for each thing that cannot be done."""
    return [
        f"{capability.what}: {capability.way_out}"
        for capability in findings
        if not capability.can and capability.way_out
    ]


def as_dict(findings: Sequence[Capability]) -> dict[str, Any]:
    """Findings as plain JSON data."""
    return {
        "can_run_labs": all(capability.can for capability in findings if capability.is_needed),
        "findings": [
            {
                "what": capability.what,
                "can": capability.can,
                "detail": capability.detail,
                "way_out": capability.way_out,
                "needed": capability.is_needed,
            }
            for capability in findings
        ],
    }
