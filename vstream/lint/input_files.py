"""The files that `vstream lint` and `vstream map` read: names to contents, in bounded time and memory."""

from __future__ import annotations

import glob
import os
import select
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic

from vstream.files import BUNDLE_MARKER, leaves_repository
from vstream.lint import detect
from vstream.lint.parse_files import STDIN, Source
from vstream.lint.selection import NO_FILES, FilePatterns

PIPE_TIMEOUT = 10.0
"""Seconds that a pipe may take; standard input may take any time."""

_SUFFIXES = frozenset({".conf", ".cfg", ".json", ".jwt", ".yaml", ".yml"})
_CHUNK_BYTES = 1 << 20


def read_sources(
    names: Iterable[str], *, roots: Roots | None = None, exclude: FilePatterns = NO_FILES, excludes_named: bool = False
) -> Iterator[Source]:
    """
    Read *names*: files, directories with everything in them, patterns that no shell expanded, `-`.

    Each file once. Links in directories that lead out of *roots* are passed over, and so is what matches *exclude*;
    with *excludes_named*, also where it was named. With *roots*, a named link out of its repository has a problem.
    Never raises: what cannot be read is a source with a problem.
    """
    may_leave = roots is None
    seen: set[str] = set()
    for name, is_named in _expand(names, exclude):
        if name not in seen and not (excludes_named and is_named and exclude.match(name)):
            seen.add(name)
            if is_named or roots is None or roots.hold(name):
                yield _read_source(name, is_named=is_named, may_leave=may_leave)


def list_files(names: Iterable[str]) -> list[str]:
    """The files that *names* stand for now, without reading them."""
    return [name for name, _ in _expand(names, NO_FILES) if name != STDIN]


def read_included(name: str) -> bytes:
    """The content of an included file. Raises OSError or ValueError."""
    return _read_bounded(Path(name), monotonic() + PIPE_TIMEOUT)


class Roots:
    """The directories that files may lie in: the repositories of the given names, or else their directories."""

    def __init__(self, names: Iterable[str]) -> None:
        self._roots = {_root_of(Path("." if name in {"-", STDIN} else name)) for name in names}

    def hold(self, name: str) -> bool:
        """Whether *name*, with every link on the way resolved, is in one of them."""
        path = Path(name).resolve()
        return any(path.is_relative_to(root) for root in self._roots)

    def read(self, name: str) -> bytes:
        """As `read_included`, of what is in one of them. Raises ValueError for anything else."""
        if not self.hold(name):
            raise ValueError("it is outside of the repository, or of the directory of the given files")
        return read_included(name)


def _root_of(path: Path) -> Path:
    directory = path
    # A pattern, or a file: what is around it.
    while not directory.is_dir():
        directory = directory.parent
    whole = directory.resolve()
    return next((parent for parent in (whole, *whole.parents) if (parent / ".git").exists()), whole)


def _expand(names: Iterable[str], exclude: FilePatterns) -> Iterator[tuple[str, bool]]:
    for name in names:
        if name == "-":
            yield STDIN, True
            continue
        path = os.path.normpath(name)
        if Path(path).is_dir():
            yield from ((file, False) for file in _walk(path, exclude))
        elif not Path(path).exists() and glob.has_magic(name):
            matches = _expand_glob(path)
            yield from _expand(matches, exclude) if matches else [(path, True)]
        else:
            yield path, True


def _walk(directory: str, exclude: FilePatterns) -> Iterator[str]:
    """
    The files in *directory* that may be ours, sorted.

    Not those in hidden directories or in what `vstream render` has written, and no links to directories.
    """
    pending = [directory]
    while pending:
        place = pending.pop()
        directories, files = _list_directory(place)
        if place != directory and BUNDLE_MARKER in files:
            continue
        pending += [path for path in reversed(directories) if not exclude.match(path)]
        for file in sorted(files):
            path = Path(place, file)
            if path.suffix.lower() in _SUFFIXES and not file.startswith(".") and not exclude.match(str(path)):
                yield os.path.normpath(path)


def _list_directory(directory: str) -> tuple[list[str], list[str]]:
    """
    The paths of the directories in *directory*, sorted, and the names of its files.

    Not hidden ones, and no links: two of them to a directory around them make paths without end.
    """
    _, directories, files = next(os.walk(directory), ("", [], []))
    paths = [Path(directory, name) for name in sorted(directories) if not name.startswith(".")]
    return [str(path) for path in paths if _is_no_link(path)], files


def _is_no_link(path: Path) -> bool:
    try:
        return not path.is_symlink()
    except OSError:  # its name is too long: nothing in it can be opened
        return False


def _expand_glob(pattern: str) -> list[str]:
    """What *pattern* matches, sorted. `**` follows no links."""
    parts = Path(pattern).parts
    if "**" not in parts:
        return sorted(glob.glob(pattern))  # noqa: PTH207 - absolute patterns too
    index = parts.index("**")
    rest = parts[index + 1 :]
    pending = _expand_glob(str(Path(*parts[:index]))) if index else ["."]
    if not rest:
        return pending
    matches: set[str] = set()
    while pending:
        directory = pending.pop()
        pending += _list_directory(directory)[0]
        matches.update(os.path.normpath(path) for path in _expand_glob(str(Path(glob.escape(directory), *rest))))
    return sorted(matches)


def _read_source(name: str, *, is_named: bool, may_leave: bool) -> Source:
    try:
        if name == STDIN:
            return Source(name=name, content=sys.stdin.buffer.read(detect.MAX_BYTES + 1))
        return Source(name=name, content=_read(Path(name), may_leave=may_leave), is_named=is_named)
    except FileNotFoundError:
        problem = detect.unreadable_file(name, "this file does not exist", "check the path")
    except OSError as error:
        problem = detect.unreadable_file(
            name, f"this file cannot be read: {error.strerror or error}", "check its permissions"
        )
    except ValueError as error:
        problem = detect.unreadable_file(name, f"this file cannot be read: {error}", "check the path")
    return Source(name=name, problem=problem, is_named=is_named)


def _read(path: Path, *, may_leave: bool) -> bytes:
    if not may_leave and leaves_repository(path):
        raise ValueError("it is a link out of the repository")
    return _read_bounded(path, monotonic() + PIPE_TIMEOUT)


def _read_bounded(path: Path, deadline: float) -> bytes:
    """
    The content of *path*; of a file that is too large, one byte too many.

    Raises OSError, also if a pipe or device has nothing until *deadline*, and ValueError for impossible names.
    """
    # Opening a pipe waits for whoever writes into it, unless it is opened like this.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(None, "it is a directory")
        may_wait = not stat.S_ISREG(mode)
        chunks: list[bytes] = []
        size = 0
        while size <= detect.MAX_BYTES:
            if may_wait and not _is_ready(descriptor, deadline):
                raise TimeoutError(None, f"no more data within {PIPE_TIMEOUT:g} seconds")
            chunk = stream.read(min(_CHUNK_BYTES, detect.MAX_BYTES + 1 - size))
            if chunk is None:
                continue
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)


def _is_ready(descriptor: int, deadline: float) -> bool:
    """Wait until there is something to read, or the end of it; False after *deadline*."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(max(0.0, deadline - monotonic()) * 1000))
