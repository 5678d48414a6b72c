"""
The verdict finds what was planted in a clean history, all of it and nothing else.

Deleting, doubling, swapping or changing any one row of any one stream is seen.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.captures import SECOND, History, Shape, clean, renumber
from tests.support.night import repetitions
from vstream.capture.records import GivenUpStream, OperationOutcome, StoredRecord
from vstream.capture.verdict.contents import find_displaced
from vstream.capture.verdict.judge_capture import judge_capture
from vstream.capture.verdict.model import CaseStatus, Verdict

MANY = settings(max_examples=repetitions(6, night=500))
MODELS = ["virtual", "homed", "stretch", "ordered"]


def verdict(history: History) -> Verdict:
    with tempfile.TemporaryDirectory() as directory:
        return judge_capture(history.write(Path(directory)))


def collect_wrong(judged: Verdict) -> dict[tuple[str, str], int]:
    """What is wrong, by kind and stream (a lost message: by region)."""
    wrong: dict[tuple[str, str], int] = {}
    for stream in judged.streams:
        for served in stream.served:
            wrong["lost", served.region] = served.lost.count
        for physical in stream.physical:
            wrong["duplicated", physical.name] = physical.duplicated.count
            wrong["unexpected", physical.name] = physical.unexpected.count
            wrong["reordered", physical.name] = physical.reordered.count
            wrong["diverged", physical.name] = physical.diverged.count
    return {key: count for key, count in wrong.items() if count}


def shapes(*models: str) -> st.SearchStrategy[Shape]:
    return st.builds(
        Shape,
        model=st.sampled_from(models or MODELS),
        regions=st.sampled_from([("west",), ("west", "east"), ("west", "central", "east")]),
        messages=st.integers(2, 8),
        seed=st.integers(0, 1000),
        keys=st.integers(1, 3),
        rejected=st.sampled_from([0.0, 0.2]),
        indeterminate=st.sampled_from([0.0, 0.3]),
        consumers=st.booleans(),
        has_digests=st.booleans(),
        has_origins=st.booleans(),
    )


@given(shapes())
@MANY
def test_a_clean_history_passes(shape: Shape) -> None:
    history = clean(shape)
    assume(history.of(OperationOutcome.OK))
    judged = verdict(history)
    assert collect_wrong(judged) == {}
    assert judged.status is CaseStatus.PASS, [case for case in judged.cases if case.status is not CaseStatus.PASS]


@st.composite
def history_places(draw: st.DrawFn, *models: str) -> tuple[History, str, int, st.DrawFn]:
    """A clean history, one of its streams and a place in it."""
    shape = draw(shapes(*(models or ("virtual",))))
    history = clean(shape)
    name = draw(st.sampled_from(sorted(history.streams)))
    assume(history.of(OperationOutcome.OK) and history.streams[name])
    place = draw(st.integers(0, len(history.streams[name]) - 1))
    return history, name, place, draw


def is_acked(history: History, row: StoredRecord) -> bool:
    return row.id in {operation.id for operation in history.of(OperationOutcome.OK)}


def regions_of(history: History, name: str) -> list[str]:
    """The regions that read this stream."""
    role, region = history.roles[name].role, history.roles[name].region
    return [region] if role == "read" or (role == "origin" and region in history.manifest.regions) else []


@MANY
@given(history_places(*MODELS))
def test_one_deleted_row_is_found(case: tuple[History, str, int, st.DrawFn]) -> None:
    history, name, place, _ = case
    rows = history.streams[name]
    row = rows.pop(place)
    judged = verdict(history)
    assert judged.status is not CaseStatus.PASS or not (is_acked(history, row) or history.reads())
    readers = regions_of(history, name)
    has_copy = any(stored.id == row.id for rows in history.streams.values() for stored in rows)
    expected: dict[tuple[str, str], int] = {}
    if is_acked(history, row) and readers:
        expected["lost", readers[0]] = 1
    if has_copy and (not is_acked(history, row) or history.roles[name].role != "read"):
        expected["diverged", name] = 1
    assert collect_wrong(judged) == expected


@MANY
@given(history_places())
def test_a_message_that_is_nowhere_is_lost_everywhere(case: tuple[History, str, int, st.DrawFn]) -> None:
    history, name, place, _ = case
    row = history.streams[name][place]
    for stream, rows in history.streams.items():
        history.streams[stream] = [stored for stored in rows if stored.id != row.id]
    judged = verdict(history)
    if is_acked(history, row):
        assert collect_wrong(judged) == {("lost", region): 1 for region in history.manifest.regions}
        assert all(served.lost_everywhere == 1 for served in judged.streams[0].served)
        example = judged.streams[0].served[0].lost.examples[0]
        assert example.id == row.id
        assert "no stream holds it" in example.detail
    else:
        assert judged.status is CaseStatus.PASS


@MANY
@given(history_places(*MODELS))
def test_one_row_twice_is_found(case: tuple[History, str, int, st.DrawFn]) -> None:
    history, name, place, draw = case
    rows = history.streams[name]
    rows.insert(draw(st.integers(place + 1, len(rows))), rows[place])
    if history.is_published_to(name):
        rows.append(rows.pop(rows.index(rows[place], place + 1)))  # no row behind it gets another sequence
    history.streams[name] = renumber(rows)
    judged = verdict(history)
    assert judged.status is CaseStatus.FAIL
    assert collect_wrong(judged) == {("duplicated", name): 1}


@MANY
@given(history_places("virtual", "ordered"))
def test_one_message_in_two_write_streams_is_found(case: tuple[History, str, int, st.DrawFn]) -> None:
    history, name, place, _ = case
    assume(history.is_published_to(name) and len(history.manifest.regions) > 1)
    other_stream = next(stream for stream in history.streams if history.is_published_to(stream) and stream != name)
    history.streams[other_stream] = renumber([*history.streams[other_stream], history.streams[name][place]])
    judged = verdict(history)
    assert sum(collect_wrong(judged).values()) == 1
    assert {kind for kind, _ in collect_wrong(judged)} == {"duplicated"}


@MANY
@given(history_places(*MODELS))
def test_two_swapped_rows_of_one_origin_are_found(case: tuple[History, str, int, st.DrawFn]) -> None:
    history, name, place, draw = case
    rows = history.streams[name]
    partners = [
        candidate
        for candidate, row in enumerate(rows)
        if candidate != place
        and (row.origin or row.id.split("-")[0]) == (rows[place].origin or rows[place].id.split("-")[0])  # type: ignore[union-attr]
    ]
    assume(partners)
    partner = draw(st.sampled_from(partners))
    # Where nothing but one stream holds them, only acknowledgements tell their order.
    assume(history.reads() or (is_acked(history, rows[place]) and is_acked(history, rows[partner])))
    rows[place], rows[partner] = (
        replace(rows[partner], seq=rows[place].seq, time=rows[place].time),
        replace(rows[place], seq=rows[partner].seq, time=rows[partner].time),
    )
    judged = verdict(history)
    assert judged.status is CaseStatus.FAIL
    wrong = collect_wrong(judged)
    assert {kind for kind, _ in wrong} == {"reordered"}
    if not history.is_published_to(name):
        assert {stream for _, stream in wrong} == {name}
    assert max(wrong.values()) <= 2


@MANY
@given(history_places("ordered", "stretch"))
def test_any_two_swapped_rows_are_found_where_all_regions_promise_one_order(
    case: tuple[History, str, int, st.DrawFn],
) -> None:
    history, name, place, draw = case
    rows = history.streams[name]
    assume(history.roles[name].role == "read" and len(history.reads()) > 1 and len(rows) > 1)
    partner = draw(st.integers(0, len(rows) - 1).filter(lambda number: number != place))
    rows[place], rows[partner] = (
        replace(rows[partner], seq=rows[place].seq, time=rows[place].time),
        replace(rows[place], seq=rows[partner].seq, time=rows[partner].time),
    )
    judged = verdict(history)
    assert judged.status is CaseStatus.FAIL
    assert judged.streams[0].same_order is False
    assert judged.streams[0].displaced in {1, 2}


@MANY
@given(history_places(*MODELS), st.sampled_from(["digest", "subject"]))
def test_one_changed_row_is_found(case: tuple[History, str, int, st.DrawFn], what: str) -> None:
    history, name, place, _ = case
    rows = history.streams[name]
    changed = replace(rows[place], digest="0" * 15 + "7") if what == "digest" else replace(rows[place], subject="foo.x")
    has_digests = any(operation.digest for operation in history.operations)
    rows[place] = changed
    judged = verdict(history)
    if what == "subject" or has_digests or not history.is_published_to(name):
        assert judged.status is CaseStatus.FAIL
        assert collect_wrong(judged) == {("unexpected", name): 1}
    elif history.reads():
        # Without a digest in the history, the first copy is the measure of the others.
        assert {kind for kind, _ in collect_wrong(judged)} == {"unexpected"}
    assert sum(physical.altered for physical in judged.streams[0].physical) == sum(collect_wrong(judged).values())


@MANY
@given(history_places(*MODELS), st.sampled_from([None, "nobody-1"]))
def test_one_row_that_nobody_published_is_found(case: tuple[History, str, int, st.DrawFn], id_: str | None) -> None:
    history, name, place, _ = case
    rows = history.streams[name]
    rows.insert(place, replace(rows[place], id=id_, origin=None, origin_seq=None))
    if not history.is_published_to(name):
        history.streams[name] = renumber(rows)
    judged = verdict(history)
    assert judged.status is CaseStatus.FAIL
    assert collect_wrong(judged) == {("unexpected", name): 1}


@MANY
@given(history_places())
def test_a_copy_in_the_place_of_another_message_is_found(case: tuple[History, str, int, st.DrawFn]) -> None:
    history, name, place, draw = case
    rows = history.streams[name]
    assume(history.roles[name].role == "read" and len(rows) > 1 and is_acked(history, rows[place]))
    earlier = list(range(place))
    assume(earlier)
    copied = draw(st.sampled_from(earlier))
    rows[place] = replace(rows[copied], seq=rows[place].seq, time=rows[place].time)
    assert collect_wrong(verdict(history)) == {("lost", history.roles[name].region): 1, ("duplicated", name): 1}


def test_headers_that_contradict_the_order_are_seen() -> None:
    history = clean(Shape(messages=6))
    rows = history.streams["foo-read-west"]
    mine = [place for place, row in enumerate(rows) if row.origin == "foo-write-east"]
    first, second = rows[mine[1]], rows[mine[2]]
    rows[mine[1]] = replace(first, origin_seq=second.origin_seq)
    rows[mine[2]] = replace(second, origin_seq=first.origin_seq)
    assert collect_wrong(verdict(history)) == {("reordered", "foo-read-west"): 1}


def test_rejected_and_stored_is_recovered_and_said() -> None:
    history = clean()
    victim = history.of(OperationOutcome.OK)[3]
    history.operations[history.operations.index(victim)] = replace(
        victim, outcome=OperationOutcome.REJECTED, acked_by=None, seq=None, error="no responders"
    )
    judged = verdict(history)
    assert judged.status is CaseStatus.PASS
    assert [served.recovered_rejected for served in judged.streams[0].served] == [1, 1, 1]
    assert any("rejected" in warning for warning in judged.warnings)


@pytest.mark.parametrize("is_stored", [True, False])
def test_indeterminate_is_right_either_way(is_stored: bool) -> None:
    history = clean(Shape(indeterminate=0.5, stored=float(is_stored)))
    judged = verdict(history)
    assert judged.status is CaseStatus.PASS
    count = len(history.of(OperationOutcome.INDETERMINATE)) if is_stored else 0
    assert [served.recovered.count for served in judged.streams[0].served] == [count] * 3


def _apply_limit(rows: list[StoredRecord], most: int) -> list[StoredRecord]:
    """What a limit of *most* messages per subject leaves."""
    result: list[StoredRecord] = []
    for row in reversed(rows):
        result += [row] * (sum(stored.subject == row.subject for stored in result) < most)
    return result[::-1]


LIMITS: list[tuple[str, Callable[[list[StoredRecord]], list[StoredRecord]]]] = [
    ("max_msgs_per_subject", lambda rows: _apply_limit(rows, 3)),
    ("max_msgs", lambda rows: rows[-20:]),
]


@pytest.mark.parametrize(("limit", "apply"), LIMITS, ids=[limit for limit, _ in LIMITS])
def test_what_a_limit_has_removed_is_not_lost(
    limit: str, apply: Callable[[list[StoredRecord]], list[StoredRecord]]
) -> None:
    history = clean()
    name = "foo-read-west"
    before = len(history.streams[name])
    history.streams[name] = apply(history.streams[name])
    removed = before - len(history.streams[name])
    assert collect_wrong(verdict(history))["lost", "west"] == removed
    limits = {limit: 3 if limit == "max_msgs_per_subject" else 20}
    history.roles[name] = replace(history.roles[name], limits=limits)
    judged = verdict(history)
    assert collect_wrong(judged) == {}
    assert judged.streams[0].served[0].superseded == removed
    # One more is too many: a subject holds as many as it may, and each origin's messages go in order.
    rows = history.streams[name]
    for row in rows[:: repetitions(3, night=1)]:
        history.streams[name] = [stored for stored in rows if stored is not row]
        place = [stored for stored in rows if stored.origin == row.origin].index(row)
        expected = {("lost", "west"): 1} if limit == "max_msgs_per_subject" or place > 0 else {}
        assert collect_wrong(verdict(history)) == expected
        history.streams[name] = rows


def test_a_limit_has_removed_no_more_than_the_stream_once_had() -> None:
    """What never came is older than all that is left, as what the limit removed is."""
    history, name = clean(), "foo-read-west"
    rows = history.streams[name]
    history.streams[name] = [replace(row, seq=seq) for seq, row in enumerate(rows[10:], start=1)][-20:]
    history.roles[name] = replace(history.roles[name], limits={"max_msgs": 20})
    judged = verdict(history)
    assert collect_wrong(judged) == {("lost", "west"): 10}
    assert judged.streams[0].served[0].superseded == len(rows) - 10 - 20


@given(st.lists(st.integers(0, 6), max_size=7))
def test_as_few_messages_as_can_be_are_moved(ranks: list[int]) -> None:
    moved = find_displaced(ranks)
    rest = [rank for place, rank in enumerate(ranks) if place not in moved]
    assert all(first < second for first, second in pairwise(rest))
    best = max(
        (
            len(chosen)
            for size in range(len(ranks) + 1)
            for chosen in permutations(range(len(ranks)), size)
            if list(chosen) == sorted(chosen)
            and all(ranks[first] < ranks[second] for first, second in pairwise(chosen))
        ),
        default=0,
    )
    assert len(moved) == len(ranks) - best


def test_what_was_said_when_a_region_was_given_up_is_not_lost_and_one_more_is() -> None:
    history = clean(Shape(consumers=False))
    announced = history.streams["foo-write-west"][-4].seq

    def without(name: str, after: int) -> list[StoredRecord]:
        rows = history.streams[name]
        return [row for row in rows if row.origin != "foo-write-west" or (row.origin_seq or 0) <= after]

    for name in history.reads():
        history.streams[name] = without(name, announced)
    history.streams["foo-write-west"] = []  # made anew
    assert collect_wrong(verdict(history)).keys() > {("lost", "west"), ("lost", "east"), ("diverged", "foo-write-west")}
    readers = dict.fromkeys(("foo-read-central", "foo-read-east"), announced)
    given_up = GivenUpStream(stream="foo-write-west", at=history.operations[-1].due + SECOND, readers=readers)
    history.manifest = replace(history.manifest, given_up=(given_up,))
    judged = verdict(history)
    assert collect_wrong(judged) == {}
    assert {served.announced_losses for served in judged.streams[0].served} == {3}
    history.streams["foo-read-east"] = without("foo-read-east", announced - 1)
    assert collect_wrong(verdict(history)) == {("lost", "east"): 1}
    history.manifest = replace(history.manifest, absent=("east",))
    assert collect_wrong(verdict(history)) == {}
    # What it acknowledged since then is not excused.
    history.manifest = replace(history.manifest, given_up=(replace(given_up, at=0),), absent=())
    assert collect_wrong(verdict(history))["lost", "east"] == 4
