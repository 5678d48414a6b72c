"""Scenarios: what they have, the live view of a run, and what an exploration found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vstream.capture.records import Sample
from vstream.capture.verdict.model import CaseStatus
from vstream.cli.views import console
from vstream.cli.views.cleaning import clean
from vstream.formatting import format_count
from vstream.runner import events
from vstream.runner.explore import Exploration, ExploredRun
from vstream.runner.workload.spec import WorkloadProgress
from vstream.scenario.model import Inject, Scenario
from vstream.scenario.timeline import find_minimum_duration
from vstream.timing import SECOND_NS

_LEVELS = "▁▂▃▄▅▆▇█"
_MAX_COLUMNS = 60
"""Columns of the timeline; a column stands for a second, and for more once they are used up."""
_GOOD, _FAIR = 0.99, 0.5
_MARK = {
    events.FaultState.CONFIRMED: "✗",
    events.FaultState.HEALING: "…",
    events.FaultState.HEALED: "✓",
    events.FaultState.UNSUPPORTED: "-",
    events.FaultState.FAILED: "!",
}


@contextmanager
def show_run(regions: Sequence[str]) -> Iterator[Callable[[events.Event], None]]:
    """Show on standard error what the events that are handed in say."""
    screen = console.stderr()
    view = LiveTimeline(regions)
    if not screen.is_terminal:

        def say(event: events.Event) -> None:
            view.take(event)
            line = view.line(event)
            if line is not None:
                screen.print(line)

        yield say
        return
    with Live(get_renderable=view.render, console=screen, refresh_per_second=4, transient=True):
        yield view.take


@dataclass(slots=True)
class _Band:
    """One fault, in nanoseconds since the capture's start."""

    command: str
    state: events.FaultState
    begun: int
    ended: int | None = None


@dataclass(slots=True)
class _Region:
    """What is known of one region. Published and acknowledged in each second."""

    latest: WorkloadProgress | None = None
    before: WorkloadProgress | None = None
    due: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    acked: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    sample: Sample | None = None


class LiveTimeline:
    """Everything that was seen so far."""

    def __init__(self, regions: Sequence[str]) -> None:
        self._regions = {region: _Region() for region in regions}
        self._bands: dict[str, _Band] = {}
        self._doing = ""
        self._step: events.StepBegan | None = None
        self._began: int | None = None
        self._now = 0

    def take(self, event: events.Event) -> None:
        """Remember *event*."""
        match event:
            case events.WorkerProgress():
                self._take_progress(event.region, event.progress)
            case events.SampleTaken():
                if event.sample.region in self._regions:
                    self._regions[event.sample.region].sample = event.sample
            case events.Activity():
                self._now, self._doing, self._step = event.at, event.description, None
            case events.WorkloadBegan():
                self._began = event.at
            case events.StepBegan():
                self._now, self._step = event.at, event
            case events.StepEnded():
                self._now = event.at
            case events.FaultStateChanged():
                self._take_fault(event)

    def _take_progress(self, name: str, progress: WorkloadProgress) -> None:
        region = self._regions.get(name)
        if region is None or not progress.is_ready:
            return
        self._now = max(self._now, progress.at)
        before = region.latest
        region.before, region.latest = before, progress
        if before is None or progress.due == 0:
            return
        second = max(0, (progress.at - (self._began or 0)) // SECOND_NS)
        region.due[second] += progress.due - before.due
        region.acked[second] += progress.acked - before.acked

    def _take_fault(self, event: events.FaultStateChanged) -> None:
        self._now = max(self._now, event.at)
        band = self._bands.setdefault(event.id, _Band(command=event.command, state=event.state, begun=event.at))
        band.state = event.state
        if event.state in {events.FaultState.HEALED, events.FaultState.UNSUPPORTED, events.FaultState.FAILED}:
            band.ended = event.at

    def line(self, event: events.Event) -> Text | None:
        """One line of a log for *event*, None for those that come all the time."""
        match event:
            case events.Activity():
                return self._with_time(event.at, Text(event.description))
            case events.StepBegan():
                return self._with_time(event.at, self._step_text(event))
            case events.StepEnded(is_ok=False):
                return self._with_time(event.at, Text(f"not reached: {event.detail}", style="red"))
            case events.FaultStateChanged():
                detail = f": {event.detail}" if event.detail else ""
                return self._with_time(
                    event.at, Text(f"{_MARK[event.state]} {event.command} {event.state.value}{detail}", style="yellow")
                )
            case _:
                return None

    def _with_time(self, at: int, text: Text) -> Text:
        time = " " * 9 if self._began is None else f"{max(0, at - self._began) / SECOND_NS:7.1f} s"
        return Text.assemble((f"{time}  ", "dim"), text)

    def _step_text(self, step: events.StepBegan) -> Text:
        name = f" ({step.name})" if step.name else ""
        return Text(f"step {step.number} of {step.total}: {step.description}{name}")

    def render(self) -> RenderableType:
        """The screen as it is now."""
        text = self._step_text(self._step) if self._step is not None else Text(self._doing)
        head = self._with_time(self._now, text)
        if self._began is None:
            return head
        per_column = max(1, -(-((self._now - self._began) // SECOND_NS + 1) // _MAX_COLUMNS))
        grid = Table.grid(padding=(0, 1))
        for _ in range(3):
            grid.add_column(no_wrap=True)
        for name, region in self._regions.items():
            grid.add_row(name, self._bar(region, per_column), self._rates(region))
        for band in self._bands.values():
            grid.add_row("", self._band(band, per_column), Text(band.command, style="yellow"))
        return Group(head, grid)

    def _bar(self, region: _Region, per_column: int) -> Text:
        text = Text()
        last = (self._now - (self._began or 0)) // SECOND_NS
        for column in range(min(_MAX_COLUMNS, last // per_column + 1)):
            seconds = range(column * per_column, (column + 1) * per_column)
            due, acked = sum(region.due[second] for second in seconds), sum(region.acked[second] for second in seconds)
            share = min(1.0, acked / due) if due else None
            if share is None:
                text.append("·", "dim")
            else:
                text.append(_LEVELS[min(len(_LEVELS) - 1, int(share * len(_LEVELS)))], _choose_style(share))
        return text

    def _band(self, band: _Band, per_column: int) -> Text:
        began = self._began or 0
        first = max(0, (band.begun - began) // SECOND_NS // per_column)
        last = max(first, ((self._now if band.ended is None else band.ended) - began) // SECOND_NS // per_column)
        style = "dim" if band.state is events.FaultState.UNSUPPORTED else "red"
        return Text(" " * first) + Text("━" * (last - first + 1), style=style)

    @staticmethod
    def _rates(region: _Region) -> Text:
        latest, before = region.latest, region.before
        if latest is None or before is None or latest.at <= before.at:
            return Text("")
        seconds = (latest.at - before.at) / SECOND_NS
        parts = [
            f"{(latest.acked - before.acked) / seconds:.0f}/s acked",
            f"{latest.rejected + latest.indeterminate} not",
            f"{(latest.answered - before.answered) / seconds:.0f}/s read",
            f"{(latest.delivered - before.delivered) / seconds:.0f}/s delivered",
        ]
        text = Text(", ".join(parts))
        if region.sample is not None and region.sample.control_plane is None:
            text.append(", JetStream API unavailable", "red")
        return text


def _choose_style(share: float) -> str:
    if share >= _GOOD:
        return "green"
    return "yellow" if share >= _FAIR else "red"


def describe_scenario(scenario: Scenario) -> str:
    """`9 steps, 3 faults, 12 expectations, about 60 s plus convergence`."""
    faults = _count_faults(scenario)
    parts = ((len(scenario.steps), "step"), (faults, "fault"), (len(scenario.expectations), "expectation"))
    counted = ", ".join(format_count(number, noun) for number, noun in parts)
    return f"{counted}, about {_least_seconds(scenario)} s plus convergence"


def render_table(scenarios: Mapping[str, Scenario]) -> Table:
    """One line for each scenario."""
    grid = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    for title, justify in (("scenario", "left"), ("steps", "right"), ("at least", "right"), ("", "left")):
        grid.add_column(title, justify=justify, no_wrap=bool(title))  # type: ignore[arg-type]
    for name, scenario in scenarios.items():
        grid.add_row(
            name, str(len(scenario.steps)), f"{_least_seconds(scenario)} s", scenario.description.partition("\n")[0]
        )
    return grid


def scenario_as_dict(name: str, scenario: Scenario) -> dict[str, Any]:
    """As JSON would have it."""
    return {
        "name": name,
        "description": scenario.description,
        "steps": len(scenario.steps),
        "faults": _count_faults(scenario),
        "expectations": len(scenario.expectations),
        "at_least_s": _least_seconds(scenario),
    }


def _count_faults(scenario: Scenario) -> int:
    return sum(isinstance(step.action, Inject) for step in scenario.steps)


def _least_seconds(scenario: Scenario) -> int:
    return -(-find_minimum_duration(scenario) // SECOND_NS)


_CASE_STYLES = {CaseStatus.PASS: "green", CaseStatus.FAIL: "bold red", CaseStatus.UNKNOWN: "bold yellow"}
_MAX_CASES = 5


class ExplorationLog:
    """Says on standard error what happens."""

    def on_begin(self, number: int, seed: int, steps: str) -> None:
        """A scenario begins to run."""
        console.print_note(f"{number:>4}  seed {seed}: {steps or 'no fault'}")

    def on_shrink(self, number: int, steps: str) -> None:
        """A shorter scenario is tried."""
        console.print_note(f"{number:>4}  shorter: {steps or 'no fault'}", style="dim")

    def on_end(self, explored: ExploredRun) -> None:
        """A scenario has run."""
        console.stderr().print(describe_run(explored))


def describe_run(run: ExploredRun) -> Text:
    """How one run ended."""
    result = run.outcome
    text = Text.assemble(
        "      ",
        (result.status.value.upper(), _CASE_STYLES[result.status]),
        f" in {run.seconds:g} s: {result.acknowledged:,} acknowledged, {result.lost:,} lost, {result.duplicated:,} duplicated",
    )
    if result.detail:
        text.append(f"; {clean(result.detail)}")
    return text


def summarize(exploration: Exploration) -> Iterator[Table | Text]:
    """What did not pass, and the sums."""
    for run in exploration.runs:
        if run.outcome.status is CaseStatus.PASS:
            continue
        yield Text.assemble(
            (run.outcome.status.value.upper(), _CASE_STYLES[run.outcome.status]), f" {run.directory}: {run.steps}"
        )
        for case in run.outcome.failed[:_MAX_CASES]:
            yield Text(f"  {clean(case)}")
        if len(run.outcome.failed) > _MAX_CASES:
            yield Text(f"  and {len(run.outcome.failed) - _MAX_CASES} more")
        if run.short is not None:
            yield Text(f"  replay: vstream scenario run {run.short}")
        if run.note:
            yield Text(f"  {run.note}")
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("seed", "runs", "passed", "failed", "unknown", "acknowledged", "lost", "duplicated"):
        grid.add_column(heading, justify="right")
    sums = (
        sum(run.outcome.acknowledged for run in exploration.runs),
        sum(run.outcome.lost for run in exploration.runs),
        sum(run.outcome.duplicated for run in exploration.runs),
    )
    counts = (
        len(exploration.runs),
        *(exploration.count(status) for status in (CaseStatus.PASS, CaseStatus.FAIL, CaseStatus.UNKNOWN)),
    )
    grid.add_row(str(exploration.seed), *(f"{number:,}" for number in (*counts, *sums)))
    yield grid
