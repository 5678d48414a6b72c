"""
A verdict as one HTML page that needs nothing else: no scripts, styles, fonts or pictures from anywhere.

The template has the words and the layout; here are the numbers and the shapes. Everything
that a chart shows is in the page as JSON too, which is where its tooltips come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import cos, pi, sin
from typing import Any

from markupsafe import Markup

from vstream import resources
from vstream.capture.records import FaultOutcome, FaultRecord
from vstream.capture.verdict import units
from vstream.capture.verdict.context import end_of_fault
from vstream.capture.verdict.model import CaseKind, CaseStatus, FaultVerdict, Timeline, Verdict
from vstream.capture.verdict.units import format_nanoseconds
from vstream.cli.views import charts
from vstream.cli.views.verdict import example_line
from vstream.formatting import format_count
from vstream.render.environment import make_jinja_environment
from vstream.syntax.document import Json
from vstream.timing import SECOND_NS

TEMPLATE = "verdict.html.j2"
_OUTCOMES = ("ok", "rejected", "indeterminate")
_NAMES = {"ok": "acknowledged", "rejected": "rejected", "indeterminate": "no answer"}
_FAILED_VALUE = -1
_HEADROOM_FACTOR = 1.1
_MIN_WIDTH_PERCENT = 0.4
"""Percent of the page's width: a fault that is over at once is drawn so wide."""


def render_page(verdict: Verdict) -> str:
    """The whole page."""
    env = make_jinja_environment([resources.templates() / "reports"], is_html=True)
    env.filters |= {"duration": units.format_nanoseconds, "share": units.format_share}
    shown = list(_list_charts(verdict))
    findings = []
    for stream in verdict.streams:
        for finding in stream.findings():
            findings.append(
                (finding, [example_line(example, verdict.load_start) for example in finding.affected.examples])
            )
    return env.get_template(TEMPLATE).render(
        verdict=verdict,
        manifest=verdict.manifest,
        counts={status.value: count for status, count in verdict.counts.items()},
        story=list(tell(verdict)),
        expectations=[case for case in verdict.cases if case.kind in {CaseKind.EXPECTATION, CaseKind.SAFETY}],
        player=_make_player(verdict.timeline),
        cases={status.value: [case for case in verdict.cases if case.status is status] for status in CaseStatus},
        findings=findings,
        bands=_list_bands(verdict),
        steps=_list_steps(verdict),
        ticks=_list_ticks(verdict.timeline, verdict.load_start),
        sections=charts.group_by_section(shown),
        data=_embed_data(verdict, shown),
        versions=sorted({server.version for server in verdict.manifest.servers}),
        intervals=verdict.timeline.intervals,
    )


def _embed_data(verdict: Verdict, shown: Sequence[Mapping[str, Any]]) -> Markup:
    """What tooltips and the replay say."""
    timeline, zero = verdict.timeline, verdict.load_start
    data = {
        "interval": timeline.interval / SECOND_NS,
        "start": (timeline.start - zero) / SECOND_NS,
        "intervals": timeline.intervals,
        "charts": [{"title": chart["title"], "unit": chart["unit"], "series": chart["data"]} for chart in shown],
        "faults": _fault_moments(verdict),
    }
    return charts.embed_json(data)


def _make_player(timeline: Timeline) -> dict[str, Any]:
    """Where the replay draws regions, and an arrow for each pair of them: a point is x, y in a box of 520 by 320."""
    regions = list(timeline.publishes)
    points = {}
    for number, region in enumerate(regions):
        angle = 2 * pi * number / len(regions) - pi / 2
        points[region] = (260 + 170 * cos(angle), 160 + 105 * sin(angle))
    arrows = []
    for origin, lags in timeline.lag.items():
        for reader in lags:
            if origin != reader and {origin, reader} <= points.keys():
                arrows.append(_line_between(origin, reader, points))
    drawn = [{"name": name, "x": charts.short(x), "y": charts.short(y)} for name, (x, y) in points.items()]
    return {"regions": drawn, "ways": arrows}


def _line_between(origin: str, reader: str, points: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """The line from *origin* to *reader*, a little to its right, so that the way back has a line of its own."""
    (x1, y1), (x2, y2) = points[origin], points[reader]
    length = max(1.0, ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5)
    right_x, right_y = -(y2 - y1) / length * 7, (x2 - x1) / length * 7
    ends = {"x1": x1 + right_x, "y1": y1 + right_y, "x2": x2 + right_x, "y2": y2 + right_y}
    # The number stands nearer to the reader: there is where it is missing. It grows away from both lines.
    anchor = "start" if right_x > 1 else "end"
    if abs(right_x) < 1:
        anchor = "middle"
    label = {"x": x1 + 0.62 * (x2 - x1) + 2.2 * right_x, "y": y1 + 0.62 * (y2 - y1) + 2.2 * right_y}
    numbers = {key: charts.short(value) for key, value in {**ends, **label}.items()}
    return {"origin": origin, "reader": reader, "anchor": anchor, **numbers}


def _fault_moments(verdict: Verdict) -> Json:
    """The faults that happened: their names, regions, and from when to when in seconds of the timeline."""
    moments: list[Json] = []
    for fault in _list_happened(verdict):
        start, end = fault.injected - verdict.load_start, _end(fault, verdict) - verdict.load_start
        moments.append(
            {"name": fault.command, "regions": list(fault.regions), "from": start / SECOND_NS, "to": end / SECOND_NS}
        )
    return moments


def _list_charts(verdict: Verdict) -> Iterator[dict[str, Any]]:
    timeline = verdict.timeline
    yield from _list_publishes(timeline)
    yield from _list_times(timeline)
    yield from _list_lags(timeline)
    yield from _list_strip_charts(timeline)


def _list_publishes(timeline: Timeline) -> Iterator[dict[str, Any]]:
    per_second = timeline.interval / SECOND_NS
    rates = {}
    for region, seconds in timeline.publishes.items():
        rates[region] = {name: [getattr(second, name) / per_second for second in seconds] for name in _OUTCOMES}
    totals = {region: list(map(sum, zip(*rate.values(), strict=True))) for region, rate in rates.items()}
    scale = charts.linear(_HEADROOM_FACTOR * value for values in totals.values() for value in values)
    for region, rate in rates.items():
        paths, lower = [], [0.0] * timeline.intervals
        for name in _OUTCOMES:
            upper = [below + two for below, two in zip(lower, rate[name], strict=True)]
            paths.append({"kind": f"fill {name}", "d": charts.area(lower, upper, scale)})
            lower = upper
        yield {
            "section": "Publishes per second",
            "legend": [{"kind": f"fill {name}", "name": _NAMES[name]} for name in _OUTCOMES],
            "title": region,
            "unit": "rate",
            "high": f"{scale.high:,.4g}/s",
            "low": "0",
            "paths": paths,
            "data": [{"name": _NAMES[name], "values": _round_all(rate[name])} for name in _OUTCOMES],
        }


def _list_times(timeline: Timeline) -> Iterator[dict[str, Any]]:
    times = {}
    for region, seconds in timeline.publishes.items():
        times[region] = {name: [getattr(second, name) for second in seconds] for name in ("p50", "p99")}
    scale = charts.logarithmic(
        value for series in times.values() for values in series.values() for value in values if value is not None
    )
    for region, series in times.items():
        yield {
            "section": "Publish time, logarithmic",
            "title": region,
            "unit": "ns",
            "high": units.format_nanoseconds(scale.high),
            "low": units.format_nanoseconds(scale.low),
            **charts.draw_lines(series, {"p50": "median", "p99": "p99"}, scale),
        }


def _list_lags(timeline: Timeline) -> Iterator[dict[str, Any]]:
    origins = list(timeline.lag)
    readers = list(dict.fromkeys(reader for lag in timeline.lag.values() for reader in lag))
    scale = charts.linear(value for lag in timeline.lag.values() for values in lag.values() for value in values)
    for reader in readers:
        lines = [(place, origin, timeline.lag[origin].get(reader)) for place, origin in enumerate(origins)]
        curves = []
        for place, _, values in lines:
            if values is not None:
                curves.append({"kind": f"line origin-{place % 6}", "d": charts.line(values, scale)})
        yield {
            "section": "Replication lag: messages written in one region and not yet in another",
            "legend": [
                {"kind": f"line origin-{place % 6}", "name": f"from {name}"} for place, name in enumerate(origins)
            ],
            "title": f"in {reader}",
            "unit": "messages",
            "high": f"{scale.high:,.4g} messages",
            "low": "0",
            "paths": curves,
            "data": [{"name": f"from {name}", "values": values} for _, name, values in lines if values is not None],
        }


def _list_strip_charts(timeline: Timeline) -> Iterator[dict[str, Any]]:
    read_kinds: dict[float | None, str] = {None: "none", 1: "ok", 0: "rejected"}
    request_kinds: dict[int | None, str] = {None: "none", _FAILED_VALUE: "rejected"}

    legends = {
        "Reads answered": (("ok", "all"), ("indeterminate", "some"), ("rejected", "none"), ("none", "not tried")),
        "Control plane: requests that need a meta leader": (
            ("ok", "answered"),
            ("rejected", "no answer"),
            ("none", "not asked"),
        ),
    }
    rows: list[tuple[str, str, list[str], str, Sequence[Any]]] = []
    reads, control = legends
    for region, shares in timeline.reads.items():
        rows.append(
            (reads, region, [read_kinds.get(value, "indeterminate") for value in shares], "share", _round_all(shares))
        )
    for region, answers in timeline.control_plane.items():
        rows.append((control, region, [request_kinds.get(value, "ok") for value in answers], "answer", list(answers)))
    for section, region, states, unit, values in rows:
        yield {
            "section": section,
            "legend": [{"kind": f"fill {kind}", "name": name} for kind, name in legends[section]],
            "title": region,
            "unit": unit,
            "high": "",
            "low": "",
            "is_strip": True,
            "paths": [{"kind": f"fill {state}", "d": path} for state, path in charts.strip(states)],
            "data": [{"name": section.partition(":")[0].lower(), "values": values}],
        }


def _round_all(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 6) for value in values]


class _Axis:
    """Moments as percent of the timeline's width."""

    def __init__(self, timeline: Timeline) -> None:
        self._start = timeline.start
        self._length = timeline.interval * timeline.intervals

    def locate(self, moment: int) -> float:
        return min(max(100 * (moment - self._start) / self._length, 0), 100)

    def span(self, start: int, end: int) -> dict[str, Any]:
        left = self.locate(start)
        width = max(self.locate(end) - left, _MIN_WIDTH_PERCENT)
        left = min(left, 100 - width)
        return {"left": charts.short(left), "width": charts.short(width), "from": left, "to": left + width}


def _list_happened(verdict: Verdict) -> list[FaultRecord]:
    return [record.fault for record in verdict.faults if record.fault.outcome is FaultOutcome.CONFIRMED]


def _end(fault: FaultRecord, verdict: Verdict) -> int:
    """When *fault* was over; the end of the run if it never was."""
    ended = end_of_fault(fault)
    if ended is None and fault.evidence is None:
        return verdict.windows[0].window.end
    return ended or fault.confirmed or fault.injected


def _list_bands(verdict: Verdict) -> list[dict[str, Any]]:
    """Where the faults that happened are drawn: percent of the width, and lanes."""
    axis = _Axis(verdict.timeline)
    bands = []
    for fault in _list_happened(verdict):
        end = _end(fault, verdict)
        lasted = _from_to(verdict.load_start, fault.injected, end)
        bands.append({**axis.span(fault.injected, end), "name": fault.command, "title": f"{fault.command}: {lasted}"})
    return _assign_lanes(bands)


def _list_steps(verdict: Verdict) -> list[dict[str, Any]]:
    """Where the named steps are drawn."""
    axis = _Axis(verdict.timeline)
    steps = []
    for step in verdict.windows[1:]:
        window = step.window
        lasted = _from_to(verdict.load_start, window.start, window.end)
        steps.append(
            {
                **axis.span(window.start, window.end),
                "name": window.name,
                "title": f"{window.name} ({window.action}): {lasted}",
                "is_ok": window.is_ok,
            }
        )
    return _assign_lanes(steps)


def _from_to(zero: int, start: int, end: int) -> str:
    return f"{units.format_nanoseconds(start - zero)} to {units.format_nanoseconds(end - zero)}"


def _assign_lanes(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lanes = charts.assign_lanes([(item["from"], item["to"]) for item in spans])
    return [{**item, "lane": lane} for item, lane in zip(spans, lanes, strict=True)]


def _list_ticks(timeline: Timeline, zero: int) -> list[dict[str, str]]:
    length = timeline.interval * timeline.intervals / SECOND_NS
    return charts.place_ticks((timeline.start - zero) / SECOND_NS, length)


_MAX_FAULTS = 6


def tell(verdict: Verdict) -> Iterator[str]:
    """Who published what, each fault and what came of it, and what became of the messages. It claims nothing that is unknown."""
    yield _tell_workload(verdict)
    happened = [fault for fault in verdict.faults if fault.fault.outcome is FaultOutcome.CONFIRMED]
    for fault in happened[:_MAX_FAULTS]:
        yield _tell_fault(fault, verdict.load_start)
    if len(happened) > _MAX_FAULTS:
        yield f"{len(happened) - _MAX_FAULTS} more faults followed: the table of faults has all."
    yield _tell_messages(verdict)


def _tell_workload(verdict: Verdict) -> str:
    tallies = [tally for stream in verdict.streams for tally in stream.origins.values()]
    attempted = sum(tally.attempted for tally in tallies)
    acknowledged = sum(tally.acknowledged for tally in tallies)
    regions = {region for stream in verdict.streams for region, tally in stream.origins.items() if tally.attempted}
    load = verdict.manifest.load
    lasted = "" if load is None else f" in {format_nanoseconds(load[1] - load[0])}"
    return (
        f"Clients in {format_count(len(regions), 'region')} published {format_count(attempted, 'message')} to "
        f"{format_count(len(verdict.streams), 'virtual stream')}{lasted}. {acknowledged:,} were acknowledged."
    )


def _tell_fault(verdict: FaultVerdict, zero: int) -> str:
    fault = verdict.fault
    healed = "" if fault.healed is None else f", healed at {format_nanoseconds(fault.healed - zero)}"
    failed = sum(outage.failed for outage in verdict.outages)
    sentence = f"At {format_nanoseconds(fault.injected - zero)}: {fault.command}{healed}. {format_count(failed, 'publish', 'publishes')} failed."
    took = [convergence.took for convergence in verdict.convergences]
    if any(seconds is None for seconds in took):
        return f"{sentence} Something that was written before never arrived."
    slowest = max((seconds for seconds in took if seconds is not None), default=None)
    if slowest is None:
        return sentence
    when = "at once" if slowest == 0 else f"{format_nanoseconds(slowest)} after healing"
    return f"{sentence} Every region held everything {when}."


def _tell_messages(verdict: Verdict) -> str:
    safety = [case.status for case in verdict.cases if case.kind is CaseKind.SAFETY]
    copies = [copy for stream in verdict.streams for copy in stream.physical]
    counts = {
        "lost": sum(sum(stream.lost_by_origin.values()) for stream in verdict.streams),
        "doubled": sum(copy.duplicated.count for copy in copies),
        "reordered": sum(copy.reordered.count for copy in copies),
    }
    if any(counts.values()):
        return f"Of what was acknowledged: {', '.join(f'{count:,} {name}' for name, count in counts.items())}."
    if not safety or CaseStatus.UNKNOWN in safety:
        return "Whether a message was lost, duplicated or reordered is not known for all streams."
    if CaseStatus.FAIL in safety:
        return "Nothing was lost, duplicated or reordered, but messages are wrong in another way: see below."
    return "No acknowledged message was lost, duplicated or reordered."
