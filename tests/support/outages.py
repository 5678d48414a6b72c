"""What clients can do in a region that is cut off from all others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nats
import nats.js.errors
import pytest

from tests.support import labs
from tests.support.command import vstream

PATIENCE = 60.0
REFUSAL = 3.0
"""Seconds for what must not come."""


async def goes_on_alone(name: str, file: Path, region: str, subject: str) -> None:
    """
    Cut *region* of lab *name* off for good: a consumer on `foo` there delivers what is published there on *subject*.

    New ones need the meta leader, which is with the majority.
    """
    async with labs.client(name, region) as connection:
        js = connection.jetstream(timeout=PATIENCE)
        before = await js.pull_subscribe(subject, durable="before", stream="foo")
        cut = await asyncio.to_thread(vstream, "chaos", "isolate", region, "--topology", file)
        assert cut.code == 0, cut.err
        await js.publish(subject, b"alone")
        (message,) = await before.fetch(1, timeout=PATIENCE)
        assert message.data == b"alone"
        await message.ack_sync(timeout=PATIENCE)
        with pytest.raises((nats.errors.TimeoutError, nats.js.errors.ServiceUnavailableError)):
            await connection.jetstream(timeout=REFUSAL).pull_subscribe(subject, durable="meanwhile", stream="foo")
