"""`vstream audit --remote`: everything but the command itself is behind Spark Connect, on executors without vstream."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.jetstream import JetStreamServer, fill
from tests.support.spark_cluster import connect_server

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.xdist_group("spark")]

MESSAGES = 40
TOPOLOGY = """\
version: 1
name: remote
server_version: "2.12"
regions: {{west: {{servers: 1}}}}
streams: {{foo: {{subjects: [foo.>], write: {{max_age: 1h}}}}}}
connect: {{west: {{urls: "{url}"}}}}
"""


@pytest.mark.night
def test_servers_are_audited_by_a_spark_that_is_elsewhere(server: JetStreamServer, tmp_path: Path) -> None:
    fill(server, "foo-write-west", [(f"foo-write-west.{n % 7}", b"%d" % n, None) for n in range(MESSAGES)])
    transforms = [{"src": "foo-write-west.>", "dest": "foo.>"}]
    sources = [{"name": "foo-write-west", "subject_transforms": transforms}]
    server.api("STREAM.CREATE.foo-read-west", {"name": "foo-read-west", "allow_direct": True, "sources": sources})
    deadline = time.monotonic() + 60
    while server.api("STREAM.INFO.foo-read-west")["state"]["messages"] < MESSAGES:
        assert time.monotonic() < deadline
    topology = tmp_path / "remote.yaml"
    topology.write_text(TOPOLOGY.format(url=server.url))
    with connect_server(tmp_path) as remote:
        clean = vstream("audit", topology, "--remote", remote, timeout=400)
        server.api("STREAM.MSG.DELETE.foo-read-west", {"seq": 11})
        broken = vstream("audit", topology, "--remote", remote, timeout=400)
    assert clean.code == 0, clean
    assert clean.out.startswith("✓ PASS"), clean
    assert f"{2 * MESSAGES} stored messages" in " ".join(clean.out.split())
    assert broken.code == 1, broken
    assert "`foo-read-west` lacks 1 message" in broken.out
