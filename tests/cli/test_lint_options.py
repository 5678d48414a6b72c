"""Options and settings of `vstream lint` that a repository lives with: a baseline, a diff, statistics, formats."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import typer.main

from scripts.docs import with_tables
from tests.cli.test_lint import DEAD, TOPOLOGY, TYPO
from tests.support.command import Ran, check_output, environment, vstream
from tests.support.paths import ROOT
from vstream.cli.app import app
from vstream.cli.lint_watch import read_stamps
from vstream.lint.pipeline import LintRequest, make_job
from vstream.lint.selection import AS_NAMED, known_codes
from vstream.lint.settings_file import parse_settings

SUBSET = json.loads((ROOT / "tests/fixtures/sarif-2.1.0-subset.schema.json").read_text())
OTHER_DEAD = 'mappings {\n  "$JS.ACK.foo.>": "$JS.ACK.bar.>"\n  "$JS.ACK.new.>": "$JS.ACK.bar.>"\n}\n'


def lint(*arguments: str | Path) -> Ran:
    return vstream("lint", *arguments)


def findings(ran: Ran) -> list[tuple[str, str]]:
    return [(finding["file"], finding["code"]) for finding in json.loads(ran.out)["findings"]]


def fingerprints(*arguments: str | Path) -> list[str]:
    return [finding["fingerprint"] for finding in json.loads(lint("--format", "json", *arguments).out)["findings"]]


# A baseline


def test_a_baseline_hides_what_was_there_and_shows_what_is_new(here: Path) -> None:
    (here / "m.cfg").write_text(DEAD)
    written = lint(".", "--baseline", "base.json", "--write-baseline")
    assert (written.code, written.out) == (0, "")
    assert "base.json has 1 finding now" in written.err
    check_output(json.loads((here / "base.json").read_text()))
    ran = lint(".", "--baseline", "base.json")
    assert (ran.code, ran.out) == (0, "")
    assert "1 more is in the baseline" in ran.err
    (here / "m.cfg").write_text("\n# moved by two lines\n" + OTHER_DEAD)
    ran = lint(".", "--baseline", "base.json", "--format", "concise")
    assert ran.code == 1
    assert [line.split(": ")[0] for line in ran.out.splitlines()] == ["m.cfg:5:3"]


def test_the_same_finding_once_more_is_new(here: Path) -> None:
    (here / "a.cfg").write_text("# vstream: ignore[VS335]\nmappings {}\n")
    lint(".", "--baseline", "base.json", "--write-baseline")
    (here / "a.cfg").write_text("# vstream: ignore[VS335]\nmappings {}\n# vstream: ignore[VS335]\n")
    ran = lint(".", "--baseline", "base.json", "--format", "json")
    whole = lint(".", "--format", "json")
    assert set(findings(ran)) == {("a.cfg", "VS009")}
    assert len(findings(ran)) == len(findings(whole)) / 2


def test_entries_that_are_no_longer_there_are_said_and_removed(here: Path) -> None:
    (here / "m.cfg").write_text(DEAD)
    (here / "gone.cfg").write_text(DEAD)
    (here / "more").mkdir()
    (here / "more/n.cfg").write_text(DEAD)
    lint(".", "--baseline", "base.json", "--write-baseline")
    (here / "m.cfg").write_text("mappings { a: b }\n")
    (here / "gone.cfg").unlink()
    ran = lint("m.cfg", "--baseline", "base.json")
    assert ran.code == 0
    assert "2 of the baseline are no longer found" in ran.err
    assert "  gone.cfg: VS335: " in ran.err
    assert "  m.cfg: VS335: " in ran.err
    assert "n.cfg" not in ran.err
    # What was not looked at stays.
    lint("m.cfg", "--baseline", "base.json", "--write-baseline")
    assert [entry["file"] for entry in json.loads((here / "base.json").read_text())["findings"]] == ["more/n.cfg"]
    lint("more", "--select", "streams", "--baseline", "base.json", "--write-baseline")
    assert len(json.loads((here / "base.json").read_text())["findings"]) == 1


def test_a_baseline_in_the_settings_counts_in_every_directory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "nats").mkdir()
    (here / "nats/m.cfg").write_text(DEAD)
    (here / ".vstream.toml").write_text('[lint]\nbaseline = "ci/base.json"\n')
    missing = lint(".")
    assert (missing.code, "there is no baseline ci/base.json" in missing.err) == (3, True)
    assert lint(".", "--write-baseline").code == 0
    assert lint(".").code == 0
    monkeypatch.chdir(here / "nats")
    assert lint("m.cfg").code == 0
    assert lint(here / "nats/m.cfg").code == 0


def test_what_cannot_be_read_is_in_no_baseline(here: Path) -> None:
    (here / "broken.conf").write_text("port: 4222\ncluster {\n")
    ran = lint(".", "--baseline", "base.json", "--write-baseline", "--format", "json")
    assert (ran.code, findings(ran)) == (1, [("broken.conf", "VS010")])
    assert json.loads((here / "base.json").read_text())["findings"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [("{\n  ]", "base.json:2:3: not JSON"), ('{"findings": [{"file": "a"}]}', "base.json: not a baseline")],
)
def test_a_broken_baseline_is_said(here: Path, text: str, message: str) -> None:
    (here / "m.cfg").write_text(DEAD)
    (here / "base.json").write_text(text)
    ran = lint("m.cfg", "--baseline", "base.json")
    assert (ran.code, message in ran.err) == (3, True)


def test_a_baseline_needs_a_file(here: Path) -> None:
    (here / "m.cfg").write_text(DEAD)
    ran = lint("m.cfg", "--write-baseline")
    assert (ran.code, "add `--baseline FILE`" in ran.err) == (3, True)


# Corrections, numbers, files, watching


def test_a_diff_shows_what_fix_would_do_and_does_nothing(here: Path) -> None:
    (here / "t.yaml").write_text(TOPOLOGY)
    (here / "m.cfg").write_text(TYPO)
    ran = lint("m.cfg", "--topology", "t.yaml", "--diff")
    assert ran.code == 1
    assert ran.out.splitlines()[:2] == ["--- m.cfg", "+++ m.cfg"]
    assert (here / "m.cfg").read_text() == TYPO
    assert lint("m.cfg", "--topology", "t.yaml", "--fix").out.splitlines()[:20] == ran.out.splitlines()[:20]
    again = lint("m.cfg", "--topology", "t.yaml", "--diff")
    assert (again.code, again.out) == (0, "")


def test_a_diff_of_what_cannot_be_read_is_unknown(here: Path) -> None:
    assert lint("missing.conf", "--diff").code == 3


def test_statistics_count_each_rule(here: Path) -> None:
    (here / "a.cfg").write_text(OTHER_DEAD)
    (here / "b.conf").write_text("port: 4222\nmapings {}\n")
    ran = lint(".", "--statistics")
    assert ran.code == 1
    assert [line.split()[:2] for line in ran.out.splitlines()] == [["2", "VS335"], ["1", "VS421"]]
    counted = json.loads(lint(".", "--statistics", "--format", "json").out)["statistics"]
    assert [(entry["code"], entry["count"]) for entry in counted] == [("VS335", 2), ("VS421", 1)]
    assert lint(".", "--statistics", "--format", "sarif").code == 2
    assert lint(".", "--statistics", "--diff").code == 2


def test_findings_go_to_a_file(here: Path) -> None:
    (here / "m.cfg").write_text(DEAD)
    ran = lint("m.cfg", "--format", "sarif", "--output-file", "out/lint.sarif")
    assert (ran.code, ran.out) == (1, "")
    jsonschema.validate(json.loads((here / "out/lint.sarif").read_text()), SUBSET)
    lint("m.cfg", "--output-file", "lint.txt")
    assert (here / "lint.txt").read_text() == lint("m.cfg").out


def replace_file(path: Path, text: str) -> None:
    """Write *path* in one step: who watches it never sees a half."""
    written = path.with_name("written.tmp")
    written.write_text(text)
    written.replace(path)


def test_watching_checks_again_after_a_change_and_ends_with_an_interrupt(here: Path) -> None:
    (here / "m.cfg").write_text("mappings { a: b }\n")
    # Shells that are no terminal start jobs in the background so that they ignore Ctrl-C.
    in_background = ["bash", "-c", "trap '' INT; exec \"$@\"", "background"]
    command = [*in_background, sys.executable, "-m", "vstream", "lint", ".", "--watch", "--format", "concise"]
    with subprocess.Popen(
        command, env=environment({"PYTHONUNBUFFERED": "1"}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        patience = Timer(300, process.kill)
        patience.start()
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stderr.readline() == "nothing found in 1 file\n"
            assert process.stderr.readline().startswith("watching")
            replace_file(here / "m.cfg", DEAD)
            assert process.stdout.readline().startswith("m.cfg:2:3: warning VS335")
            assert process.stderr.readline() == "1 warning in 1 file\n"
            # A mistake in the settings is said, and waited for.
            process.stderr.readline()
            replace_file(here / ".vstream.toml", "[lint]\nselct = []\n")
            assert "unknown setting `selct`" in process.stderr.readline()
            process.send_signal(2)
            assert process.wait(timeout=120) == 130
        finally:
            patience.cancel()
            process.kill()


def test_a_file_that_appears_while_lint_is_watching_is_a_change(here: Path) -> None:
    """Also between the run that did not find it and the first look for changes."""
    before = read_stamps((), [".vstream.toml"])
    (here / ".vstream.toml").write_text("[lint]\n")
    after = read_stamps((), [".vstream.toml"])
    assert {**after, **before} != after


def test_what_files_are_checked_with_is_watched_too(here: Path) -> None:
    (here / ".vstream.toml").write_text('[lint]\ntopology = "acme.yaml"\nbaseline = "known.json"\n')
    named = make_job(LintRequest(files=["m.cfg"], topology=Path("other/acme.yaml"))).other_files
    assert {"other/acme.yaml", "known.json", ".vstream.toml"} <= set(named)
    assert "acme.yaml" in make_job(LintRequest(files=["m.cfg"])).other_files


def test_standard_input_cannot_be_watched(here: Path) -> None:
    assert lint("-", "--watch").code == 2


# Settings


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ('[lint]\nselct = ["VS3"]\n', "2:1: unknown setting `selct`", "did you mean `select`?"),
        ('[lnt]\nselect = ["VS3"]\n', "1:2: unknown section `lnt`", "did you mean `lint`?"),
        ('select = ["VS3"]\n', "1:1: unknown section `select`", "write it under `[lint]`"),
        ('[lint]\nignore = [\n  "VS303",\n  "mappings",\n]\n', "4:4: there is no rule or group", "`mapping`"),
        ('[lint]\nselect = "VS3"\n', "2:1: `select` must be a list of strings", 'select = ["…"]'),
        ("[lint]\nexclude = [1]\n", "2:1: `exclude` must be a list of strings", "write"),
        ('[lint]\nfail-on = "never"\n', "2:1: `fail-on` must be one of", "correct"),
        ("[lint]\nbaseline = 1\n", "2:1: `baseline` must be a string", "write"),
        ('[lint.severity]\nVS335 = "fatal"\n', "2:1: `VS335` must be one of error, warning, note", "correct"),
        ('[lint.severity]\n"VS999" = "error"\n', "2:2: there is no rule or group `VS999`", "did you mean"),
        ('[lint.per-file-ignores]\n"a/*" = ["VS351"]\n', "2:11: VS351 is retired", ""),
        ("[lint]\nseverity = 3\n", "2:1: `severity` must be a table", "[lint.severity]"),
        ("lint = 3\n", "1:1: `lint` must be a table", "[lint]"),
        ("[lint]\nselect =\n", "2:9: not TOML", "correct"),
    ],
)
def test_a_mistake_in_the_settings_has_a_place_and_a_way_out(here: Path, text: str, place: str, hint: str) -> None:
    (here / ".vstream.toml").write_text(text)
    (here / "m.cfg").write_text(DEAD)
    ran = lint("m.cfg")
    assert ran.code == 3
    assert ran.err.startswith(f"error: .vstream.toml:{place}"), ran.err
    assert hint in ran.err


def test_a_mistake_in_pyproject_has_its_place_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "pyproject.toml").write_text('[project]\nname = "x"\n\n[tool.vstream.lint]\nexclud = []\n')
    (here / "inner").mkdir()
    monkeypatch.chdir(here / "inner")
    assert lint(".").err.startswith("error: ../pyproject.toml:5:1: unknown setting `exclud`")


def test_a_group_can_weigh_less_and_a_code_more(here: Path) -> None:
    (here / "m.cfg").write_text(DEAD)
    (here / ".vstream.toml").write_text('[lint.severity]\nrouting = "note"\n')
    assert lint("m.cfg").code == 0
    (here / ".vstream.toml").write_text('[lint.severity]\nvs335 = "error"\nrouting = "note"\nVS33 = "note"\n')
    assert "error VS335" in lint("m.cfg").out


def test_patterns_and_files_of_the_settings_are_relative_to_them(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / ".vstream.toml").write_text(
        '[lint]\nenv-files = ["ci/test.env"]\ntopology = "t.yaml"\nserver-version = "2.12"\nexclude = ["nats/old"]\n'
        '[lint.per-file-ignores]\n"nats/m.cfg" = ["VS335"]\n'
    )
    (here / "t.yaml").write_text(TOPOLOGY)
    for directory in ("ci", "nats", "nats/old"):
        (here / directory).mkdir()
    (here / "ci/test.env").write_text("PORT=4222\n")
    (here / "nats/m.cfg").write_text(DEAD)
    (here / "nats/old/m.cfg").write_text(DEAD)
    (here / "nats/a.conf").write_text("port: $PORT\nhost: 127.0.0.1\n")
    expected = [entry for entry in findings(lint("nats", "--format", "json")) if entry[1] in {"VS335", "VS012"}]
    assert expected == []
    monkeypatch.chdir(here / "nats")
    assert "VS335" not in lint(".").out
    assert "VS335" not in lint(here / "nats").out
    assert "VS335" in lint("old/m.cfg").out


def test_a_named_file_is_excluded_only_if_asked_for(here: Path) -> None:
    (here / "old.cfg").write_text(DEAD)
    (here / "new.cfg").write_text("mappings { a: b }\n")
    assert lint("old.cfg", "new.cfg", "--exclude", "old.cfg").code == 1
    assert lint("old.cfg", "new.cfg", "--exclude", "old.cfg", "--force-exclude").code == 0
    assert lint(".", "--exclude", "old.cfg").code == 0


# Formats


def test_fingerprints_survive_lines_that_move_and_directories(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "m.cfg").write_text(OTHER_DEAD)
    before = fingerprints("m.cfg")
    assert len(set(before)) == 2
    (here / "m.cfg").write_text(f"# above\n\n{OTHER_DEAD}")
    assert fingerprints("m.cfg") == before
    (here / "inner").mkdir()
    monkeypatch.chdir(here / "inner")
    assert fingerprints("../m.cfg") == before


def test_gitlab_gets_paths_from_the_top_of_the_repository(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "nats").mkdir()
    (here / "nats/m.cfg").write_text(DEAD)
    monkeypatch.chdir(here / "nats")
    ran = lint("m.cfg", "--format", "gitlab")
    (issue,) = json.loads(ran.out)
    assert ran.code == 1
    assert (issue["check_name"], issue["severity"]) == ("VS335", "minor")
    assert issue["location"] == {"path": "nats/m.cfg", "lines": {"begin": 2}}
    assert issue["fingerprint"] == fingerprints("m.cfg")[0]
    (here / "nats/m.cfg").write_text("mappings { a: b }\n")
    assert json.loads(lint("m.cfg", "--format", "gitlab").out) == []


def test_the_manual_is_linked_where_the_settings_say_it_is(here: Path) -> None:
    (here / "m.cfg").write_text(DEAD)
    (here / ".vstream.toml").write_text('[lint]\ndocs-url = "https://docs.example/rules"\n')
    url = "https://docs.example/rules#vs335-"
    (run,) = json.loads(lint("m.cfg", "--format", "sarif").out)["runs"]
    jsonschema.validate({"version": "2.1.0", "runs": [run]}, SUBSET)
    driver = run["tool"]["driver"]
    assert driver["informationUri"] == "https://docs.example/rules"
    assert driver["rules"][0]["helpUri"].startswith(url)
    assert json.loads(lint("m.cfg", "--format", "json").out)["findings"][0]["url"].startswith(url)
    assert f"%0Asee {url}" in lint("m.cfg", "--format", "github").out
    (here / ".vstream.toml").write_text('[lint]\ndocs-url = "https://docs.example/{code}.html"\n')
    assert "https://docs.example/VS335.html" in lint("m.cfg", "--format", "github").out


def test_junit_has_what_strict_readers_want(here: Path) -> None:
    (here / "m.cfg").write_text(DEAD)
    (here / "n.cfg").write_text("mappings { a: b }\n")
    root = ET.fromstring(lint(".", "--format", "junit").out)
    for suite in root.iter("testsuite"):
        assert {"name", "tests", "failures", "errors", "skipped", "time", "hostname"} <= set(suite.attrib)
        time.strptime(suite.attrib["timestamp"], "%Y-%m-%dT%H:%M:%S")
    assert all({"name", "classname", "time"} <= set(case.attrib) for case in root.iter("testcase"))
    assert all("type" in failure.attrib for failure in root.iter("failure"))


@pytest.mark.skipif(sys.platform != "linux", reason="names that are no text are for Linux alone")
@pytest.mark.parametrize("output", ["json", "sarif", "gitlab", "junit", "github", "concise", "full"])
def test_a_name_that_is_no_text_is_printed_as_text(here: Path, output: str) -> None:
    name = b"m\xc3.cfg".decode(errors="surrogateescape")
    Path(name).write_text(DEAD)
    ran = lint(".", "--format", output)
    assert ran.code == 1
    assert "\\ud" not in ran.out.lower().replace("\\\\", "\\")
    ran.out.encode()


# The page


def test_the_page_has_every_option_and_settings_that_can_be_read() -> None:
    page = (ROOT / "docs/lint.md").read_text()
    command = typer.main.get_command(app).commands["lint"].load()  # type: ignore[attr-defined]
    options = {name for option in command.params for name in option.opts if name.startswith("--")}
    assert "--select" in options
    assert {name for name in options - {"--help"} if f"`{name}`" not in page} == set(), "run scripts/docs"
    assert with_tables(page) == page, "run scripts/docs"
    example = page.partition("```toml\n")[2].partition("```")[0]
    settings = parse_settings(example, ".vstream.toml", known_codes(), AS_NAMED)
    assert settings is not None
    assert settings.topology == "acme.yaml"
    assert set(settings.selection.severity) == {"VS335", "routing"}


def test_against_what_runs_finds_what_a_reload_refuses(tmp_path: Path) -> None:
    running, new = tmp_path / "running", tmp_path / "new"
    for directory, port, mapping in ((running, 4222, "b"), (new, 4223, "c")):
        directory.mkdir()
        (directory / "west.conf").write_text(f'listen: "127.0.0.1:{port}"\nmappings: {{"a": "{mapping}"}}\n')
    refused = vstream("lint", "new", "--against", "running", "--format", "concise", cwd=tmp_path)
    assert refused.code == 1
    assert "new/west.conf:1:9: error VS428: a reload refuses the whole file, because `listen`" in refused.out
    assert vstream("lint", "new", "--against", "new", cwd=tmp_path).code == 0
    missing = vstream("lint", "new", "--against", "gone", cwd=tmp_path)
    assert missing.code == 3
    assert "gone" in missing.out
    (tmp_path / "empty").mkdir()
    nothing = vstream("lint", "new", "--against", "empty", cwd=tmp_path)
    assert (nothing.code, nothing.err.splitlines()[0]) == (3, "error: there is nothing to compare with in empty")
