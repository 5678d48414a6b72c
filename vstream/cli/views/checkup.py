"""What a doctor has found, as text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.text import Text

from vstream.diagnostics import Severity
from vstream.health.doctor.codes import BY_CODE
from vstream.health.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.health.doctor.examine import Diagnosis
    from vstream.health.doctor.finding import Finding

_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_MOST = 5
"""Findings of one code: of more, the first ones stand for all."""


def text(found: Diagnosis) -> Iterator[Text]:
    """Each finding with its evidence and what to do, then one line that sums up."""
    number = Counter(one.code for one in found.findings)
    shown: Counter[str] = Counter()
    for one in found.findings:
        shown[one.code] += 1
        if shown[one.code] <= _MOST:
            yield from finding(one)
        elif shown[one.code] == _MOST + 1:
            yield Text(f"  and {number[one.code] - _MOST:,} more {one.code}: `--format json` has them all", style="dim")
    asked = f"{found.servers} servers and {found.streams:,} streams looked at in {format_duration(found.took)}"
    if not found.findings:
        yield Text.assemble(("HEALTHY", "bold green"), f": {asked}")
        return
    weights = Counter(BY_CODE[one.code].severity for one in found.findings)
    counts = ", ".join(
        f"{weights[severity]} {severity.value}{'' if weights[severity] == 1 else 's'}"
        for severity in Severity
        if weights[severity]
    )
    verdict = ("HEALTHY", "bold green") if found.is_healthy else ("ILL", "bold red")
    yield Text.assemble(verdict, f": {counts}; {asked}")


def finding(one: Finding) -> Iterator[Text]:
    """What, the evidence, and what to do: a line each."""
    page = BY_CODE[one.code]
    yield Text.assemble(
        (f"{page.severity.value} {one.code} {page.name}", _STYLE[page.severity]),
        " ",
        (one.about.replace("`", ""), "bold"),
    )
    yield Text(f"  {one.evidence}")
    yield Text.assemble(("  do: ", "bold cyan"), one.do)
