"""Spark's progress, with the same values for a local session, a cluster and Spark Connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any

from vstream.audit.spark.daemon_threads import run_beside
from vstream.value_class import value_class

_INTERVAL_SECONDS = 0.2


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
        with run_beside(partial(_poll_tracker, spark.sparkContext.statusTracker(), on_progress)):
            yield
        return

    def report(*, stages: Any, inflight_tasks: int, **_: Any) -> None:
        if stages:
            tasks, done = (
                sum(getattr(stage, name) for stage in stages) for name in ("num_tasks", "num_completed_tasks")
            )
            on_progress(SparkProgress(tasks=tasks, done=done, running=inflight_tasks, failed=0))

    spark.registerProgressHandler(report)
    try:
        yield
    finally:
        spark.removeProgressHandler(report)


def _poll_tracker(tracker: Any, on_progress: Callable[[SparkProgress], None], is_over: Event) -> None:
    last = None
    while not is_over.wait(_INTERVAL_SECONDS):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        now = _sum([stage for stage in stages if stage is not None])
        if now is not None and now != last:
            on_progress(now)
            last = now


def _sum(stages: list[Any]) -> SparkProgress | None:
    if not stages:
        return None
    return SparkProgress(
        tasks=sum(stage.numTasks for stage in stages),
        done=sum(stage.numCompletedTasks for stage in stages),
        running=sum(stage.numActiveTasks for stage in stages),
        failed=sum(stage.numFailedTasks for stage in stages),
    )
