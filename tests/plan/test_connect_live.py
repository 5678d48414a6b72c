"""Plan and apply over `connect`, where vstream cannot load mappings and may not know what servers have loaded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest

from tests.support.command import Ran, vstream
from tests.support.topologies import begin_topology

pytestmark = pytest.mark.lab

HEAD = (
    begin_topology("two", west=1, east=1)
    + """\
defaults: {write: {max_age: 1h}}
streams:
  foo: {subjects: [foo.>]}
"""
)
BAR = "  bar: {subjects: [bar.>]}\n"
SHARED_TOPOLOGY = HEAD + BAR


@pytest.fixture
def servers(shared_file: Path, tmp_path: Path) -> dict[str, dict[str, str]]:
    """A lab with `foo` and `bar` applied, by server name; its topology is `lab.yaml`."""
    assert vstream("apply", shared_file, "--yes").code == 0
    (tmp_path / "lab.yaml").write_text(SHARED_TOPOLOGY)
    (lab,) = vstream("lab", "status", "--format", "json").json()["labs"]
    return {server["name"]: server for server in lab["servers"]}


def write_connected(
    directory: Path, servers: dict[str, dict[str, str]], monitors: dict[str, str], streams: str = HEAD
) -> Path:
    """A topology that reaches *servers* by `connect`; *monitors* names the server that each region's address leads to."""
    lines = [streams, "connect:"]
    for region in ("west", "east"):
        server = monitors.get(region)
        monitor = f", monitor: ['{servers[server]['monitor']}']" if server else ""
        lines.append(f"  {region}: {{urls: ['{servers[f'{region}-1']['url']}']{monitor}}}")
    file = directory / "connected.yaml"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_nothing_is_removed_while_nobody_knows_what_servers_map_to_it(
    servers: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    for monitors, unread in ({}, "east-1, west-1"), ({"west": "west-1"}, "east-1"):
        file = write_connected(tmp_path, servers, monitors)
        planned = vstream("plan", file)
        assert f"could not read the loaded mappings of {unread}" in planned.out
        assert "4 removals must wait" in planned.out
        ran = vstream("apply", file, "--yes", "--allow-destructive")
        assert ran.code == 1, ran.out + ran.err
        assert "not tried: bar-read-east" in ran.out
        assert "0 to create, 0 to update, 4 to delete" in ran.out
        assert vstream("plan", tmp_path / "lab.yaml", "--detailed-exitcode").code == 0


def test_mappings_that_are_not_loaded_yet_keep_what_they_lead_to(
    servers: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    ran = vstream(
        "apply",
        write_connected(tmp_path, servers, {"west": "west-1", "east": "east-1"}),
        "--yes",
        "--allow-destructive",
    )
    assert ran.code == 1, ran.out + ran.err
    assert "mappings.cfg must be loaded by you" in ran.out
    assert vstream("plan", tmp_path / "lab.yaml", "--detailed-exitcode").code == 0


def test_a_monitoring_address_of_another_region_is_refused(servers: dict[str, dict[str, str]], tmp_path: Path) -> None:
    file = write_connected(tmp_path, servers, {"west": "west-1", "east": "west-1"}, HEAD + BAR)
    for command in (("plan", file), ("apply", file, "--yes")):
        ran = vstream(*command)
        assert ran.code == 3, ran.out
        assert "of region `east` leads to cluster `west` (server `west-1`), not to `east`" in ran.err


def test_creating_needs_no_monitoring_address_and_claims_nothing_about_rules(
    servers: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    file = write_connected(tmp_path, servers, {}, HEAD + BAR + "  neu: {subjects: [neu.>]}\n")
    ran = vstream("apply", file, "--yes")
    assert ran.code == 3, ran.out + ran.err
    assert "Applied: 4 streams." in ran.out
    assert "could not read the loaded mappings of east-1, west-1" in ran.out
    again = vstream("apply", file, "--yes")
    assert again.code == 3, again.out + again.err
    for shown in (ran, again):
        assert "Unknown: whether mappings.cfg is loaded on east-1, west-1." in shown.out
        assert "mappings.cfg must be loaded by you: copy it (`vstream render`)" in shown.out
        assert "run `vstream probe`" in shown.out
        assert "the servers are as the topology says" not in shown.out
    assert vstream("plan", file).code == 3
    assert vstream("plan", file, "--detailed-exitcode").code == 3


def test_a_region_that_cannot_be_reached_is_named(servers: dict[str, dict[str, str]], tmp_path: Path) -> None:
    file = write_connected(tmp_path, servers, {"east": "east-1"}, HEAD + BAR)
    file.write_text(file.read_text().replace(servers["west-1"]["url"], "nats://127.0.0.1:1"))
    planned = vstream("plan", file)
    assert planned.code == 3, planned.out + planned.err
    applied = vstream("apply", file, "--yes")
    assert applied.code == 3, applied.out + applied.err
    for shown in (planned, applied):
        assert "region `west` cannot be reached at nats://127.0.0.1:1" in shown.out
        assert "region `east` answered for its streams" in shown.out
    told = vstream("plan", file, "--format", "json").json()
    assert ([region["region"] for region in told["unreachable"]], told["answering_region"]) == (["west"], "east")


async def test_a_shorter_limit_says_how_much_it_removes_of_what_servers_hold(
    servers: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    client = await nats.connect(servers["west-1"]["url"], connect_timeout=30)
    for number in range(3):
        await client.jetstream(timeout=60).publish("foo.x", str(number).encode())
    await client.close()
    # Of the region that holds nothing, a plan knows it without the age of the oldest message.
    for limit, removes, streams in (
        ("max_age: 30m", "removes nothing now", 2),
        ("max_msgs: 1", "removes up to 2 of 3 messages now", 1),
    ):
        file = tmp_path / "shorter.yaml"
        file.write_text(HEAD.replace("subjects: [foo.>]", f"subjects: [foo.>], write: {{{limit}}}") + BAR)
        planned = await asyncio.to_thread(vstream, "plan", file, "--lab", "two")
        assert planned.code == 0, planned.out + planned.err
        assert planned.out.count(f"({removes})") == streams
        assert "apply needs `--allow-destructive`: 2 changes can lose or duplicate messages." in planned.out


def test_drift_is_unknown_where_regions_or_rules_could_not_be_read(state: Path, tmp_path: Path) -> None:
    """With three regions: of two, each has as many servers as the other, which `plan --drift` reports."""
    names = ("west", "central", "east")
    regions = ", ".join(f"{name}: {{servers: 1}}" for name in names)
    head = HEAD.replace("{west: {servers: 1}, east: {servers: 1}}", f"{{{regions}}}").replace(
        "name: two", "name: three"
    )
    file = tmp_path / "lab.yaml"
    file.write_text(head)
    try:
        assert vstream("lab", "up", file).code == 0
        assert vstream("apply", file, "--yes").code == 0
        (lab,) = vstream("lab", "status", "--format", "json").json()["labs"]
        servers = {server["region"]: server for server in lab["servers"]}

        def drift(monitored: tuple[str, ...], unreachable: str = "") -> tuple[Ran, dict[str, Any]]:
            lines = [head, "connect:"]
            for name in names:
                url = "nats://127.0.0.1:1" if name == unreachable else servers[name]["url"]
                monitor = f", monitor: ['{servers[name]['monitor']}']" if name in monitored else ""
                lines.append(f"  {name}: {{urls: ['{url}']{monitor}}}")
            file.write_text("\n".join(lines) + "\n")
            return vstream("plan", "--drift", file), vstream("plan", "--drift", file, "--format", "json").json()

        with_all_known, told = drift(names)
        assert (with_all_known.code, told["drift"], told["is_partial"]) == (0, False, False), (
            with_all_known.out + with_all_known.err
        )
        assert "NO DRIFT: 6 streams" in with_all_known.out
        for monitored, unread in (((), "central-1, east-1, west-1"), (("west",), "central-1, east-1")):
            ran, told = drift(monitored)
            assert (ran.code, told["drift"], told["is_partial"]) == (3, False, True), ran.out + ran.err
            assert f"could not read the loaded mappings of {unread}" in ran.out
            assert "UNKNOWN: no difference was found, but not everything could be compared" in ran.out
        ran, told = drift(names, unreachable="west")
        assert (ran.code, told["drift"], told["is_partial"]) == (3, False, True), ran.out + ran.err
        assert "region `west` cannot be reached at nats://127.0.0.1:1" in ran.out
        assert "region `central` answered for its streams" in ran.out
    finally:
        vstream("lab", "down", "three", "--purge")


def test_a_region_that_was_given_up_is_asked_whether_it_is_dead_and_not_waited_for(
    servers: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    given_up = (HEAD + BAR).replace("east: {servers: 1}", "east: {servers: 1, lost: {}}")
    file = write_connected(tmp_path, servers, {"west": "west-1", "east": "east-1"}, given_up)
    alive = vstream("plan", file)
    assert (alive.code, "region `east` is not dead" in alive.err) == (1, True), alive.err
    killed = vstream("chaos", "kill-region", "east", "-t", tmp_path / "lab.yaml", "--yes-really")
    assert killed.code == 0, killed.err
    try:
        ran = vstream("repair", "sources", file, "--timeout", "3", "--format", "json")
        # Its streams still source what is gone; but they were asked.
        assert ran.code == 1, ran.out + ran.err
        assert [stream["stream"] for stream in ran.json()["streams"]] == ["foo-read-west", "bar-read-west"]
    finally:
        assert vstream("chaos", "heal").code == 0
