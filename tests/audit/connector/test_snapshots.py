"""What STREAM.INFO answers to an audit has the types that the tables need, or is one error of that stream."""

from __future__ import annotations

from typing import Any

import pytest

from vstream.audit.connector.stream_snapshots import _parse_snapshot
from vstream.audit.connector.values import StreamRef
from vstream.audit.extract.stream_rows import identity_of, make_stream_row
from vstream.audit.tables.schema import STREAMS
from vstream.errors import MalformedAnswerError
from vstream.jetstream.answers import convert_malformed_errors

WANTED = StreamRef(stream="foo", region="west", virtual="foo", role="read")
INFO: dict[str, Any] = {
    "config": {"name": "foo", "retention": "limits"},
    "created": "2026-11-24T00:00:00Z",
    "state": {"first_seq": 1, "last_seq": 2, "messages": 2, "bytes": 20},
}


def read(info: dict[str, Any]) -> tuple[Any, ...]:
    with convert_malformed_errors("STREAM.INFO"):
        snapshot = _parse_snapshot(WANTED, info, 1, "2.15.1", None, has_leader=True)
    return make_stream_row(snapshot)


def test_what_a_server_says_becomes_a_row() -> None:
    assert read(INFO)[:4] == ("foo", "foo", "west", "read")


def test_it_is_taken_when_its_server_says_so_whatever_the_clock_here_says() -> None:
    told = {**INFO, "ts": "2026-11-24T00:00:01.5Z"}
    at = {read(info)[STREAMS.names.index("snapshot_ns")] for info in (INFO, told)}
    assert at == {1, 1_795_478_401_500_000_000}


def test_a_stream_with_messages_older_than_itself_is_from_a_backup() -> None:
    """Its readers' copies have another identity, of the stream that it was before."""
    young, old = ({**INFO["state"], "first_ts": f"2026-11-{day}T23:59:58.5Z"} for day in (24, 23))
    assert read({**INFO, "state": young})[STREAMS.names.index("identity")] == identity_of(INFO["created"])
    assert read({**INFO, "state": old})[STREAMS.names.index("identity")] == ""
    assert read({**INFO, "state": {**old, "messages": 0}})[STREAMS.names.index("identity")] == identity_of(
        INFO["created"]
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"created": 2**53},
        {"created": ["x"]},
        {"ts": 5},
        {"config": None},
        {"config": {"name": "foo", "mirror": {"filter_subject": "a"}}},
        {"config": {"name": "foo", "retention": 5}},
        {"config": {"name": "foo", "subject_transform": {"src": 5}}},
        {"state": None},
        {"state": {"first_seq": "x"}},
    ],
)
def test_what_has_another_type_is_one_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(MalformedAnswerError):
        read({**INFO, **wrong})
