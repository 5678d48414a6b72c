"""A probe's report as tables and a list of what failed, and as JUnit XML for CI systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from vstream.junit import Result, TestCase, to_xml
from vstream.probe.report import Check, CheckKind, CheckStatus, ProbeReport

_CHECK_MARKS = {
    CheckStatus.OK: ("✓", "green"),
    CheckStatus.FAILED: ("✗", "bold red"),
    CheckStatus.SKIPPED: ("–", "dim"),
    CheckStatus.UNKNOWN: ("?", "bold yellow"),
}
_RESULTS = {CheckStatus.FAILED: Result.FAILURE, CheckStatus.UNKNOWN: Result.ERROR, CheckStatus.SKIPPED: Result.SKIPPED}
"""What JUnit calls the result of a check; the others are successes."""
_LOCAL_HOPS = (
    (CheckKind.MAPPING, "publish → write stream"),
    (CheckKind.STREAM_INFO, "STREAM.INFO"),
    (CheckKind.DIRECT_GET, "Direct Get"),
)
_FORMS = ((CheckKind.FORM, "Direct Get"), (CheckKind.PULL, "pull requests"))
_MANY_STREAMS_COUNT = 20
_WIDE = 90
"""Columns that a terminal needs to show which stream answered, beside that it did."""
_PRECISE_BELOW_MS = 10


def render_report(report: ProbeReport, *, width: int = _WIDE) -> Iterator[Table | Text]:
    """Who answers, how long canaries took, and what is wrong: for a terminal that is *width* columns wide."""
    yield render_hops(report, width=width)
    canaries = render_matrix(report)
    if canaries is not None:
        yield canaries
    yield from render_tables(report, width=width)
    yield from render_problems(report)


def render_hops(report: ProbeReport, *, width: int) -> Table:
    """Stream × region: each hop and, if there is room, who answered. Of many streams only those with something wrong."""
    table = Table(box=box.SIMPLE_HEAD, title="who answers", title_justify="left", title_style="bold")
    table.add_column("stream", no_wrap=True)
    table.add_column("region", no_wrap=True)
    for _, label in _LOCAL_HOPS:
        table.add_column(label if width >= _WIDE else label.partition(" →")[0], overflow="fold")
    by_cell: dict[tuple[str, str, CheckKind], list[Check]] = {}
    for check in report.checks:
        if check.region is not None:
            by_cell.setdefault((check.stream, check.region, check.kind), []).append(check)
    streams = report.streams
    if len(streams) > _MANY_STREAMS_COUNT:
        bad = {check.stream for check in report.checks if check.status in {CheckStatus.FAILED, CheckStatus.UNKNOWN}}
        streams = tuple(stream for stream in streams if stream in bad)[:_MANY_STREAMS_COUNT]
    for stream in streams:
        for region in report.regions:
            cells = [by_cell.get((stream, region, kind), []) for kind, _ in _LOCAL_HOPS]
            if any(cells):
                table.add_row(stream, region, *(_render_hop_cell(checks, width) for checks in cells))
    return table


def _render_hop_cell(checks: Sequence[Check], width: int) -> Text:
    if not checks:
        return Text("-", style="dim")
    worst = max(
        checks,
        key=lambda check: list(CheckStatus).index(check.status) if check.status is not CheckStatus.SKIPPED else 0,
    )
    mark, style = _CHECK_MARKS[worst.status]
    if width < _WIDE and worst.status is CheckStatus.OK:
        return Text(mark, style=style)
    answered = worst.answered_by or ("empty stream" if worst.status is CheckStatus.OK else worst.status.value)
    return Text.assemble((mark, style), f" {answered}")


def render_matrix(report: ProbeReport) -> Table | None:
    """Origin × reader: how long a canary took, the slowest of all streams. None if there were no canaries."""
    times = report.matrix()
    if not times:
        return None
    canaries = [check for check in report.checks if check.kind is CheckKind.CANARY]
    tried = {(check.origin, check.region) for check in canaries if check.status is not CheckStatus.SKIPPED}
    table = Table(
        box=box.SIMPLE_HEAD, title="canaries: published in → found in", title_justify="left", title_style="bold"
    )
    table.add_column("", no_wrap=True)
    for reader in report.regions:
        table.add_column(reader, justify="right", no_wrap=True)
    for origin in report.regions:
        if origin in times:
            cells = (
                _render_time(times[origin], reader, was_tried=(origin, reader) in tried) for reader in report.regions
            )
            table.add_row(Text(origin, style="bold"), *cells)
    return table


def _render_time(row: Mapping[str, float | None], reader: str, *, was_tried: bool) -> Text:
    if reader not in row:
        return Text("-", style="dim")
    time = row[reader]
    if not was_tried:
        return Text("– not tried", style="dim")
    if time is None:
        return Text("✗ missing", style="bold red")
    return Text(f"✓ {_format_milliseconds(time)}", style="green")


def _format_milliseconds(time: float) -> str:
    return f"{time:,.1f} ms" if time < _PRECISE_BELOW_MS else f"{time:,.0f} ms"


def render_tables(report: ProbeReport, *, width: int) -> Iterator[Table]:
    """How soon own writes are read; and each form of a request in each region, for each stream. Of many streams none."""
    if len(report.streams) > _MANY_STREAMS_COUNT:
        return
    own_reads = [check for check in report.checks if check.kind is CheckKind.OWN_READ and check.elapsed_ms is not None]
    if own_reads:
        yield _render_own_reads(own_reads, width)
    for stream in report.streams:
        for kind, title in _FORMS:
            checks = [check for check in report.checks if (check.stream, check.kind) == (stream, kind)]
            if checks:
                yield _forms(report, checks, f"{title} by the name `{stream}`: which stream answers, in each region")


def _render_own_reads(checks: Sequence[Check], width: int) -> Table:
    """From the acknowledgement of a publish until it is served where it was published."""
    forms = list(dict.fromkeys(check.form for check in checks))
    title = "own writes: time from acknowledgement to first read" + (" in the same region" if width >= _WIDE else "")
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for name in ("stream", "region"):
        table.add_column(name, no_wrap=True)
    for form in forms:
        table.add_column(form or "", overflow="fold")
    cells = {(check.stream, check.region, check.form): check for check in checks}
    for stream, region in dict.fromkeys((check.stream, check.region) for check in checks):
        row_checks = [cells.get((stream, region, form)) for form in forms]
        table.add_row(stream, region, *(_format_own_read_cell(check, width) for check in row_checks))
    return table


def _format_own_read_cell(check: Check | None, width: int) -> str:
    if check is None:
        return "-"
    answered = f" {check.answered_by}" if width >= _WIDE else ""
    return f"{_format_milliseconds(check.elapsed_ms or 0.0)}{answered}"


def _forms(report: ProbeReport, checks: Sequence[Check], title: str) -> Table:
    """Form × region."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    table.add_column("form", no_wrap=True)
    regions = [region for region in report.regions if any(check.region == region for check in checks)]
    for region in regions:
        table.add_column(region, overflow="fold")
    cells = {(check.form, check.region): check for check in checks}
    for form in dict.fromkeys(check.form for check in checks):
        table.add_row(form, *(_render_form_cell(cells.get((form, region))) for region in regions))
    return table


def _render_form_cell(check: Check | None) -> Text:
    if check is None:
        return Text("-", style="dim")
    mark, style = _CHECK_MARKS[check.status]
    answer = (check.answered_by or check.detail) if check.status is CheckStatus.OK else check.status.value
    return Text.assemble((mark, style), f" {answer}")


def render_problems(report: ProbeReport) -> Iterator[Text]:
    """What is not ok, with what to look at, then one line that sums up."""
    for check in report.checks:
        if check.status in {CheckStatus.FAILED, CheckStatus.UNKNOWN}:
            mark, style = _CHECK_MARKS[check.status]
            route = (
                f"{check.origin} → {check.region}"
                if check.origin and check.region
                else check.origin or check.region or ""
            )
            kind = " ".join(filter(None, (check.kind.value.replace("_", " "), f"({check.form})" if check.form else "")))
            by = f" by {check.server}" if check.server else ""
            yield Text.assemble((f"{mark} ", style), (check.stream, "bold"), f" {route}{by} {kind}: {check.detail}")
            if check.hint:
                yield Text.assemble(("  hint: ", "bold cyan"), check.hint)
    skipped: dict[tuple[str, str | None], int] = {}
    for check in report.checks:
        if check.status is CheckStatus.SKIPPED:
            key = (check.detail, check.hint)
            skipped[key] = skipped.get(key, 0) + 1
    for (detail, hint), number in skipped.items():
        times = f" ({number} times)" if number > 1 else ""
        yield Text.assemble(("– skipped: ", "dim"), f"{detail}{times}", f"; {hint}" if hint else "")
    counts = report.counts
    verdict = Text("FAIL", style="bold red") if report.is_fail else Text("UNKNOWN", style="bold yellow")
    verdict = Text("PASS", style="bold green") if report.is_pass else verdict
    shown = ", ".join(f"{count:,} {status.value}" for status, count in counts.items() if count)
    yield Text.assemble(verdict, f": {shown or 'nothing was checked'}")


def to_junit(report: ProbeReport) -> str:
    """
    The report as one XML document: a test suite for each stream, a test case for each check.

    Failed checks are failures, unknown ones errors. A report without checks is one
    suite with an error: CI systems would take an empty document for a success.
    """
    suites = {
        stream: [_make_case(check) for check in report.checks if check.stream == stream] for stream in report.streams
    }
    nothing = TestCase(classname="probe", name="checks", result=Result.ERROR, message="nothing was probed")
    return to_xml(f"vstream probe {report.topology}", suites or {"probe": [nothing]})


def _make_case(check: Check) -> TestCase:
    return TestCase(
        classname=f"{check.stream}.{check.kind.value}",
        name=_name_case(check),
        result=_RESULTS.get(check.status),
        message=check.detail,
        text=check.hint,
        seconds=None if check.elapsed_ms is None else check.elapsed_ms / 1000,
    )


def _name_case(check: Check) -> str:
    parts = [check.kind.value, *([check.form] if check.form else [])]
    if check.subject is not None and check.origin is None:
        parts.append(check.subject)
    if check.origin is not None:
        parts.append(f"from {check.origin}")
    if check.region is not None:
        parts.append(f"in {check.region}")
    if check.server is not None:
        parts.append(f"by {check.server}")
    if check.kind is CheckKind.CLEANUP and check.answered_by is not None:
        parts.append(f"of {check.answered_by}")
    return " ".join(parts)
