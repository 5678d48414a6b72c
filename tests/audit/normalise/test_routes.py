"""What transforms make of a subject is the same in Spark and in Python."""

from __future__ import annotations

import logging
import signal
import warnings
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from vstream.audit.normalise.routes import ROUTES, SubjectRoute, apply_routes, parse_route, replaces_prefix, to_rows
from vstream.audit.spark import session
from vstream.audit.spark.local_frames import make_table
from vstream.audit.tables.schema import make_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
SUBJECTS = ("_w.a.x", "_w.a.x.y", "_w.a", "_w.a.", "_w.axx", "_w.b.x", "_w.b.x.y", "_wxa.x", "_w.c", "$1.x", "")
"""Of which some are just what a transform does not take."""
ROUTED: list[list[tuple[str, str, tuple[str, str] | None]]] = [
    [("_w.a.>", "a.>", None)],
    [("_w.a.>", "$KV.>", None)],
    [("_w.a.>", "a.>", ("a.>", "b.>"))],
    [("_w.a.>", "a.>", ("c.>", "b.>"))],
    [("_w.*.>", "$KV.>", None)],
    [("_w.*", "$KV.$1", None)],
    [("_w.b.*", "b.{{wildcard(1)}}", None)],
    [("_w.*.*", "x.$2.$1", None)],
    [("_w.*.>", "x.>", None)],
    [("_w.c", "c", None)],
    [("_w.b.*\f_w.a.>", "b.$1\fa.>", None)],
    [("_w.a.>\f_w.b.>", "a.>\fb.>", None)],
    [("_w.b.>", "b.>", None), ("_w.a.>", "a.>", None)],
    [],
]
HEADERS = make_schema("filters string, destinations string, sent_subject string, subject string")
ROWS = StructType([StructField("subject", StringType()), StructField("routes", ROUTES)])


def everywhere(routes: list[SubjectRoute], subject: str) -> str | None:
    return next((text for route in routes if (text := route.apply(subject)) is not None), None)


def test_in_spark_a_subject_becomes_what_it_becomes_here(spark: SparkSession) -> None:
    every = [[parsed for route in routes if (parsed := parse_route(*route)) is not None] for routes in ROUTED]
    assert [len(routes) for routes in every] == [len(routes) for routes in ROUTED]
    rows = [(subject, to_rows(routes)) for routes in every for subject in SUBJECTS]
    applied = make_table(spark, rows, ROWS).select(apply_routes(F.col("subject"), F.col("routes")))
    expected = [everywhere(routes, subject) for routes in every for subject in SUBJECTS]
    assert [row[0] for row in applied.collect()] == expected
    assert len({subject for subject in expected if subject is not None}) > 10


def test_in_spark_the_same_messages_prove_a_prefix(spark: SparkSession) -> None:
    parsed = {route[:2]: parse_route(*route[:2], None) for routes in ROUTED for route in routes}
    prefixes = {
        route: transform for route, transform in parsed.items() if transform is not None and transform.is_prefix
    }
    stored = {transform.apply(subject) or subject for transform in prefixes.values() for subject in SUBJECTS} | {"a."}
    cases = [(route, sent, subject) for route in prefixes for sent in (*SUBJECTS, None) for subject in sorted(stored)]
    rows = [(*route, *subjects) for route, *subjects in cases]
    told = make_table(spark, rows, HEADERS).select(replaces_prefix().alias("is_proven")).collect()
    expected = [sent is not None and prefixes[route].apply(sent) == subject for route, sent, subject in cases]
    assert [bool(row.is_proven) for row in told] == expected
    assert 0 < sum(expected) < len(expected)


@pytest.mark.usefixtures("spark")
def test_an_interruption_is_not_sparks() -> None:
    """Its own handler would call Java in the midst of another call, and print the stacks of both."""
    assert "pyspark" not in str(getattr(signal.getsignal(signal.SIGINT), "__module__", ""))
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger().handlers)


def test_a_java_that_answers_no_more_after_ctrl_c_is_not_warned_of() -> None:
    class Interrupted:
        def stop(self) -> None:
            warnings.warn("Unable to cleanly shutdown Spark JVM process.", RuntimeWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        session._stop(Interrupted(), submitted=True)
    assert warned == []
