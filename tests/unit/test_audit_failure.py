"""What is said when Spark fails."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext

from vstream.audit.failure import SparkEndedError, explained, way_out
from vstream.errors import VstreamError


def test_a_connection_that_breaks_is_not_called_the_end_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows goes on after the one, and not after the other."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        said = "connection to Spark's Java process broke: Answer is empty"
        with pytest.raises(VstreamError, match=said) as caught, explained():
            raise Py4JNetworkError("Answer is empty")
        assert not isinstance(caught.value, SparkEndedError)
        java.kill()
        java.wait()
        with pytest.raises(SparkEndedError, match="Java process has ended"), explained():
            raise Py4JNetworkError("Answer is empty")


def test_a_table_is_made_again_by_its_stage() -> None:
    assert {way_out(name) for name in ("messages", "streams", "context", "journal")} == {"extract the tables again"}
    assert way_out("copies") == "`--from normalise` makes it again"
    assert {way_out(name) for name in ("tracks", "buckets", "backsteps", "suspects", "faults")} == {
        "`--from reconcile` makes it again"
    }
