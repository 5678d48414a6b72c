"""What is said when Spark fails."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from vstream.audit.request import SparkEndedError
from vstream.audit.spark.spark_errors import convert_spark_errors, is_read_error, suggest_rebuild
from vstream.errors import VstreamError


def test_a_connection_that_breaks_is_not_called_the_end_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows goes on after the one, and not after the other."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        message = "connection to Spark's Java process broke: Answer is empty"
        with pytest.raises(VstreamError, match=message) as caught, convert_spark_errors():
            raise Py4JNetworkError("Answer is empty")
        assert not isinstance(caught.value, SparkEndedError)
        java.kill()
        java.wait()
        with pytest.raises(SparkEndedError, match="Java process has ended"), convert_spark_errors():
            raise Py4JNetworkError("Answer is empty")


def test_servers_are_not_read_again_because_a_disk_is_full() -> None:
    """What breaks off while servers are read may be a region that went down."""
    trace = "Traceback (most recent call last):\n  File ...\nvstream.errors.VstreamError: west says nothing"
    for message, is_ours in ((trace, True), ("java.io.IOException: No space left on device", False)):
        with pytest.raises(VstreamError) as caught, convert_spark_errors():
            raise PySparkException(message)
        assert is_read_error(caught.value) is is_ours
    with pytest.raises(VstreamError) as caught, convert_spark_errors():
        raise VstreamError("west says nothing") from TimeoutError()
    assert is_read_error(caught.value)


def test_a_table_is_made_again_by_its_stage() -> None:
    assert {suggest_rebuild(name) for name in ("messages", "streams", "context", "journal")} == {
        "extract the tables again"
    }
    assert suggest_rebuild("copies") == "`--from normalise` creates it again"
    assert {suggest_rebuild(name) for name in ("buckets", "out_of_order", "suspects", "differences")} == {
        "`--from reconcile` creates it again"
    }
