"""An audit on the screen: the verdict first, then why, then the numbers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import RenderableType
from rich.progress import Progress as Bar
from rich.progress import TaskID
from rich.table import Table
from rich.text import Text

from vstream.audit.codes import ALL, Count
from vstream.audit.report import AuditVerdict, MessageFinding, ReaderRoute, Recovery, Report
from vstream.audit.request import AuditProgress
from vstream.cli.views import console
from vstream.cli.views.cleaning import clean
from vstream.cli.views.progress import progress_bar
from vstream.findings import Severity
from vstream.formatting import format_count
from vstream.junit import Result, TestCase, to_xml
from vstream.timing import SECOND_NS

if TYPE_CHECKING:
    from vstream.audit.spark.progress import SparkProgress

MARKS = {
    AuditVerdict.PASS: ("✓", "green"),
    AuditVerdict.FAIL: ("✗", "bold red"),
    AuditVerdict.UNKNOWN: ("?", "bold yellow"),
}
_WEIGHTS = {Severity.ERROR: ("✗", "bold red"), Severity.WARNING: ("!", "bold yellow"), Severity.NOTE: ("·", "dim")}
_CHAPTERS = {
    "VA004": "{n:row that cannot be|rows that cannot be}",
    "VA006": "{n:stream that does|streams that do} not exist",
    "VA1": "{n:message|messages} missing",
    "VA105": "{n:message|messages} late",
    "VA2": "{n:message|messages} too many or changed",
    "VA3": "{n:message|messages} out of order",
    "VA401": "regions permanently disagree on {n:key|keys}",
    "VA404": "{n:message|messages} dropped for another with the same id",
}
"""What errors mean, by the beginning of their code; the longest match counts."""
_PUT_BACK = "VA303"
_MAX_FINDINGS = 40
"""Maximum number of findings shown of one severity."""
_MAX_CODES = 3
"""Maximum number of codes for which `vstream lint --explain` is suggested."""
_MAX_RANGES = 5
_MS_NS = 1e6


class StageProgress(AuditProgress):
    """Shows the current stage and its progress: as a bar on a terminal, otherwise as a line for each stage."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task: TaskID | None = None
        self._name = ""
        self._started = 0.0

    def begin(self, name: str) -> None:
        """End the current stage, if any, and begin another."""
        if name == self._name:
            return
        self.end()
        self._name, self._started = name, time.monotonic()
        self._task = self._bar.add_task(name, total=None)

    def tasks(self, progress: SparkProgress) -> None:
        """Show Spark's progress with the current stage."""
        if self._task is not None:
            self._bar.update(self._task, completed=progress.done, total=progress.tasks)

    def note(self, text: str) -> None:
        """Print a note."""
        console.print_note(f"· {text}", style="dim")

    def end(self) -> None:
        """End the last stage."""
        if self._task is not None:
            console.print_note(f"· {self._name}: {time.monotonic() - self._started:.1f} s", style="dim")
            self._bar.remove_task(self._task)
            self._task, self._name = None, ""

    def keeping(self, file: Path) -> None:
        """Print that a background process continues after the audit."""
        self.end()
        console.print_note(
            f"· in the background: creating {clean(str(file))}, so that the next audit starts sooner", style="dim"
        )


@contextmanager
def show_stages() -> Iterator[StageProgress]:
    """Show the stages of an audit on standard error."""
    with progress_bar() as bar:
        stages = StageProgress(bar)
        yield stages
        stages.end()


def render_report(report: Report, *, only_findings: bool = False) -> Iterator[RenderableType]:
    """The lines of the whole report; with *only_findings*, without figures."""
    yield render_headline(report)
    for severity in Severity:
        findings = [finding for finding in report.findings if finding.severity is severity]
        for item in findings[:_MAX_FINDINGS]:
            yield from _render_finding(item)
        if len(findings) > _MAX_FINDINGS:
            yield Text(f"  and {len(findings) - _MAX_FINDINGS:,} more findings of this kind", style="dim")
    told = dict.fromkeys(finding.code for finding in report.findings if finding.severity is not Severity.NOTE)
    if told:
        codes = ", ".join(f"`vstream lint --explain {code}`" for code in list(told)[:_MAX_CODES])
        yield Text(f"  {codes}{', …' if len(told) > _MAX_CODES else ''}: what it means, and what to do", style="dim")
    if not only_findings:
        yield from _render_figures(report)


def _render_figures(report: Report) -> Iterator[RenderableType]:
    matrices = (render_matrix(report, virtual) for virtual in report.with_figures)
    yield from (table for table in matrices if table is not None)
    if report.recoveries:
        yield _render_recovery_table(report)
    if report.publish_outcomes:
        yield _render_answers(report)
    if report.order_differences:
        yield _render_orders(report)
    if report.shown is not None:
        text = (
            f"  figures of {len(report.shown):,} of {len(report.virtuals):,} virtual streams; `--all-figures` has all"
        )
        yield Text(text, style="dim")


def render_headline(report: Report) -> Text:
    """`FAIL acme: 3 errors, 1 note; 12,000 messages in 6 streams of 3 regions`."""
    verdict = report.verdict()
    mark, style = MARKS[verdict]
    return Text.assemble((f"{mark} {verdict.name} ", style), (clean(report.subject), "bold"), f": {summarize(report)}")


def summarize(report: Report) -> str:
    """The result in one sentence: findings, and the number of messages, streams and regions."""
    unseen = [finding for finding in report.findings if finding.leaves_open]
    seen = [finding for finding in report.findings if not finding.leaves_open]
    counts = {severity: sum(item.severity is severity for item in seen) for severity in Severity}
    findings = [format_count(number, severity.value) for severity, number in counts.items() if number]
    not_seen = f"not everything could be checked{_format_where(unseen)}"
    match report.verdict():
        case AuditVerdict.PASS:
            put_back = sum(finding.count for finding in seen if finding.code == _PUT_BACK)
            order = f"but for {Count(put_back):message|messages} that a repair has put back" if put_back else "in order"
            text = f"every region holds every message, once, {order}"
        case AuditVerdict.UNKNOWN:
            text = f"no problem was found, but {not_seen}"
        case AuditVerdict.FAIL:
            text = "; ".join([*_show_wrong(report), *([not_seen] if unseen else [])])
    return (
        f"{' · '.join([text, *findings])} · {Count(report.messages):stored message|stored messages} in "
        f"{Count(len(report.streams)):stream|streams} of {Count(len(report.regions)):region|regions}"
        f"{' and the stretch cluster' if report.stretch else ''}"
        f"{f', {report.verified_before:,} of them verified before' if report.verified_before else ''}"
    )


def _show_wrong(report: Report) -> Iterator[str]:
    """A summary of the errors, for readers who read nothing else."""
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    for chapter, text in _CHAPTERS.items():
        group = [
            error for error in errors if max(filter(error.code.startswith, _CHAPTERS), key=len, default=None) == chapter
        ]
        count = sum(item.count for item in group)
        if count:
            yield text.format(n=Count(count)) + _format_where(group)


def _format_where(findings: Iterable[MessageFinding]) -> str:
    """The regions that *findings* are about, as ` (west, east)`."""
    regions = dict.fromkeys(item.region for item in findings if item.region)
    return f" ({', '.join(regions)})" if regions else ""


def _render_finding(finding: MessageFinding) -> Iterator[Text]:
    mark, style = MARKS[AuditVerdict.UNKNOWN] if finding.leaves_open else _WEIGHTS[finding.severity]
    where = f"{finding.region}: " if finding.region else ""
    yield Text.assemble(
        (f"{mark} {finding.code} ", style), (clean(finding.virtual), "bold"), clean(f" {where}{finding.message}")
    )
    for line in describe_evidence(finding):
        yield Text(f"    {line}", style="dim")


def describe_evidence(finding: MessageFinding) -> Iterator[str]:
    """The examples of a finding, one per line."""
    if finding.ranges:
        texts = []
        for part in finding.ranges[:_MAX_RANGES]:
            several = f" ({part.number:,})" if part.first != part.last or part.number > 1 else ""
            place = f" at {part.seq}" if part.seq is not None and finding.origin is not None else ""
            texts.append(f"{part.text}{several}{place}")
        rest = finding.more + len(finding.ranges[_MAX_RANGES:])
        more = f", and {Count(rest):more range|more ranges}" if rest else ""
        subject = f"sequences of {finding.origin}" if finding.origin else "sequences"
        yield clean(f"{subject}: {', '.join(texts)}{more}")
        if finding.ranges[0].key:
            yield clean(f"such as `{finding.ranges[0].key}`")
    for text in finding.examples:
        yield clean(text)


def render_matrix(report: Report, virtual: str) -> Table | None:
    """Origin × reader: what arrived, what is missing, and how late it was. None if there is no reader."""
    routes = [route for route in report.routes if route.virtual == virtual]
    if not routes:
        return None
    delays, of_new = {}, " of new ones" if report.verified_before else ""
    for delay in report.delays:
        if delay.virtual == virtual and delay.minute is None:
            delays[(delay.origin_region, delay.region)] = delay
    table = Table(
        box=box.SIMPLE_HEAD,
        title=f"{clean(virtual)}: written in → arrived in, messages and delay{of_new} (median, p99, longest)",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("", no_wrap=True)
    readers = list(dict.fromkeys((route.region, route.stream) for route in routes))
    for region, _ in readers:
        table.add_column(clean(report.display_name(region)), justify="right")
    for origin, place in dict.fromkeys((route.origin, route.origin_region) for route in routes):
        cells = []
        for reader, stream in readers:
            route = next(route for route in routes if (route.origin, route.stream) == (origin, stream))
            late = delays.get((place or "", reader))
            text = (
                f"\n{format_delay(late.p50_ns)} {format_delay(late.p99_ns)} {format_delay(late.max_ns)}" if late else ""
            )
            cells.append(Text.assemble(_describe_arrival(route), (text, "dim")))
        table.add_row(Text(clean(report.display_name(place) if place else origin), style="bold"), *cells)
    return table


def _describe_arrival(route: ReaderRoute) -> Text:
    parts = [Text("?" if route.arrived is None else f"{route.arrived:,}")]
    for number, sign in ((route.missing, "−"), (route.extra, "+"), (route.mismatched, "!")):
        if number:
            parts.append(Text(f"{sign}{number:,}", style="bold red"))
    return Text(" ").join(parts)


def _render_recovery_table(report: Report) -> Table:
    table = _start_table(
        "after each fault: time until everything written before its end had arrived", "fault", "stream", "from"
    )
    readers = list(dict.fromkeys(item.region for item in report.recoveries))
    for reader in readers:
        table.add_column(clean(reader), justify="right")
    rows: dict[tuple[int, str, str, str], dict[str, str]] = {}
    for entry in sorted(report.recoveries, key=lambda item: item.begun_ns):
        rows.setdefault((entry.begun_ns, entry.window, entry.virtual, entry.origin_region), {})[entry.region] = (
            describe_recovery(entry)
        )
    for (_, window, virtual, origin), row in rows.items():
        cells = (row.get(reader, "–") for reader in readers)
        table.add_row(clean(window), clean(virtual), clean(origin), *cells)
    return table


def describe_recovery(recovery: Recovery) -> str:
    """The recovery time as `1.9 s` or `at once`; `never` if messages are missing."""
    if recovery.missing:
        return f"never: {recovery.missing:,} missing"
    return f"{recovery.recovery_ns / SECOND_NS:,.1f} s" if recovery.recovery_ns else "at once"


def _render_answers(report: Report) -> Table:
    table = _start_table("results that clients got", "stream", "region")
    outcomes = list(dict.fromkeys(answer.outcome for answer in report.publish_outcomes))
    for outcome in outcomes:
        table.add_column(clean(outcome), justify="right")
        table.add_column("stored", justify="right", style="dim")
    rows: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    for item in report.publish_outcomes:
        rows.setdefault((item.virtual, item.region), {})[item.outcome] = (item.publishes, item.stored)
    for key, row in rows.items():
        cells = [f"{number:,}" for outcome in outcomes for number in row.get(outcome, (0, 0))]
        table.add_row(*(clean(part) for part in key), *cells)
    return table


def _render_orders(report: Report) -> Table:
    new = "new " if report.verified_before else ""
    table = _start_table(f"order: {new}adjacent messages in opposite order", "stream", "in", "and in")
    table.add_column("", justify="right")
    for order in report.order_differences:
        table.add_row(
            clean(order.virtual),
            clean(order.region),
            clean(order.compared_with),
            format_share(order.inverted, order.neighbours),
        )
    return table


def format_share(part: int, whole: int) -> str:
    """A part of a whole in percent; an exact zero differs from a small value."""
    if not whole:
        return "–"
    if not part:
        return "0 %"
    percent = 100 * part / whole
    return f"{percent:.2f} %" if percent >= 0.01 else "< 0.01 %"  # noqa: PLR2004 - what two digits can show


def _start_table(title: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def format_delay(nanoseconds: float) -> str:
    """A duration with two or three digits. Negative if clocks differ."""
    sign = "−" if nanoseconds < 0 else ""
    for unit, size in (("s", SECOND_NS), ("ms", _MS_NS), ("µs", 1e3)):
        value = abs(nanoseconds) / size
        if value >= 1:
            return f"{sign}{value:,.{0 if value >= 10 else 1}f} {unit}"  # noqa: PLR2004 - two digits
    return f"{nanoseconds:,.0f} ns"


class RoundPrinter:
    """Prints rounds; remembers the findings of the last one."""

    def __init__(self) -> None:
        self._findings_shown: dict[tuple[str | None, ...], MessageFinding] = {}

    def lines(self, report: Report) -> Iterator[Text]:
        """The lines for one round: its verdict, and findings that are new or gone."""
        verdict = report.verdict()
        mark, style = MARKS[verdict]
        slowest = max(
            (delay for delay in report.delays if delay.minute is None), key=lambda item: item.max_ns, default=None
        )
        late = (
            f", slowest {slowest.origin_region} → {slowest.region}: median {format_delay(slowest.p50_ns)}, "
            f"longest {format_delay(slowest.max_ns)}"
            if slowest
            else ""
        )
        text = f"{time.strftime('%H:%M:%S')} {report.messages:,} stored messages{late}"
        yield Text.assemble((f"{mark} {verdict.name} ", style), clean(text))
        findings = {_identify(finding): finding for finding in report.findings if finding.severity is not Severity.NOTE}
        for about, entry in findings.items():
            before = self._findings_shown.get(about)
            if before is None or before.count < entry.count:
                where = f"{entry.region}: " if entry.region else ""
                why = f": {entry.examples[0]}" if entry.leaves_open and entry.examples else ""
                yield Text(clean(f"    {entry.code} {entry.virtual} {where}{entry.message}{why}"), style="bold")
        for about, entry in self._findings_shown.items():
            if about not in findings:
                how = "older than the followed messages, and not repaired" if _is_left_behind(entry, report) else "over"
                yield Text(clean(f"    {how}: {entry.code} {entry.virtual} {entry.message}"), style="dim")
        self._findings_shown = findings


def _identify(finding: MessageFinding) -> tuple[str | None, ...]:
    return finding.code, finding.virtual, finding.stream, finding.origin, finding.former


def _is_left_behind(finding: MessageFinding, report: Report) -> bool:
    """Whether all messages of a finding from an earlier round are older than the messages of this round."""
    first = next((state.first_seq for state in report.streams if state.stream == finding.origin), None)
    return (
        first is not None
        and bool(finding.ranges)
        and not finding.more
        and all(part.last < first for part in finding.ranges)
    )


def to_junit(report: Report, *, only_findings: bool = False) -> str:
    """
    The report as one XML document for CI systems: a test suite for each virtual stream, a test case for each code.

    Errors become failures, and what could not be checked becomes an error of its test case. A report without streams is
    one suite with an error. With *only_findings*, there are only test cases with errors, or a single one that passes.
    """
    suites = {virtual: _make_cases(virtual, report.findings_about(virtual)) for virtual in report.virtuals}
    if only_findings:
        passed = {"audit": [TestCase(classname="audit", name="findings")]} if suites else {}
        for virtual, cases in suites.items():
            suites[virtual] = [case for case in cases if case.result in {Result.ERROR, Result.FAILURE}]
        suites = {virtual: cases for virtual, cases in suites.items() if cases} or passed
    nothing = TestCase(classname="audit", name="streams", result=Result.ERROR, message="nothing to audit")
    return to_xml(f"vstream audit {report.subject}", suites or {"audit": [nothing]}) + "\n"


def _make_cases(virtual: str, findings: Sequence[MessageFinding]) -> list[TestCase]:
    cases = []
    for code in ALL:
        errors = [finding for finding in findings if (finding.code, finding.severity) == (code.code, Severity.ERROR)]
        classname = f"{virtual}.{code.code}"
        if errors:
            result = Result.ERROR if code.leaves_open else Result.FAILURE
            text = "\n".join(map(_describe_finding, errors))
            case = TestCase(classname=classname, name=code.name, result=result, message=errors[0].message, text=text)
            cases.append(case)
        elif code.severity is Severity.ERROR:
            cases.append(TestCase(classname=classname, name=code.name))
    return cases


def _describe_finding(finding: MessageFinding) -> str:
    ranges = ", ".join(sequences.text for sequences in finding.ranges)
    return ": ".join(part for part in (finding.message, ranges, *finding.examples) if part)
