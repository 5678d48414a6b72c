"""
Directories for as long as an audit lasts, with credentials and rows in them.

A process that is killed leaves its own behind; the next one removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX: Final = "vstream-scratch-"
_NEW: Final = 60.0
"""Seconds in which whoever made a directory has surely come to lock it, and a Java without its parent to end."""


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """
    A directory that nobody else may read, gone at the end of the block.

    This process holds a lock on it, which ends with the process whatever ends that. Those
    of this user that nobody holds any more are removed first.
    """
    _remove_stale()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as path:
        held = os.open(path, os.O_RDONLY)
        try:
            with suppress(OSError):  # where nobody can lock, nobody removes
                fcntl.flock(held, fcntl.LOCK_SH)
            yield Path(path)
        finally:
            os.close(held)


def is_scratch(place: str) -> bool:
    """Whether *place*, a path or a URI, is in such a directory."""
    return any(part.startswith(_PREFIX) for part in PurePosixPath(place).parts)


def _remove_stale() -> None:
    for item in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
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
