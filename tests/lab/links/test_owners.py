"""Whose a connection is: found for all that ask at once, and not while everything else waits."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Collection, Iterable, Mapping

import pytest

from vstream.lab.links.proxy import owners
from vstream.lab.links.proxy.owners import End, SocketOwners

HOST = "127.0.0.1"
CONFIGS = "/labs/a/conf/servers"


def test_connections_are_found_where_they_were_dialed() -> None:
    with socket.create_server((HOST, 0)) as listening, socket.create_server((HOST, 0)) as elsewhere:
        dialed = [socket.create_connection(listener.getsockname()) for listener in (listening, listening, elsewhere)]
        ends = [(connection.getsockname()[1], connection.getpeername()[1]) for connection in dialed]
        nobody = (ends[0][0], ends[2][1])
        assert owners.find_owners({*ends, nobody}, [1, os.getpid()]) == dict.fromkeys(ends, os.getpid())
        assert owners.find_owners(ends, []) == {}
        dialed[1].close()
        assert owners.find_owners(ends, [os.getpid()]) == dict.fromkeys((ends[0], ends[2]), os.getpid())
        dialed[0].close()
        dialed[2].close()


async def test_who_asks_during_a_look_gets_the_next_and_nothing_else_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[set[End]] = []
    may_end = threading.Event()

    def slow(asked: Collection[End], candidates: Iterable[int]) -> Mapping[End, int]:
        if not list(candidates):
            return {}
        looks.append(set(asked))
        assert may_end.wait(60)
        return {end: end[0] % 2 for end in asked if end[1] == 1}

    monkeypatch.setattr(owners, "find_owners", slow)
    monkeypatch.setattr(owners, "_list_process_ids", lambda: [0, 1])
    monkeypatch.setattr(owners, "_read_arguments", lambda pid: ["nats-server", "-c", f"{CONFIGS}/r{pid}.conf"])
    monkeypatch.setattr(owners, "_PAUSES_SECONDS", (0.0,))
    socket_owners = SocketOwners(CONFIGS, {"r0": "west", "r1": "east"})

    first = [asyncio.create_task(socket_owners.region_of(port, 1)) for port in (10, 11)]
    async with asyncio.timeout(60):
        while not looks:
            await asyncio.sleep(0.001)
        # The look goes on, and so do we.
        second = [asyncio.create_task(socket_owners.region_of(port, 1)) for port in range(20, 40)]
        stranger = asyncio.create_task(socket_owners.region_of(50, 2))
        given_up = asyncio.create_task(socket_owners.region_of(60, 1))
        await asyncio.sleep(0.001)
        given_up.cancel()
        assert len(looks) == 1
        may_end.set()
        assert await asyncio.gather(*first) == ["west", "east"]
        assert await asyncio.gather(*second) == ["west", "east"] * 10
        assert await stranger is None
    assert looks[0] == {(10, 1), (11, 1)}
    assert looks[1] == {(50, 2), (60, 1), *((port, 1) for port in range(20, 40))}
