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
    for one in findings:
        style = "green" if one.can else "bold red" if one.is_needed else "yellow"
        view.add_row(one.what, Text("yes" if one.can else "no", style=style), one.detail)
    return view


def ways_out(findings: Sequence[Capability]) -> list[str]:
    """A line for each thing that cannot be done."""
    return [f"{one.what}: {one.way_out}" for one in findings if not one.can and one.way_out]


def as_dict(findings: Sequence[Capability]) -> dict[str, Any]:
    """Findings as plain JSON data."""
    return {
        "can_run_labs": all(one.can for one in findings if one.is_needed),
        "findings": [
            {"what": one.what, "can": one.can, "detail": one.detail, "way_out": one.way_out, "needed": one.is_needed}
            for one in findings
        ],
    }
