"""A region that is lost while its streams are read: nothing is known of it then, and what the others hold is judged."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.jetstream import JetStreamServer, fill
from tests.support.relay import relay
from tests.unit.test_auditing import WANTED
from vstream.audit.report import Verdict
from vstream.cli.auditing import Live, source
from vstream.diagnostics import Severity
from vstream.errors import NotReachableError
from vstream.ui import audit as view

pytestmark = [
    pytest.mark.server,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("small"),
]

MESSAGES = {"west": 3_000, "east": 50}
MUCH = 300_000
"""Bytes: the streams of west have four times as many each."""
TOPOLOGY = """\
version: 1
name: two
server_version: "2.12"
regions: {{west: {{servers: 1}}, east: {{servers: 1}}}}
streams: {{foo: {{subjects: [foo.>], write: {{max_age: 1h}}}}}}
connect: {{west: {{urls: "{west}"}}, east: {{urls: "{east}"}}}}
"""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, JetStreamServer]]:
    """Two regions that do not know each other: each has its own messages, twice."""
    found = {}
    try:
        for region, number in MESSAGES.items():
            place = tmp_path / region
            place.mkdir()
            found[region] = one = JetStreamServer(place)
            one.start()
            write, read = f"foo-write-{region}", f"foo-read-{region}"
            fill(one, write, [(f"{write}.k{n % 7}", b"%d" % n + b"x" * 400, None) for n in range(number)])
            sources = [{"name": write, "subject_transforms": [{"src": f"{write}.>", "dest": "foo.>"}]}]
            one.api(f"STREAM.CREATE.{read}", {"name": read, "allow_direct": True, "sources": sources})
            deadline = time.monotonic() + 60
            while one.api(f"STREAM.INFO.{read}")["state"]["messages"] < number:
                assert time.monotonic() < deadline
        yield found
    finally:
        for one in found.values():
            one.stop()


def test_a_region_that_is_killed_while_it_is_read_is_not_known_and_the_rest_is_judged(
    spark: SparkSession, servers: dict[str, JetStreamServer], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    killed = []

    def kill(port: int) -> None:
        killed.append(port)
        servers["west"].stop(signal.SIGKILL)

    file, scratch = tmp_path / "two.yaml", tmp_path / "scratch"
    scratch.mkdir()
    with relay(servers["west"].port, kill, much=MUCH) as port, view.progress() as progress:
        file.write_text(TOPOLOGY.format(west=f"nats://127.0.0.1:{port}", east=servers["east"].url))
        live = source(str(file), WANTED)
        assert isinstance(live, Live)
        assert live.size(scratch) == 2 * sum(MESSAGES.values())
        report = live.audit(spark, scratch, progress)
        assert killed
        assert report.verdict() is Verdict.UNKNOWN
        unread = {one.stream for one in report.findings if one.severity is Severity.ERROR}
        assert unread == {"foo-write-west", "foo-read-west"}
        assert report.messages == 2 * MESSAGES["east"]
        said = capfd.readouterr().err
        assert "reading broke off, and begins again" in said
        servers["east"].stop(signal.SIGKILL)
        with pytest.raises(NotReachableError, match="no stream can be read"):
            live.audit(spark, scratch, progress)
