"""What STREAM.INFO answers to an audit has the types that the tables need, or is one error of that stream."""

from __future__ import annotations

from typing import Any

import pytest

from vstream.audit.extract import stream_row
from vstream.audit.source.cut import _cut_stream
from vstream.audit.source.values import StreamRef
from vstream.errors import MalformedAnswerError
from vstream.jetstream.answers import reading

WANTED = StreamRef(stream="foo", region="west", virtual="foo", role="read")
INFO = {
    "config": {"name": "foo", "retention": "limits"},
    "created": "2026-11-24T00:00:00Z",
    "state": {"first_seq": 1, "last_seq": 2, "messages": 2, "bytes": 20},
}


def read(info: dict[str, Any]) -> tuple[Any, ...]:
    with reading("STREAM.INFO"):
        cut = _cut_stream(WANTED, info, 1, "2.15.1", None, has_leader=True)
    return stream_row(cut)


def test_what_a_server_says_becomes_a_row() -> None:
    assert read(INFO)[:4] == ("foo", "foo", "west", "read")


@pytest.mark.parametrize(
    "wrong",
    [
        {"created": 2**53},
        {"created": ["x"]},
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
