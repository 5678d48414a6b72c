"""
Directories for as long as an audit lasts, with credentials and rows in them.

A process that is killed leaves its own behind; the next one removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX: Final = "vstream-scratch-"
_LEAST: Final = 1 << 20
"""Bytes that have to fit. Java ends the start of Spark without a word if it cannot write the little that it needs."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NEW: Final = 60.0
"""Seconds in which whoever made a directory has surely come to lock it, and a Java without its parent to end."""


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """
    A directory that nobody else may read, gone at the end of the block.

    This process holds a lock on it, which ends with the process whatever ends that. Those
    of this user that nobody holds any more are removed first. Raises VstreamError if it has no room.
    """
    _remove_stale()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as path, _explain_no_room():
        held = os.open(path, os.O_RDONLY)
        try:
            with suppress(OSError):  # where nobody can lock, nobody removes
                fcntl.flock(held, fcntl.LOCK_SH)
            with tempfile.TemporaryFile(dir=path) as file:
                file.write(bytes(_LEAST))
            yield Path(path)
        finally:
            os.close(held)


@contextmanager
def _explain_no_room() -> Iterator[None]:
    """Raise VstreamError for what fails in the block because temporary files have no room."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM or not _can_print():
            raise
        raise VstreamError(
            f"no room for temporary files in {tempfile.gettempdir()}: {error.strerror}",
            hint="an audit needs about 10 MiB, and more for many messages: set TMPDIR to a directory that has it",
        ) from error


def _can_print() -> bool:
    """Whether what fails is not what is printed, which may be a file on a disk that is full."""
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def is_scratch(place: str) -> bool:
    """Whether *place*, a path or a URI, is in such a directory."""
    return any(part.startswith(_PREFIX) for part in PurePosixPath(place).parts)


def _remove_stale() -> None:
    try:
        directory = tempfile.gettempdir()
    except FileNotFoundError as error:  # it could write into none of those that there are
        raise VstreamError("no room for temporary files", hint="set TMPDIR to a directory that has it") from error
    for item in Path(directory).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is somebody else's, or just gone
            _remove(item)


def _remove(left: Path) -> None:
    """Remove *left* if nobody holds it. Raises OSError if that cannot be told, BlockingIOError if somebody does."""
    held = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        result = os.fstat(held)
        if result.st_uid == os.geteuid() and result.st_mtime < time.time() - _NEW:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(held)
