"""
The Spark connector, `spark.read.format("jetstream")`: any stream as a DataFrame, read, streamed and written.

This package imports only the standard library, pyarrow, pyspark and the few modules of vstream
that are shipped with it: executors without vstream get it as an archive (`ship_package`).
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from vstream.audit.connector.datasource import JetStreamDataSource

_SHIPPED = (
    "__init__.py",
    "errors.py",
    "formatting.py",
    "credentials.py",
    "audit/__init__.py",
    "audit/connector/*.py",
    "audit/reconcile/__init__.py",
    "audit/reconcile/bucket_digests.py",
    "audit/tables/__init__.py",
    "audit/tables/schema.py",
    "capture/__init__.py",
    "capture/digest.py",
    "jetstream/__init__.py",
    "jetstream/answers.py",
    "jetstream/error_codes.py",
    "subjects/__init__.py",
    "subjects/algebra.py",
    "topology/__init__.py",
    "topology/accounts.py",
    "topology/model.py",
    "topology/naming.py",
    "topology/stream_config.py",
    "topology/units.py",
    "timing.py",
    "value_class.py",
)


def register(spark: SparkSession) -> None:
    """Register the format `jetstream` in *spark*, and let Spark push filters down to data sources."""
    context: Any = getattr(spark, "_sc", None)  # Spark Connect has none
    if context and context.master.partition("[")[0] == "local" and "PYSPARK_PYTHON" not in os.environ:
        # PySpark takes the `python3` on PATH: of an environment that is not activated, one that has no vstream.
        context.pythonExec = sys.executable
    # Without this, Spark refuses sources that could take filters.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(JetStreamDataSource)


def write_archive(directory: Path) -> Path:
    """Write this package to a file in *directory*, for `--py-files`, and return its path."""
    root = Path(__file__).parent.parent.parent
    path = directory / "vstream-connector.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for pattern in _SHIPPED:
            for item in sorted(root.glob(pattern)):
                file.write(item, Path("vstream") / item.relative_to(root))
    return path


def ship_package(spark: Any, directory: Path) -> None:
    """
    Send this package to the executors of *spark*.

    The archive in *directory* must exist as long as the session: executors that start later fetch it from there.
    """
    path = write_archive(directory)
    if hasattr(spark, "_jvm"):
        spark.sparkContext.addPyFile(str(path))
    else:
        spark.addArtifacts(str(path), pyfile=True)
