"""What `drain` makes of answers of other types: no server is said to be safe to stop, and nothing else ends."""

from __future__ import annotations

from typing import Any, cast

import pytest

from vstream.health.live import drain
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection


@pytest.mark.parametrize(
    "info",
    [{"cluster": 1.5}, {"cluster": {"leader": 5}}, {"cluster": {"replicas": [1]}}, {"cluster": {"replicas": {}}}],
)
async def test_an_answer_of_another_type_is_none(monkeypatch: pytest.MonkeyPatch, info: dict[str, Any]) -> None:
    async def answer(*_: object, **__: object) -> dict[str, Any]:
        return info

    monkeypatch.setattr(JetStreamAdmin, "info", answer)
    assert await drain._look_up(cast("Connection", None), "foo") is None
