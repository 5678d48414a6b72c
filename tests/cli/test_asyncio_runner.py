"""The asynchronous part of a command leaves nothing behind."""

from __future__ import annotations

import asyncio

from vstream.cli.asyncio_runner import run


def test_what_is_begun_while_the_rest_is_cancelled_ends_too() -> None:
    """Such as the tasks of a connection that is established in that moment."""
    begun: list[asyncio.Task[None]] = []

    async def connect() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            begun.append(asyncio.create_task(asyncio.sleep(3600)))

    async def work() -> int:
        begun.append(asyncio.create_task(connect()))
        await asyncio.sleep(0)
        return 7

    assert run(work()) == 7
    assert [task.done() for task in begun] == [True, True]
