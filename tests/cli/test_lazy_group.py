"""The table of commands: what it costs to read, and that all of it can be loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer.main

from tests.support.command import walk_commands
from vstream.cli.app import PANELS, app
from vstream.cli.lazy_group import LazyCommand, LazyGroup

_LIST_MODULES = """
import sys
from vstream.cli.app import app
try:
    app([{option!r}], prog_name="vstream")
except SystemExit:
    pass
print(*(name for name in sys.modules if name.startswith("vstream.")), file=sys.stderr)
"""
_STARTUP = {
    "vstream.cli",
    "vstream.cli.app",
    "vstream.cli.exit_codes",
    "vstream.cli.lazy_group",
    "vstream.cli.overlay_option",
    "vstream.errors",
    "vstream.permissions",
}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_command(option: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _LIST_MODULES.format(option=option)], capture_output=True, text=True, check=True
    )
    assert set(ran.stderr.split()) <= _STARTUP


@pytest.mark.parametrize("name", [name for entries in PANELS.values() for name in entries])
def test_every_command_loads_and_says_what_it_does(name: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    entry = group.commands[name]
    assert isinstance(entry, LazyCommand)
    assert entry.load().help
    assert entry.help is not None
    assert len(entry.help) < 90


def test_every_help_has_an_example_and_no_command_has_a_value_at_a_switch() -> None:
    without_example = []
    for path, command in walk_commands():
        if "Example" not in (command.help or ""):
            without_example.append(path)
        context = command.make_context(path, [], resilient_parsing=True)
        for parameter in command.get_params(context):
            assert parameter.metavar == "" or not getattr(parameter, "is_flag", False), (path, parameter.name)
    assert without_example == []
