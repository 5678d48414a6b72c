"""What an audit works with while it runs: Spark, a directory and the progress that is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from vstream.audit.request import AuditProgress, SparkAddress
from vstream.audit.spark.session import cluster_exposure, open_session, size_settings
from vstream.value_class import value_class


@value_class
class AuditSession:
    """What an audit works with."""

    spark: Any
    scratch: Path
    """A directory for credentials and rows, which is removed at the end."""
    progress: AuditProgress


@contextmanager
def open_spark(address: SparkAddress, messages: int, progress: AuditProgress) -> Iterator[SparkSession]:
    """A Spark session of the size that *messages* need."""
    with open_session(
        master=address.master,
        remote=address.remote,
        conf=size_settings(messages) if address.is_local else {},
        on_keeping=progress.keeping if address.is_local else None,
    ) as spark:
        exposure = cluster_exposure(address.master or "local", spark.conf.get("spark.authenticate", None))
        if exposure is not None:
            progress.note(exposure)
        yield spark
