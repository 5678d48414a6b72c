"""`vstream lint --watch`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import typer

from vstream.cli.views import console
from vstream.errors import VstreamError
from vstream.lint.input_files import list_files
from vstream.lint.pipeline import LintJob, LintOutcome, LintRequest, make_job

_CLEAR = "\x1b[2J\x1b[H"
_WATCH_SECONDS = 0.3


def watch_and_repeat(request: LintRequest, run: Callable[[LintJob], LintOutcome]) -> NoReturn:
    """Check again and again. Ends with Ctrl-C alone: a mistake in the settings or a missing file is said, and waited for."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start jobs in the background without it
    while True:
        if console.stdout().is_terminal:
            typer.echo(_CLEAR, nl=False)
        other_files = request.settings_files
        # Taken before the run, so that no change is missed that comes while it reads.
        before = read_stamps(request.names, other_files)
        try:
            job = make_job(request)
            other_files = job.other_files
            other_files = [*other_files, *run(job).files_read]
        except VstreamError as error:
            console.print_error(error)
        # Which other files there are, the run alone knows. One that was not there before counts as changed if it is there now.
        before = {**read_stamps((), other_files), **before}
        console.print_note("watching for changes; Ctrl-C ends it")
        wait_for_change(request.names, before, other_files)


def read_stamps(names: Sequence[str], extra: Iterable[str]) -> dict[str, tuple[int, int] | None]:
    """When the files of *names*, in their directories too, and *extra* were changed, and their sizes; None for one that is not there."""
    return {file: _read_stamp(file) for file in (*list_files(names), *extra)}


def _read_stamp(file: str) -> tuple[int, int] | None:
    try:
        status = Path(file).stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


def wait_for_change(
    names: Sequence[str], before: Mapping[str, tuple[int, int] | None], includes: Iterable[str]
) -> None:
    """Return when the stamps of *names* and *includes* are not *before*: a file was changed, added or removed."""
    extra = list(includes)
    while read_stamps(names, extra) == before:
        time.sleep(_WATCH_SECONDS)
