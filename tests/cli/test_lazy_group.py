"""The table of commands: what it costs to read, and that all of it can be loaded."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from tests.support.command import walk_commands
from tests.support.paths import ROOT
from tests.support.topologies import begin_topology
from vstream.cli.app import PANELS, RENAMED, app
from vstream.cli.lazy_group import CommandEntry, LazyCommand, LazyGroup
from vstream.cli.views import console

_LIST_MODULES = """
import sys
from vstream.cli.app import app
try:
    app({arguments!r}, prog_name="vstream")
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""
_STARTUP = {
    "vstream.cli",
    "vstream.cli.app",
    "vstream.cli.exit_codes",
    "vstream.cli.lazy_group",
    "vstream.errors",
    "vstream.credentials",
}


@pytest.fixture(autouse=True)
def _keep_log_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command that runs in this process sets, such as `--quiet`, ends with its test."""
    monkeypatch.setattr(console, "_LOG", replace(console._LOG))


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("repair", "--help")], ids=" ".join)
def test_help_and_version_import_no_command(arguments: tuple[str, ...]) -> None:
    assert {name for name in list_modules(*arguments) if name.startswith("vstream.")} <= _STARTUP


def test_a_command_that_connects_imports_nothing_for_websockets() -> None:
    modules = list_modules("plan", "--help")
    assert "nats.aio.client" in modules
    assert "aiohttp" not in modules


@pytest.mark.parametrize("options", [(), ("--format", "concise"), ("--select", "default")])
def test_lint_of_a_configuration_imports_what_it_needs_and_no_more(tmp_path: Path, options: tuple[str, ...]) -> None:
    file = tmp_path / "server.conf"
    file.write_text('port: 4222\nmappings: {"a.*": "b.$1"}\n')
    heavy = {"pydantic", "yaml", "jinja2", "nats", "importlib.metadata", "vstream.outputs", "vstream.topology.model"}
    assert list_modules("lint", str(file), *options) & heavy == set()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lint", "--format", "fool"], "Invalid value for '--format': 'fool' is not one of"),
        (["lint", "--fail-on", "never"], "'never' is not one of"),
        (["map"], "name a subject, or use --all or --stream"),
    ],
)
def test_values_that_nobody_converts_early_are_still_checked(arguments: list[str], message: str) -> None:
    ran = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert ran.exit_code == 2
    assert message in ran.output


def test_what_a_mode_needs_is_imported_with_the_mode() -> None:
    modes = {f"vstream.cli.{name}" for name in ("explain", "importing", "trace", "exporter", "bundle")}
    code = "import sys\nfrom vstream.cli import init, lint, map, status, doctor\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"vstream.cli.map"} <= set(ran.stdout.split())
    assert modes & set(ran.stdout.split()) == set()


_FROM = "has no effect with --server, --context or --lab"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("init new.yaml --monitor http://h:1", "'--monitor': needs --server, --context or --lab"),
        ("init new.yaml --timeout 5", "'--timeout': needs --server, --context or --lab"),
        ("init new.yaml --timeout 1m30s", "'--timeout': needs --server, --context or --lab"),
        ("init new.yaml --timeout 5x", "Invalid value for '--timeout': must be a number"),
        ("init new.yaml --timeout 6m", "Invalid value for '--timeout': must be at most 300"),
        ("lab logs --lines all", "Invalid value for '--lines' / '-n': must be a whole number"),
        ("lab logs --lines 0", "Invalid value for '--lines' / '-n': must be at least 1"),
        ("init new.yaml --format json", "'--format': needs --server, --context or --lab"),
        ("init -", "`-` needs --server, --context or --lab"),
        ("init new.yaml --creds a.creds", "'--creds': needs --server"),
        ("init new.yaml --context w --user u", "'--user': needs --server"),
        ("init new.yaml --lab a --server nats://h", "'--server': has no effect with --lab"),
        ("init new.yaml --lab a --routing mapped", f"'--routing': {_FROM}"),
        ("lint here.conf --explain VS101", "'FILES': has no effect with --explain"),
        ("lint --fix --explain VS101", "'--fix': has no effect with --explain"),
        ("map --all --trace", "'--all': has no effect with --trace"),
        ("map foo.a --trace --account APP", "'--account': has no effect with --trace"),
        ("map foo.a one.yaml two.yaml --trace", "name one topology"),
        ("map foo.a --timeout 3", "'--timeout': needs --trace"),
        ("status --every 5", "'--every': needs --watch or --serve"),
        ("map foo.a --lab acme", "needs --trace"),
        ("map foo.a -r west -r east", "name one region; several need --trace"),
        ("status --serve --watch", "'--watch' / '-w': has no effect with --serve"),
        ("status --serve --format text", "'--format': has no effect with --serve"),
        ("status --listen 127.0.0.1:0", "'--listen': needs --serve"),
        ("status --no-browser", "needs --serve"),
        ("status --watch --quiet", "needs --serve"),
        ("doctor acme.yaml --bundle out --format json", "'--format': has no effect with --bundle"),
        ("doctor acme.yaml --bundle out --configs .", "'--configs': has no effect with --bundle"),
    ],
)
def test_what_makes_no_sense_with_a_mode_is_refused(arguments: str, reason: str, tmp_path: Path) -> None:
    topology = begin_topology("acme", west=1) + "streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}\n"
    (tmp_path / "acme.yaml").write_text(topology)
    with chdir(tmp_path):
        ran = CliRunner().invoke(app, arguments.split(), env={"COLUMNS": "200"})
    assert (ran.exit_code, reason in ran.output) == (2, True), ran.output
    assert [path.name for path in tmp_path.iterdir()] == ["acme.yaml"]


def test_the_environment_chooses_no_mode(tmp_path: Path) -> None:
    """A lab is named for a whole shell: `init` is still a starter, and `map` reads files."""
    with chdir(tmp_path):
        for arguments in (["init"], ["map", "foo.a", "topology.yaml", "--region", "west"]):
            ran = CliRunner().invoke(app, arguments, env={"VSTREAM_LAB": "acme", "VSTREAM_LOG_FORMAT": "json"})
            assert ran.exit_code == 0, ran.output
        assert "# A topology: regions" in Path("topology.yaml").read_text()


def list_modules(*arguments: str) -> set[str]:
    """The modules that a process has imported when it has run `vstream ARGUMENTS`."""
    code = _LIST_MODULES.format(arguments=list(arguments))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stderr.splitlines()[-1].split())


def list_entries(entries: Mapping[str, CommandEntry]) -> Iterator[CommandEntry]:
    """Those of *entries* and of groups among them."""
    for entry in entries.values():
        yield entry
        yield from list_entries(entry.commands)


def test_every_module_with_a_command_is_in_the_table() -> None:
    entered = {entry.module for entries in PANELS.values() for entry in list_entries(entries)}
    declared = {
        f"vstream.cli.{path.stem}"
        for path in (ROOT / "vstream" / "cli").glob("*.py")
        if "\ndef command(" in path.read_text(encoding="utf-8")
    }
    assert declared <= entered, "enter it in PANELS"


def test_the_contract_between_commands_names_all_of_them() -> None:
    """Else a new command may import another, and nobody is told."""
    entered = {entry.module for entries in PANELS.values() for entry in list_entries(entries) if entry.place}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [each for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == "independence"]
    assert set(contract["modules"]) == entered


@pytest.mark.parametrize("name", [name for entries in PANELS.values() for name in entries])
def test_every_command_loads_and_says_what_it_does(name: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    entry = group.commands[name]
    assert isinstance(entry, LazyCommand)
    assert entry.load().help
    assert max(len(line.help) for line in list_entries({name: entry.entry})) < 90


def test_every_help_has_an_example_and_no_command_has_a_value_at_a_switch() -> None:
    without_example = []
    for path, command in walk_commands():
        if "Example" not in (command.help or ""):
            without_example.append(path)
        context = command.make_context(path, [], resilient_parsing=True)
        for parameter in command.get_params(context):
            assert parameter.metavar == "" or not getattr(parameter, "is_flag", False), (path, parameter.name)
            if parameter.name in {"every", "duration", "timeout", "server_version"}:
                assert parameter.metavar in {"SECONDS", "DURATION", "VERSION", "[WHERE=]VERSION", "X.Y"}, path
    assert without_example == [], "its docstring lacks `Example:`"


@pytest.mark.parametrize("name", RENAMED)
@pytest.mark.parametrize(
    "rest", [["topology.yaml", "--option"], ["west", "acme.yaml", "--yes"], ["--format", "json"]], ids=" ".join
)
def test_a_command_with_new_words_is_refused_with_them(name: str, rest: list[str]) -> None:
    ran = CliRunner().invoke(app, [name, *rest], env={"COLUMNS": "200"})
    assert ran.exit_code == 2
    assert f"{RENAMED[name]}` now" in " ".join(ran.output.split())
    assert CliRunner().invoke(app, [*RENAMED[name].split(), "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["repair"], 2, "sources"),
        (["backup", "-h"], 0, "restore"),
        (["repair", "mesages", "acme.yaml"], 2, "Did you mean 'messages'?"),
    ],
)
def test_a_group_that_has_the_name_of_a_command_of_old_is_a_group(arguments: list[str], code: int, text: str) -> None:
    ran = CliRunner().invoke(app, arguments)
    assert (ran.exit_code, "` now" in ran.output) == (code, False)
    assert text in " ".join(ran.output.split())


def test_at_most_24_commands_stand_at_the_top() -> None:
    assert len([name for entries in PANELS.values() for name in entries]) <= 24, "put it into a group"
