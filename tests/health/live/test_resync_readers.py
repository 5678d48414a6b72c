"""Who leads a stream after its leader was made to hand over, and when a stream has everything."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from vstream.health.live import resync_readers
from vstream.health.live.resync_readers import is_still
from vstream.servers.leaders import StreamLeadership

if TYPE_CHECKING:
    from vstream.jetstream.connection import Connection

OLD_SERVER = StreamLeadership(stream="foo-read-west", leader="west-1", peers={"west-2": True, "west-3": False})
BEFORE = replace(OLD_SERVER, since="19:02")


@pytest.mark.parametrize(
    ("before", "cluster", "expected"),
    [
        (BEFORE, {"leader": "west-1", "leader_since": "19:02"}, True),
        (BEFORE, {"leader": "west-1", "leader_since": "19:03"}, False),
        (BEFORE, {"leader": "west-2", "leader_since": "19:03"}, False),
        (OLD_SERVER, {"leader": "west-1"}, True),
        (OLD_SERVER, {"leader": "west-2"}, False),
    ],
)
def test_a_leader_that_was_elected_again_is_a_new_one(
    before: StreamLeadership, cluster: dict[str, str], expected: bool
) -> None:
    assert is_still(before, cluster) is expected


@pytest.mark.parametrize(("speaks_after", "steps"), [(0, 0), (20, 1)])
async def test_what_delivers_is_left_alone(speaks_after: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed and run again steps nobody down twice."""
    asked: list[str] = []

    class Admin:
        def __init__(self, _: object) -> None:
            pass

        async def info(self, _stream: str, **_: float) -> dict[str, Any]:
            asked.append("info")
            active = 1_000_000 if asked.count("info") > speaks_after or "step down" in asked else 60_000_000_000
            return {"state": {}, "sources": [{"name": "foo-write-east", "active": active, "lag": 0}]}

    async def step_down(*_: object) -> tuple[None, str]:
        asked.append("step down")
        return None, "one replica"

    monkeypatch.setattr(resync_readers, "JetStreamAdmin", Admin)
    monkeypatch.setattr(resync_readers, "_make_step_down", step_down)
    monkeypatch.setattr(resync_readers, "_MIN_APART_SECONDS", 0.0)
    monkeypatch.setattr(resync_readers, "ALIVE_SECONDS", 0.5)
    fed = resync_readers._Stream("foo-read-west", "west", 1)
    result = await resync_readers._resync_stream(
        cast("Connection", None), fed, time.monotonic() + 2, resync_readers.ResyncMode.SILENT
    )
    assert (result.caught_up is not None, asked.count("step down")) == (True, steps)


async def test_a_mirror_that_is_just_heard_and_lags_nothing_is_believed_when_it_holds_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Servers say so of one that only asks again, for minutes."""
    answers = iter([615] * 20 + [5848] * 1000)

    class Admin:
        def __init__(self, _: object) -> None:
            pass

        async def info(self, stream: str, **_: float) -> dict[str, Any]:
            mirror = {"name": "stock", "active": 1_000_000, "lag": 0}
            if stream == "stock":
                return {"state": {"last_seq": 5848}}
            held = next(answers)
            seen.append(held)
            return {"state": {"last_seq": held}, "mirror": mirror}

    seen: list[int] = []
    monkeypatch.setattr(resync_readers, "JetStreamAdmin", Admin)
    monkeypatch.setattr(resync_readers, "_MIN_APART_SECONDS", 0.0)
    fed = resync_readers._Stream("stock-read-west", "west", 1)
    result = await resync_readers._resync_stream(
        cast("Connection", None), fed, time.monotonic() + 30, resync_readers.ResyncMode.MEASURE
    )
    assert result.caught_up is not None
    assert seen[-1] == 5848
