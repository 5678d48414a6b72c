"""Whatever one answer of a server says, commands end in time with an exit code and a line that says why."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.fuzzed_commands import FIRST, SMALL, Bench, Outcome, open_bench, running_lab

pytestmark = pytest.mark.lab

_SEEDS = (10, 12, 13, 14)
"""Of each command's runs; none of these waits long. `scripts/fuzz_answers.py` makes thousands at night, with audits."""
_AT_NIGHT = {"probe --forms"}
"""Waits five seconds for each pull that is not answered. What is for the worst day is fuzzed by the script alone."""


def test_no_answer_makes_a_command_fail_otherwise_than_by_saying_so(tmp_path: Path) -> None:
    commands = sorted(FIRST.keys() - _AT_NIGHT)
    with running_lab(tmp_path, SMALL), ExitStack() as stack:
        benches = []
        for command in commands:
            directory = tmp_path / command
            directory.mkdir()
            benches.append(stack.enter_context(open_bench(directory, SMALL)))

        def run_all(bench: Bench, command: str) -> list[Outcome]:
            return [bench.run(command, seed) for seed in _SEEDS]

        with ThreadPoolExecutor(len(commands)) as pool:
            outcomes = dict(zip(commands, pool.map(run_all, benches, commands), strict=True))
    failures = [str(outcome) for of_command in outcomes.values() for outcome in of_command if outcome.problem]
    assert failures == []
    assert [
        command for command, of_command in outcomes.items() if not any(outcome.changed for outcome in of_command)
    ] == []
