"""`vstream lint`, `vstream map` as a user or a CI job runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import yaml

from tests.support.command import Ran, environment, vstream
from tests.support.paths import ROOT
from vstream.codes import RETIRED

BLOG = ROOT / "tests/fixtures/blog-mappings.cfg"
SUBSET = ROOT / "tests/fixtures/sarif-2.1.0-subset.schema.json"
CLEAN = 'mappings {\n  "foo.>": "bar.>"\n}\n'
DEAD = 'mappings {\n  "$JS.ACK.foo.>": "$JS.ACK.bar.>"\n}\n'
TYPO = """\
mappings {
  "foo.>": [
    {destination: "bar.west.>", weight: 100%, cluster: "west"}
    {destination: "bar.central.>", weight: 100%, cluster: "central"}
    {destination: "bar.east.>", weight: 100%, cluster: "East"}
  ]
}
"""
TOPOLOGY = """\
version: 1
name: acme
server_version: "2.12"
regions: {west: {servers: 3}, central: {servers: 3}, east: {servers: 3}}
streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def places(ran: Ran) -> set[tuple[str, int, int]]:
    return {(finding["code"], finding["line"], finding["column"]) for finding in ran.json()["findings"]}


def test_the_published_recipe_has_what_is_wrong_with_it_at_the_right_place() -> None:
    ran = vstream("lint", BLOG, "--format", "json")
    assert ran.code == 1
    reported = places(ran)
    assert {
        ("VS330", 27, 3),  # a Direct Get rule whose source …
        ("VS330", 28, 18),  # … and destinations are no API subjects
        ("VS330", 29, 18),
        ("VS330", 30, 18),
        ("VS335", 42, 3),  # dead: acknowledgements name the real stream
        ("VS341", 7, 3),  # forms of consumer creation that are missing
        ("VS334", 32, 3),  # deletes messages in one region only
    } <= reported


def test_a_clean_file_is_clean(here: Path) -> None:
    (here / "m.cfg").write_text(CLEAN)
    ran = vstream("lint", "m.cfg")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "nothing found in 1 file\n"


def test_findings_are_shown_with_their_line(here: Path) -> None:
    (here / "m.cfg").write_text(DEAD)
    ran = vstream("lint", "m.cfg")
    assert ran.code == 1
    assert "m.cfg:2:3: warning VS335:" in ran.out
    assert '2 |   "$JS.ACK.foo.>": "$JS.ACK.bar.>"' in ran.out
    assert "hint:" in ran.out


def test_notes_alone_are_no_reason_to_fail(here: Path) -> None:
    (here / "package.json").write_text("{}")
    ran = vstream("lint", "package.json", "--format", "concise")
    assert ran.code == 0
    assert "note VS007" in ran.out


def test_the_assumed_version_can_be_stated_too(here: Path) -> None:
    (here / "m.cfg").write_text('mappings { "foo.*": "bar.{{random(3)}}" }\n')
    assert vstream("lint", "m.cfg").code == 0
    ran = vstream("lint", "m.cfg", "--server-version", "2.10", "--format", "concise")
    assert (ran.code, "error VS309" in ran.out) == (1, True)


def test_standard_input_is_a_file_too() -> None:
    ran = vstream("lint", "-", "--format", "concise", stdin=DEAD)
    assert ran.code == 1
    assert ran.out.startswith("<stdin>:2:3: warning VS335:")


def test_directories_patterns_and_this_directory(here: Path) -> None:
    (here / "conf/deep").mkdir(parents=True)
    (here / ".hidden").mkdir()
    for file in ("conf/a.cfg", "conf/deep/b.cfg", ".hidden/c.cfg"):
        (here / file).write_text(DEAD)
    (here / "conf/package.json").write_text("{}")
    (here / "README.md").write_text("# no configuration")
    expected = ["conf/a.cfg", "conf/deep/b.cfg"]
    for arguments in ([], ["."], ["conf"], ["./conf/**/*.cfg"], ["conf/a.cfg", "conf/../conf"]):
        ran = vstream("lint", "--format", "json", *arguments)
        assert [finding["file"] for finding in ran.json()["findings"] if finding["code"] == "VS335"] == expected


def test_links_to_directories_around_them_and_deep_directories_end(here: Path) -> None:
    """Two links to `.` are 2^40 paths for a pattern that follows links, and 1,100 directories are too deep to recurse."""
    for name in ("one", "two"):
        (here / name).symlink_to(".")
    (here / "a.cfg").write_text(DEAD)
    nested = [here]
    for _ in range(1_100):
        nested.append(nested[-1] / "d")
        nested[-1].mkdir()
    deepest = nested[-1] / "b.cfg"
    deepest.write_text(DEAD)
    try:
        for arguments in (["**/*.cfg"], ["."]):
            ran = vstream("lint", "--format", "json", *arguments, timeout=120)
            files = [finding["file"] for finding in ran.json()["findings"] if finding["code"] == "VS335"]
            assert files == ["a.cfg", str(deepest.relative_to(here))]
    finally:  # what removes temporary directories recurses, too
        deepest.unlink()
        for directory in reversed(nested[1:]):
            directory.rmdir()


SECRET = "https://bob:hunter2@example.com"


@pytest.mark.parametrize(
    "arguments",
    [
        ["lint", "link.yaml"],
        ["lint", "*.yaml"],
        ["validate", "link.yaml"],
        ["validate", "away/secret"],
        ["scenario", "validate", "link.yaml"],
        ["scenario", "validate", "scenario.yaml"],
        ["map", "foo.a", "link.yaml"],
        ["map", "foo.a", "includes.conf"],
        ["map", "--stream", "foo", "link.yaml"],
        ["size", "link.yaml"],
    ],
)
def test_a_link_in_a_repository_brings_nothing_from_outside(here: Path, arguments: list[str]) -> None:
    """Who opens a pull request can make any file a link: to what lies in the home directory of a CI runner."""
    repository = here / "repository"
    (repository / ".git").mkdir(parents=True)
    (here / "secret").write_text(f"{SECRET}\n")
    (here / "seed").write_text(f'SEED: "{SECRET}"\n')
    (repository / "link.yaml").symlink_to(here / "secret")
    (repository / "away").symlink_to(here)
    (repository / "scenario.yaml").write_text("version: 1\nname: x\ntopology: link.yaml\n")
    (repository / "includes.conf").write_text('include "../seed"\nmappings { "foo.>": $SEED }\n')
    ran = vstream(*arguments, cwd=repository)
    assert ran.code in {1, 2, 3}, ran
    assert "hunter2" not in ran.out + ran.err
    assert "outside of the repository" in ran.out + ran.err or "link out of the repository" in ran.out + ran.err


def test_a_link_within_a_repository_or_outside_of_any_is_read(here: Path) -> None:
    (here / "a.cfg").write_text(DEAD)
    (here / "conf").mkdir()
    (here / "conf/b.cfg").symlink_to("../a.cfg")
    for _ in range(2):
        assert "VS335" in vstream("lint", "conf/b.cfg").out
        (here / ".git").mkdir(exist_ok=True)


def test_two_runs_print_the_same(here: Path) -> None:
    for name in "cab":
        (here / f"{name}.cfg").write_text(BLOG.read_text())
    first = vstream("lint", "c.cfg", "a.cfg", "b.cfg")
    assert first.out == vstream("lint", ".").out
    codes = [line.split(" ")[0] for line in first.out.splitlines() if line.startswith(("a.cfg", "b.cfg", "c.cfg"))]
    assert [code.split(":")[0] for code in codes] == sorted(code.split(":")[0] for code in codes)


def test_what_cannot_be_read_is_one_error_each_and_the_rest_is_checked(here: Path) -> None:
    (here / "m.cfg").write_text(DEAD)
    (here / "binary.conf").write_bytes(b"\x7fELF\0\0")
    ran = vstream("lint", "m.cfg", "binary.conf", "missing.conf", "nothing*.conf", "/dev/zero", "--format", "concise")
    assert ran.code == 3
    lines = ran.out.splitlines()
    assert [line.split(":")[0] for line in lines if " VS004: " in line] == [
        "/dev/zero",
        "binary.conf",
        "missing.conf",
        "nothing*.conf",
    ]
    assert any(line.startswith("m.cfg:2:3: warning VS335") for line in lines)


def test_files_that_could_not_be_read_are_not_counted(here: Path) -> None:
    (here / "broken.json").write_text('{"name": "o", "subjects": ["o.>"],}')
    assert vstream("lint", "nothere.conf", cwd=here).err == "1 error\n"
    assert vstream("lint", "broken.json", cwd=here).err == "1 error in 1 file\n"


def test_a_large_file_is_refused_without_reading_it_all(here: Path) -> None:
    with (here / "large.conf").open("wb") as file:
        file.truncate(10 * 1024**3)
    ran = vstream("lint", "large.conf", "--format", "concise", timeout=120)
    assert (ran.code, ran.out.count("\n")) == (3, 1)
    assert "more than 32 MiB" in ran.out


def test_pipes_are_read_and_one_that_stays_silent_is_given_up(here: Path) -> None:
    os.mkfifo("silent.cfg")
    ran = vstream("lint", "silent.cfg", "--format", "concise", timeout=120)
    assert ran.code == 3
    assert "no more data within 10 seconds" in ran.out
    piped = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m vstream lint <(cat {BLOG}) --format json"],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert piped.returncode == 1, piped.stderr
    assert "VS330" in piped.stdout


def test_there_has_to_be_something_to_check(here: Path) -> None:
    ran = vstream("lint")
    assert ran.code == 3
    assert "there is nothing to check" in ran.err


@pytest.mark.parametrize(
    "arguments", [("--format", "xml"), ("--server-version", "new"), ("--server-version", "2."), ("--unknown",)]
)
def test_wrong_usage_is_2(here: Path, arguments: tuple[str, ...]) -> None:
    assert vstream("lint", *arguments).code == 2


def test_a_topology_is_checked_with_all_that_it_renders_to(here: Path) -> None:
    (here / "topology.yaml").write_text(TOPOLOGY)
    ran = vstream("lint", "topology.yaml")
    assert (ran.code, [line for line in ran.out.splitlines() if " error " in line or " warning " in line]) == (0, [])


def test_files_are_checked_against_a_topology(here: Path) -> None:
    (here / "topology.yaml").write_text(TOPOLOGY)
    (here / "m.cfg").write_text(TYPO)
    ran = vstream("lint", "m.cfg", "--topology", "topology.yaml", "--format", "json")
    assert ("VS315", 5, 56) in places(ran)
    (here / "topology.yaml").write_text(TOPOLOGY.replace("version: 1", "version: 9"))
    assert vstream("lint", "m.cfg", "--topology", "topology.yaml").code == 1


def test_a_fix_is_written_shown_and_not_made_twice(here: Path) -> None:
    (here / "topology.yaml").write_text(TOPOLOGY)
    (here / "m.cfg").write_text(TYPO.replace("\n", "\r\n"), newline="")
    ran = vstream("lint", "m.cfg", "--topology", "topology.yaml", "--fix", "--format", "concise")
    assert '-    {destination: "bar.east.>", weight: 100%, cluster: "East"}' in ran.out
    assert '+    {destination: "bar.east.>", weight: 100%, cluster: "east"}' in ran.out
    assert (here / "m.cfg").read_bytes().decode() == TYPO.replace("East", "east").replace("\n", "\r\n")
    again = vstream("lint", "m.cfg", "--topology", "topology.yaml", "--fix", "--format", "concise")
    assert "VS315" not in again.out
    assert "@@" not in again.out


def test_a_fix_leaves_the_output_for_programs_alone(here: Path) -> None:
    (here / "topology.yaml").write_text(TOPOLOGY)
    (here / "m.cfg").write_text(TYPO)
    ran = vstream("lint", "m.cfg", "--topology", "topology.yaml", "--fix", "--format", "json")
    ran.json()
    assert "@@" in ran.err


def test_what_cannot_be_fixed_is_said(here: Path) -> None:
    (here / "topology.yaml").write_text(TOPOLOGY)
    ran = vstream("lint", "-", "--topology", "topology.yaml", "--fix", stdin=TYPO)
    assert ran.code == 1
    assert "1 of them not corrected" in ran.err


@pytest.mark.skipif(sys.platform != "linux", reason="a device that is always full is a Linux one")
@pytest.mark.parametrize(
    "command", [("lint", "m.cfg"), ("lint", "m.cfg", "--format", "sarif"), ("map", "foo.a", "m.cfg")]
)
def test_a_full_disk_is_said(here: Path, command: tuple[str, ...]) -> None:
    (here / "m.cfg").write_text(DEAD)
    ran = vstream(*command, cwd=here, stdout=Path("/dev/full"))
    assert ran.code == 3
    assert "cannot write the output: No space left on device" in ran.err


def test_every_format_is_what_it_says() -> None:
    jsonschema.validate(vstream("lint", BLOG, "--format", "sarif").json(), json.loads(SUBSET.read_text()))
    assert ET.fromstring(vstream("lint", BLOG, "--format", "junit").out).tag == "testsuites"
    annotations = vstream("lint", BLOG, "--format", "github").out.splitlines()
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in annotations)
    counts = {len(vstream("lint", BLOG, "--format", "concise").out.splitlines()), len(annotations)}
    assert counts == {len(vstream("lint", BLOG, "--format", "json").json()["findings"])}


def test_github_actions_gets_annotations_unless_it_asks_for_something_else(here: Path) -> None:
    (here / "m.cfg").write_text(DEAD)
    assert vstream("lint", "m.cfg", cwd=here, variables={"GITHUB_ACTIONS": "true"}).out.startswith("::warning ")
    ran = vstream("lint", "m.cfg", "--format", "concise", cwd=here, variables={"GITHUB_ACTIONS": "true"})
    assert ran.out.startswith("m.cfg:2:3:")


def test_the_action_runs_the_linter(here: Path) -> None:
    """The step of action.yml, with an installed vstream in the place where its first step puts one."""
    (here / "a b.cfg").write_text(DEAD)
    (here / "tools/vstream-lint/bin").mkdir(parents=True)
    command = here / "tools/vstream-lint/bin/vstream"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m vstream "$@"\n')
    command.chmod(0o755)
    _, step = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    inputs = {"INPUT_PATHS": "a b.cfg\n", "INPUT_TOPOLOGY": "", "INPUT_SERVER_VERSION": "2.12"}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env=environment({**inputs, "INPUT_SARIF_FILE": "out.sarif", "RUNNER_TEMP": str(here / "tools")}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "::warning title=VS335,file=a b.cfg,line=2" in done.stdout
    assert json.loads((here / "out.sarif").read_text())["version"] == "2.1.0"


def test_the_hook_runs_the_linter() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["entry"], hook["language"], hook["pass_filenames"]) == ("vstream lint", "python", False)


def test_explain_prints_a_page_or_lists_them_all() -> None:
    page = vstream("lint", "--explain", "vs335")
    assert page.code == 0
    assert page.out.startswith("VS335 ")
    assert "## Why is this bad?" in page.out
    listed = vstream("lint", "--explain", "list")
    assert all(code in listed.out for code in ("VS004", "VS101", "VS335", "VS403", "VA102", "VD415"))
    assert vstream("lint", "--explain", "VS000").code == 2
    unknown = vstream("lint", "--explain", "weather")
    assert (unknown.code, "`vstream lint --explain list` lists" in unknown.err) == (2, True), unknown.err


def test_explain_prints_pages_as_json() -> None:
    def explain(code: str) -> dict[str, Any]:
        answer: dict[str, Any] = vstream("lint", "--explain", code, "--format", "json").json()
        return answer

    (page,) = explain("few-replicas")["pages"]
    assert (page["code"], "## Why is this bad?" in page["text"]) == ("VD504", True)
    assert {"VS004", "VS335", "VA102", "VD415"} <= {listed["code"] for listed in explain("list")["pages"]}
    code, reason = next(iter(RETIRED.items()))
    assert explain(code) == {"schema": "vstream.lint-explain/2", "pages": [], "retired": reason}
    assert vstream("lint", "--explain", "VS101", "--format", "sarif").code == 2


def test_map_answers_for_files_and_topologies(here: Path) -> None:
    ran = vstream("map", "foo.a.b", "--region", "west", BLOG, "--format", "json")
    (candidate,) = ran.json()["candidates"]
    assert (ran.code, candidate["line"], candidate["outcomes"][0]["subject"]) == (0, 2, "foo.west.a.b")
    (here / "topology.yaml").write_text(TOPOLOGY)
    ran = vstream("map", "foo.a", "--region", "east", "topology.yaml")
    assert (ran.code, ran.out.splitlines()[2]) == (0, "    100 %  → _vs.foo.east.foo.a")


def test_map_says_when_nothing_knows_the_cluster(here: Path) -> None:
    (here / "m.cfg").write_text(TYPO)
    ran = vstream("map", "foo.a", "m.cfg", "--region", "wset")
    assert (ran.code, ran.err) == (0, "note: no rule names the cluster `wset`; there are East, central, west\n")


@pytest.mark.parametrize(
    ("subject", "files", "code", "text"),
    [
        ("foo.*", {"m.cfg": CLEAN}, 2, "is not a subject that one can publish to"),
        ("foo.a", {"m.cfg": "mappings { x: ] }"}, 1, "VS010"),
        ("foo.a", {"m.cfg": "\0"}, 3, "m.cfg: this is a binary file"),
        ("foo.a", {"m.cfg": "port: 1"}, 3, "the files have no mappings"),
        ("foo.a", {"m.cfg": CLEAN, "n.cfg": CLEAN}, 3, "the files have 2 blocks of mappings: m.cfg:1:1, n.cfg:1:1"),
        ("foo.a", {"m.cfg": 'mappings { "foo.>": "bar" }'}, 1, "refused m.cfg:1:21"),
    ],
)
def test_map_says_why_there_is_no_answer(here: Path, subject: str, files: dict[str, str], code: int, text: str) -> None:
    for name, content in files.items():
        (here / name).write_text(content)
    ran = vstream("map", subject, *files)
    assert ran.code == code
    assert text in " ".join((ran.out + ran.err).replace("│", " ").split())
