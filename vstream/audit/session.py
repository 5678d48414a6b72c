"""A Spark session: here, on a cluster, or behind Spark Connect."""

from __future__ import annotations

import locale
import logging
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import psutil
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from vstream.audit import HINT, java, java_class_cache, load_connect, source
from vstream.audit import scratch as temporary
from vstream.audit.java_gateway import find_gateway, forget_gateway, use_gateway
from vstream.audit.spark_errors import explain_spark_errors
from vstream.errors import NotReachableError, VstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOCAL = "local[*,4]"
"""All cores, and four tries for each task: `local[*]` alone would give up at the first."""
SMALL = {
    "spark.buffer.pageSize": "1m",
    _JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -Xmn256m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""
Settings for some hundred thousand rows on this machine: to compile a plan takes longer than to interpret it.

Each sort and each aggregate takes a page of memory at least, which are 64 MiB if nobody says otherwise:
to clear and to move these took a sixth of all the time. What Spark infers from constraints are conditions
that take each header apart once more, and compressing what is in memory costs more than it saves.
"""
FAST = "-XX:+UseParallelGC"
"""Java's own choice of a garbage collector costs a tenth more CPU, for pauses that nobody here would notice."""
_LAUNCH_SECONDS = 180.0
"""In which Spark's Java process has to say where it listens. On a machine that is busy with other things it takes 30."""
_CANNOT_SAY = 'Exception in thread "main"'
"""In its log: then it will never say it, and does not end either. It writes that into a file, and disks get full."""
_INTERVAL = 0.5
"""Seconds."""
_TAIL = 5
"""Lines of Spark's log that are shown when it does not start."""
_LOG_BYTES = 65536


@contextmanager
def open_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    on_keeping: Callable[[Path], None] | None = None,
) -> Iterator[SparkSession]:
    """
    A session whose executors can read streams (`source.register`); stopped on exit if it was started here.

    Without *master* and *remote* it is the one of `spark-submit` where that runs us,
    else one on this machine. *conf* goes over our own settings. With *on_keeping*, a Java
    that is started here takes Spark's classes from an archive in the user's cache
    (`java_class_cache`); if that has to be made first, which begins at the end, *on_keeping* is
    called with its file. Raises VstreamError if Spark is missing or fails inside of the
    block, NotReachableError if it cannot be started or reached.
    """
    if master and remote:
        raise VstreamError("use either `--master` or `--remote`, not both")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not master and not remote and not submitted:
        master = LOCAL
    with temporary.scratch_directory() as scratch:
        if remote:
            spark = _connect(remote, conf or {})
            try:
                with explain_spark_errors():
                    yield _prepare(spark, scratch)
            finally:
                spark.stop()
            return
        settings = _settings(master, scratch) | dict(conf or {})
        home = java.prepare(scratch) if not submitted and find_gateway() is None else None
        with java_class_cache.class_archive(home) if home and on_keeping else nullcontext() as archive:
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
                with explain_spark_errors():
                    yield _prepare(spark, scratch)
                if archive:
                    archive.classpath = find_gateway().jvm.System.getProperty("java.class.path")
            finally:
                _stop(spark, submitted=submitted)
        if archive and on_keeping and not archive.is_there:
            on_keeping(archive.file)


@contextmanager
def without_codegen(spark: Any) -> Iterator[None]:
    """Inside of the block, *spark* plans for few rows: it interprets, and compiles nothing."""
    changed = {name: value for name, value in SMALL.items() if name.startswith("spark.sql.")}
    before = {name: spark.conf.get(name, None) for name in changed}
    for name, value in changed.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def is_local(spark: Any) -> bool:
    """Whether executors run in this process's own machine and environment. `local-cluster` has some of their own."""
    return hasattr(spark, "_jvm") and str(spark.sparkContext.master).partition("[")[0] == "local"


def cluster_exposure(master: str, authenticate: str | None) -> str | None:
    """What is wrong with sending credentials to the Spark cluster at *master*, as it has `spark.authenticate`; None if nothing."""
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
            _JAVA_OPTIONS: FAST,
            "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 1))),
            "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
            "spark.local.dir": str(scratch),
        }
    return settings


def _heap_mib() -> int:
    """A quarter of the memory of this machine, between 1 and 4 GiB: the rest is for Python workers and everyone else."""
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
            hint="is the master's address right, and does it run the same version of Spark?",
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
    Processes that are started in the block end with it if it fails or is interrupted.

    A Java that is left alone before it has told PySpark where it listens stays for ever.
    """
    before = psutil.Process().children()
    try:
        yield
    except BaseException:
        for process in _kill_children(before):
            process.wait()
        raise


def _kill_children(before: Sequence[psutil.Process]) -> Sequence[psutil.Process]:
    """End the processes that this one has started, but for those of *before*. They are still to be waited for."""
    started = [item for item in psutil.Process().children() if item not in before]
    for item in started:
        _kill(item)
    return started


@contextmanager
def _kill_silent_java(log: Path) -> Iterator[None]:
    """
    A Java that is started in the block ends if it cannot say where it listens, or does not for a long time.

    PySpark waits for that as long as Java runs, and Java goes on running without it.
    """
    ended, before = threading.Event(), psutil.Process().children()
    give_up = time.monotonic() + _LAUNCH_SECONDS

    def watch() -> None:
        while not ended.wait(_INTERVAL):
            if time.monotonic() > give_up or _CANNOT_SAY in (_log_tail(log) or ""):
                _kill_children(before)
                return

    thread = threading.Thread(target=watch, name="spark-launch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _kill(process: psutil.Process) -> None:
    """End *process* and all that it has started: Spark's launcher is a script, with a Java of its own."""
    with suppress(psutil.Error):
        process.suspend()  # so that it starts no more
        for item in [*process.children(recursive=True), process]:
            with suppress(psutil.NoSuchProcess):
                item.kill()


def _launch(conf: Any, log: Path) -> None:
    """Start Spark's Java process with a log of its own. What it says is no talk of ours."""
    start: Any = launch_gateway  # it has no types
    if (conf.get("spark.master") or "").startswith("local"):
        # Spark's own default is whatever `python3` is on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        with log.open("wb") as output, _utf8_locale(), _kill_silent_java(log):
            gateway = start(conf=conf, popen_kwargs={"stderr": output, "stdout": output})
    except Exception as error:
        raise NotReachableError(f"Spark did not start: {_log_tail(log) or _one_line(error)}", hint=HINT) from error
    use_gateway(gateway, conf)


@contextmanager
def _utf8_locale() -> Iterator[None]:
    """
    Processes that are started in the block read names of files as UTF-8, as Python does in any locale.

    In the locale `C` Java takes other letters for question marks: it would write where it listens into another
    directory, and PySpark wait for that for ever.
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


def _connect(remote: str, conf: Mapping[str, str]) -> Any:
    try:
        connect_session = load_connect()
    except Exception as error:
        raise VstreamError(
            f"Spark Connect needs more than Spark: {_one_line(error)}", hint="pip install 'vstream[audit-connect]'"
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
            f"no Spark Connect server at {remote}: {_one_line(error)}", hint="is it running, and the address right?"
        ) from error
    return spark


def _prepare(spark: Any, scratch: Path) -> Any:
    if not is_local(spark):
        source.ship_package(spark, scratch)
    return spark


def _stop(spark: Any, *, submitted: bool) -> None:
    """Stop *spark* and, unless `spark-submit` owns it, its Java process: nothing is left running."""
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
    """The last lines of *log* that say something, on one line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    telling = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("at ")]
    return "; ".join(telling[-_TAIL:]) or None


def _one_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
