"""
Spark's classes in the form that Java has in memory (class data sharing, JEP 310).

Loading them takes a third of a small audit. The first audit records which classes are used. After it, a process of low
priority writes an archive to the user's cache, in half a minute. Java checks an archive before use, and does without it
if it belongs to other jars or another Java.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyspark
from platformdirs import user_cache_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PATIENCE = 600.0
"""Seconds after which an archive that was begun is given up."""
_KEPT = 2
"""Archives of other installations that stay, the last used ones: each is some 160 MB."""
_MAKE = """{
nice -n 19 "$1" -Xshare:dump -Xmx1g -XX:SharedClassListFile="$2" -XX:SharedArchiveFile="$2.new" -cp "$4" &&
mv -f "$2.new" "$3"
rm -f "$2" "$2.new"
} &"""
_ANY_JAVA = "-XX:+IgnoreUnrecognizedVMOptions"
"""Those that have no such archives start all the same."""


@dataclass(slots=True)
class ClassArchive:
    """The archive in *file*; it does not exist yet if not *is_there*."""

    file: Path
    is_there: bool
    classpath: str = ""
    """What Java has run with, told by whoever ran it."""

    @property
    def options(self) -> str:
        """What Java is started with, to use the archive, or to write down what belongs into it."""
        # Spark takes options apart as a shell does.
        use = f'SharedArchiveFile="{self.file}"' if self.is_there else f'DumpLoadedClassList="{_class_list(self.file)}"'
        return f"{_ANY_JAVA} -XX:{use}"


@contextmanager
def class_archive(home: Path) -> Iterator[ClassArchive | None]:
    """
    The archive for the Java in *home* and the Spark of this environment; Java runs inside of the block.

    When that is over, a process that goes on by itself begins to make what is not there;
    if anything failed, it is left to the next audit. None where another process is about
    to make it, or the user's cache cannot be written.
    """
    try:
        archive = _archive(home)
    except OSError:
        archive = None
    try:
        yield archive
    except BaseException:
        if archive and not archive.is_there:
            _class_list(archive.file).unlink(missing_ok=True)
        raise
    if archive and not archive.is_there:
        subprocess.run(
            [
                "sh",
                "-c",
                _MAKE,
                "sh",
                home / "bin" / "java",
                _class_list(archive.file),
                archive.file,
                archive.classpath,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )


def _archive(home: Path) -> ClassArchive | None:
    directory = user_cache_path("vstream") / "java"
    file = directory / f"{_digest(home)}.jsa"
    with suppress(FileNotFoundError):
        os.utime(file)
        return ClassArchive(file, is_there=True)
    directory.mkdir(parents=True, exist_ok=True)
    if not _claim(file):
        return None
    _clear(directory)
    return ClassArchive(file, is_there=False)


def _digest(home: Path) -> str:
    """The same for the same Java and the same Spark at the same places."""
    try:
        about = (home / "release").read_bytes()
    except OSError:
        about = b""
    text = (str(home), str(pyspark.__file__), pyspark.__version__, os.environ.get("SPARK_HOME", ""))
    return hashlib.sha256(b"\n".join([about, *(item.encode() for item in text)])).hexdigest()[:16]


def _class_list(file: Path) -> Path:
    """The names of the classes for *file*. As long as it is there, somebody is making that."""
    return file.with_suffix(".list")


def _claim(file: Path) -> bool:
    """Whether this process is the one that makes *file*."""
    names = _class_list(file)
    with suppress(FileNotFoundError):
        if time.time() - names.stat().st_mtime > _PATIENCE:
            names.unlink()
    try:
        names.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _clear(directory: Path) -> None:
    """Remove archives that were not used lately, and what is left of those that were not finished."""
    used = sorted(directory.glob("*.jsa"), key=lambda item: item.stat().st_mtime, reverse=True)
    late = time.time() - _PATIENCE
    begun = [item for item in directory.glob("*.new") if item.stat().st_mtime < late]
    for entry in (*used[_KEPT:], *begun):
        entry.unlink(missing_ok=True)
