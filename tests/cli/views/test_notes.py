"""What commands say on standard error: how much of it, and in which form."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from vstream.cli.views import console

NOTES = (console.print_note, console.print_warning, console.print_problem)


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """The form of notes belongs to the process."""
    yield
    console.set_log("text", is_quiet=None)


@pytest.mark.parametrize(("is_quiet", "printed"), [(None, ["info", "warning", "error"]), (True, ["warning", "error"])])
def test_who_asks_for_quiet_gets_warnings_and_errors(
    capsys: pytest.CaptureFixture[str], is_quiet: bool | None, printed: list[str]
) -> None:
    console.set_log("json", is_quiet=is_quiet)
    for print_line in NOTES:
        print_line("something")
    assert [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()] == printed
