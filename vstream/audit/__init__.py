"""
Compare the messages of all regions, as tables on Spark. The only package that imports pyspark.

Spark is optional and takes a second or two to import, so it is imported late, and only here.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from vstream.audit.report import Report
    from vstream.audit.request import AuditedServers, AuditProgress, AuditRequest, AuditTarget, SparkAddress

HINT = "pip install 'vstream[audit]'"
_OLDEST_SPARK = (4, 2)


def require_spark() -> None:
    """Raise VstreamError, with a hint, if Spark or a package that its Python workers need is not installed."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy", "pandas") if find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise VstreamError(f"this needs Spark, but {', '.join(missing)} {are} not installed", hint=HINT)
    version: str = import_module("pyspark").__version__
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_SPARK:
        raise VstreamError(f"this needs Spark 4.2 or newer, but {version} is installed", hint=HINT)


def run_audit(request: AuditRequest, target: AuditTarget, address: SparkAddress, progress: AuditProgress) -> Report:
    """As `pipeline.run_audit`, which is imported now, with Spark."""
    return import_module("vstream.audit.pipeline").run_audit(request, target, address, progress)  # type: ignore[no-any-return]


def open_rounds(
    request: AuditRequest, servers: AuditedServers, progress: AuditProgress
) -> AbstractContextManager[Callable[[], Report]]:
    """As `pipeline.open_rounds`, which is imported now, with Spark."""
    return import_module("vstream.audit.pipeline").open_rounds(request, servers, progress)  # type: ignore[no-any-return]


def load_connect() -> Any:
    """The session class of Spark Connect, which needs more packages than Spark. Raises an error if one is missing."""
    return import_module("pyspark.sql.connect.session").SparkSession
