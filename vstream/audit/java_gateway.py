"""Spark's Java process, which PySpark stores for this Python process without a public interface."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

_CONTEXT: Any = SparkContext


def find_gateway() -> Any:
    """The connection to the Java process of this Python process; None if there is none."""
    return _CONTEXT._gateway  # noqa: SLF001


def use_gateway(gateway: Any, conf: Any) -> None:
    """Make sessions of this process use *gateway*."""
    _CONTEXT._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001


def forget_gateway() -> None:
    """Make the next session start its own Java process."""
    _CONTEXT._gateway = _CONTEXT._jvm = None  # noqa: SLF001
