"""What cases say of cells."""

from __future__ import annotations

from vstream.capture.verdict.model import Case, CaseKind, CaseStatus
from vstream.findings import Span
from vstream.runner.survival import drop_retried
from vstream.scenario.model import Compare, Expectation, Measure

_HERE = Span.point("scenario.yaml", 1, 1)


def _case(window: str, status: CaseStatus, *, value: float = 1, measure: Measure = Measure.WORKS) -> Case:
    expectation = Expectation(measure=measure, compare=Compare.EQUAL, value=value, span=_HERE, window=window)
    return Case(
        kind=CaseKind.EXPECTATION,
        name=window,
        status=status,
        detail="",
        measure=measure,
        region="west",
        stream="foo",
        expectation=expectation,
    )


def _list_left(*cases: Case) -> list[str]:
    return [case.name for case in drop_retried(cases)]


def test_a_consumer_that_could_be_created_at_one_of_two_tries_could_be_created() -> None:
    first, again = _case("region-1-tried", CaseStatus.FAIL), _case("region-1-tried-again", CaseStatus.PASS)
    assert _list_left(first, again) == ["region-1-tried-again"]
    assert _list_left(first, _case("region-1-tried-again", CaseStatus.FAIL)) == [
        "region-1-tried",
        "region-1-tried-again",
    ]
    assert _list_left(first, _case("region-2-tried", CaseStatus.PASS)) == ["region-1-tried", "region-2-tried"]


def test_one_that_could_be_created_once_is_not_impossible() -> None:
    first, again = (
        _case("region-1-tried", CaseStatus.PASS, value=0),
        _case("region-1-tried-again", CaseStatus.FAIL, value=0),
    )
    assert _list_left(first, again) == ["region-1-tried", "region-1-tried-again"]


def test_other_measures_have_one_chance() -> None:
    first = _case("region-1-steady", CaseStatus.FAIL, measure=Measure.PUBLISHED)
    assert _list_left(first, _case("region-1-tried", CaseStatus.PASS)) == ["region-1-steady", "region-1-tried"]
