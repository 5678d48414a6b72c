"""The page stands alone, shows everything, and believes no text that it shows."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from tests.support.captures import SECOND, WALL, History, Shape, clean, fault
from vstream.capture.records import (
    CapturedServer,
    FaultOutcome,
    OperationKind,
    OperationOutcome,
    OperationRecord,
    Window,
)
from vstream.capture.verdict.judge_capture import judge_capture
from vstream.capture.verdict.model import Verdict
from vstream.cli.views import charts
from vstream.cli.views.verdict import render_report
from vstream.cli.views.verdict_page import render_page

EVIL = "\x1b[31m\x00\x9b<script>alert('x')</script>\"onload=x&amp;</style>{{7*7}}<<7*7>>"
TAMED = EVIL.translate(dict.fromkeys(map(ord, "\x1b\x00\x9b"), "\N{REPLACEMENT CHARACTER}"))
VOID = {"meta", "rect", "path", "br", "input"}


class Page(HTMLParser):
    """Elements with their attributes, and texts by element; fails where an element is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.append((self._open[-1], data))

    def data(self) -> Any:
        """What tooltips are made from."""
        (text,) = [text for tag, text in self.texts if tag == "script" and text.startswith("{")]
        return json.loads(text)

    def text(self) -> str:
        return " ".join(text for tag, text in self.texts if tag not in {"script", "style"})


def eventful(regions: tuple[str, ...] = ("west", "central", "east")) -> History:
    history = clean(Shape(messages=80, regions=regions, indeterminate=0.1, rejected=0.1))
    history.faults += [
        fault(f"kill-region {regions[0]}"),
        fault("kill-leader foo", injected=3 * SECOND, healed=None),
        fault("disk-full east", outcome=FaultOutcome.UNSUPPORTED, injected=5 * SECOND),
    ]
    history.windows += [
        Window(name="down", start=SECOND, end=2 * SECOND, action="wait 1s"),
        Window(name="back", start=2 * SECOND, end=5 * SECOND, action="converge", is_ok=False, detail="gave up"),
    ]
    for number in range(20):
        outcome = OperationOutcome.OK if number % 3 else OperationOutcome.INDETERMINATE
        history.operations.append(
            OperationRecord(
                client="reader",
                region=regions[0],
                kind=OperationKind.READ,
                stream="foo",
                due=number * SECOND // 5,
                sent=number * SECOND // 5,
                done=number * SECOND // 5 + 1_000 if outcome is OperationOutcome.OK else None,
                outcome=outcome,
            )
        )
    history.samples = [
        replace(sample, control_plane=None, error="timeout") if sample.at == SECOND else sample
        for sample in history.samples
    ]
    history.streams[f"foo-read-{regions[0]}"].pop(8)
    return history


@pytest.fixture
def verdict(tmp_path: Path) -> Verdict:
    return judge_capture(eventful().write(tmp_path))


def test_the_page_needs_nothing_from_anywhere(verdict: Verdict) -> None:
    text = render_page(verdict)
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bfetch\(|XMLHttpRequest|\bimport\b", text)
    for tag, attributes in Page(text).elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert not {"src", "href", "xlink:href", "srcset", "action"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]


def test_the_page_fits_a_phone(verdict: Verdict) -> None:
    read = Page(render_page(verdict))
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in read.elements
    tags = [tag for tag, _ in read.elements]
    scrolls = sum(tag == "div" and attributes.get("class") == "scroll" for tag, attributes in read.elements)
    assert scrolls == tags.count("table") > 0
    plots = [attributes for tag, attributes in read.elements if tag == "svg" and attributes.get("role") == "img"]
    assert plots
    assert {plot["preserveaspectratio"] for plot in plots} == {"none"}


def test_a_number_at_a_line_of_the_replay_grows_away_from_it(verdict: Verdict) -> None:
    label = re.compile(r'<line x1="(.+?)" y1=".+?" x2="(.+?)" y2=".+?"/><text x="(.+?)" y=".+?" text-anchor="(.+?)"')
    anchors = set()
    for left, right, at, anchor in label.findall(render_page(verdict)):
        start, end = float(left), float(right)
        crossing = start + 0.62 * (end - start)
        expected = "start" if float(at) > crossing else "end"
        assert anchor == (expected if abs(float(at) - crossing) > 3 else "middle")
        anchors.add(anchor)
    assert anchors == {"start", "middle", "end"}


def test_the_page_begins_with_the_story(verdict: Verdict) -> None:
    text = " ".join(Page(render_page(verdict)).text().split())
    story = text[text.index("What happened") : text.index("What failed")]
    tallies = [tally for stream in verdict.streams for tally in stream.origins.values()]
    assert f"Clients in 3 regions published {sum(each.attempted for each in tallies):,} messages to 1 virtual" in story
    assert f"{sum(each.acknowledged for each in tallies):,} were acknowledged." in story
    assert "kill-region west, healed at" in story
    assert "disk-full east" not in story, "it did not happen"
    assert "Of what was acknowledged: 1 lost, 0 doubled, 0 reordered." in story


def test_the_story_claims_nothing_that_is_unknown(tmp_path: Path) -> None:
    history = clean(Shape(messages=20))
    assert "No acknowledged message was lost, duplicated or reordered." in render_page(
        judge_capture(history.write(tmp_path / "whole"))
    )
    unread = history.roles["foo-read-west"]
    history.roles["foo-read-west"] = replace(unread, messages=None, error="timeout")
    text = render_page(judge_capture(history.write(tmp_path / "partly")))
    assert "lost, duplicated or reordered is not known for all streams" in text
    assert "No acknowledged message was lost" not in text


def test_the_replay_has_every_region_and_every_way(verdict: Verdict) -> None:
    read = Page(render_page(verdict))
    shapes = [attributes for tag, attributes in read.elements if tag == "g"]
    assert [each["data-region"] for each in shapes if each["class"] == "region"] == list(verdict.timeline.publishes)
    pairs = {(each["data-origin"], each["data-reader"]) for each in shapes if each["class"] == "way"}
    assert pairs == {
        (origin, reader)
        for origin in ("west", "central", "east")
        for reader in ("west", "central", "east")
        if origin != reader
    }
    faults = {each["name"]: (each["from"], each["to"]) for each in read.data()["faults"]}
    assert faults.keys() == {"kill-region west", "kill-leader foo"}
    assert all(start < end for start, end in faults.values())


def test_every_point_is_on_the_page(verdict: Verdict) -> None:
    timeline = verdict.timeline
    data = Page(render_page(verdict)).data()
    charts_ = {
        (chart["unit"], chart["title"]): {each["name"]: each["values"] for each in chart["series"]}
        for chart in data["charts"]
    }
    assert (data["interval"], data["start"], data["intervals"]) == (1, 0, timeline.intervals)
    for region, seconds in timeline.publishes.items():
        assert charts_["rate", region] == {
            "acknowledged": [second.ok for second in seconds],
            "rejected": [second.rejected for second in seconds],
            "no answer": [second.indeterminate for second in seconds],
        }
        assert charts_["ns", region] == {
            "median": [second.p50 for second in seconds],
            "p99": [second.p99 for second in seconds],
        }
        assert charts_["answer", region] == {"control plane": list(timeline.control_plane[region])}
        for origin, lags in timeline.lag.items():
            assert charts_["messages", f"in {region}"][f"from {origin}"] == list(lags[region])
    (shares,) = charts_["share", "west"].values()
    assert shares == [None if share is None else round(share, 6) for share in timeline.reads["west"]]
    assert len(charts_) == len(data["charts"])


def test_the_page_says_what_the_verdict_says(verdict: Verdict) -> None:
    read = Page(render_page(verdict))
    text = read.text()
    for case in verdict.cases:
        assert case.name in text
        assert case.detail in text
    assert verdict.streams[0].served[0].lost.examples[0].id in text
    bars = [attributes for tag, attributes in read.elements if "bar fault" in (attributes.get("class") or "")]
    assert [bar["title"] for bar in bars] == ["kill-region west: 1 s to 2 s", "kill-leader foo: 3 s to 3 s"]
    steps = [attributes for tag, attributes in read.elements if "bar step" in (attributes.get("class") or "")]
    assert [step["class"] for step in steps] == ["bar step", "bar step failed"]


def test_times_on_the_axis_are_those_of_the_tables(tmp_path: Path) -> None:
    history = eventful()
    history.operations = [
        replace(
            operation,
            due=operation.due + 42 * SECOND,
            sent=operation.sent + 42 * SECOND,
            done=operation.done and operation.done + 42 * SECOND,
        )
        for operation in history.operations
    ]
    history.manifest = replace(history.manifest, load=(42 * SECOND + SECOND // 2, 50 * SECOND))
    history.faults, history.windows = [fault(injected=45 * SECOND, healed=46 * SECOND)], []
    verdict = judge_capture(history.write(tmp_path))
    text = render_page(verdict)
    read = Page(text)
    assert (read.data()["start"], read.data()["intervals"]) == (0, 8)
    assert '<span style="left: 12.5%" class="odd">1</span>' in text
    (bar,) = [attributes for tag, attributes in read.elements if "bar fault" in (attributes.get("class") or "")]
    assert "2.5 s to 3.5 s" in text
    cells = [content.strip() for tag, content in read.texts if tag == "td"]
    row = cells[cells.index("kill-region west") :]
    assert row[2:4] == ["2.5 s", "3.5 s"]
    table = Console(width=200, record=True, file=StringIO())
    table.print(*render_report(verdict, 200))
    shown = table.export_text()
    assert re.search(r"confirmed +2.5 s .* 3.5 s ", shown), shown
    assert (bar["style"] or "").startswith("left: 31.25%; width: 12.5%")


@pytest.mark.parametrize("width", [60, 100, 200])
def test_no_column_of_the_report_is_cut_on_a_narrow_screen(tmp_path: Path, width: int) -> None:
    verdict = judge_capture(eventful().write(tmp_path))
    screen = Console(width=width, record=True, file=StringIO())
    for part in render_report(verdict, width):
        screen.print(part)
    shown = screen.export_text()
    assert "…" not in shown
    for heading in ("acknowledged ", "indeterminate", "diverged", "longest gap", "control plane", "recovered after"):
        assert heading in shown
    parts = shown.split("by window")[0].split("\nmessages")[1:]
    assert len(parts) == {60: 4, 100: 2, 200: 1}[width]
    assert all("  foo      central " in part for part in parts), "each part names its rows"


def test_no_text_becomes_markup(tmp_path: Path) -> None:
    history = eventful()
    manifest = history.manifest
    history.manifest = replace(
        manifest,
        scenario=EVIL,
        backend=EVIL,
        machine={EVIL: EVIL},
        servers=(CapturedServer(name=EVIL, region=EVIL, cluster=EVIL, version=EVIL, panics=(f"FTL {EVIL}",)),),
        regions=("west", "central", "east"),
    )
    history.faults[0] = replace(history.faults[0], command=EVIL, evidence=EVIL)
    history.faults[2] = replace(history.faults[2], error=EVIL)
    history.windows[0] = replace(history.windows[0], name=EVIL, action=EVIL)
    history.windows[1] = replace(history.windows[1], detail=EVIL)
    history.streams["foo-read-east"].append(
        replace(history.streams["foo-read-east"][0], id=f"ghost{EVIL}", seq=9_999, time=WALL)
    )
    judged = judge_capture(history.write(tmp_path))
    # Regions and streams may not be called so, but a capture may say that they are.
    seconds = judged.timeline.publishes["west"]
    streams = (replace(judged.streams[0], name=EVIL, model=EVIL),)
    timeline = replace(judged.timeline, publishes={EVIL: seconds}, lag={EVIL: {EVIL: (1,) * judged.timeline.intervals}})
    text = render_page(replace(judged, timeline=timeline, streams=streams))
    read = Page(text)
    assert sum(tag == "script" for tag, _ in read.elements) == 2
    assert sum(tag == "style" for tag, _ in read.elements) == 1
    assert text.count(EVIL) == 0
    assert read.text().count(TAMED) > 10
    assert not set("\x00\x1b\x9b") & set(text)
    assert read.data()["charts"][0]["title"] == EVIL
    # What is between the tags of a script is not escaped as HTML is: no text of it may look like a tag.
    assert not set("<>&") & set(next(text for tag, text in read.texts if tag == "script"))


def test_the_page_of_an_empty_capture_says_unknown(tmp_path: Path) -> None:
    history = clean(Shape(messages=1))
    history.manifest = replace(history.manifest, models={}, servers=(), load=None, is_complete=False)
    bare = History(manifest=history.manifest)
    assert "UNKNOWN" in Page(render_page(judge_capture(bare.write(tmp_path)))).text()


@given(st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=1))
def test_a_line_has_every_value_and_gaps_where_there_are_none(values: list[int | None]) -> None:
    path = charts.line(values, charts.Scale(0, 100))
    points = re.findall(r"[ML](\d+)(?:\.5)?,([\d.e-]+)", path)
    assert [int(x) for x, _ in points] == [place for place, value in enumerate(values) if value is not None]
    assert [float(y) for _, y in points] == pytest.approx([100 - value for value in values if value is not None])


@given(st.lists(st.integers(0, 100), min_size=1))
def test_an_area_follows_every_value(values: list[int]) -> None:
    path = charts.area([0] * len(values), values, charts.Scale(0, 100))
    assert bool(path) is any(values)
    if path:
        tops = re.findall(r"V([\d.e-]+)H(\d+)", path)[: len(values)]
        assert [(100 - float(y), int(x)) for y, x in tops] == [(value, place) for place, value in enumerate(values, 1)]


@given(st.floats(0, 1e12))
def test_a_scale_ends_above_its_values(value: float) -> None:
    scale = charts.linear([value, value / 2])
    assert scale.high >= value
    assert charts.CHART_HEIGHT >= scale.y(value / 2) >= scale.y(value) >= 0


@given(st.lists(st.floats(1, 1e12), min_size=1))
@example([999_999_999_999.998])
def test_a_logarithmic_scale_holds_its_values(values: list[float]) -> None:
    scale = charts.logarithmic(values)
    assert scale.low <= min(values) <= max(values) <= scale.high
    assert scale.low < scale.high


@given(st.integers(0, 10_000), st.floats(1, 1e6))
def test_ticks_are_few_and_on_the_page(start: int, length: float) -> None:
    ticks = charts.choose_ticks(start, start + length)
    assert 1 <= len(ticks) <= 13
    assert start <= ticks[0]
    assert ticks[-1] <= start + length


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=12))
def test_bars_in_one_lane_do_not_meet(spans: list[tuple[int, int]]) -> None:
    bars = sorted((start, start + length) for start, length in spans)
    lanes = charts.assign_lanes(bars)
    for lane in set(lanes):
        mine = [bar for bar, number in zip(bars, lanes, strict=True) if number == lane]
        assert all(bar[1] <= next_bar[0] for bar, next_bar in itertools.pairwise(mine))
