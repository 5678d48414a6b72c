"""`vstream scenario` without servers, and scenarios among the files of other commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.paths import ROOT
from tests.support.scenarios import ACME, HEAD, STEPS


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acme.yaml").write_bytes(ACME)
    (tmp_path / "good.yaml").write_text(HEAD + STEPS)
    (tmp_path / "bad.yaml").write_text(HEAD + "steps:\n  - kill-region: wset\n    for: 5s\n")
    return tmp_path


def test_a_valid_scenario_says_what_it_is(directory: Path) -> None:
    for command in (["scenario", "validate", "good.yaml"], ["validate", "good.yaml"]):
        ran = vstream(*command)
        assert (ran.code, ran.out) == (0, "")
        assert ran.err == "good.yaml is valid: 1 step, 0 faults, 0 expectations, about 5 s plus convergence\n"


@pytest.mark.parametrize("command", [["scenario", "validate"], ["validate"]])
def test_errors_come_with_place_snippet_and_way_out(directory: Path, command: list[str]) -> None:
    ran = vstream(*command, "bad.yaml")
    assert ran.code == 1
    assert ran.out == (
        "bad.yaml:5:18: error VS503: the topology has no region `wset`\n"
        "  |\n"
        "5 |   - kill-region: wset\n"
        "  |                  ^^^^\n"
        "hint: did you mean `west`?\n\n"
    )
    assert ran.err.startswith("1 error in ")


@pytest.mark.parametrize("command", [["scenario", "validate"], ["scenario", "run"], ["validate"], ["lint"]])
def test_templates_that_are_not_there_are_not_the_built_in_ones(directory: Path, command: list[str]) -> None:
    for name in ("layout", "acme.yaml"):
        (directory / "other.yaml").write_text(HEAD + f"lab: {{templates: {name}}}\n" + STEPS)
        ran = vstream(*command, "other.yaml")
        assert ran.code == (3 if command in (["lint"], ["validate"]) else 1)
        assert f"directory `{name}` does not exist" in ran.out + ran.err
    (directory / "layout").mkdir()
    (directory / "other.yaml").write_text(HEAD + "lab: {templates: layout}\n" + STEPS)
    assert vstream("scenario", "validate", "other.yaml").code == 0


@pytest.mark.parametrize("command", [["scenario", "validate"], ["scenario", "run"]])
@pytest.mark.parametrize("line", ["topology: {outside}/secret.yaml", "lab: {{templates: {outside}}}"])
def test_what_is_outside_of_the_repository_is_neither_shown_nor_used(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, command: list[str], line: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.yaml").write_text("root:x:0:0\n")
    text = "scenario: 1\nname: s\nsteps: [wait: 1s]\n" + line.format(outside=outside) + "\n"
    file = directory / "outside.yaml"
    file.write_text(text if "topology" in text else f"{text}topology: acme.yaml\n")
    ran = vstream(*command, file)
    assert ran.code == 1, ran.out + ran.err
    assert "outside of the repository" in " ".join((ran.out + ran.err).split())
    assert "root:x" not in ran.out + ran.err


def test_a_seed_that_no_scenario_could_state_is_refused(directory: Path) -> None:
    assert vstream("scenario", "run", "good.yaml", "--seed", "-4").code == 2


def test_several_scenarios_at_once(directory: Path) -> None:
    ran = vstream("scenario", "validate", "good.yaml", "bad.yaml", "walkthrough", "--format", "concise")
    assert ran.code == 1
    assert ran.out.count("\n") == 1
    assert "good.yaml is valid" in ran.err
    assert "walkthrough is valid" in ran.err
    assert "bad.yaml is valid" not in ran.err


def test_what_is_wrong_in_the_topology_is_shown_in_the_topology(directory: Path) -> None:
    (directory / "acme.yaml").write_bytes(ACME + b"connect: {wst: {context: x}}\n")
    ran = vstream("scenario", "validate", "good.yaml")
    assert ran.code == 1
    assert "acme.yaml:8:11: error VS101" in ran.out
    assert "8 | connect: {wst: {context: x}}" in ran.out


def test_lint_checks_scenarios_too(directory: Path) -> None:
    ran = vstream("lint", ".", "--format", "concise")
    assert ran.code == 1
    assert [line.partition(" error")[0] for line in ran.out.splitlines() if " error " in line] == ["bad.yaml:5:18:"]
    assert ran.err.endswith(" in 3 files\n")


def test_a_comment_silences_a_finding_in_a_scenario(directory: Path) -> None:
    text = HEAD + "steps:\n  - isolate: west\n  - converge   # vstream: ignore[VS512] to see it fail\n  - heal\n"
    (directory / "good.yaml").write_text(text)
    (directory / "bad.yaml").unlink()
    assert " VS512" not in vstream("lint", ".").out
    (directory / "good.yaml").write_text(text.replace("ignore[VS512]", ""))
    assert " VS512" in vstream("lint", ".").out


def test_the_shipped_ones_are_listed_and_shown() -> None:
    listed = vstream("scenario", "list", "--format", "json").json()["scenarios"]
    assert "walkthrough" in [scenario["name"] for scenario in listed]
    table = vstream("scenario", "list")
    assert all(scenario["name"] in table.out for scenario in listed)
    assert table.out.split()[:4] == ["scenario", "steps", "at", "least"]  # convergence takes longer
    shown = vstream("scenario", "show", "walkthrough")
    assert (shown.code, shown.out) == (0, (ROOT / "scenarios" / "walkthrough.yaml").read_text())


@pytest.mark.parametrize(
    ("name", "said"),
    [("walkthru", "did you mean `walkthrough`?"), ("zzz", "`vstream scenario list`"), ("a/b.yaml", "check the path")],
)
def test_a_missing_scenario_is_an_error_with_a_suggestion(directory: Path, name: str, said: str) -> None:
    ran = vstream("scenario", "validate", name)
    assert ran.code == 3
    assert said in ran.err


def test_a_schema_for_editors() -> None:
    assert vstream("schema", "scenario").json()["title"] == "vstream scenario"
    assert vstream("schema").json()["title"] == "vstream topology"
