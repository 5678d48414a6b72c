"""A diagnosis as text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.text import Text

from vstream.cli.views import diagnostics
from vstream.diagnostics import Severity
from vstream.health.doctor.examine import Health
from vstream.health.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.health.doctor.examine import Diagnosis

_MOST = 5
"""Findings of one code: of more, the first ones stand for all."""
_STYLES = {Health.HEALTHY: "bold green", Health.UNHEALTHY: "bold red", Health.UNKNOWN: "bold yellow"}


def text(diagnosis: Diagnosis) -> Iterator[Text]:
    """Each finding with its evidence and what to do, then one line that sums up."""
    number = Counter(finding.code for finding in diagnosis.findings)
    shown: Counter[str] = Counter()
    for finding in diagnosis.findings:
        shown[finding.code] += 1
        if shown[finding.code] <= _MOST:
            yield from diagnostics.finding_lines(finding)
        elif shown[finding.code] == _MOST + 1:
            more = number[finding.code] - _MOST
            yield Text(f"  and {more:,} more {finding.code}: `--format json` lists all", style="dim")
    yield _verdict(diagnosis)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _verdict(diagnosis: Diagnosis) -> Text:
    """`UNHEALTHY: 1 error, 2 notes (checked 3 servers and 12 streams in 17 ms)`."""
    reached = f"{diagnosis.servers}"
    if diagnosis.servers < diagnosis.all_servers:
        reached = f"{diagnosis.servers} of {diagnosis.all_servers}"
    checked = f"checked {reached} servers and {diagnosis.streams:,} streams in {format_duration(diagnosis.took)}"
    weights = Counter(finding.severity for finding in diagnosis.findings)
    present = [severity for severity in Severity if weights[severity]]
    counts = ", ".join(_count(weights[severity], severity.value) for severity in present)
    summary = f"{counts} ({checked})" if counts else checked
    if diagnosis.health is Health.UNKNOWN:
        summary = f"no error was found, but not everything could be checked: {summary}"
    return Text.assemble((diagnosis.health.name, _STYLES[diagnosis.health]), f": {summary}")
