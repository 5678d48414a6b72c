"""Which settings remove messages."""

from __future__ import annotations

import pytest

from vstream.syntax.document import Json
from vstream.topology.stream_limits import read_limit, read_limits


@pytest.mark.parametrize("value", [-1, 0, None, False])
def test_servers_take_each_of_these_for_no_limit(value: Json) -> None:
    assert read_limit({"max_msgs": value}, "max_msgs") == 0
    assert read_limits({"max_msgs": value, "allow_rollup_hdrs": value, "retention": "limits"}) == {}


def test_what_removes_messages_is_named_with_its_limit() -> None:
    fields: dict[str, Json] = {"max_age": 5, "max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "max_msg_size": 7}
    assert read_limits(fields) == {"max_age": 5, "max_msgs_per_subject": 1, "allow_rollup_hdrs": 1}
    assert read_limits({"retention": "workqueue"}) == {"retention": 1}
