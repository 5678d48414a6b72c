"""
A cache of Spark's classes in Java's memory format (class data sharing, JEP 310).

Loading the classes takes a third of the time of a small audit. The first audit records which classes are used. After
it, a low-priority process writes an archive to the user's cache, which takes half a minute. Java checks the archive
before use, and ignores it if it belongs to other jars or another Java.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
from platformdirs import user_cache_path

_ABANDONED_AFTER_SECONDS = 600.0
"""Seconds after which an unfinished archive is abandoned."""
_MAX_OTHER_ARCHIVES = 2
"""Number of archives of other installations to keep, the most recently used ones: each is about 160 MB."""
_MAKE = """{
nice -n 19 "$1" -Xshare:dump -Xmx1g -XX:SharedClassListFile="$2" -XX:SharedArchiveFile="$2.new" -cp "$4" &&
mv -f "$2.new" "$3"
rm -f "$2.new" "$2"
} &"""
_ANY_JAVA = "-XX:+IgnoreUnrecognizedVMOptions"
"""With these options, a Java without such archives starts too."""


@dataclass(slots=True)
class ClassArchive:
    """The archive *file*. *is_there*: whether it exists already."""

    file: Path
    is_there: bool
    classpath: str = ""
    """The class path with which Java ran; set by the caller that started it."""

    @property
    def options(self) -> str:
        """The Java options that use the archive, or that record which classes belong in it."""
        # Spark takes options apart as a shell does.
        use = f'SharedArchiveFile="{self.file}"' if self.is_there else f'DumpLoadedClassList="{_class_list(self.file)}"'
        return f"{_ANY_JAVA} -XX:{use}"


@contextmanager
def use_class_archive(home: Path) -> Iterator[ClassArchive | None]:
    """
    The archive for the Java in *home* and the Spark of this environment; run Java inside the block.

    If the archive does not exist, a background process starts to write it when the block ends;
    after an error, that is left to the next audit. None if another process is writing
    the archive, or if the user's cache is not writable.
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
        arguments = (home / "bin" / "java", _class_list(archive.file), archive.file, archive.classpath)
        subprocess.run(
            ["sh", "-c", _MAKE, "sh", *arguments],
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
    """A digest of Java, Spark and their paths: equal if they are the same."""
    try:
        about = (home / "release").read_bytes()
    except OSError:
        about = b""
    text = (str(home), str(pyspark.__file__), pyspark.__version__, os.environ.get("SPARK_HOME", ""))
    return hashlib.sha256(b"\n".join([about, *(item.encode() for item in text)])).hexdigest()[:16]


def _class_list(file: Path) -> Path:
    """The file with the class names for the archive *file*. It exists while a process writes the archive."""
    return file.with_suffix(".list")


def _claim(file: Path) -> bool:
    """Whether this process is the one to write *file*."""
    names = _class_list(file)
    with suppress(FileNotFoundError):
        if time.time() - names.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
            names.unlink()
    try:
        names.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _clear(directory: Path) -> None:
    """Remove archives that were not used lately, and the remains of unfinished ones."""
    used = sorted(directory.glob("*.jsa"), key=lambda item: item.stat().st_mtime, reverse=True)
    late = time.time() - _ABANDONED_AFTER_SECONDS
    begun = [item for item in directory.glob("*.new") if item.stat().st_mtime < late]
    for entry in (*used[_MAX_OTHER_ARCHIVES:], *begun):
        entry.unlink(missing_ok=True)
