"""`vstream export` keeps serving, whatever answers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.command import environment, vstream
from tests.support.ports import free_port
from tests.support.topologies import one_region
from vstream.cli.export import warn_if_exposed

VARZ = {"server_name": "west-1", "version": "2.15.1", "config_load_time": "2026-01-01T00:00:00Z"}


class MonitoringPort(ThreadingHTTPServer):
    """Something that answers like a nats-server, but for what it says of JetStream."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", free_port()), Answers)
        self.asked = 0
        """How often it was asked for what it says of JetStream: each of MALFORMED in turn."""


class Answers(BaseHTTPRequestHandler):
    server: MonitoringPort

    def do_GET(self) -> None:
        answer: object = VARZ
        if self.path.startswith("/jsz"):
            answer = MALFORMED[self.server.asked % len(MALFORMED)]
            self.server.asked += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def monitor() -> Iterator[MonitoringPort]:
    with MonitoringPort() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


MALFORMED: list[object] = [
    {"account_details": 5},
    {
        "account_details": [
            {"stream_detail": [{"name": "foo-write-west", "state": [], "cluster": {"leader": "west-1"}}]}
        ]
    },
    {"meta_cluster": {"cluster_size": "many"}},
    {"meta_cluster": {"cluster_size": 10**30}},
    {"storage": {}},
]


def test_malformed_answers_do_not_end_it(monitor: MonitoringPort, tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(
        'version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 1}}\n'
        f'connect: {{west: {{urls: ["nats://127.0.0.1:{free_port()}"], monitor: ["http://127.0.0.1:{monitor.server_port}"]}}}}\n'
        "streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}\n"
    )
    port = free_port()
    exporter = subprocess.Popen(
        [sys.executable, "-m", "vstream", "export", str(file), "--listen", f"127.0.0.1:{port}", "--every", "0.2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"PYTHONUNBUFFERED": "1"}),
    )
    try:
        assert exporter.stderr is not None
        first = exporter.stderr.readline()
        while "/metrics" not in first:
            assert first, "it ended"
            assert first.startswith(("vstream_up is 0: ", "not known: ")), first
            first = exporter.stderr.readline()
        deadline = time.monotonic() + 120
        while monitor.asked <= len(MALFORMED):  # it asks again when it has done with the last one
            assert exporter.poll() is None, "it ended"
            assert time.monotonic() < deadline, "it does not ask any more"
            time.sleep(0.02)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    finally:
        exporter.terminate()
        _, errors = exporter.communicate(timeout=60)
    assert exporter.returncode == -signal.SIGTERM, errors
    assert 'vstream_up{topology="acme"} 0' in text
    assert "warning" not in errors


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.1.2.3", "fe80::1%eth0"])
def test_addresses_that_others_may_reach_are_warned_of(address: str) -> None:
    warning = warn_if_exposed(["127.0.0.1", address], 9477)
    assert warning is not None
    assert "anybody who reaches port 9477 reads the names of streams, servers and clients" in warning


def test_loopback_is_not_warned_of() -> None:
    assert warn_if_exposed(["127.0.0.1", "::1"], 9477) is None


def test_the_console_serves_the_page_at_the_address_that_it_prints(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(one_region(f"nats://127.0.0.1:{free_port()}"))
    command = [sys.executable, "-m", "vstream", "status", str(file), "--serve", "--no-browser", "--timeout", "0.5"]
    command += ["--log-format", "json", "-v"]
    console = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment({"COLUMNS": "200"}))
    try:
        assert console.stderr is not None
        notes = (json.loads(line) for line in console.stderr)
        assert next(notes)["message"] == f"looking at the servers of {file}"
        note = next(note for note in notes if "http://127.0.0.1:" in note["message"])
        assert note["level"] == "info"
        address = next(word for word in note["message"].split() if word.startswith("http://"))
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert '<script src="/console.js">' in answer.read().decode()
        with urllib.request.urlopen(f"{address}events", timeout=60) as answer:
            events = [answer.readline().decode() for _ in range(5)]
        assert "event: history\n" in events
    finally:
        console.terminate()
        console.communicate(timeout=60)
    assert console.returncode == -signal.SIGTERM


@pytest.mark.parametrize("command", ["consumer sync --watch --topology", "probe --beacons --every 1"])
def test_why_a_service_ends_is_a_line_of_json(command: str, tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text('version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 1}}\nstreams: {}\n')
    ran = vstream(*command.split()[:2], "--log-format", "json", *command.split()[2:], file)
    assert (ran.code, ran.out) == (3, "")
    line = json.loads(ran.err)
    assert (line["level"], bool(line["hint"])) == ("error", True)
