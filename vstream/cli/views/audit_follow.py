"""An audit without end on the screen: a line for each round, and what has begun or ended to be wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.text import Text

from vstream.cli.views.audit import MARKS, format_duration
from vstream.cli.views.cleaning import clean
from vstream.diagnostics import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.audit.report import MessageFinding, Report


class RoundPrinter:
    """Remembers what the last round has said."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, ...], MessageFinding] = {}

    def lines(self, report: Report) -> Iterator[Text]:
        """What there is to say of one round."""
        verdict = report.verdict()
        mark, style = MARKS[verdict]
        slowest = max(
            (delay for delay in report.delays if delay.minute is None), key=lambda item: item.max_ns, default=None
        )
        late = (
            f", slowest {slowest.origin_region} → {slowest.region}: median {format_duration(slowest.p50_ns)}, "
            f"longest {format_duration(slowest.max_ns)}"
            if slowest
            else ""
        )
        text = f"{time.strftime('%H:%M:%S')} {report.messages:,} stored messages{late}"
        yield Text.assemble((f"{mark} {verdict.name} ", style), clean(text))
        result = {_about(finding): finding for finding in report.findings if finding.severity is not Severity.NOTE}
        for about, entry in result.items():
            before = self._known.get(about)
            if before is None or before.count < entry.count:
                where = f"{entry.region}: " if entry.region else ""
                why = f": {entry.examples[0]}" if entry.leaves_open and entry.examples else ""
                yield Text(clean(f"    {entry.code} {entry.virtual} {where}{entry.message}{why}"), style="bold")
        for about, entry in self._known.items():
            if about not in result:
                how = "older than the followed messages, and not repaired" if _is_left_behind(entry, report) else "over"
                yield Text(clean(f"    {how}: {entry.code} {entry.virtual} {entry.message}"), style="dim")
        self._known = result


def _is_left_behind(one: MessageFinding, report: Report) -> bool:
    """Whether all messages that a finding of an earlier round is about are older than what this round looks at."""
    first = next((state.first_seq for state in report.streams if state.stream == one.origin), None)
    return first is not None and bool(one.ranges) and not one.more and all(part.last < first for part in one.ranges)


def _about(one: MessageFinding) -> tuple[str | None, ...]:
    return one.code, one.virtual, one.stream, one.origin, one.former
