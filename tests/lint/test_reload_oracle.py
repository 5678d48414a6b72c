"""What a reload refuses, compared with a real server: one option at a time is changed in its file."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.night import with_night
from tests.support.ports import free_port
from vstream.lab import binaries
from vstream.lint.parse_files import Source, parse_sources
from vstream.lint.rule import run_rules
from vstream.lint.rules.servers.reload import reload_refused

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]

BASE = {
    "server_name": "edge",
    "listen": '"127.0.0.1:{client}"',
    "http": '"127.0.0.1:{http}"',
    "accounts": "{ A { users: [{user: a, password: pw}] }, SYS { users: [{user: s, password: pw}] } }",
    "system_account": "SYS",
    "max_pending": "64MB",
    "jetstream": "{store_dir: '{dir}/js', domain: hub, max_mem: 8MB, max_file: 64MB}",
    "cluster": '{name: west, listen: "127.0.0.1:{cluster}", routes: ["nats://127.0.0.1:{other}"]}',
    "gateway": '{name: west, listen: "127.0.0.1:{gateway}", gateways: [{name: west, url: "nats://127.0.0.1:{gateway}"}]}',
    "leafnodes": '{listen: "127.0.0.1:{leaf}", remotes: [{url: "nats://127.0.0.1:{other}", account: A}]}',
    "websocket": '{listen: "127.0.0.1:{ws}", no_tls: true}',
    "mqtt": '{listen: "127.0.0.1:{mqtt}"}',
}
JETSTREAM = "store_dir: '{dir}/js', domain: hub, max_mem: 8MB, max_file: 64MB"
CHANGES: dict[str, list[str | None]] = {
    "server_name": ["other", None],
    "listen": ['"127.0.0.1:{other}"', '"0.0.0.0:{client}"'],
    "http": ['"127.0.0.1:{other}"', None],
    "http_base_path": ['"/nats"', '"/"'],
    "system_account": ["A"],
    "max_pending": ["32MB", None, "67108864"],
    "max_payload": ["2MB"],
    "max_control_line": ["8KB"],
    "max_connections": ["10"],
    "max_subscriptions": ["10", "0"],
    "max_sub_tokens": ["10"],
    "max_traced_msg_len": ["10"],
    "max_closed_clients": ["10", "10000"],
    "ping_interval": ['"9s"'],
    "ping_max": ["3"],
    "write_deadline": ['"9s"'],
    "lame_duck_duration": ['"40s"', '"2m"'],
    "lame_duck_grace_period": ['"9s"', '"10s"'],
    "no_header_support": ["true", "false"],
    "disable_sublist_cache": ["true", "false"],
    "allow_non_tls": ["true", "false"],
    "default_js_domain": ["{A: hub}"],
    "debug": ["true"],
    "logtime": ["false"],
    "logfile_size_limit": ["1MB"],
    "client_advertise": ['"127.0.0.1:1"'],
    "connect_error_reports": ["10"],
    "server_tags": ["[a, b]"],
    "prof_block_rate": ["10"],
    "no_fast_producer_stall": ["true"],
    "accounts": ["{ A { users: [{user: b, password: pw}] }, SYS { users: [{user: s, password: pw}] } }"],
    "jetstream": [
        f"{{{JETSTREAM.replace('hub', 'west')}}}",
        f"{{{JETSTREAM.replace('/js', '/other')}}}",
        f"{{{JETSTREAM.replace('8MB', '16MB')}}}",
        f"{{{JETSTREAM.replace('8MB', '4MB')}}}",
        f"{{{JETSTREAM.replace('64MB', '128MB')}}}",
        f"{{{JETSTREAM.replace(', max_file: 64MB', '')}}}",
        f"{{{JETSTREAM}, sync_interval: 10s}}",
        f"{{{JETSTREAM}, sync_interval: 2m}}",
        f"{{{JETSTREAM}, sync_interval: always}}",
        f"{{{JETSTREAM}, max_outstanding_catchup: 8MB}}",
        f"{{{JETSTREAM}, limits: {{max_ha_assets: 10}}}}",
        f"{{{JETSTREAM}, unique_tag: az}}",
        f"{{{JETSTREAM}, request_queue_limit: 100}}",
        f"{{{JETSTREAM}, max_buffered_msgs: 100}}",
        f"{{{JETSTREAM}, extension_hint: no_extend}}",
    ],
    "cluster": [
        '{name: west, listen: "127.0.0.1:{other}", routes: ["nats://127.0.0.1:{other}"]}',
        '{name: west, listen: "127.0.0.1:{cluster}", routes: ["nats://127.0.0.1:{http}"]}',
        '{name: west, listen: "127.0.0.1:{cluster}", routes: ["nats://127.0.0.1:{other}"], no_advertise: true}',
        '{name: west, listen: "127.0.0.1:{cluster}", routes: ["nats://127.0.0.1:{other}"], compression: s2_fast}',
    ],
    "gateway": [
        '{name: west, listen: "127.0.0.1:{gateway}", gateways: [{name: west, url: "nats://127.0.0.1:{other}"}]}',
        '{name: west, listen: "127.0.0.1:{gateway}", reject_unknown: true}',
        None,
    ],
    "leafnodes": [
        '{listen: "127.0.0.1:{leaf}"}',
        '{listen: "127.0.0.1:{leaf}", remotes: [{url: "nats://127.0.0.1:{http}", account: A}]}',
        '{listen: "127.0.0.1:{leaf}", remotes: [{url: "nats://127.0.0.1:{other}", account: A, deny_imports: ["a.>"]}]}',
        '{listen: "127.0.0.1:{other}", remotes: [{url: "nats://127.0.0.1:{other}", account: A}]}',
        '{listen: "127.0.0.1:{leaf}", no_advertise: true, remotes: [{url: "nats://127.0.0.1:{other}", account: A}]}',
        '{listen: "127.0.0.1:{leaf}", compression: off, remotes: [{url: "nats://127.0.0.1:{other}", account: A}]}',
    ],
    "websocket": ['{listen: "127.0.0.1:{ws}", no_tls: true, compression: true}', None],
    "mqtt": ['{listen: "127.0.0.1:{mqtt}", ack_wait: "9s"}', '{listen: "127.0.0.1:{mqtt}", max_ack_pending: 9}'],
    "mappings": ['{"a.*": "b.$1"}'],
}


class Reloading:
    """A server, started anew after each reload that it takes, or that it does not survive."""

    def __init__(self, version: str, directory: Path) -> None:
        major, minor, _ = version.split(".")
        self.version = int(major), int(minor)
        self._argv = [str(binaries.find_or_fetch(version)), "-c", str(directory / "server.conf")]
        self._file = directory / "server.conf"
        self.values = {
            name: str(free_port()) for name in ("client", "http", "cluster", "gateway", "leaf", "ws", "mqtt", "other")
        }
        self.values["dir"] = str(directory)
        self._process: subprocess.Popen[bytes] | None = None

    def text(self, changes: dict[str, str | None]) -> str:
        """The configuration with *changes*."""
        text = "".join(f"{name}: {value}\n" for name, value in {**BASE, **changes}.items() if value is not None)
        for name, number in self.values.items():
            text = text.replace(f"{{{name}}}", number)
        return text

    def refuses(self, changes: dict[str, str | None]) -> str | None:
        """Why the running server does not take *changes*; None if it does."""
        process = self._process or self._start()
        self._file.write_text(self.text(changes))
        process.send_signal(signal.SIGHUP)
        line = self._wait("Reloaded server configuration", "Failed to reload", "panic:")
        if "Failed" not in line:
            self.stop()
        return None if "Reloaded" in line else line

    def _start(self) -> subprocess.Popen[bytes]:
        self._file.write_text(self.text({}))
        self._process = subprocess.Popen(self._argv, stderr=subprocess.PIPE)
        self._wait("Server is ready")
        return self._process

    def _wait(self, *words: str) -> str:
        assert self._process is not None
        assert self._process.stderr is not None
        log = []
        for line in self._process.stderr:
            log.append(line.decode())
            if any(word in log[-1] for word in words):
                return log[-1]
        raise ConnectionError("".join(log))

    def stop(self) -> None:
        """End the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stderr is not None
            self._process.stderr.close()
            self._process = None


@pytest.fixture(scope="module", params=with_night(["2.10.26", "2.15.1"], ["2.11.11", "2.12.8", "2.14.6"]))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reloading]:
    reloading = Reloading(request.param, tmp_path_factory.mktemp("reload"))
    yield reloading
    reloading.stop()


def find_expected(server: Reloading, changes: dict[str, str | None]) -> list[str]:
    """What the rule says of *changes*."""
    before, after = (
        parse_sources([Source(name="server.conf", content=server.text(config).encode())], read=lambda _: b"")
        for config in ({}, changes)
    )
    workspace = replace(after.workspace(None, server.version), running=tuple(before.servers))
    return [finding.message for finding in run_rules([reload_refused], workspace)]


def test_what_the_server_refuses_to_reload_is_found_and_nothing_else(server: Reloading) -> None:
    wrong = []
    refusals = 0
    for name, values in CHANGES.items():
        for value in values:
            reason, messages = server.refuses({name: value}), find_expected(server, {name: value})
            refusals += reason is not None
            if bool(messages) != bool(reason):
                wrong.append(f"{name}: {value}\n    {reason}    {messages}")
    assert wrong == [], "\n".join(wrong)
    assert refusals >= 30
