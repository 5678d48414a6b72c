"""Failures to exit codes and texts."""

from __future__ import annotations

import errno
import os
import sys

from vstream.cli.views import diagnostics
from vstream.cli.views.console import print_error, stderr
from vstream.errors import InvalidInputError, RefusedError, UnknownNameError, VstreamError

OK = 0
NO = 1
USAGE = 2
FAILED = 3
INTERRUPTED = 130


def report_failure(error: Exception) -> int:
    """Say what went wrong and give the exit code. An error that is not vstream's own is a bug: it is raised again."""
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
        # What is still in the buffer would fail once more when Python ends, with an exit code of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        error = VstreamError(f"the output cannot be written: {error.strerror}")
    if isinstance(error, PermissionError) and error.filename is not None:
        # `Path.exists` raises it for what is in a directory that this user may not look into.
        error = VstreamError(
            f"{error.filename} cannot be reached: {error.strerror}", hint="who may read its directories?"
        )
    if not isinstance(error, VstreamError):
        raise error
    if isinstance(error, InvalidInputError):
        sources = {span.file: _read(span.file) for one in error.diagnostics if (span := one.span)}
        for line in diagnostics.full(error.diagnostics, sources):
            stderr().print(line)
        stderr().print(f"{error.message} found")
        return NO

    print_error(error)
    if isinstance(error, UnknownNameError):
        return USAGE
    return NO if isinstance(error, RefusedError) else FAILED


def _read(file: str) -> str:
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:  # noqa: PTH123 - the name as it was given
            return stream.read()
    except (OSError, ValueError):
        return ""
