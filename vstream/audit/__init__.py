"""
Compare the messages of all regions, as tables on Spark. The only package that imports pyspark.

Spark is optional and takes a second or two to import, so it is imported late, and only here.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from vstream.audit.report import Report
    from vstream.audit.run import AuditTarget

HINT = "pip install 'vstream[audit]'"
_OLDEST = (4, 2)


class AuditFunctions(NamedTuple):
    """The functions of `audit.run`, which needs Spark."""

    open_target: Callable[..., AuditTarget]
    run_audit: Callable[..., Report]
    open_rounds: Callable[..., AbstractContextManager[Callable[[], Report]]]


def require_spark() -> None:
    """Raise VstreamError, with a hint, if Spark or a package that its Python workers need is not installed."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy", "pandas") if find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise VstreamError(f"this needs Spark, but {', '.join(missing)} {are} not installed", hint=HINT)
    version: str = import_module("pyspark").__version__
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise VstreamError(f"this needs Spark 4.2 or newer, but {version} is installed", hint=HINT)


def load_audit() -> AuditFunctions:
    """Import Spark and everything that uses it. Raises VstreamError if it is not installed."""
    require_spark()
    run: Any = import_module("vstream.audit.run")
    return AuditFunctions(run.open_target, run.run_audit, run.open_rounds)


def load_connect() -> Any:
    """The session class of Spark Connect, which needs more packages than Spark. Raises an error if one is missing."""
    return import_module("pyspark.sql.connect.session").SparkSession
