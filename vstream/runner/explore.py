"""
Random scenarios, one after the other, until time is up; one that fails is shortened.

What came of each run lies in a directory of its own:

    OUT/001-SEED/scenario.yaml      replays it: `vstream scenario run OUT/001-SEED/scenario.yaml`
    OUT/001-SEED/capture/           of a run that did not pass, or of all if wanted
    OUT/001-SEED/short.yaml         of one that failed: as little of it as fails as well
    OUT/explored.json               all of it, rewritten after each run
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from vstream.capture.verdict.model import CaseStatus, Verdict
from vstream.errors import VstreamError
from vstream.files import save_output
from vstream.lint.check_scenario import check_scenario
from vstream.scenario.generate import ScenarioData, to_yaml
from vstream.scenario.model import Scenario
from vstream.scenario.shrink import shrink
from vstream.value_class import value_class

_MAX_SEED = 2**31
_CONFIRMATIONS = 3
"""How often a failed scenario runs again before it counts as one that does not fail every time."""


@value_class
class RunOutcome:
    """The outcome of one run."""

    status: CaseStatus
    failed: tuple[str, ...] = ()
    """Names of the cases that failed or are unknown."""
    measures: frozenset[str] = frozenset()
    """Their measures: what must fail again in a shorter scenario."""
    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    detail: str | None = None
    """Why there is no verdict."""


@value_class
class ExploredRun:
    """One explored scenario."""

    number: int
    seed: int
    steps: str
    """Its faults in one line."""
    outcome: RunOutcome
    seconds: float
    directory: Path
    short: Path | None = None
    """The short scenario that also fails, if this one failed."""
    note: str | None = None
    """Result of making it shorter."""


Run = Callable[["Scenario", "Path"], Awaitable[RunOutcome]]
"""Runs a scenario, capturing it in a directory that does not exist yet. Raises VstreamError if it could not begin."""


def summarize_verdict(verdict: Verdict) -> RunOutcome:
    """A summary of *verdict*."""
    wrong = [case for case in verdict.cases if case.status is not CaseStatus.PASS]
    proven = [case for case in wrong if case.status is CaseStatus.FAIL]
    return RunOutcome(
        status=verdict.status,
        failed=tuple(f"{case.status.value} {case.name}: {case.detail}" for case in wrong),
        measures=frozenset(case.measure.value if case.measure else case.kind.value for case in proven),
        acknowledged=sum(tally.acknowledged for stream in verdict.streams for tally in stream.origins.values()),
        lost=sum(served.lost.count for stream in verdict.streams for served in stream.served),
        duplicated=sum(physical.duplicated.count for stream in verdict.streams for physical in stream.physical),
        detail=verdict.manifest.stopped_by,
    )


class ExplorationObserver(Protocol):
    """Is told what happens."""

    def on_begin(self, number: int, seed: int, steps: str) -> None:
        """A scenario starts."""

    def on_shrink(self, number: int, steps: str) -> None:
        """A shorter scenario is tried."""

    def on_end(self, explored: ExploredRun) -> None:
        """A scenario has ended."""


@value_class
class SearchLimits:
    """When to stop."""

    seconds: float
    """Start no run after this long."""
    runs: int | None = None
    shrinking_runs: int = 24
    """Number of runs for making one failed scenario shorter."""


def list_seeds(seed: int) -> list[int]:
    """The first seeds of the scenarios for *seed*; more are never needed."""
    chance = random.Random(seed)  # noqa: S311 - it has to be repeatable
    return [chance.randrange(_MAX_SEED) for _ in range(10_000)]


def summarize_steps(data: ScenarioData) -> str:
    """The steps of a scenario in one line, without waits."""
    words = []
    for step in data["steps"]:
        name, value = next((key, value) for key, value in step.items() if key not in {"as", "at", "for"})
        if name not in {"wait", "converge", "resync"}:
            text = "-".join(value) if isinstance(value, list) else value
            words.append(name if text is None else f"{name} {text}")
    return ", ".join(words)


@dataclass(slots=True, kw_only=True)
class Exploration:
    """Random scenarios, and what came of those that have run. *compose* makes a scenario of a seed, *run* runs one."""

    seed: int
    compose: Callable[[int], ScenarioData]
    run: Run
    out: Path
    bounds: SearchLimits
    observer: ExplorationObserver
    is_kept: bool = False
    """Whether the captures of runs that passed are kept."""
    runs: list[ExploredRun] = field(default_factory=list, init=False)

    async def explore(self) -> None:
        """Run one scenario after the other, until *bounds*. Raises VstreamError only if nothing can be written."""
        until = time.monotonic() + self.bounds.seconds
        for number, seed in enumerate(list_seeds(self.seed), 1):
            if time.monotonic() >= until or (self.bounds.runs is not None and number > self.bounds.runs):
                return
            directory = self.out / f"{number:03}-{seed}"
            trial = _Trial(number, seed, self.compose(seed), directory, self.run, self.observer)
            explored = await trial.explore(self.bounds.shrinking_runs, is_kept=self.is_kept)
            self.runs.append(explored)
            save_output(self.out / "explored.json", json.dumps(self.as_dict(), indent=2) + "\n")
            self.observer.on_end(explored)

    def count(self, status: CaseStatus) -> int:
        """How many runs ended in this way."""
        return sum(run.outcome.status is status for run in self.runs)

    def as_dict(self) -> dict[str, object]:
        """Everything, as JSON has it."""
        runs = []
        for run in self.runs:
            runs.append(
                {
                    **asdict(run),
                    "outcome": {
                        **asdict(run.outcome),
                        "status": run.outcome.status.value,
                        "measures": sorted(run.outcome.measures),
                    },
                    "directory": str(run.directory),
                    "short": str(run.short) if run.short else None,
                }
            )
        return {
            "seed": self.seed,
            "runs": len(self.runs),
            **{status.value: self.count(status) for status in CaseStatus},
            "acknowledged": sum(run.outcome.acknowledged for run in self.runs),
            "lost": sum(run.outcome.lost for run in self.runs),
            "duplicated": sum(run.outcome.duplicated for run in self.runs),
            "explored": runs,
        }


@dataclass(slots=True)
class _Trial:
    """One scenario: run, and made short if it fails."""

    number: int
    seed: int
    data: ScenarioData
    directory: Path
    run: Run
    observer: ExplorationObserver
    tries: int = 0

    async def explore(self, shrinking_runs: int, *, is_kept: bool) -> ExploredRun:
        steps = summarize_steps(self.data)
        self.observer.on_begin(self.number, self.seed, steps)
        save_output(self.directory / "scenario.yaml", to_yaml(self.data))
        began = time.monotonic()
        outcome = await self._run_and_summarize(self.data, self.directory / "capture", "scenario.yaml")
        seconds = time.monotonic() - began
        if outcome.status is CaseStatus.PASS and not is_kept:
            shutil.rmtree(self.directory / "capture", ignore_errors=True)
        short, note = None, None
        if outcome.status is CaseStatus.FAIL and shrinking_runs > 0:
            short, note = await self._shorten(outcome, shrinking_runs)
        return ExploredRun(
            number=self.number,
            seed=self.seed,
            steps=steps,
            outcome=outcome,
            seconds=round(seconds, 1),
            directory=self.directory,
            short=short,
            note=note,
        )

    async def _run_and_summarize(self, data: ScenarioData, capture: Path, name: str) -> RunOutcome:
        text = to_yaml(data).encode()
        scenario = check_scenario(text, str(capture.parent / name), _read_nothing).require()
        try:
            return await self.run(scenario, capture)
        except VstreamError as error:
            return RunOutcome(status=CaseStatus.UNKNOWN, detail=error.message)

    async def _shorten(self, outcome: RunOutcome, most: int) -> tuple[Path | None, str]:
        """The file of a short scenario that fails in the same way, and what it took; no file if it does not fail again."""
        again = 0
        for attempt in range(1, _CONFIRMATIONS + 1):
            if await self._run_and_compare(self.data, outcome):
                again = attempt
                break
        if not again:
            return None, f"it did not fail again in {_CONFIRMATIONS} runs: the capture is what there is"

        async def fails(data: ScenarioData) -> bool:
            # What fails now and then only gets as many chances as the whole scenario needed.
            for _ in range(again):
                if await self._run_and_compare(data, outcome):
                    return True
            return False

        shortest = await shrink(self.data, fails, is_valid=_is_valid, most=most)
        file = self.directory / "short.yaml"
        save_output(file, to_yaml(shortest))
        before, after = len(self.data["steps"]), len(shortest["steps"])
        return file, f"{before} steps became {after}, in {self.tries} runs"

    async def _run_and_compare(self, data: ScenarioData, outcome: RunOutcome) -> bool:
        """Whether *data* fails in one of the ways in which *outcome* did."""
        self.tries += 1
        self.observer.on_shrink(self.number, summarize_steps(data))
        capture = self.directory / "shrinking"
        shutil.rmtree(capture, ignore_errors=True)
        result = await self._run_and_summarize(data, capture, "short.yaml")
        if result.status is CaseStatus.FAIL and result.measures & outcome.measures:
            # The capture beside the short scenario is that of the last run which failed.
            shutil.rmtree(self.directory / "short", ignore_errors=True)
            capture.rename(self.directory / "short")
            return True
        shutil.rmtree(capture, ignore_errors=True)
        return False


def _is_valid(data: ScenarioData) -> bool:
    return not check_scenario(to_yaml(data).encode(), "short.yaml", _read_nothing).findings


def _read_nothing(name: str) -> bytes:
    """Explored scenarios hold their topology."""
    raise FileNotFoundError(2, "No such file or directory", name)
