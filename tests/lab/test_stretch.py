"""A lab with a stretch cluster: one more server in each region, linked, counted, and left out where clients connect."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests.support.command import vstream
from tests.support.topologies import begin_topology
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lab.status import read_lab_status

pytestmark = pytest.mark.lab

SHARED_TOPOLOGY = (
    begin_topology("wide", "2.10", west=1, central=1, east=1)
    + """\
stretch: {members: all}
streams:
  foo: {subjects: [foo.>], canary: foo._canary.*, write: {max_age: 1h}}
"""
)


def routes(monitor: int) -> set[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/routez", timeout=60) as answer:
        return {route["remote_name"] for route in json.load(answer)["routes"] or ()}


def test_the_members_are_a_cluster_of_their_own_and_stand_in_the_regions(shared_file: Path) -> None:
    addresses = list_addresses("wide")
    members = [address for address in addresses if address.is_stretch]
    assert [(member.server.name, member.region, member.cluster_name) for member in members] == [
        (f"stretch-{region}", region, "stretch") for region in ("west", "central", "east")
    ]
    names = {member.server.name for member in members}
    assert [routes(member.monitor) for member in members] == [names - {member.server.name} for member in members]
    # Clients of a region use its own cluster; loaded mappings are read from its stretch server too.
    west = list_endpoints("wide")["west"]
    assert (len(west.urls), len(west.monitor)) == (1, 2)
    applied = vstream("apply", shared_file, "--yes")
    assert applied.code == 0, applied.out + applied.err
    assert vstream("plan", shared_file, "--detailed-exitcode").code == 0
    probed = vstream("probe", shared_file)
    assert probed.code == 0, probed.out

    # New rules are loaded by the members of the stretch cluster like by any server.
    shared_file.write_text(SHARED_TOPOLOGY + "  bar: {subjects: [bar.>], write: {max_age: 1h}}\n")
    grown = vstream("apply", shared_file, "--yes")
    assert grown.code == 0, grown.out + grown.err
    assert vstream("plan", shared_file, "--format", "json").json()["mappings"] == []


def test_a_lab_without_its_stretch_server_is_completed(shared_file: Path) -> None:
    pids = {server.name: server.pid for server in read_lab_status("wide").servers}
    lost = psutil.Process(pids.pop("stretch-east"))
    lost.kill()
    lost.wait(60)
    assert vstream("lab", "up", shared_file).code == 0
    after = {server.name: server.pid for server in read_lab_status("wide").servers}
    assert after.pop("stretch-east") not in {None, lost.pid}
    assert after == pids


def test_a_lab_of_the_same_regions_without_a_stretch_cluster_is_another(shared_file: Path) -> None:
    shared_file.write_text(SHARED_TOPOLOGY.replace("stretch: {members: all}\n", ""))
    ran = vstream("plan", shared_file)
    assert ran.code == 3
    assert "it also has stretch-central, stretch-east, stretch-west" in ran.err
