"""What the page in the browser gets: bounded, without what a terminal or a browser would obey, and never a guess."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.health.doctor.test_examine import TOPOLOGY, healthy
from vstream.cli.views import status_page
from vstream.cli.views.status_page import StatusHistory, format_status
from vstream.health.assess import assess
from vstream.health.snapshot import Lag
from vstream.health.status import Problem, Status


def status(lag: Lag | None = None) -> Status:
    facts = healthy()
    return assess(TOPOLOGY, facts if lag is None else replace(facts, lags={("foo-write-west", "foo-read-east"): lag}))


def test_a_status_is_one_line_with_a_cell_for_each_pair_of_regions() -> None:
    text = format_status(status(), (), 2.0)
    assert "\n" not in text
    content = json.loads(text)
    assert len(content["cells"]) == 9
    (stream,) = content["streams"]
    assert (stream["name"], stream["state"], stream["pending"]) == ("foo", "ok", 0)
    assert len(stream["leaders"]) == 3


def test_the_worst_way_of_a_stream_is_named() -> None:
    (stream,) = json.loads(format_status(status(Lag(last=3, first=1, cursor=5)), (), 2.0))["streams"]
    assert (stream["state"], stream["worst"]) == ("rolled-back", "west → east")


def test_many_problems_are_counted_and_only_the_first_are_sent() -> None:
    problems = tuple(Problem(about=f"west {number}", text="\x1b[31m") for number in range(1000))
    content = json.loads(format_status(replace(status(), problems=problems), (), 2.0))
    assert (content["problem_count"], len(content["problems"])) == (1000, status_page.MAX_PROBLEMS)
    assert "\x1b" not in content["problems"][0]["text"]


def test_history_keeps_a_sample_in_ten_seconds_and_every_change() -> None:
    history = StatusHistory()
    for at in (0.0, 2.0, 4.0, 10.0):
        history.add(1000.0 + at, status())
    history.add(1011.0, replace(status(), problems=(Problem(about="west", text="is down"),)))
    history.add(1030.0, None)
    verdict = status().verdict.value
    assert json.loads(history.as_json()) == [
        [1000.0, verdict, 0, 0],
        [1010.0, verdict, 0, 0],
        [1011.0, "degraded", 1, 0],
        [1030.0, "unknown", None, None],
    ]
