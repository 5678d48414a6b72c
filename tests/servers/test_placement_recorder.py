"""Streams that have just moved, whose new servers are killed: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.command import Ran, vstream
from tests.support.publish_load import Load, check_contents, under_load
from vstream.jetstream import monitoring
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.servers import placement_recorder
from vstream.servers.find_servers import Servers
from vstream.servers.placement_recorder import PlacementRecorder

TOPOLOGY = {
    "version": 1,
    "name": "moved",
    "server_version": "2.12",
    "regions": {region: {"servers": 1} for region in ("west", "central", "east")},
    "defaults": {"write": {"max_age": "unlimited"}},
    "streams": {"foo": {"subjects": ["foo.>"], "consistency": "homed", "home": "west", "regions": ["west", "east"]}},
}


async def command(*arguments: str | Path) -> Ran:
    return await asyncio.to_thread(vstream, *arguments)


async def start(directory: Path) -> Path:
    file = directory / "moved.yaml"
    file.write_text(json.dumps(TOPOLOGY))
    # Before 2.15, a server that had not recorded a stream deleted it.
    for arguments in (("lab", "up", file, "--server-version", "2.12.8"), ("apply", file, "--yes")):
        ran = await command(*arguments)
        assert ran.code == 0, ran.err
    return file


@pytest.mark.lab
async def test_a_server_that_is_killed_right_after_a_stream_moved_to_it_still_has_it(
    state: Path, tmp_path: Path
) -> None:
    file = await start(tmp_path)
    load = Load(200, patience=5)
    # Nothing is published while it moves: a message that comes just as a move begins can cost what was before it, a race of
    # these servers that `apply` sees and cannot prevent.
    async with under_load(load, {"central": list_endpoints("moved")["central"]}):
        await load.wait_for_acknowledged(400)
    stopped = await command("region", "drain", "west", file, "--yes", "--gate-timeout", "1", "--format", "json")
    assert (stopped.code, stopped.json()["done"], "Stopped before a gate" in stopped.err) == (1, False, True)
    drained = await command("region", "drain", "west", file, "--yes")
    assert (drained.code, "Safe to stop: west-1" in drained.out) == (0, True), drained.out + drained.err
    killed = await command("chaos", "restart-region", "east", "--topology", file)
    assert killed.code == 0, killed.err
    await check_contents("moved", {"east": "foo"}, load, within=30)
    assert (await command("lab", "down", "moved", "--purge")).code == 0


@pytest.mark.lab
async def test_each_server_records_at_once_what_it_holds_also_the_meta_leader(state: Path, tmp_path: Path) -> None:
    await start(tmp_path)
    urls = {address.server.name: address.monitor_url for address in list_addresses("moved")}
    assert len(urls) == 3
    topology = check_topology(json.dumps(TOPOLOGY).encode(), "moved.yaml").require()
    recorder = PlacementRecorder(topology, Servers(endpoints={}, lab="moved", description=""))
    before = {name: await monitoring.read_meta_log(url) for name, url in urls.items()}
    assert sum(log is not None and log.is_leader for log in before.values()) == 1
    async with asyncio.timeout(30):
        while await recorder.find_unrecorded("foo", list(urls)) is not None:
            await recorder.push("foo", list(urls))
            await asyncio.sleep(0.1)
    for name, url in urls.items():
        log, former = await monitoring.read_meta_log(url), before[name]
        assert log is not None
        assert former is not None
        assert log.first > former.last
    assert (await command("lab", "down", "moved", "--purge")).code == 0


async def test_servers_that_nobody_can_ask_have_recorded_it_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = check_topology(json.dumps(TOPOLOGY).encode(), "moved.yaml").require()
    recorder = PlacementRecorder(topology, Servers(endpoints={}, lab=None, description=""))
    missing = await recorder.find_unrecorded("foo", ["east-1"])
    wait = "servers record it once a minute: 70 seconds to go"
    assert missing == f"whether east-1 has recorded that `foo` is there is not known; {wait}"
    monkeypatch.setattr(placement_recorder, "RECORDING_SECONDS", 0.0)
    assert await recorder.find_unrecorded("foo", ["east-1"]) is None
    assert await recorder.find_unrecorded("bar", []) is None
