"""How far a reader has come in a write stream that is gone, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.jetstream import JetStreamServer, fill
from tests.support.labs import eventually
from vstream.errors import VstreamError
from vstream.jetstream.connection import connect
from vstream.plan.live.gate_checks import LiveGateChecker
from vstream.topology.model import Endpoint

pytestmark = pytest.mark.server

OTHERS = 70_000
"""More than were looked through once."""


def count(server: JetStreamServer) -> int:
    with ThreadPoolExecutor(1) as pool:  # it has an event loop of its own
        return int(pool.submit(server.api, "STREAM.INFO.foo").result()["state"]["messages"])


@pytest.fixture
def old(tmp_path: Path) -> Iterator[JetStreamServer]:
    """A server before 2.15, which does not say how far a reader has come."""
    server = JetStreamServer(tmp_path, "2.12.8")
    server.start()
    yield server
    server.stop()


async def test_a_reader_that_kept_everything_and_has_nothing_of_a_source_goes_on_with_its_first_message(
    old: JetStreamServer,
) -> None:
    await asyncio.to_thread(fill, old, "foo-write-west", [("foo-write-west.a", b"", None)] * 7)
    await asyncio.to_thread(fill, old, "foo-write-east", [("foo-write-east.a", b"", None)] * 7)
    sources = [{"name": "foo-write-west"}, {"name": "foo-write-east", "filter_subject": "foo-write-east.none"}]
    await asyncio.to_thread(fill, old, "foo", [], sources=sources)
    await eventually(lambda: count(old) == 7)
    async with connect(Endpoint(urls=(old.url,)), "east") as connection:
        checker = LiveGateChecker(connection)
        assert await checker.end_sequences("foo") == {"foo-write-west": 8, "foo-write-east": 1}
        await asyncio.to_thread(old.api, "STREAM.MSG.DELETE.foo", {"seq": 1})
        with pytest.raises(VstreamError, match="how much of `foo-write-east` is in `foo` cannot be told"):
            await checker.end_sequences("foo")


async def test_a_lost_origins_end_is_found_however_much_others_have_published_since(tmp_path: Path) -> None:
    server = JetStreamServer(tmp_path)
    server.start()
    try:
        written: list[tuple[str, bytes, dict[str, str] | None]] = [("foo-write-west.a", b"", None)] * 7
        await asyncio.to_thread(fill, server, "foo-write-west", written)
        await asyncio.to_thread(fill, server, "foo", [], sources=[{"name": "foo-write-west"}])
        await eventually(lambda: count(server) == len(written))
        config = await asyncio.to_thread(server.api, "STREAM.INFO.foo")
        await asyncio.to_thread(server.api, "STREAM.UPDATE.foo", {**config["config"], "sources": []})
        await asyncio.to_thread(fill, server, "foo", [("foo.b", b"", None)] * OTHERS)
        async with connect(Endpoint(urls=(server.url,)), "east") as connection:
            checker = LiveGateChecker(connection)
            assert await checker.sequence_after("foo-write-west", ["foo"]) == 8
            assert await checker.cursors("foo-write-north", ["foo"]) == ({"foo": None}, 0)
    finally:
        server.stop()
