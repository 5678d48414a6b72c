"""What a backup reads beside a snapshot, on a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.jetstream import JetStreamServer, fill
from vstream.backup.directory import SavedStream
from vstream.backup.take import read_saved
from vstream.capture.store import Capture
from vstream.jetstream.reconnecting import open_reconnecting
from vstream.topology.model import Endpoint

pytestmark = pytest.mark.server

SAVED = SavedStream(
    name="foo",
    virtual="foo",
    region="west",
    role="write",
    config={"name": "foo"},
    state={"first_seq": 1, "last_seq": 5, "messages": 5},
    last_before=5,
    positions={},
    consumers=(),
    beyond=0,
)


@pytest.mark.parametrize("follows", [False, True], ids=["the-last-of-all", "others-came"])
async def test_a_backup_does_not_wait_for_what_was_removed_after_its_snapshot(tmp_path: Path, *, follows: bool) -> None:
    with JetStreamServer(tmp_path) as server:
        published = 7 if follows else 5
        await asyncio.to_thread(fill, server, "foo", [("foo.x", b"%d" % number, None) for number in range(published)])
        for seq in (4, 5):
            await asyncio.to_thread(server.api, "STREAM.MSG.DELETE.foo", {"seq": seq})
        endpoint = Endpoint(urls=(server.url,))
        connection = await open_reconnecting(
            endpoint, "west", name="test", accepts_server=lambda _name, _id: True, within=60
        )
        capture = Capture(tmp_path / "capture")
        try:
            async with asyncio.timeout(20):  # it gave up after 30 s
                await read_saved(connection, SAVED, capture, ("foo",))
        finally:
            await connection.close()
        assert [message.seq for message in capture.read_stored("foo")] == [1, 2, 3]
