"""
Scratch directories for the credentials and rows of a running audit.

A killed process leaves its directory behind; the next audit removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from vstream.errors import VstreamError

_PREFIX: Final = "vstream-scratch-"
_MIN_FREE_BYTES: Final = 1 << 20
"""Required free space in bytes. If Java cannot write its few files, Spark fails to start without a message."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NEW_DIRECTORY_SECONDS: Final = 60.0
"""Seconds after which the creator of a directory has certainly locked it, and an orphaned Java has ended."""


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """
    Create a directory that only this user can read, and remove it at the end of the block.

    This process holds a lock on it, which the system releases when the process ends. Directories
    of this user without a lock are removed first. Raises VstreamError if the disk is full.
    """
    _remove_stale()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as path, _explain_no_room():
        held = os.open(path, os.O_RDONLY)
        try:
            with suppress(OSError):  # where nobody can lock, nobody removes
                fcntl.flock(held, fcntl.LOCK_SH)
            with tempfile.TemporaryFile(dir=path) as file:
                file.write(bytes(_MIN_FREE_BYTES))
            yield Path(path)
        finally:
            os.close(held)


@contextmanager
def _explain_no_room() -> Iterator[None]:
    """Raise VstreamError if the block fails because there is no space for temporary files."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM or not _can_print():
            raise
        raise VstreamError(
            f"no space for temporary files in {tempfile.gettempdir()}: {error.strerror}",
            hint="an audit needs about 10 MiB, and more for many messages: set TMPDIR to a directory with more space",
        ) from error


def _can_print() -> bool:
    """Whether standard output works: it may be a file on a full disk, which would explain the error too."""
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def is_scratch(place: str) -> bool:
    """Whether *place*, a path or a URI, is in a scratch directory."""
    return any(part.startswith(_PREFIX) for part in PurePosixPath(place).parts)


def _remove_stale() -> None:
    try:
        directory = tempfile.gettempdir()
    except FileNotFoundError as error:  # it could not write into any of them
        raise VstreamError("no space for temporary files", hint="set TMPDIR to a directory with more space") from error
    for item in Path(directory).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is somebody else's, or just gone
            _remove(item)


def _remove(left: Path) -> None:
    """Remove *left* unless a process holds its lock: then raises BlockingIOError. Raises OSError if that is unknown."""
    held = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        result = os.fstat(held)
        if result.st_uid == os.geteuid() and result.st_mtime < time.time() - _NEW_DIRECTORY_SECONDS:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(held)
