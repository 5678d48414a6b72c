"""One Spark session for each process of a test run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vstream.audit.connector import register
from vstream.audit.spark.session import SMALL_SETTINGS, open_session, without_codegen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark's UI and history server are fed with."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(event_log: Path) -> Iterator[SparkSession]:
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.logBlockUpdates.enabled": "true",
        **{name: value for name, value in SMALL_SETTINGS.items() if not name.startswith("spark.sql.")},
        "spark.driver.memory": "1g",
    }
    with open_session(master="local[2,4]", conf=conf) as started:
        register(started)
        yield started


@pytest.fixture
def small_tables(spark: SparkSession) -> Iterator[None]:
    """Settings for small tables; what a test has persisted is not kept for the next."""
    with without_codegen(spark):
        yield
        spark.catalog.clearCache()
