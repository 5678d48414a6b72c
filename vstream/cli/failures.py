"""Turn failures into exit codes and texts. Imported only after a failure: it needs rich."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path

from vstream import errors
from vstream.cli.exit_codes import NO, OK, UNKNOWN, USAGE
from vstream.cli.views import finding_text
from vstream.cli.views.console import print_error, stderr

_CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def report_failure(error: Exception) -> int:
    """Print what went wrong, and return the exit code. An error that vstream did not foresee is never a `NO`."""
    if is_debugging():
        for line in "".join(traceback.format_exception(error)).splitlines():
            stderr().print(line)
    if isinstance(error, errors.InvalidInputError):
        _print_findings(error)
        return NO
    expected = error if isinstance(error, errors.VstreamError) else _explain(error)
    print_error(expected)
    if isinstance(expected, errors.UnknownNameError):
        return USAGE
    return NO if isinstance(expected, errors.RefusedError) else UNKNOWN


def report_refusals(code: object) -> object:
    """
    Print what servers did not permit, and return the exit code of a command that would have ended with *code*.

    Much of what is asked may fail without ending a command. But what was not permitted is not known.
    """
    for refusal in errors.NOT_PERMITTED:
        print_error(errors.NotPermittedError(refusal))
    return UNKNOWN if errors.NOT_PERMITTED and code in {None, OK, NO} else code


def is_debugging() -> bool:
    """Whether the user wants to see tracebacks."""
    return os.environ.get("VSTREAM_DEBUG", "0") not in {"", "0"}


def _explain(error: Exception) -> errors.VstreamError:
    if isinstance(error, OSError) and error.errno in _CANNOT_WRITE:
        if error.filename is not None:
            return errors.VstreamError(
                f"{error.filename} cannot be written: {error.strerror}", hint="make room there, and run it again"
            )
        # What is still in the buffer would fail once more when Python ends, with an exit code of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return errors.VstreamError(f"cannot write the output: {error.strerror}")
    if isinstance(error, PermissionError) and error.filename is not None:
        # `Path.exists` raises it for what is in a directory that this user may not look into.
        return errors.VstreamError(
            f"{error.filename} cannot be reached: {error.strerror}", hint="who may read its directories?"
        )
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    position = f" in {Path(frame[0].filename).name}, line {frame[0].lineno}" if frame else ""
    return errors.VstreamError(
        f"unexpected {type(error).__name__}{position}: {error}",
        hint="this is a bug in vstream: run the command again with VSTREAM_DEBUG=1, and report what it prints",
    )


def _print_findings(error: errors.InvalidInputError) -> None:
    files = {finding.span.file for finding in error.findings if finding.span}
    sources = {file: text for file in files if (text := _read(file)) is not None}
    for line in finding_text.render_full(error.findings, sources):
        stderr().print(line)
    stderr().print(f"{error.message} found")


def _read(file: str) -> str | None:
    """The text of *file*, None if it cannot be read again: it came from standard input, or is no text."""
    try:
        return Path(file).read_bytes().decode("utf-8-sig")
    except (OSError, ValueError):
        return None
