"""A verdict on the screen: what it is first, then why, then the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

from rich import box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from vstream.capture.records import FaultOutcome
from vstream.capture.verdict.model import Availability, CaseStatus, Example, FaultVerdict, StreamVerdict, Verdict
from vstream.capture.verdict.units import format_nanoseconds, format_share
from vstream.cli.views.cleaning import clean
from vstream.cli.views.finding_text import place, render_finding

MARKS = {CaseStatus.PASS: ("✓", "green"), CaseStatus.FAIL: ("✗", "bold red"), CaseStatus.UNKNOWN: ("?", "bold yellow")}
_MAX_EXAMPLES = 3
_MAX_WRONG = 20
_NONE = Text("–", style="dim")


def render_report(verdict: Verdict, width: int) -> Iterator[RenderableType]:
    """All of *verdict*, from top to bottom, on a screen of *width* columns."""
    yield render_headline(verdict)
    yield from _render_cases(verdict)
    yield from _render_examples(verdict)
    faults = [_render_faults(verdict.faults, verdict.load_start)] if verdict.faults else []
    streams = verdict.streams
    tables = (_render_streams(streams), *_render_windows(verdict), *faults, *_render_arrivals(streams))
    for table in (*tables, *_render_consumers(streams)):
        yield from _split_wide_table(table, width)
    yield _render_recorder(verdict)
    for warning in verdict.warnings:
        yield Text.assemble(("warning: ", "bold yellow"), clean(warning))


def render_headline(verdict: Verdict) -> Text:
    """`FAIL walkthrough, seed 7: 2 failed, 30 passed`."""
    mark, style = MARKS[verdict.status]
    counts = verdict.counts
    words = {CaseStatus.FAIL: "failed", CaseStatus.UNKNOWN: "unknown", CaseStatus.PASS: "passed"}
    shown = ", ".join(f"{counts[status]:,} {word}" for status, word in words.items() if counts[status])
    manifest = verdict.manifest
    return Text.assemble(
        (f"{mark} {verdict.status.name} ", style),
        (clean(manifest.scenario), "bold"),
        f", seed {manifest.seed}: {shown or 'nothing to judge'}",
    )


def _render_cases(verdict: Verdict) -> Iterator[Text]:
    """What failed and what is not known."""
    for status in (CaseStatus.FAIL, CaseStatus.UNKNOWN):
        cases = [case for case in verdict.cases if case.status is status]
        mark, style = MARKS[status]
        for case in cases[:_MAX_WRONG]:
            yield Text.assemble((f"{mark} ", style), (clean(case.name), "bold"), f": {clean(case.detail)}")
            if case.expectation is not None:
                yield Text(f"    expected at {place(case.expectation.span)}", style="dim")
        if len(cases) > _MAX_WRONG:
            yield Text(f"  and {len(cases) - _MAX_WRONG:,} more", style="dim")


def _render_examples(verdict: Verdict) -> Iterator[Text]:
    for stream in verdict.streams:
        for finding in stream.findings():
            yield from render_finding(finding)
            affected = finding.affected
            for example in affected.examples[:_MAX_EXAMPLES]:
                yield Text(f"    {example_line(example, verdict.load_start)}")
            if affected.count > _MAX_EXAMPLES:
                yield Text(f"    and {affected.count - _MAX_EXAMPLES:,} more", style="dim")


def example_line(example: Example, zero: int) -> str:
    """`west-17, acknowledged at 3.2 s by foo-write-west as 17 while kill-region west: no stream holds it`."""
    parts = [example.id]
    if example.acked is not None:
        parts.append(f"acknowledged at {format_nanoseconds(example.acked - zero)}")
        if example.acked_by is not None and example.acked_seq is not None:
            parts[-1] += f" by {example.acked_by} as {example.acked_seq}"
    if example.seq is not None:
        parts.append(f"sequence {example.seq} of {example.stream}")
    during = f" during {' and '.join(example.faults)}" if example.faults else ""
    return clean(f"{', '.join(parts)}{during}: {example.detail}")


def _start_table(title: str, *columns: str, left: int = 2) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number < left, justify="left" if number < left else "right")
    return table


def _split_wide_table(table: Table, width: int) -> Iterator[Table]:
    """*table*; or where it is too wide, several with some of its columns each, and with those that name a row."""
    # Two spaces and what is between columns.
    sizes = [3 + max(map(cell_len, map(str, (column.header, *column.cells)))) for column in table.columns]
    names = sum(column.no_wrap for column in table.columns)
    first = names
    while first < len(sizes):
        last, room = first + 1, width - 1 - sum(sizes[:names]) - sizes[first]
        while last < len(sizes) and sizes[last] <= room:
            room -= sizes[last]
            last += 1
        part = copy(table)
        part.columns = [*table.columns[:names], *table.columns[first:last]]
        yield part
        first = last


def _render_count(count: int | None, *, is_bad: bool = False) -> Text:
    if count is None:
        return _NONE
    return Text(f"{count:,}", style="bold red" if is_bad and count else "")


_PUBLISH_COUNTS = ("attempted", "acknowledged", "rejected", "indeterminate")
_COPY_COUNTS = ("duplicated", "unexpected", "reordered", "diverged")


def _render_streams(streams: Sequence[StreamVerdict]) -> Table:
    table = _start_table(
        "messages",
        "stream",
        "region",
        "attempted",
        "acknowledged",
        "rejected",
        "indeterminate",
        "lost",
        "recovered",
        "duplicated",
        "unexpected",
        "reordered",
        "diverged",
    )
    for stream in streams:
        served = {view.region: view for view in stream.served}
        for region in dict.fromkeys([*stream.origins, *served, *(part.region for part in stream.physical)]):
            tally, served_here = stream.origins.get(region), served.get(region)
            physical = []
            for part in stream.physical:
                if part.region == region or (served_here is not None and part.name == served_here.stream):
                    physical.append(part)
            is_read = served_here is not None and any(
                part.name == served_here.stream and part.error is None for part in physical
            )
            is_known = bool(physical) and all(part.error is None for part in physical)
            copies = [sum(getattr(part, field).count for part in physical) for field in _COPY_COUNTS]
            table.add_row(
                stream.name,
                region,
                *(_render_count(getattr(tally, field)) if tally is not None else _NONE for field in _PUBLISH_COUNTS),
                _render_count(served_here.lost.count if served_here is not None and is_read else None, is_bad=True),
                _render_count(served_here.recovered.count if served_here is not None and is_read else None),
                *(_render_count(count if is_known else None, is_bad=True) for count in copies),
            )
    return table


def _render_windows(verdict: Verdict) -> Iterator[Table]:
    table = _start_table(
        "by window", "window", "region", "published", "longest gap", "median", "p99", "read", "median", "control plane"
    )
    several = len({row.stream for window in verdict.windows for row in window.publishes}) > 1
    for window in verdict.windows:
        if not window.window.is_worth_reporting:
            continue
        reads = {(row.stream, row.region): row for row in window.reads}
        control = {row.region: row.share for row in reversed(window.control_plane)}
        name = f"{window.window.name} ({format_nanoseconds(window.window.end - window.window.start)})"
        rows = {(row.stream, row.region): row for row in window.publishes}
        for key in dict.fromkeys([*rows, *reads]):
            stream, region = key
            table.add_row(
                name,
                f"{region}, {stream}" if several else region,
                *_render_publishes(rows.get(key)),
                *_render_reads(reads.get(key)),
                _render_share(control[region]) if region in control else _NONE,
            )
            name = ""
    if table.row_count:
        yield table


def _render_share(value: float | None) -> Text:
    if value is None:
        return _NONE
    if value == 1:
        return Text(format_share(value))
    return Text(format_share(value), style="red" if value == 0 else "yellow")


def _render_time(nanoseconds: int | None) -> Text:
    return _NONE if nanoseconds is None else Text(format_nanoseconds(nanoseconds))


def _render_publishes(publishes: Availability | None) -> tuple[Text, Text, Text, Text]:
    if publishes is None or not publishes.attempted:
        return _NONE, _NONE, _NONE, _NONE
    gap = Text(format_nanoseconds(publishes.longest_gap)) if publishes.longest_gap else _NONE
    return (
        _render_share(publishes.share),
        gap,
        _render_time(publishes.time.p50 if publishes.time else None),
        _render_time(publishes.time.p99 if publishes.time else None),
    )


def _render_reads(reads: Availability | None) -> tuple[Text, Text]:
    if reads is None or not reads.attempted:
        return _NONE, _NONE
    return _render_share(reads.share), _render_time(reads.time.p50 if reads.time else None)


def _render_faults(faults: Sequence[FaultVerdict], zero: int) -> Table:
    table = _start_table(
        "faults", "fault", "", "at", "publishes failed", "first after", "recovered after", "healed at", "converged"
    )
    for verdict in faults:
        fault = verdict.fault
        outcome = Text(fault.outcome.value, style="" if fault.outcome is FaultOutcome.CONFIRMED else "bold yellow")
        recovered = [outage.recovered for outage in verdict.outages]
        took = [convergence.took for convergence in verdict.convergences]
        table.add_row(
            clean(fault.command),
            outcome,
            format_nanoseconds(fault.injected - zero),
            _render_count(sum(outage.failed for outage in verdict.outages)),
            _render_time(min((outage.first_failure for outage in verdict.outages), default=None)),
            _render_longest(recovered, "not before the next fault"),
            _render_time(None if fault.healed is None else fault.healed - zero),
            _render_longest(took, "never"),
        )
    return table


def _render_longest(times: Sequence[int | None], never: str) -> Text:
    measured = [time for time in times if time is not None]
    if len(measured) < len(times):
        return Text(never, style="bold yellow")
    return Text(format_nanoseconds(max(measured))) if measured else _NONE


def _render_arrivals(streams: Sequence[StreamVerdict]) -> Iterator[Table]:
    table = _start_table("arrival: from → to", "stream", "from → to", "messages", "median", "p99", "most")
    for stream in streams:
        for arrival in stream.arrivals:
            times = (arrival.spread.p50, arrival.spread.p99, arrival.spread.max)
            table.add_row(
                stream.name,
                f"{arrival.origin} → {arrival.region}",
                f"{arrival.spread.count:,}",
                *(format_nanoseconds(time) for time in times),
            )
    if table.row_count:
        yield table


def _render_consumers(streams: Sequence[StreamVerdict]) -> Iterator[Table]:
    table = _start_table("consumers", "consumer", "delivered", "redelivered", "repeated", "skipped", "behind", left=1)
    for stream in streams:
        for consumer in stream.consumers:
            counts = (consumer.delivered, consumer.redelivered, consumer.repeated, consumer.skipped, consumer.behind)
            table.add_row(consumer.client, *(f"{count:,}" for count in counts))
    if table.row_count:
        yield table


def _render_recorder(verdict: Verdict) -> Text:
    late = verdict.lateness
    shown = (
        f"median {format_nanoseconds(late.p50)}, p99 {format_nanoseconds(late.p99)}, most {format_nanoseconds(late.max)}"
        if late is not None
        else "nothing was sent"
    )
    machine = ", ".join(f"{key} {value}" for key, value in verdict.manifest.machine.items())
    return Text.assemble(("delay of the recorder itself: ", "bold"), shown, f"; {machine}" if machine else "")
