"""Options of the data source, and filters of queries, as what is asked of servers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from vstream.audit.connector.options import DEFAULT_TASK_ROWS, parse_options
from vstream.audit.connector.pushdown import Bounds, push_filters
from vstream.audit.connector.values import Access
from vstream.errors import VstreamError

GIVEN = {"servers": "nats://a:4222, b", "stream": "foo, bar"}


def test_options_that_are_not_given_have_defaults() -> None:
    options = parse_options(GIVEN)
    assert options.access == Access(servers=("nats://a:4222", "b"))
    assert [(stream_ref.stream, stream_ref.virtual, stream_ref.region) for stream_ref in options.stream_refs] == [
        ("foo", "foo", ""),
        ("bar", "bar", ""),
    ]
    assert (options.read_by, options.rows_per_task, options.start, options.pushdown) == (
        None,
        DEFAULT_TASK_ROWS,
        "earliest",
        False,
    )


@pytest.mark.parametrize("address", ["nats://[::1", "[::1", "nats://a:99999", "a:client", "nats://"])
def test_a_server_without_a_usable_address_is_refused(address: str) -> None:
    with pytest.raises(VstreamError) as refused:
        parse_options(GIVEN | {"servers": f"nats://a:4222, {address}"})
    assert (refused.value.message, refused.value.hint) == (
        f"`{address}` is not the address of a server",
        "write `nats://host:4222`",
    )


def test_option_names_are_in_any_case_and_numbers_may_have_underscores() -> None:
    options = parse_options(
        GIVEN | {"Rows_Per_Task": "1_000", "PAYLOAD": "True", "read_by": "auto", "until": "2026-11-20T17:00:00.5"}
    )
    assert (options.rows_per_task, options.payload, options.read_by) == (1000, True, None)
    assert options.until_ns == int(datetime(2026, 11, 20, 17, tzinfo=UTC).timestamp()) * 10**9 + 500_000_000
    assert parse_options(GIVEN | {"since": "2026-11-20T18:00:00+01:00"}).since_ns == options.until_ns - 500_000_000


def test_options_have_the_names_that_kafka_readers_know() -> None:
    options = parse_options(
        GIVEN
        | {"startingOffsets": '{"bar": 7}', "maxOffsetsPerTrigger": "50", "minOffsetsPerTrigger": "5"}
        | {"maxTriggerDelay": "90s", "failOnDataLoss": "false"}
    )
    assert (options.start, options.starts) == ("earliest", {"bar": 7})
    assert (options.rows_per_batch, options.min_rows_per_batch, options.max_batch_delay) == (50, 5, 90)
    assert not options.fails_on_loss


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stream": ""}, "no stream is given"),
        ({"servers": ""}, "no server is given"),
        ({"rows_per_task": "0"}, "option `rows_per_task` must be a number of at least 1, not `0`"),
        ({"start": "now"}, "option `start` must be one of earliest, latest, not `now`"),
        ({"startingOffsets": '{"foo": 7'}, "option `start` is not JSON"),
        ({"startingOffsets": '{"fo": 7}'}, "option `start` names stream `fo`, which is not read"),
        ({"start": '{"foo": 0}'}, "the first sequence of `foo` must be a number of at least 1, not `0`"),
        ({"maxTriggerDelay": "soon"}, "option `max_batch_delay`: `soon` is not a valid duration"),
        ({"payload": "yes"}, "option `payload` must be true or false, not `yes`"),
        ({"token": "x"}, "the secret in option `token` would appear"),
    ],
)
def test_impossible_options_are_refused_with_the_reason(given: dict[str, str], said: str) -> None:
    with pytest.raises(VstreamError, match=said):
        parse_options(GIVEN | given)


MOMENT = datetime(2026, 11, 20, 17, 0, 0, 250_000, tzinfo=UTC)
NANOSECONDS = 1_795_194_000_250_000_000
SEQ, TIME, SUBJECT = ("seq",), ("time",), ("subject",)


@pytest.mark.parametrize(
    ("condition", "left", "is_exact"),
    [
        (GreaterThan(SEQ, 10), Bounds(first=11), True),
        (GreaterThanOrEqual(SEQ, 10), Bounds(first=10), True),
        (LessThan(SEQ, 10), Bounds(last=9), True),
        (LessThanOrEqual(SEQ, 10), Bounds(last=10), True),
        (EqualTo(SEQ, 10), Bounds(first=10, last=10), True),
        (EqualTo(TIME, MOMENT), Bounds(since_ns=NANOSECONDS - 1000, until_ns=NANOSECONDS + 1000), False),
        (LessThan(("time_ns",), 5), Bounds(until_ns=4), False),
        (EqualTo(SUBJECT, "a.b"), Bounds(subjects=("a.b",)), False),
        (In(SUBJECT, ("b", "a")), Bounds(subjects=("a", "b")), False),
        (StringStartsWith(SUBJECT, "a.b."), Bounds(subjects=("a.b.>",)), False),
        # `a.b` begins `a.bc` as well, and a star is a wildcard to servers and none to Spark.
        (StringStartsWith(SUBJECT, "a.b"), Bounds(), False),
        (EqualTo(SUBJECT, "a.*"), Bounds(), False),
        (In(("region",), ("west",)), Bounds(regions=frozenset({"west"})), False),
        (Not(EqualTo(SEQ, 10)), Bounds(), False),
        (EqualTo(("size",), 10), Bounds(), False),
        (EqualTo(("a", "seq"), 10), Bounds(), False),
    ],
)
def test_a_filter_narrows_what_is_read_and_the_rest_stays_with_spark(
    condition: Filter, left: Bounds, is_exact: Any
) -> None:
    assert push_filters([condition], Bounds()) == (left, [] if is_exact else [condition])


def test_filters_narrow_what_options_have_left() -> None:
    before = Bounds(first=5, last=100, subjects=("a.>",), streams=frozenset({"x", "y"}))
    bounds, rest = push_filters(
        [GreaterThan(SEQ, 1), LessThan(SEQ, 50), EqualTo(("stream",), "y"), EqualTo(SUBJECT, "b")], before
    )
    assert bounds == Bounds(first=5, last=49, subjects=("a.>",), streams=frozenset({"y"}))
    assert len(rest) == 2
