"""What each exit code means."""

from __future__ import annotations

import typer

OK = 0
NO = 1
"""A finding, a difference, a refusal: the answer is known, and not what one wants."""
USAGE = 2
UNKNOWN = 3
"""The question could not be answered, or the command could not do its work."""
INTERRUPTED = 130
TERMINATED = 143
"""What a shell makes of a process that SIGTERM ended."""

MEANINGS = {
    OK: "yes",
    NO: "no (errors in files, failed checks, refused changes)",
    USAGE: "wrong usage",
    UNKNOWN: "failed, or unknown",
    INTERRUPTED: "interrupted",
    TERMINATED: "terminated",
}
"""As `vstream --help` says them. `failures.report_failure` says which error has which."""


def exit_unless_yes(*, is_no: bool = False, is_unknown: bool = False) -> None:
    """End a command whose answer is no, or not known. What is wrong weighs more than what nobody knows."""
    if is_no:
        raise typer.Exit(NO)
    if is_unknown:
        raise typer.Exit(UNKNOWN)
