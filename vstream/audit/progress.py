"""Spark's progress, with the same values for a local session, a cluster and Spark Connect."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vstream.value_class import value_class

_INTERVAL = 0.2


@value_class
class SparkProgress:
    """Numbers of tasks of everything that Spark is running."""

    tasks: int
    done: int
    running: int
    failed: int


@contextmanager
def watch_progress(spark: Any, on_progress: Callable[[SparkProgress], None]) -> Iterator[None]:
    """
    Call *on_progress* up to a few times a second while the block runs, when the progress has changed.

    It is called from another thread, and not while Spark has no tasks.
    """
    if hasattr(spark, "_jvm"):
        yield from _poll_tracker(spark, on_progress)
    else:
        yield from _register_handler(spark, on_progress)


def _poll_tracker(spark: Any, on_progress: Callable[[SparkProgress], None]) -> Iterator[None]:
    tracker = spark.sparkContext.statusTracker()
    ended = threading.Event()

    def look() -> None:
        last = None
        while not ended.wait(_INTERVAL):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            now = _sum([stage for stage in stages if stage is not None])
            if now is not None and now != last:
                on_progress(now)
                last = now

    thread = threading.Thread(target=look, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _sum(stages: list[Any]) -> SparkProgress | None:
    if not stages:
        return None
    return SparkProgress(
        tasks=sum(stage.numTasks for stage in stages),
        done=sum(stage.numCompletedTasks for stage in stages),
        running=sum(stage.numActiveTasks for stage in stages),
        failed=sum(stage.numFailedTasks for stage in stages),
    )


def _register_handler(spark: Any, on_progress: Callable[[SparkProgress], None]) -> Iterator[None]:
    def report(*, stages: Any, inflight_tasks: int, **_: Any) -> None:
        if stages:
            on_progress(
                SparkProgress(
                    tasks=sum(stage.num_tasks for stage in stages),
                    done=sum(stage.num_completed_tasks for stage in stages),
                    running=inflight_tasks,
                    failed=0,
                )
            )

    spark.registerProgressHandler(report)
    try:
        yield
    finally:
        spark.removeProgressHandler(report)
