"""Each rule about servers and streams: its manual page is true, and every branch says exactly what it should."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.support import workspaces
from tests.support.golden import Golden
from vstream.lint.rule import Rule
from vstream.lint.rules import servers, streams
from vstream.lint.workspace import Workspace

PACKAGES = {servers: ".conf", streams: ".json"}
"""The kind of file that shows what a package is about."""
FIXTURES = {
    package: workspaces.fixtures([rule.code for rule in package.RULES], suffix) for package, suffix in PACKAGES.items()
}
BAD = [(package, path) for package, (bad, _) in FIXTURES.items() for path in bad]
GOOD = [path for _, good in FIXTURES.values() for path in good]
RULES = [rule for package in PACKAGES for rule in package.RULES]


def codes_of(package: ModuleType) -> list[str]:
    return [rule.code for rule in package.RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_bad_example_of_a_manual_page_shows_this_code_only_and_the_good_one_none(rule: Rule[Workspace]) -> None:
    bad, good = workspaces.examples(rule)
    assert workspaces.codes(bad) == {rule.code}
    assert workspaces.concise(workspaces.findings(good)) == ""


@pytest.mark.parametrize(("package", "path"), BAD, ids=[workspaces.fixture_name(path) for _, path in BAD])
def test_every_branch_of_a_rule_says_what_where_and_the_way_out(
    package: ModuleType, path: Path, golden: Golden
) -> None:
    findings = [
        finding for finding in workspaces.findings(workspaces.files_of(path)) if finding.code in codes_of(package)
    ]
    golden.check(path.with_suffix(".out"), workspaces.concise(findings))
    assert {finding.code for finding in findings} == {path.parent.name}
    workspaces.require_hints(findings)


@pytest.mark.parametrize("path", GOOD, ids=workspaces.fixture_name)
def test_what_is_right_is_not_reported(path: Path) -> None:
    findings = workspaces.findings(workspaces.files_of(path))
    assert path.parent.name not in {finding.code for finding in findings}, workspaces.concise(findings)
