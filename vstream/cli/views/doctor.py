"""Text for `vstream doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.text import Text

from vstream.cli.views import finding_text
from vstream.findings import Severity
from vstream.formatting import format_count, format_duration
from vstream.health.doctor.examine import Diagnosis, Health

_MAX_FINDINGS = 5
"""Findings of one code: of more, the first ones stand for all."""
_HEALTH_STYLES = {Health.HEALTHY: "bold green", Health.UNHEALTHY: "bold red", Health.UNKNOWN: "bold yellow"}


def render_diagnosis(diagnosis: Diagnosis) -> Iterator[Text]:
    """Each finding with its evidence and what to do, then one line that sums up."""
    number = Counter(finding.code for finding in diagnosis.findings)
    shown: Counter[str] = Counter()
    for finding in diagnosis.findings:
        shown[finding.code] += 1
        if shown[finding.code] <= _MAX_FINDINGS:
            yield from finding_text.render_finding(finding)
        elif shown[finding.code] == _MAX_FINDINGS + 1:
            more = number[finding.code] - _MAX_FINDINGS
            yield Text(f"  and {more:,} more {finding.code}: `--format json` lists all", style="dim")
    yield _render_verdict(diagnosis)


def _render_verdict(diagnosis: Diagnosis) -> Text:
    """`UNHEALTHY: 1 error, 2 notes (checked 3 servers and 12 streams in 17 ms)`."""
    reached = f"{diagnosis.servers}"
    if diagnosis.servers < diagnosis.all_servers:
        reached = f"{diagnosis.servers} of {diagnosis.all_servers}"
    checked = f"checked {reached} servers and {diagnosis.streams:,} streams in {format_duration(diagnosis.took)}"
    weights = Counter(finding.severity for finding in diagnosis.findings)
    present = [severity for severity in Severity if weights[severity]]
    counts = ", ".join(format_count(weights[severity], severity.value) for severity in present)
    summary = f"{counts} ({checked})" if counts else checked
    if diagnosis.health is Health.UNKNOWN:
        summary = f"no error was found, but not everything could be checked: {summary}"
    return Text.assemble((diagnosis.health.name, _HEALTH_STYLES[diagnosis.health]), f": {summary}")
