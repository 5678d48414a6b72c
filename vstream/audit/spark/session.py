"""Spark sessions: on this machine, on a cluster, or over Spark Connect."""

from __future__ import annotations

import locale
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from vstream.audit import HINT, connector, load_connect
from vstream.audit import scratch as temporary
from vstream.audit.request import SMALL_AUDIT_MESSAGES
from vstream.audit.spark import java, java_class_cache
from vstream.audit.spark.daemon_threads import run_beside
from vstream.audit.spark.java import find_gateway, forget_gateway, use_gateway
from vstream.audit.spark.spark_errors import convert_spark_errors
from vstream.errors import NotReachableError, VstreamError

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOCAL = "local[*,4]"
"""All cores, and four attempts for each task: `local[*]` alone gives up after the first."""
_COMPILE_HUGE_OPTION = "-XX:-DontCompileHugeMethods"
"""Else Java interprets what Spark makes of a plan with many columns, at twice the CPU."""
_QUICK_COMPILER_OPTION = "-XX:TieredStopAtLevel=1"
"""Java's optimizing compiler takes half a minute of CPU, and saves a third of what its code takes from then on."""
SMALL_SETTINGS = {
    "spark.buffer.pageSize": "1m",
    _JAVA_OPTIONS: f"{_COMPILE_HUGE_OPTION} {_QUICK_COMPILER_OPTION} -XX:+UseSerialGC -XX:MetaspaceSize=256m -Xmn256m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""
Settings for a few hundred thousand rows on this machine: compiling a plan takes longer than interpreting it.

Each sort and each aggregate takes at least a page of memory, by default 64 MiB: clearing and moving
these took a sixth of the time. The conditions that Spark infers from constraints would parse each
header again, and compressing tables in memory costs more than it saves.
"""
_COMPILED_FROM_MESSAGES = 100_000
"""Number of messages from which on compiling expressions pays, if not the rest of SMALL_SETTINGS."""
_OPTIMIZED_FROM_MESSAGES = 2_000_000
"""Number of messages from which on that pays."""
_CALL_THRESHOLDS = {"Invocation": 100_000, "MinInvocation": 20_000, "Compile": 300_000, "BackEdge": 400_000}
_LATE_OPTIMIZING_OPTIONS = " ".join(f"-XX:Tier4{name}Threshold={number}" for name, number in _CALL_THRESHOLDS.items())
"""Loops over rows are optimized soon all the same; planning a query, which runs a few times, is not worth it."""
FAST_JAVA = f"-XX:+UseParallelGC {_COMPILE_HUGE_OPTION} {_LATE_OPTIMIZING_OPTIONS}"
"""Java's default garbage collector costs a tenth more CPU, for shorter pauses that do not matter here."""
_LAUNCH_TIMEOUT = 180.0
"""Seconds in which Spark's Java process must report its port. On a busy machine it takes 30."""
_CANNOT_SAY = 'Exception in thread "main"'
"""If this is in its log, it never reports its port, and never ends. A cause is a full disk: the port is in a file."""
_POLL_SECONDS = 0.5
_LOG_TAIL_LINES = 5
"""Lines of Spark's log that are shown when it does not start."""
_LOG_TAIL_BYTES = 65536


@contextmanager
def open_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    on_keeping: Callable[[Path], None] | None = None,
) -> Iterator[SparkSession]:
    """
    A session whose executors can read streams (`connector.register`); stopped on exit if it was started here.

    Without *master* and *remote*, it is the session of `spark-submit` if that runs this process,
    else a local one. *conf* overrides our settings. With *on_keeping*, a Java process started here
    loads Spark's classes from an archive in the user's cache (`java_class_cache`); if the archive
    does not exist, it is created after the block, and *on_keeping* is called with its file. Raises
    VstreamError if Spark is missing or fails inside the block, NotReachableError if it cannot be
    started or reached.
    """
    if master and remote:
        raise VstreamError("use either `--master` or `--remote`, not both")
    with temporary.scratch_directory() as scratch:
        opened = _connect(remote, conf or {}) if remote else _start_session(master, scratch, conf or {}, on_keeping)
        with opened as spark, convert_spark_errors():
            if not is_local(spark):
                connector.ship_package(spark, scratch)
            yield spark


@contextmanager
def _start_session(
    master: str | None, scratch: Path, conf: Mapping[str, str], on_keeping: Callable[[Path], None] | None
) -> Iterator[SparkSession]:
    """A session with a Java process of its own, unless `spark-submit` runs this process."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = _settings(master or (None if submitted else LOCAL), scratch) | dict(conf)
    home = java.set_java_home(scratch) if not submitted and find_gateway() is None else None
    with java_class_cache.use_class_archive(home) if home and on_keeping else nullcontext() as archive:
        if home:
            # What Java unpacks for itself it would leave in the system's directory if it is killed.
            options = [
                settings.get(_JAVA_OPTIONS),
                f'-Djava.io.tmpdir="{scratch}"',
                archive.options if archive else None,
            ]
            settings[_JAVA_OPTIONS] = " ".join(filter(None, options))
        with _kill_children_on_error():
            spark = _start(settings, scratch / "spark.log", submitted=submitted)
        try:
            yield spark
            if archive:
                archive.classpath = find_gateway().jvm.System.getProperty("java.class.path")
        finally:
            _stop(spark, submitted=submitted)
    if archive and on_keeping and not archive.is_there:
        on_keeping(archive.file)


def size_settings(messages: int) -> dict[str, str]:
    """The settings that an audit of so many messages on this machine needs beside the usual ones."""
    if messages >= SMALL_AUDIT_MESSAGES:
        return {_JAVA_OPTIONS: f"{FAST_JAVA} {_QUICK_COMPILER_OPTION}"} if messages < _OPTIMIZED_FROM_MESSAGES else {}
    compiles = messages >= _COMPILED_FROM_MESSAGES
    return {name: value for name, value in SMALL_SETTINGS.items() if not (compiles and ".codegen." in name)}


@contextmanager
def without_codegen(spark: Any) -> Iterator[None]:
    """Inside the block, *spark* interprets plans instead of compiling them, which is faster for few rows."""
    changed = {name: value for name, value in SMALL_SETTINGS.items() if name.startswith("spark.sql.")}
    before = {name: spark.conf.get(name, None) for name in changed}
    for name, value in changed.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def is_local(spark: Any) -> bool:
    """Whether executors run in the environment of this process; those of `local-cluster` do not."""
    return hasattr(spark, "_jvm") and str(spark.sparkContext.master).partition("[")[0] == "local"


def cluster_exposure(master: str, authenticate: str | None) -> str | None:
    """A warning if the Spark cluster at *master* would expose credentials, as *authenticate* is not true; else None."""
    if master.startswith("local") or (authenticate or "").lower() == "true":
        return None
    return (
        f"Spark at {master} does not ask who joins it: its executors get the credentials of the streams, and so does whoever "
        "reaches its ports. Set spark.authenticate and spark.network.crypto.enabled"
    )


def _settings(master: str | None, scratch: Path) -> dict[str, str]:
    settings = {
        "spark.app.name": "vstream",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        # It tells Java which line of Python each expression comes from: a call more for each.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if master:
        settings["spark.master"] = master
    if master and master.startswith("local"):
        settings |= {
            "spark.ui.enabled": "false",
            # Without these Spark listens on all addresses, and warns where the host's name is a loopback address.
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{_heap_mib()}m",
            _JAVA_OPTIONS: FAST_JAVA,
            "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 1))),
            "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
            "spark.local.dir": str(scratch),
            "spark.python.daemon.module": "vstream.audit.spark.worker_daemon",
        }
    return settings


def _heap_mib() -> int:
    """A quarter of this machine's memory, between 1 and 4 GiB; Python workers and other programs need the rest."""
    quarter = int(psutil.virtual_memory().total) // 4
    return max(1024, min(4096, quarter >> 20))


def _start(settings: Mapping[str, str], log: Path, *, submitted: bool) -> SparkSession:
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    if not submitted and find_gateway() is None:
        _launch(conf, log)
    # Else py4j prints the stack of whatever was interrupted.
    logging.getLogger().addHandler(logging.NullHandler())
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        builder = SparkSession.builder
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark: Any = builder.getOrCreate()
    except Exception as error:
        forget_gateway()  # a Java process that failed is not used again
        raise NotReachableError(
            f"Spark at {settings.get('spark.master', 'spark-submit')} did not start: {_log_tail(log) or _one_line(error)}",
            hint="check the address of the master, and that it runs the same version of Spark",
        ) from error
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler calls Java in the midst of another call.
        signal.signal(signal.SIGINT, on_interrupt)
    # The launcher logs before it has read the setting.
    spark.sparkContext.setLogLevel(settings["spark.log.level"])
    return spark  # type: ignore[no-any-return]


@contextmanager
def _kill_children_on_error() -> Iterator[None]:
    """
    If the block fails or is interrupted, kill the processes that were started in it.

    A Java process that is orphaned before it has reported its port to PySpark never ends.
    """
    before = psutil.Process().children()
    try:
        yield
    except BaseException:
        for process in _kill_children(before):
            process.wait()
        raise


def _kill_children(before: Sequence[psutil.Process]) -> Sequence[psutil.Process]:
    """Kill the child processes of this one, except those in *before*. Does not wait for them."""
    started = [item for item in psutil.Process().children() if item not in before]
    for item in started:
        _kill(item)
    return started


def _kill_silent_java(log: Path, before: Sequence[psutil.Process], has_started: threading.Event) -> None:
    """
    Kill a Java process that is not in *before* if it cannot report its port, or has not for a long time.

    PySpark waits for the port as long as Java runs, and Java would run for ever.
    """
    deadline = time.monotonic() + _LAUNCH_TIMEOUT
    while not has_started.wait(_POLL_SECONDS):
        if time.monotonic() > deadline or _CANNOT_SAY in (_log_tail(log) or ""):
            _kill_children(before)
            return


def _kill(process: psutil.Process) -> None:
    """Kill *process* and its children: Spark's launcher is a script that starts Java."""
    with suppress(psutil.Error):
        process.suspend()  # so that it starts no more
        for item in [*process.children(recursive=True), process]:
            with suppress(psutil.NoSuchProcess):
                item.kill()


def _launch(conf: Any, log: Path) -> None:
    """Start Spark's Java process with its own log, so that its messages do not appear among ours."""
    start: Any = launch_gateway  # it has no types
    if (conf.get("spark.master") or "").startswith("local"):
        # Spark's own default is whatever `python3` is on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        watch = partial(_kill_silent_java, log, psutil.Process().children())
        with log.open("wb") as output, _utf8_locale(), run_beside(watch):
            gateway = start(conf=conf, popen_kwargs={"stderr": output, "stdout": output})
    except Exception as error:
        raise NotReachableError(f"Spark did not start: {_log_tail(log) or _one_line(error)}", hint=HINT) from error
    use_gateway(gateway, conf)


@contextmanager
def _utf8_locale() -> Iterator[None]:
    """
    Processes that are started in the block read file names as UTF-8, like Python in any locale.

    In the locale `C`, Java replaces other letters by question marks: it would write its port into another
    directory, and PySpark would wait for ever.
    """
    if sys.platform != "linux" or locale.getencoding().upper() == "UTF-8":
        yield
        return
    before = os.environ.get("LC_ALL")
    os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        if before is None:
            del os.environ["LC_ALL"]
        else:
            os.environ["LC_ALL"] = before


@contextmanager
def _connect(remote: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    try:
        connect_session = load_connect()
    except Exception as error:
        raise VstreamError(
            f"Spark Connect needs more packages: {_one_line(error)}", hint="pip install 'vstream[audit-connect]'"
        ) from error
    # Without it, `pyspark.sql.functions` looks for Spark in this process.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    try:
        builder = connect_session.builder.remote(remote)
        for name, value in conf.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    except Exception as error:
        raise NotReachableError(
            f"no Spark Connect server at {remote}: {_one_line(error)}", hint="is it running, and is the address right?"
        ) from error
    try:
        yield spark
    finally:
        spark.stop()


def _stop(spark: Any, *, submitted: bool) -> None:
    """Stop *spark* and, unless `spark-submit` owns it, its Java process."""
    gateway = find_gateway()
    with suppress(Exception), warnings.catch_warnings():
        # It warns of a Java process that does not answer, as after Ctrl-C; that is ended below.
        warnings.simplefilter("ignore", RuntimeWarning)
        spark.stop()
    if submitted or gateway is None:
        return
    with suppress(Exception):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        with suppress(OSError):
            process.stdin.close()
        process.wait()
    forget_gateway()


def _log_tail(log: Path) -> str | None:
    """The last non-empty lines of *log*, joined into one."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    telling = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("at ")]
    return "; ".join(telling[-_LOG_TAIL_LINES:]) or None


def _one_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
