"""Each rule about scenarios: its manual page is true, and every branch says exactly what it should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.golden import Golden
from tests.support.paths import TESTS
from tests.support.scenarios import load_text
from tests.support.topologies import concise
from vstream.lint.registry import Rule
from vstream.lint.rules.scenarios import RULES
from vstream.lint.rules.scenarios.context import ScenarioSubject

FIXTURES = TESTS / "rules"
CODES = [rule.code for rule in RULES]
BAD = sorted(path for code in CODES for path in (FIXTURES / code).glob("bad*.yaml"))
GOOD = sorted(path for code in CODES for path in (FIXTURES / code).glob("good*.yaml"))


def name(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.parametrize("rule", RULES, ids=CODES)
def test_the_bad_example_of_a_manual_page_shows_this_code_only_and_the_good_one_none(
    rule: Rule[ScenarioSubject],
) -> None:
    bad, good = re.findall(r"```yaml\n(.*?)```", rule.manual, re.DOTALL)
    assert {diagnostic.code for diagnostic in load_text(bad).diagnostics} == {rule.code}
    assert concise(load_text(good).diagnostics) == ""


@pytest.mark.parametrize("path", BAD, ids=name)
def test_every_branch_of_a_rule_says_what_where_and_the_way_out(path: Path, golden: Golden) -> None:
    loading = load_text(path.read_text(), path.name).diagnostics
    golden.check(path.with_suffix(".out"), concise(loading))
    assert {diagnostic.code for diagnostic in loading} == {path.parent.name}
    assert all(diagnostic.hint for diagnostic in loading)


@pytest.mark.parametrize("path", GOOD, ids=name)
def test_what_is_right_is_not_reported(path: Path) -> None:
    assert concise(load_text(path.read_text(), path.name).diagnostics) == ""


def test_every_rule_has_fixtures_and_every_fixture_a_rule() -> None:
    files = {path.relative_to(FIXTURES).as_posix() for path in FIXTURES.glob("VS5*/*")}
    claimed = {
        path.relative_to(FIXTURES).as_posix() for path in (*BAD, *(bad.with_suffix(".out") for bad in BAD), *GOOD)
    }
    assert files == claimed
    assert {path.parent.name for path in BAD} == {path.parent.name for path in GOOD} == set(CODES), (
        "add bad*.yaml and good*.yaml to tests/rules/CODE"
    )
