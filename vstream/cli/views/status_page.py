"""The status of a topology for the page in the browser: what changes with each look, and what the last hours were like."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from vstream import resources
from vstream.chaos.journal import OpenFault
from vstream.cli.views.chaos import fault_as_dict
from vstream.cli.views.cleaning import clean
from vstream.health.status import AssessedPair, Problem, Status, sum_known
from vstream.runner.events import ScenarioProgress

MAX_PROBLEMS = 100
"""Shown of each kind. The page says how many there are."""
_MAX_LEADERS_OF_STREAM = 5
_SAMPLE_SECONDS = 10.0
_MAX_SAMPLES = 2_880
"""Eight hours, where there is a look every ten seconds or more often."""
FILES = {"/": "console.html", "/console.css": "console.css", "/console.js": "console.js"}
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


def read_file(name: str) -> str:
    """The text of a file of the page."""
    return (resources.templates() / "export" / name).read_text(encoding="utf-8")


class StatusHistory:
    """What was seen at each moment of the last hours: the time, the verdict, the number of problems, messages to come."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, str, int | None, int | None]] = deque(maxlen=_MAX_SAMPLES)

    def add(self, at: float, status: Status | None) -> None:
        """Keep what *status* says. *at* is in seconds since 1970; None stands for a look that read nothing."""
        sample: tuple[float, str, int | None, int | None] = (round(at, 1), "unknown", None, None)
        if status is not None:
            pending = sum_known(pair.pending for pair in status.pairs)
            sample = (round(at, 1), status.verdict.value, len(status.problems), pending)
        last_at, last_verdict = self._samples[-1][:2] if self._samples else (0.0, "")
        if sample[0] - last_at >= _SAMPLE_SECONDS or sample[1] != last_verdict:
            self._samples.append(sample)

    def as_json(self) -> str:
        """All samples in one line, the oldest first."""
        return json.dumps([list(sample) for sample in self._samples], separators=(",", ":"))


def format_status(
    status: Status, faults: Sequence[OpenFault], every: float, scenario: ScenarioProgress | None = None
) -> str:
    """
    What the page shows of *status* and of the *scenario* that runs in the lab, as JSON in one line.

    *every*: seconds between two looks.

    Its size grows with the streams and with the pairs of regions, not with the pairs of streams.
    """
    content: dict[str, Any] = {
        "topology": clean(status.topology),
        "at": round(status.at, 3),
        "every": every,
        "verdict": status.verdict.value,
        "meta_leader": status.meta_leader,
        "has_one_meta_group": status.has_one_meta_group,
        "places": list(status.places),
        "regions": [region.as_dict() for region in status.regions],
        "cells": status.cells_as_dicts(),
        "problems": _describe_problems(status.problems),
        "problem_count": len(status.problems),
        "unknown": _describe_problems(status.unknown),
        "unknown_count": len(status.unknown),
        "streams": _describe_streams(status),
        "faults": [fault_as_dict(fault) for fault in faults],
        "scenario": None if scenario is None else _describe_scenario(scenario),
    }
    return json.dumps(content, separators=(",", ":"))


def format_failure(reason: str, at: float) -> str:
    """What the page shows where nothing could be read, and since when: seconds since 1970."""
    return json.dumps({"reason": clean(reason), "at": round(at, 3)})


def _describe_scenario(scenario: ScenarioProgress) -> dict[str, Any]:
    failed = [clean(reason) for reason in scenario.failed[:MAX_PROBLEMS]]
    fields: dict[str, Any] = {"name": clean(scenario.scenario), "description": clean(scenario.description)}
    return fields | {"number": scenario.number, "total": scenario.total, "since": scenario.since, "failed": failed}


def _describe_problems(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    shown = list(problems)[:MAX_PROBLEMS]
    return [{"about": clean(problem.about), "text": clean(problem.text), "code": problem.code} for problem in shown]


def _describe_streams(status: Status) -> list[dict[str, Any]]:
    """By virtual stream: the worst of its pairs, what is to come, and who leads what is published into."""
    pairs: dict[str, list[AssessedPair]] = {}
    for pair in status.pairs:
        pairs.setdefault(pair.virtual, []).append(pair)
    leaders: dict[str, list[str]] = {}
    for stream in status.streams:
        leaders.setdefault(stream.virtual, [])
        if stream.role != "read":
            leaders[stream.virtual].append(f"{stream.place}: {stream.leader or '?'}")
    rows = []
    for name, led in leaders.items():
        of_stream = pairs.get(name, [])
        worst = max(of_stream, key=lambda pair: pair.badness, default=None)
        rows.append(
            {
                "name": name,
                "state": "ok" if worst is None else worst.state.value,
                "pending": sum_known(pair.pending for pair in of_stream),
                "age": None if worst is None or worst.age is None else round(worst.age, 1),
                "worst": None if worst is None else f"{worst.origin_place} → {worst.reader_place}",
                "leaders": led[:_MAX_LEADERS_OF_STREAM],
                "more_leaders": max(0, len(led) - _MAX_LEADERS_OF_STREAM),
            }
        )
    return rows
