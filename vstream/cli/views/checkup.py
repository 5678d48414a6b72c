"""What a doctor has found, as text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.text import Text

from vstream.cli.views import diagnostics
from vstream.diagnostics import Severity
from vstream.health.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.health.doctor.examine import Diagnosis

_MOST = 5
"""Findings of one code: of more, the first ones stand for all."""


def text(found: Diagnosis) -> Iterator[Text]:
    """Each finding with its evidence and what to do, then one line that sums up."""
    number = Counter(one.code for one in found.findings)
    shown: Counter[str] = Counter()
    for one in found.findings:
        shown[one.code] += 1
        if shown[one.code] <= _MOST:
            yield from diagnostics.finding_lines(one)
        elif shown[one.code] == _MOST + 1:
            yield Text(f"  and {number[one.code] - _MOST:,} more {one.code}: `--format json` has them all", style="dim")
    asked = f"{found.servers} servers and {found.streams:,} streams looked at in {format_duration(found.took)}"
    if not found.findings:
        yield Text.assemble(("HEALTHY", "bold green"), f": {asked}")
        return
    weights = Counter(one.severity for one in found.findings)
    counts = ", ".join(
        f"{weights[severity]} {severity.value}{'' if weights[severity] == 1 else 's'}"
        for severity in Severity
        if weights[severity]
    )
    verdict = ("HEALTHY", "bold green") if found.is_healthy else ("ILL", "bold red")
    yield Text.assemble(verdict, f": {counts}; {asked}")
