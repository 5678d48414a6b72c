"""Whatever one answer of a server says, commands end in time with an exit code and a line that says why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fuzzed_commands import COMMANDS, Bench, open_bench, running_lab

pytestmark = [pytest.mark.lab, pytest.mark.night]

RUNS = 6
"""Of each command. `scripts/fuzz_answers.py` makes thousands, with audits among them."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("fuzzed")
    with running_lab(directory), open_bench(directory) as bench:
        yield bench


@pytest.mark.parametrize("command", COMMANDS)
def test_no_answer_makes_a_command_fail_otherwise_than_by_saying_so(bench: Bench, command: str) -> None:
    outcomes = [bench.run(command, seed) for seed in range(RUNS)]
    assert [str(outcome) for outcome in outcomes if outcome.problem] == []
    assert any(outcome.changed for outcome in outcomes)
