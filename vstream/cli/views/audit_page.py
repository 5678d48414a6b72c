"""
An audit as a self-contained HTML page, in the style of a scenario's verdict.

The template has the text and the layout; this module computes numbers and shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from vstream import __version__, resources
from vstream.audit.codes import CHAPTER
from vstream.audit.report import Delay, MessageFinding, Report
from vstream.cli.views import charts
from vstream.cli.views.audit import describe_evidence, describe_recovery, format_delay, format_share, summarize
from vstream.findings import Severity
from vstream.render.environment import make_jinja_environment
from vstream.timing import SECOND_NS

TEMPLATE = "audit.html.j2"
_MAX_POINTS = 240
"""Maximum number of points in a chart: minutes are combined until there are so few."""
_MAX_CHARTS = 6
"""Number of virtual streams with charts: those with the most errors, then the slowest."""
_MINUTE_SECONDS = 60
_MIN_POINTS = 3
"""With fewer, a chart says nothing that the table of all routes does not."""
_MIN_WIDTH_PERCENT = 0.6
"""Minimum width of a mark, in percent: even one message in a billion is visible."""
_CHART_KINDS = {"VA1": "rejected", "VA2": "indeterminate", "VA3": "moved", "VA4": "moved"}
_LEGEND = (
    ("rejected", "missing or late"),
    ("indeterminate", "too many or changed"),
    ("moved", "out of order or dropped for another"),
    ("none", "removed by limits, or in transit"),
    ("unread", "not read"),
)
_GROUPS = (
    ("error", "What is wrong", lambda finding: finding.severity is Severity.ERROR and not finding.leaves_open),
    ("warning", "What could not be checked", lambda finding: finding.leaves_open),
    ("warning", "What to check", lambda finding: finding.severity is Severity.WARNING and not finding.leaves_open),
    ("note", "Good to know", lambda finding: finding.severity is Severity.NOTE and not finding.leaves_open),
)
"""The groups of findings: the style of the mark, the heading, and which findings belong to it."""


def render_page(report: Report) -> str:
    """The whole page as HTML."""
    env = make_jinja_environment([resources.templates() / "reports"], is_html=True)
    env.filters |= {"duration": format_delay}
    codes = {finding.code for finding in report.findings}
    shown = _list_charted_streams(report)
    timeline = _Timeline([delay for delay in report.delays if delay.minute is not None and delay.virtual in shown])
    plots = list(_list_plots(report, shown, timeline)) if timeline.intervals >= _MIN_POINTS else []
    strips = [strip for virtual in shown for strip in _list_strips(report, virtual)]
    return env.get_template(TEMPLATE).render(
        report=report,
        verdict=report.verdict(),
        summary=summarize(report),
        version=__version__,
        groups=_group_findings(report),
        manual=[page for page in CHAPTER.pages if page.code in codes],
        matrices=[_make_matrix(report, virtual) for virtual in shown],
        left_out=len(report.virtuals) - len(shown),
        sections=charts.group_by_section(plots),
        ticks=timeline.ticks,
        since=timeline.since,
        intervals=timeline.intervals,
        # A stream has a bar for every other: those with nothing on them would hide the rest.
        strips=[strip for strip in strips if not strip["is_clean"]],
        clean_strips=[strip for strip in strips if strip["is_clean"]],
        strip_legend=_LEGEND,
        share=format_share,
        settled=describe_recovery,
        moment=_format_moment,
        data=_embed_data(timeline, plots),
        is_bad=lambda item: item.missing or item.extra or item.mismatched,
    )


def _format_moment(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds // SECOND_NS, tz=UTC).strftime("%H:%M:%S")


def _list_charted_streams(report: Report) -> list[str]:
    """The virtual streams that get matrices and charts."""
    wrong = dict.fromkeys(report.with_figures, 0)
    for finding in report.findings:
        if finding.severity is Severity.ERROR and finding.virtual in wrong:
            wrong[finding.virtual] += 1 + finding.count
    slowest = dict.fromkeys(report.with_figures, 0.0)
    for late in report.delays:
        slowest[late.virtual] = max(slowest[late.virtual], late.max_ns)
    order = sorted(report.with_figures, key=lambda name: (-wrong[name], -slowest[name], name))
    return order[:_MAX_CHARTS]


class _Timeline:
    """The time axis of a chart, in intervals of minutes."""

    def __init__(self, delays: Sequence[Delay]) -> None:
        minutes = [delay.minute for delay in delays if delay.minute is not None]
        self._first = min(minutes, default=0)
        length = max(minutes, default=0) - self._first + 1
        self._step = -(-length // _MAX_POINTS)
        self.intervals = -(-length // self._step)
        self.seconds = self._step * _MINUTE_SECONDS

    @property
    def since(self) -> str:
        """The start of the first minute."""
        return datetime.fromtimestamp(self._first * _MINUTE_SECONDS, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")

    @property
    def ticks(self) -> list[dict[str, str]]:
        """Round numbers of minutes, and their positions."""
        return charts.place_ticks(0, self.intervals * self._step)

    def series(self, delays: Sequence[Delay]) -> dict[str, list[float | None]]:
        """The median of medians, and the worst of the rest, by interval."""
        groups: list[list[Delay]] = [[] for _ in range(self.intervals)]
        for delay in delays:
            if delay.minute is not None:
                groups[(delay.minute - self._first) // self._step].append(delay)
        middle = [sorted(item.p50_ns for item in group) for group in groups]
        return {
            "p50": [max(group[len(group) // 2], 1.0) if group else None for group in middle],
            "p99": [max(*(item.p99_ns for item in group), 1.0) if group else None for group in groups],
            "most": [max(*(float(item.max_ns) for item in group), 1.0) if group else None for group in groups],
        }


def _list_plots(report: Report, shown: Sequence[str], timeline: _Timeline) -> Iterator[dict[str, Any]]:
    for virtual in shown:
        pairs: dict[tuple[str, str], list[Delay]] = {}
        for delay in report.delays:
            if delay.virtual == virtual and delay.minute is not None:
                pairs.setdefault((delay.origin_region, delay.region), []).append(delay)
        series = {pair: timeline.series(group) for pair, group in pairs.items()}
        scale = charts.logarithmic(
            value for sery in series.values() for values in sery.values() for value in values if value is not None
        )
        for (origin, reader), lines in series.items():
            yield {
                "section": f"{virtual}: delay from one region to another, logarithmic",
                "title": f"{origin} → {reader}",
                "high": format_delay(scale.high),
                "low": format_delay(scale.low),
                **charts.draw_lines(lines, {"p50": "median", "p99": "p99", "most": "longest"}, scale),
            }


def _group_findings(report: Report) -> list[tuple[str, str, list[tuple[MessageFinding, list[str]]]]]:
    """The findings of *report* by group: its style, its title, and each finding with its evidence."""
    groups = []
    for look, title, belongs in _GROUPS:
        findings = [(finding, list(describe_evidence(finding))) for finding in report.findings if belongs(finding)]
        groups.append((look, title, findings))
    return groups


def _make_matrix(report: Report, virtual: str) -> dict[str, Any]:
    """Origin × reader, with delays."""
    routes = [route for route in report.routes if route.virtual == virtual]
    late = {}
    for delay in report.delays:
        if delay.virtual == virtual and delay.minute is None:
            late[(delay.origin_region, delay.region)] = delay
    readers = list(dict.fromkeys((route.region, route.stream) for route in routes))
    cells = {(route.origin, route.stream): route for route in routes}
    rows = []
    for origin, place in dict.fromkeys((route.origin, route.origin_region) for route in routes):
        rows.append(
            (
                report.display_name(place) if place else origin,
                origin,
                [(cells[origin, stream], late.get((place or "", region))) for region, stream in readers],
            )
        )
    return {
        "virtual": virtual,
        "verdict": report.verdict(virtual),
        "readers": [(report.display_name(region), stream) for region, stream in readers],
        "rows": rows,
    }


def _list_strips(report: Report, virtual: str) -> Iterator[dict[str, Any]]:
    """For each origin and reader: errors along the sequences of the origin."""
    ends = {stream.stream: stream for stream in report.streams if stream.virtual == virtual and stream.is_origin}
    for origin, state in ends.items():
        routes = [route for route in report.routes if (route.virtual, route.origin) == (virtual, origin)]
        lows = [route.least for route in routes if route.least is not None]
        highs = [route.greatest for route in routes if route.greatest is not None]
        findings = [finding for finding in report.findings if (finding.virtual, finding.origin) == (virtual, origin)]
        lows += [part.first for item in findings for part in item.ranges]
        highs += [part.last for item in findings for part in item.ranges]
        if state.rows and state.first_seq is not None and state.last_seq is not None:
            lows.append(state.first_seq)
            highs.append(state.last_seq)
        if not lows or not highs:
            continue
        low, high = min(lows), max(highs)
        places = [(state.region, origin, state.error is None)]
        places += [(route.region, route.stream, route.arrived is not None) for route in routes]
        rows = []
        for region, stream, is_read in places:
            rows.append(
                {
                    "region": region,
                    "stream": stream,
                    "is_read": is_read,
                    "marks": list(_list_marks(findings, stream, low, high)),
                }
            )
        yield {
            "virtual": virtual,
            "origin": origin,
            "low": f"{low:,}",
            "high": f"{high:,}",
            "rows": rows,
            "is_clean": all(row["is_read"] and not row["marks"] for row in rows),
        }


def _list_marks(findings: Sequence[MessageFinding], stream: str, low: int, high: int) -> Iterator[dict[str, str]]:
    length = high - low + 1
    for entry in sorted(findings, key=lambda item: item.severity is Severity.ERROR):
        if entry.stream != stream:
            continue
        kind = "none" if entry.severity is Severity.NOTE else _CHART_KINDS.get(entry.code[:3], "moved")
        for part in entry.ranges:
            width = max(100 * (part.last - part.first + 1) / length, _MIN_WIDTH_PERCENT)
            left = min(100 * (part.first - low) / length, 100 - width)
            yield {
                "kind": kind,
                "left": charts.short(left),
                "width": charts.short(width),
                "title": f"{entry.code} {entry.name}, {part.text}: {part.number:,}",
            }


def _embed_data(timeline: _Timeline, plots: Sequence[dict[str, Any]]) -> Markup:
    """What tooltips say."""
    data = {
        "interval": timeline.seconds,
        "start": 0,
        "unit": "min",
        "per": _MINUTE_SECONDS,
        "most": 0,
        "intervals": timeline.intervals,
        "charts": [{"title": plot["title"], "unit": "ns", "series": plot["data"]} for plot in plots],
    }
    return charts.embed_json(data)
