"""Each rule about servers: its manual page is true, and every branch says exactly what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import workspaces
from tests.support.golden import Golden
from tests.support.paths import ROOT
from vstream.diagnostics import Severity
from vstream.lint.load_topology import load, render_bundle
from vstream.lint.registry import Rule
from vstream.lint.rules import servers as rules
from vstream.lint.rules.servers import RULES
from vstream.lint.workspace import Workspace

CODES = [rule.code for rule in RULES]
BAD, GOOD = workspaces.fixtures(CODES, ".conf")
TOPOLOGIES = sorted([*(ROOT / "examples").glob("*.yaml"), *(ROOT / "tests" / "golden").glob("*.yaml")])
TRUE_FINDINGS = {
    # The blog's recipe in the two regions of a test: the loss of either stops the API.
    "blog": {"VS410"},
    # Two regions, `max_file: unlimited`, fields that no server has.
    "awkward": {"VS203", "VS410", "VS414"},
}
"""What is right to report about what topologies of tests render to, notes aside."""


def test_codes_are_listed_once_and_in_order() -> None:
    assert sorted(set(CODES)) == CODES
    assert all("VS403" <= code <= "VS499" for code in CODES)


def test_every_rule_of_the_package_is_listed() -> None:
    assert workspaces.defined(rules) == set(CODES)


@pytest.mark.parametrize("rule", RULES, ids=CODES)
def test_the_bad_example_of_a_manual_page_shows_this_code_only_and_the_good_one_none(rule: Rule[Workspace]) -> None:
    bad, good = workspaces.examples(rule)
    assert workspaces.codes(bad) == {rule.code}
    assert workspaces.concise(workspaces.findings(good)) == ""


@pytest.mark.parametrize("path", BAD, ids=workspaces.fixture_name)
def test_every_branch_of_a_rule_says_what_where_and_the_way_out(path: Path, golden: Golden) -> None:
    found = [one for one in workspaces.findings(workspaces.files_of(path)) if one.code in CODES]
    golden.check(path.with_suffix(".out"), workspaces.concise(found))
    assert {one.code for one in found} == {path.parent.name}
    assert all(one.hint for one in found)


@pytest.mark.parametrize("path", GOOD, ids=workspaces.fixture_name)
def test_what_is_right_is_not_reported(path: Path) -> None:
    found = workspaces.findings(workspaces.files_of(path))
    assert path.parent.name not in {one.code for one in found}, workspaces.concise(found)


def test_every_rule_has_fixtures() -> None:
    assert {path.parent.name for path in BAD} == {path.parent.name for path in GOOD} == set(CODES)


@pytest.mark.parametrize("is_known", [True, False], ids=["with-topology", "alone"])
@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_what_a_topology_renders_to_is_not_reported_but_for_true_findings(path: Path, is_known: bool) -> None:
    text = path.read_text()
    topology = load(text.encode(), path.name).require()
    files = workspaces.rendered(render_bundle(topology))
    found = workspaces.findings({**files, path.name: text} if is_known else files)
    alarms = {one.code for one in found if one.severity is not Severity.NOTE}
    assert alarms == TRUE_FINDINGS.get(path.stem, set()), workspaces.concise(found)


def test_files_that_others_include_are_no_servers() -> None:
    assert workspaces.codes({"a.cfg": "accounts { A { users: [{ nkey: UA }] } }\nmappings { a: b }\n"}) == set()


@pytest.mark.parametrize(
    "text",
    [
        "cluster: x",
        "gateway: []",
        "gateway { gateways: [1 ], name: 3 }",
        "jetstream: 3",
        "jetstream { store_dir: 3, max_file: x }",
        "accounts: [A, B]",
        "accounts { A: x }",
        "authorization: x",
        "operator: [a, b]",
        "leafnodes { remotes: [x] }",
        "listen: -1\nhttp: x\ncluster { listen: 99999999 }",
        "server_name: 3",
    ],
)
def test_values_of_the_wrong_kind_are_survived(text: str) -> None:
    workspaces.findings({"a.conf": f"port: 4222\n{text}\n", "b.conf": f"{text}\nport: 4222\n"})
