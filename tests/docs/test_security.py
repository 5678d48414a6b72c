"""The table of rights in docs/security.md is what `keys permissions` prints, and every command has its place on pull requests."""

from __future__ import annotations

import re

import pytest

from tests.support.command import walk_commands
from tests.support.paths import ROOT
from vstream.topology import permissions

PAGE = (ROOT / "docs" / "security.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]
RIGHTS = {command: row[1] for row in ROWS if len(row) == 3 for command in re.findall("`([^`]+)`", row[0])}


def find_needed(command: str) -> set[str]:
    """The subjects that the row of *command* names, with those of the commands that it refers to."""
    words = re.findall("`([^`]+)`", RIGHTS[command].partition("; with `mapped`")[0])
    return {subject for word in words for subject in (find_needed(word) if word in RIGHTS else {word})}


@pytest.mark.parametrize("command", permissions.COMMANDS)
def test_a_row_says_what_the_command_asks_of_streams(command: str) -> None:
    assert find_needed(command) == {*permissions.MANAGED[command], *permissions.AS_CLIENT.get(command, ())}


def test_what_each_command_of_the_table_needs_can_be_printed() -> None:
    start = PAGE.index("| command | publishes")
    rows = PAGE[start : PAGE.index("\n\n", start)].splitlines()[2:]
    told = {command for row in rows for command in re.findall("`([^`]+)`", row.split("|")[1])}
    assert told == set(permissions.COMMANDS)


def test_it_is_said_of_every_command_whether_it_may_run_on_a_pull_request() -> None:
    start = PAGE.index("| on a pull request from anyone")
    told = set(re.findall("`([a-z]+)", PAGE[start : PAGE.index("\n\n", start)]))
    commands = {path.split()[0] for path, _ in walk_commands() if path}
    # `keys` is for files of one's own.
    assert commands - told == {"keys"}, "add it to `on a pull request from anyone` in docs/security.md"
