"""A region that is lost while its streams are read: nothing is known of it then, and what the others hold is judged."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from tests.cli.test_audit import WANTED
from tests.support.jetstream import JetStreamServer, fill
from tests.support.relay import relay
from vstream.audit.extract.extract_plan import plan_extraction
from vstream.audit.extract.extraction import read_in_process
from vstream.audit.extract.from_servers import plan_servers, read_servers
from vstream.audit.pipeline import begin_reading, judge, read_and_judge
from vstream.audit.report import AuditVerdict, Report
from vstream.audit.request import AuditedServers, AuditProgress, AuditRequest, NamedTarget, SparkAddress
from vstream.audit.spark.audit_session import AuditSession
from vstream.audit.state.audit_state import UnusableStateError
from vstream.audit.tables.audit_tables import extract_tables
from vstream.cli import options
from vstream.cli.audit import find_target
from vstream.cli.views import audit as view
from vstream.errors import NotReachableError
from vstream.findings import Severity
from vstream.servers.bundles import provide_bundle
from vstream.servers.find_servers import endpoints_as_user, find_and_trust_servers
from vstream.topology.accounts import AUDIT_USER

pytestmark = [
    pytest.mark.server,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("small_tables"),
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
    result = {}
    try:
        for region, number in MESSAGES.items():
            place = tmp_path / region
            place.mkdir()
            result[region] = server = JetStreamServer(place)
            server.start()
            write, read = f"foo-write-{region}", f"foo-read-{region}"
            fill(server, write, [(f"{write}.k{n % 7}", b"%d" % n + b"x" * 400, None) for n in range(number)])
            sources = [{"name": write, "subject_transforms": [{"src": f"{write}.>", "dest": "foo.>"}]}]
            server.api(f"STREAM.CREATE.{read}", {"name": read, "allow_direct": True, "sources": sources})
            wait_until_read(server, region, number)
        yield result
    finally:
        for server in result.values():
            server.stop()


def wait_until_read(server: JetStreamServer, region: str, number: int) -> None:
    deadline = time.monotonic() + 60
    while server.api(f"STREAM.INFO.foo-read-{region}")["state"]["messages"] < number:
        assert time.monotonic() < deadline


def test_servers_are_not_read_again_because_a_state_cannot_be_used(
    spark: SparkSession, servers: dict[str, JetStreamServer], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, state, scratch = tmp_path / "two.yaml", tmp_path / "state", tmp_path / "scratch"
    file.write_text(TOPOLOGY.format(**{region: server.url for region, server in servers.items()}))
    state.mkdir()
    scratch.mkdir()
    (state / "notes.txt").touch()
    with view.show_stages() as progress:
        request = replace(WANTED, state=state)
        session = AuditSession(spark=spark, scratch=scratch, progress=progress)
        with pytest.raises(UnusableStateError, match="other files are there"):
            audit(request, find_servers(file, request), session)
    assert "starts again" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "is_early", [True, pytest.param(False, marks=pytest.mark.night)], ids=["while Spark starts", "by Spark's tasks"]
)
def test_a_region_that_is_killed_while_it_is_read_is_not_known_and_the_rest_is_judged(
    spark: SparkSession,
    servers: dict[str, JetStreamServer],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    *,
    is_early: bool,
) -> None:
    killed = []

    def kill(port: int) -> None:
        killed.append(port)
        servers["west"].stop(signal.SIGKILL)
        raise ConnectionError  # what the server had sent already would arrive, and could be all

    file, scratch = tmp_path / "two.yaml", tmp_path / "scratch"
    scratch.mkdir()
    with relay(servers["west"].port, kill, much=MUCH) as port, view.show_stages() as progress:
        file.write_text(TOPOLOGY.format(west=f"nats://127.0.0.1:{port}", east=servers["east"].url))
        audited = find_servers(file, WANTED)
        session = AuditSession(spark=spark, scratch=scratch, progress=progress)
        assert plan_servers(WANTED, audited, scratch).messages == 2 * sum(MESSAGES.values())
        report = audit(WANTED, audited, session, SparkAddress(master=None if is_early else "local[2]"))
        assert killed
        assert report.verdict() is AuditVerdict.UNKNOWN
        unread = {finding.stream for finding in report.findings if finding.severity is Severity.ERROR}
        assert unread == {"foo-write-west", "foo-read-west"}
        assert report.messages == 2 * MESSAGES["east"]
        output = capfd.readouterr().err
        assert "reading was interrupted and starts again" in output
        servers["east"].stop(signal.SIGKILL)
        with pytest.raises(NotReachableError, match="no stream can be read"):
            read_servers(WANTED, audited, session)


HERE = SparkAddress()


def find_servers(file: Path, request: AuditRequest) -> AuditedServers:
    target = find_target(NamedTarget.at(str(file)), request)
    assert isinstance(target, AuditedServers)
    return target


def audit(
    request: AuditRequest, servers: AuditedServers, session: AuditSession, address: SparkAddress = HERE
) -> Report:
    """The report, by a Spark that runs already as if it was at *address*."""
    with closing(begin_reading(request, servers, address, session.scratch)) as reader:
        return read_and_judge(request, reader, session)


class HeardProgress(AuditProgress):
    """Remembers the notes for the user."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def request_with_state(
    servers: dict[str, JetStreamServer], directory: Path
) -> tuple[AuditRequest, AuditedServers, Path]:
    """An audit of the servers with a state, and a directory for scratch files."""
    file, state, scratch = directory / "two.yaml", directory / "state", directory / "scratch"
    state.mkdir()
    scratch.mkdir()
    file.write_text(TOPOLOGY.format(**{region: server.url for region, server in servers.items()}))
    request = replace(WANTED, state=state)
    return request, find_servers(file, request), scratch


def test_with_a_state_only_what_is_new_is_read_and_all_is_held_that_a_whole_audit_reads(
    spark: SparkSession, servers: dict[str, JetStreamServer], tmp_path: Path
) -> None:
    request, audited, scratch = request_with_state(servers, tmp_path)
    progress = HeardProgress()
    session = AuditSession(spark=spark, scratch=scratch, progress=progress)
    read_servers(request, audited, session)
    fill(servers["east"], "foo-write-east", [("foo-write-east.k", b"new", None)] * 3)
    wait_until_read(servers["east"], "east", MESSAGES["east"] + 3)
    servers["west"].api("STREAM.MSG.DELETE.foo-read-west", {"seq": 7})
    held = read_servers(request, audited, session).tables.messages
    # The last one of each stream in the east once more, and all that is left in the stream that has lost one.
    assert progress.notes == [
        "6,100 of 6,100 messages were read from servers",
        "3,007 of 6,105 messages were read from servers; read again from the first message: foo-read-west",
    ]
    whole = extract_tables(spark, plan_servers(request, audited, scratch), scratch).messages
    assert held.exceptAll(whole).count() == whole.exceptAll(held).count() == 0


@pytest.mark.night
def test_with_a_state_an_audit_and_each_round_of_following_judges_everything(
    spark: SparkSession, servers: dict[str, JetStreamServer], tmp_path: Path
) -> None:
    request, audited, scratch = request_with_state(servers, tmp_path)
    session = AuditSession(spark=spark, scratch=scratch, progress=AuditProgress())
    report = audit(request, audited, session)
    again = judge(request, read_servers(request, audited, session), session)
    assert again.messages == report.messages == 2 * sum(MESSAGES.values())
    servers["west"].api("STREAM.MSG.DELETE.foo-read-west", {"seq": 7})
    lost = [
        finding.count
        for finding in audit(request, audited, session).findings
        if (finding.name, finding.stream) == ("lost-middle", "foo-read-west")
    ]
    assert lost == [1]


def test_what_is_read_while_spark_starts_is_read_once_whatever_breaks(
    servers: dict[str, JetStreamServer], tmp_path: Path
) -> None:
    broken: list[int] = []

    def breaks(port: int) -> None:
        if len(broken) < len(MESSAGES):
            broken.append(port)
            raise ConnectionResetError

    with relay(servers["west"].port, breaks, much=MUCH) as port:
        (tmp_path / "two.yaml").write_text(
            TOPOLOGY.format(west=f"nats://127.0.0.1:{port}", east=servers["east"].url), encoding="utf-8"
        )
        topology = options.check_topology_file(tmp_path / "two.yaml").require()
        audited = find_and_trust_servers(topology, None)
        streams = provide_bundle(topology, audited, None).streams
        messages = read_in_process(
            plan_extraction(streams, endpoints_as_user(topology, audited, AUDIT_USER), tmp_path)
        ).messages
    assert len(broken) == len(MESSAGES)
    rows = Counter(zip(messages["stream"].to_pylist(), messages["seq"].to_pylist(), strict=True))
    assert rows == {
        (f"foo-{kind}-{region}", seq): 1
        for region, number in MESSAGES.items()
        for kind in ("write", "read")
        for seq in range(1, number + 1)
    }


def test_ctrl_c_while_a_server_says_nothing_ends_an_audit_and_leaves_nothing_running(
    servers: dict[str, JetStreamServer], tmp_path: Path
) -> None:
    silent, over = threading.Event(), threading.Event()

    def stalls(_: int) -> None:
        silent.set()
        over.wait()

    file = tmp_path / "two.yaml"
    with relay(servers["west"].port, stalls, much=MUCH) as port:
        file.write_text(TOPOLOGY.format(west=f"nats://127.0.0.1:{port}", east=servers["east"].url))
        command = [sys.executable, "-m", "vstream", "audit", str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as audit:
            try:
                assert silent.wait(60)
                started = psutil.Process(audit.pid)
                family = [started, *started.children(recursive=True)]
                audit.send_signal(signal.SIGINT)
                # The server would be asked again for longer than this.
                output, _ = audit.communicate(timeout=120)
                assert (audit.returncode, output.strip().splitlines()[-1]) == (130, "interrupted")
                assert psutil.wait_procs(family, timeout=60)[1] == []
            finally:
                over.set()
                audit.kill()


def test_rounds_are_printed_as_they_end_until_ctrl_c(servers: dict[str, JetStreamServer], tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TOPOLOGY.format(west=servers["west"].url, east=servers["east"].url))
    command = [sys.executable, "-m", "vstream", "audit", str(file), "--follow", "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as audit:
        try:
            assert audit.stdout is not None
            assert json.loads(audit.stdout.readline())["messages"] == 2 * sum(MESSAGES.values())
            audit.send_signal(signal.SIGINT)
            _, notes = audit.communicate(timeout=120)
            assert (audit.returncode, notes.strip().splitlines()[-1]) == (130, "interrupted")
        finally:
            audit.kill()
