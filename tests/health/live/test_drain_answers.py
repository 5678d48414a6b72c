"""What `drain` makes of answers of other types: no server is said to be safe to stop, and nothing else ends."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from vstream.health.live import drain
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection
from vstream.lint.check_topology import check_topology


@pytest.mark.parametrize(
    "info",
    [{"cluster": 1.5}, {"cluster": {"leader": 5}}, {"cluster": {"replicas": [1]}}, {"cluster": {"replicas": {}}}],
)
async def test_an_answer_of_another_type_is_none(monkeypatch: pytest.MonkeyPatch, info: dict[str, Any]) -> None:
    async def answer(*_: object, **__: object) -> dict[str, Any]:
        return info

    monkeypatch.setattr(JetStreamAdmin, "info", answer)
    assert await drain._look_up(cast("Connection", None), "foo") is None


def test_a_drain_says_where_an_older_value_may_be_the_last_of_its_subject() -> None:
    """What is published into another region's write stream can reach a third before what was published here."""
    document = {
        "version": 1,
        "name": "acme",
        "server_version": "2.12",
        "regions": {"west": {"servers": 1}, "east": {"servers": 1}},
        "defaults": {"write": {"max_age": "1h"}},
        "streams": {
            "log": {"subjects": ["log.>"]},
            "last": {"subjects": ["last.>"], "max_msgs_per_subject": 1},
            "flags": {"subjects": ["flags.>"], "max_msgs_per_subject": 1, "consistency": "homed", "home": "west"},
        },
    }
    topology = check_topology(json.dumps(document).encode(), "acme.yaml").require()
    (note,) = drain._describe_stale_values(topology, "west")
    assert "`vstream repair messages --stream last`" in note
