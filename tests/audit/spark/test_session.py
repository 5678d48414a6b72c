"""Starting Spark, and being stopped while it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.paths import ROOT
from vstream.audit.spark.session import open_session
from vstream.cli.asyncio_runner import exit_on_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = "from tests.audit.spark.test_session import start; start()"
LAUNCHER = """#!/bin/sh
sleep 1000 &
echo $$ $! > "$SPARK_HOME/pids.new"
mv "$SPARK_HOME/pids.new" "$SPARK_HOME/pids"
wait
"""
"""Spark's, which starts Java, and does not come to say that it listens."""


def start() -> None:
    """As `vstream audit` does."""
    with exit_on_signals(), open_session(master="local[1]"):
        pass


@pytest.mark.spark
def test_spark_that_is_stopped_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    launcher, temporary = tmp_path / "bin" / "spark-submit", tmp_path / "tmp"
    launcher.parent.mkdir()
    temporary.mkdir()
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    environment = os.environ | {"SPARK_HOME": str(tmp_path), "TMPDIR": str(temporary)}
    with subprocess.Popen([sys.executable, "-c", START], cwd=ROOT, env=environment, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pids").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert any(temporary.iterdir())
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    left = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
    for leftover in left:
        os.kill(leftover, signal.SIGKILL)
    assert (len(pids), left, list(temporary.iterdir())) == (2, [], [])


@pytest.mark.spark
def test_python_workers_are_forked_from_a_process_that_has_imported_what_they_need(spark: SparkSession) -> None:
    def look(_: int) -> tuple[str, list[str], list[str]]:
        parent = psutil.Process().parent()
        assert parent is not None
        maps = [entry.path for entry in parent.memory_maps() if Path(entry.path).parts[-2:-1] == ("pyarrow",)]
        return str(sys.modules["pyspark"].__file__), parent.cmdline(), maps

    ((file, command, maps),) = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert ".zip" not in file
    assert "vstream.audit.spark.worker_daemon" in command
    assert maps


def test_java_that_cannot_say_where_it_listens_is_ended_and_its_reason_told(tmp_path: Path) -> None:
    """As on a full disk: it writes that into a file, and goes on running without it."""
    launcher, temporary = tmp_path / "bin" / "spark-submit", tmp_path / "tmp"
    launcher.parent.mkdir()
    temporary.mkdir()
    says = "echo 'Exception in thread \"main\" java.io.IOException: No space left on device' >&2\n"
    launcher.write_text(LAUNCHER.replace("#!/bin/sh\n", f"#!/bin/sh\n{says}"))
    launcher.chmod(0o755)
    environment = os.environ | {"SPARK_HOME": str(tmp_path), "TMPDIR": str(temporary)}
    ran = subprocess.run(
        [sys.executable, "-c", START],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 'Spark did not start: Exception in thread "main" java.io.IOException: No space left' in ran.stderr
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()] if (tmp_path / "pids").exists() else []
    left = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
    assert (left, list(temporary.iterdir())) == ([], [])
