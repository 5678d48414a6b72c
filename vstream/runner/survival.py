"""Run what `vstream.scenario.survival` composes, and say of each cell whether it was shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path

from vstream.capture.verdict.judge_capture import judge_capture
from vstream.capture.verdict.model import Case, CaseKind, CaseStatus, Verdict
from vstream.lint import check_scenario
from vstream.runner.events import EventObserver
from vstream.runner.runner import capture_scenario
from vstream.scenario.generate import to_yaml
from vstream.scenario.model import Measure
from vstream.scenario.survival import AGAIN, CellKey, QuestionKey, SurvivalScenario
from vstream.topology.survival import SurvivalCell
from vstream.value_class import value_class

_NEEDED = {CaseKind.FAULT, CaseKind.CAPTURE}
"""Cases that must pass: without them, measurements prove nothing."""


class CellStatus(Enum):
    """What a rehearsal says of a cell."""

    SHOWN = "shown"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    """It was tried, and could not be measured."""
    UNTRIED = "not tried"
    """Nothing can show it: it is never promised, not known, or depends on where replicas happen to be."""


@value_class
class RehearsedCell:
    """A cell and what came of it; *detail* says what was seen where it was not shown."""

    cell: SurvivalCell
    status: CellStatus
    detail: str = ""


@value_class
class SurvivalRehearsal:
    """All runs of a rehearsal."""

    cells: tuple[RehearsedCell, ...]
    incidents: tuple[str, ...]
    acknowledged: int
    lost: int
    """Of the acknowledged messages, those that some region does not have in the end."""
    expected_losses: int
    """Those of them that a loss of power takes, as the table predicts."""
    problems: tuple[str, ...]
    """What must never happen, such as duplicated messages."""
    captures: tuple[Path, ...]

    def count(self, status: CellStatus) -> int:
        """The number of cells with *status*."""
        return sum(cell.status is status for cell in self.cells)


@value_class
class RehearsalRequest:
    """What to run. *topology_text* is a topology that has no errors; captures go below *directory*."""

    topology_text: str
    cells: Sequence[SurvivalCell]
    scenarios: Sequence[SurvivalScenario]
    directory: Path
    lab: str
    version: str | None = None
    """The nats-server of all servers."""


async def rehearse(request: RehearsalRequest, on_event: EventObserver) -> SurvivalRehearsal:
    """Run every scenario in a lab of its own, one after the other. Raises VstreamError where one cannot begin."""
    verdicts: list[tuple[SurvivalScenario, Verdict]] = []
    captures = []
    for number, scenario in enumerate(request.scenarios, 1):
        data = {**scenario.data, "topology": "topology.yaml"}
        if request.version is not None:
            data["lab"] = {"versions": request.version}
        text = to_yaml(data).encode()
        loaded = check_scenario.check_scenario(
            text, "scenario.yaml", lambda _: request.topology_text.encode()
        ).require()
        directory = request.directory / str(number)
        capture = await capture_scenario(
            loaded, capture_dir=directory, lab_name=f"{request.lab}-{number}", on_event=on_event
        )
        captures.append(directory)
        verdicts.append((scenario, judge_capture(capture, loaded.expectations)))
    return judge_rehearsal(request.cells, verdicts, captures)


def judge_rehearsal(
    cells: Iterable[SurvivalCell], verdicts: Sequence[tuple[SurvivalScenario, Verdict]], captures: Sequence[Path] = ()
) -> SurvivalRehearsal:
    """What *verdicts* say of *cells*."""
    cases: dict[CellKey, list[tuple[CaseStatus, str]]] = {}
    problems: list[str] = []
    acknowledged = lost = expected = 0
    for scenario, verdict in verdicts:
        for key, outcome in _cases_by_cell(scenario, verdict):
            cases.setdefault(key, []).append(outcome)
        for case in verdict.cases:
            if case.kind is not CaseKind.EXPECTATION and case.status is CaseStatus.FAIL:
                problems.append(f"{case.name}: {case.detail}")
        for stream in verdict.streams:
            acknowledged += sum(tally.acknowledged for tally in stream.origins.values())
            losses = sum(stream.lost_by_origin.values())
            lost += losses
            expected += losses if _may_lose(verdict, stream.name) else 0
    return SurvivalRehearsal(
        cells=tuple(_judge_cell(cell, cases) for cell in cells),
        incidents=tuple(incident for scenario, _ in verdicts for incident in scenario.incidents),
        acknowledged=acknowledged,
        lost=lost,
        expected_losses=expected,
        problems=tuple(problems),
        captures=tuple(captures),
    )


def _cases_by_cell(scenario: SurvivalScenario, verdict: Verdict) -> Iterable[tuple[CellKey, tuple[CaseStatus, str]]]:
    doubts = [case for case in verdict.cases if case.kind in _NEEDED and case.status is not CaseStatus.PASS]
    for case in drop_retried(verdict.cases):
        for key in scenario.cells.get(_question_of(case), ()) if case.expectation else ():
            if doubts:
                yield key, (CaseStatus.UNKNOWN, f"{doubts[0].name}: {doubts[0].detail}")
            else:
                yield key, (case.status, f"{case.name}: {case.detail}")


def drop_retried(cases: Sequence[Case]) -> list[Case]:
    """*cases* without the operations that should work and did not at one try, and did at another in the same failure."""
    worked = {_trial_of(case) for case in cases if case.status is CaseStatus.PASS} - {None}
    return [case for case in cases if case.status is CaseStatus.PASS or _trial_of(case) not in worked]


def _trial_of(case: Case) -> tuple[str | None, str | None, str] | None:
    """What was tried, in which failure; None for what is not to work, and for anything else."""
    expectation = case.expectation
    if case.measure is not Measure.WORKS or expectation is None or not expectation.value:
        return None
    return case.stream, case.region, (expectation.window or "").removesuffix(AGAIN)


def _question_of(case: Case) -> QuestionKey:
    assert case.expectation is not None
    return (case.expectation.measure, case.expectation.window, case.stream, case.region)


def _may_lose(verdict: Verdict, stream: str) -> bool:
    """Whether the scenario expects that *stream* loses something, and it did."""
    for case in verdict.cases:
        if case.kind is CaseKind.EXPECTATION and case.stream == stream and case.measure is Measure.LOST:
            return case.status is CaseStatus.PASS
    return False


def _judge_cell(cell: SurvivalCell, cases: Mapping[CellKey, Sequence[tuple[CaseStatus, str]]]) -> RehearsedCell:
    outcomes = cases.get((cell.stream, cell.failure, cell.ability), ())
    if not outcomes:
        return RehearsedCell(cell=cell, status=CellStatus.UNTRIED)
    for status, result in ((CaseStatus.FAIL, CellStatus.REFUTED), (CaseStatus.UNKNOWN, CellStatus.UNKNOWN)):
        details = [detail for outcome, detail in outcomes if outcome is status]
        if details:
            return RehearsedCell(cell=cell, status=result, detail=details[0])
    return RehearsedCell(cell=cell, status=CellStatus.SHOWN)
