"""
`vstream init` from real servers: a topology comes back from what it made.

That other profiles are refused is seen on their labs, in render/accounts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.labs import processes_in
from tests.support.topologies import begin_topology
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.syntax.document import Json
from vstream.topology.consumer_config import ConsumerConfig
from vstream.topology.stream_config import StreamConfig

pytestmark = pytest.mark.lab

LAB = "found"
TOPOLOGY = (
    begin_topology(LAB, west=1, central=1, east=1)
    + """\
stretch: {members: all}
defaults: {write: {max_age: 1h}}
streams:
  sensors:
    subjects: [sensors.>, "beats.*.x"]
    metadata: {team: iron}
    read: {max_msgs_per_subject: 5, max_age: 30d}
    overrides: {east: {write: {max_age: 2h}, read: {max_bytes: 100MiB}}}
    consumers: {reader: {ack_wait: 1m, filter_subjects: sensors.a, max_deliver: 3}, once: {regions: [west], ack_policy: none}}
  near: {subjects: [near.>], regions: [west, east], compression: s2}
  ledger: {subjects: [ledger.>], consistency: ordered}
  stock: {subjects: [stock.>], consistency: stretch, write: {max_age: unlimited}, consumers: {audit: {}}}
  prices: {subjects: [prices.>], consistency: homed, home: east, write: {max_age: unlimited}}
kv: {users: {consistency: stretch, history: 5}}
"""
)


@pytest.fixture
def made_directory(state: Path, tmp_path: Path) -> Iterator[Path]:
    """The directory of a topology whose lab runs, with its streams."""
    file = tmp_path / "made.yaml"
    file.write_text(TOPOLOGY)
    try:
        up = vstream("lab", "up", file)
        assert up.code == 0, up.err
        applied = vstream("apply", file, "--yes")
        assert applied.code == 0, applied.out + applied.err
        yield tmp_path
    finally:
        assert vstream("lab", "down", LAB, "--purge").code == 0
    assert processes_in(state) == []


def addresses(regions: tuple[str, ...] = ("west", "central", "east")) -> list[str]:
    """The options that name the servers of the lab as if they were real ones."""
    servers = [option for region in regions for option in ("--server", list_endpoints(LAB)[region].urls[0])]
    return servers + [option for address in list_addresses(LAB) for option in ("--monitor", address.monitor_url)]


async def test_the_topology_comes_back_from_its_servers_alone_and_as_a_whole(made_directory: Path) -> None:
    plain: dict[str, Json] = {"name": "orders", "subjects": ["orders.>"], "placement": {"cluster": "west"}}
    mine: dict[str, Json] = {"durable_name": "mine", "ack_policy": "explicit"}
    async with connect(list_endpoints(LAB)["west"], "west") as connection:
        admin = JetStreamAdmin(connection)
        await admin.create(StreamConfig(name="orders", fields=plain))
        await admin.create_consumer(ConsumerConfig(stream="sensors-read-west", durable="mine", fields=mine))
    file = made_directory / "found.yaml"
    written = vstream("init", file, *addresses(), "--format", "json")
    assert written.code == 0, written.out + written.err
    answer = written.json()
    assert answer["streams"] == {
        "sensors": "virtual", "near": "virtual", "ledger": "ordered", "stock": "stretch", "prices": "homed", "KV_users": "stretch",
    }  # fmt: skip
    left = {(leftover["kind"], leftover["name"]) for leftover in answer["leftovers"]}
    assert left == {("stream", "orders"), ("consumer", "sensors > mine")}
    assert answer["problems"] == []
    planned = vstream("plan", file, "--detailed-exitcode")
    assert planned.code == 0, planned.out + planned.err
    assert f"{file} is valid" in vstream("validate", file).err  # with a warning about servers before 2.15
    # And once more, into the same file: only if that is asked for.
    text = file.read_text()
    again = vstream("init", file, *addresses())
    assert (again.code, "--force" in again.err, file.read_text()) == (3, True, text)
    assert vstream("init", file, "--lab", LAB, "--force").code == 0
    assert "connect:" in text
    assert "connect:" not in file.read_text()
    planned = vstream("plan", file, "--detailed-exitcode")
    assert planned.code == 0, planned.out + planned.err
    # Without a region that does not answer, the topology would take its sources away.
    killed = vstream("chaos", "kill-region", "east", "--topology", made_directory / "made.yaml")
    assert killed.code == 0, killed.out + killed.err
    file = made_directory / "short.yaml"
    written = vstream("init", file, *addresses(("west", "central")))
    assert (written.code, file.exists()) == (3, False)
    assert "sensors-write-east" in written.err
    assert "no server answers for them" in written.err
    whole = vstream("init", file, *addresses())
    assert (whole.code, file.exists()) == (3, False)
    assert "cannot be reached" in whole.err
