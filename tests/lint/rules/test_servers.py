"""Rules about servers on what topologies render to, and on values of the wrong kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import workspaces
from tests.support.paths import ROOT
from vstream.findings import Severity
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle

TOPOLOGIES = sorted([*(ROOT / "examples").glob("*.yaml"), *(ROOT / "tests" / "golden").glob("*.yaml")])
TRUE_FINDINGS = {
    # The blog's recipe in the two regions of a test: the loss of either stops the API.
    "blog": {"VS410"},
    # Two regions, `max_file: unlimited`, fields that no server has.
    "awkward": {"VS203", "VS410", "VS414"},
}
"""What is right to report about what topologies of tests render to, notes aside."""


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_what_a_topology_renders_to_is_not_reported_but_for_true_findings(path: Path) -> None:
    """Neither with its topology nor alone."""
    text = path.read_text()
    files = workspaces.list_files(render_bundle(check_topology(text.encode(), path.name).require()))
    for workspace in ({**files, path.name: text}, files):
        findings = workspaces.findings(workspace)
        alarms = {finding.code for finding in findings if finding.severity is not Severity.NOTE}
        assert alarms == TRUE_FINDINGS.get(path.stem, set()), workspaces.concise(findings)


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
