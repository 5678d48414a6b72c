"""Faults of streams that real servers have."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.health.doctor.test_examine import healthy
from tests.support.jetstream import JetStreamServer, fill
from vstream.health.snapshot import StreamSnapshot, parse_stream
from vstream.health.stream_faults import find_stream_faults
from vstream.lint.check_topology import check_topology

pytestmark = pytest.mark.server

TOPOLOGY = b"""
version: 1
name: acme
server_version: "2.12"
regions: {west: {servers: 1}, east: {servers: 1}}
streams: {foo: {subjects: [foo.>], consistency: homed, home: east, write: {max_age: unlimited}}}
"""


async def test_a_copy_whose_origin_was_emptied_has_a_wrong_end(tmp_path: Path) -> None:
    """Before 2.15, it says that it ends where the origin ends: nothing else tells that anything was lost."""
    server, topology = JetStreamServer(tmp_path, "2.12.8"), check_topology(TOPOLOGY, "acme.yaml").require()

    async def read_copy() -> StreamSnapshot:
        return parse_stream(await asyncio.to_thread(server.api, "STREAM.INFO.foo-read-west"))

    def list_faults(copy: StreamSnapshot) -> list[tuple[str, str, str]]:
        snapshot = replace(healthy(), streams={copy.name: copy})
        faults = find_stream_faults(topology, snapshot)
        return [(fault.stream, fault.code, fault.evidence) for fault in faults if fault.code == "VD513"]

    server.start()
    try:
        await asyncio.to_thread(fill, server, "foo", [("foo.a", b"", None)] * 100)
        await asyncio.to_thread(fill, server, "foo-read-west", [], subjects=None, mirror={"name": "foo"})
        async with asyncio.timeout(60):
            while (copy := await read_copy()).last_seq != 100:
                await asyncio.sleep(0.1)
        assert list_faults(copy) == []
        await asyncio.to_thread(server.api, "STREAM.DELETE.foo", {})
        await asyncio.to_thread(fill, server, "foo", [])
        async with asyncio.timeout(60):
            while not (faults := list_faults(await read_copy())):
                await asyncio.sleep(0.1)
        held = "it holds 100 messages, and says that its last sequence is 0"
        assert faults == [("foo-read-west", "VD513", held)]
    finally:
        server.stop()
