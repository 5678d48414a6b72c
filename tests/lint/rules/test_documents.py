"""Each rule about topologies and scenarios, which are read whole: every branch says exactly what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import workspaces
from tests.support.golden import Golden
from tests.support.paths import TESTS
from tests.support.scenarios import load_text
from tests.support.topologies import concise
from vstream.findings import Finding
from vstream.lint.check_topology import check_topology
from vstream.lint.rules.scenarios import RULES as SCENARIO_RULES
from vstream.lint.rules.topology import RULES as TOPOLOGY_RULES

FIXTURES = TESTS / "rules"
CODES = {"VS1": {rule.code for rule in TOPOLOGY_RULES}, "VS5": {rule.code for rule in SCENARIO_RULES}}
"""By what they begin with: those of topologies and of scenarios."""
BAD = sorted(path for codes in CODES.values() for code in codes for path in (FIXTURES / code).glob("bad*.yaml"))
GOOD = sorted(path for codes in CODES.values() for code in codes for path in (FIXTURES / code).glob("good*.yaml"))


def name(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def find_all(path: Path) -> tuple[Finding, ...]:
    if path.parent.name in CODES["VS5"]:
        return load_text(path.read_text(), path.name).findings
    return check_topology(path.read_bytes(), path.name).findings


@pytest.mark.parametrize("path", BAD, ids=name)
def test_every_branch_of_a_rule_says_what_where_and_the_way_out(path: Path, golden: Golden) -> None:
    findings = find_all(path)
    golden.check(path.with_suffix(".out"), concise(findings))
    assert {finding.code for finding in findings} == {path.parent.name}
    workspaces.require_hints(findings)


@pytest.mark.parametrize("path", GOOD, ids=name)
def test_what_is_right_is_not_reported(path: Path) -> None:
    assert concise(find_all(path)) == ""
