"""Spark's Java process, as PySpark keeps it for this Python process: it has no public view of it."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

_CONTEXT: Any = SparkContext


def find_gateway() -> Any:
    """The connection to the Java process that this process has started, or was started by; None if there is none."""
    return _CONTEXT._gateway  # noqa: SLF001


def use_gateway(gateway: Any, conf: Any) -> None:
    """Let sessions of this process use *gateway*."""
    _CONTEXT._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001


def forget_gateway() -> None:
    """Let the next session start a Java process of its own."""
    _CONTEXT._gateway = _CONTEXT._jvm = None  # noqa: SLF001
