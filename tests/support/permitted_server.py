"""One real server of a rendered topology, whose user `vstream` may do what a test says, and no more."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.ports import free_port
from vstream.lab import binaries
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.bundle import placeholder_for
from vstream.topology.model import Routing
from vstream.topology.profiles import PROFILES

PATIENCE = 60.0
_VIOLATION = re.compile(r'Violation.* Subject "([^"]+)"')
PASSWORD = "not-a-secret-in-a-test"
VARIABLE = "VSTREAM_TEST_PASSWORD"


def topology_text(routing: str, directory: Path, more: str) -> str:
    ports = {port: free_port() for port in ("client", "monitor", "cluster", "gateway")}
    profile = PROFILES[Routing(routing)]
    user = profile.user_name("vstream", "west")
    layout = "account: ACME\n" if profile.has_physical_names else f"routing: {routing}\nroots: [v.>]\n"
    return (
        f'version: 1\nname: allowed\nserver_version: "2.12"\n{layout}{more}'
        f"jetstream: {{store_dir: {directory}/store}}\n"
        f"regions: {{west: {{servers: [127.0.0.1], ports: {json.dumps(ports)}}}}}\n"
        f"connect: {{west: {{urls: ['nats://127.0.0.1:{ports['client']}'], user: {user}, password_env: {VARIABLE}, "
        f"monitor: ['http://127.0.0.1:{ports['monitor']}']}}}}\n"
        "defaults: {write: {max_age: 1h}, replicas: 1}\n"
        "streams: {foo: {subjects: [v.foo.>], canary: v.foo._canary.*, consumers: {worker: {}}}}\n"
    )


class PermittedServer:
    """The server, and the file of its topology."""

    def __init__(self, directory: Path, routing: str, more: str) -> None:
        self.directory = directory
        self.routing = routing
        self.file = directory / "allowed.yaml"
        self.file.write_text(topology_text(routing, directory, more))
        self.topology = check_topology(self.file.read_bytes(), str(self.file)).require()
        self.user = PROFILES[Routing(routing)].user_name("vstream", "west")
        bundle = render_bundle(self.topology)
        self._accounts = bundle.text("accounts.cfg")
        self.address = next(address for address in bundle.servers if not address.is_hub)
        self._monitor = f"{self.address.monitor_url}/varz"
        for artifact in bundle.artifacts:
            self._write(artifact.path, artifact.text)
        for path in ("passwords.cfg", "passwords-west.cfg", "system-password.cfg", "leaf-west.cfg"):
            self._write(path, (placeholder_for(path) or "").replace("$2a$11$none", PASSWORD))
        self.process = self._start()
        self._read_load_time()

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.directory / "server.log").open("ab") as log:
            return subprocess.Popen(
                [binaries.find_or_fetch(), "-c", self.directory / "servers" / "west-1.conf"],
                cwd=self.directory,
                stdout=log,
                stderr=log,
            )

    def restart(self, change: Callable[[], object]) -> None:
        """Stop the server, do what *change* does to its files, and start it."""
        self.process.terminate()
        self.process.wait(PATIENCE)
        change()
        self.process = self._start()
        self._read_load_time()

    def store_of(self, stream: str) -> Path:
        """The directory in which the server keeps *stream*: `ACCOUNT/NAME`, or a name."""
        account, _, name = stream.rpartition("/")
        (path,) = self.directory.glob(f"store/**/{account or '*'}/streams/{name}")
        return path

    def allow(self, publish: Sequence[str], subscribe: Sequence[str]) -> None:
        """Have the server let the user publish and subscribe to these subjects alone."""
        pattern = re.compile(rf'(user: "{self.user}", password: \S+, permissions: \{{).*?(\n      \}}\}})', re.DOTALL)
        allowed = f"publish: {{allow: {json.dumps(publish)}}}\n subscribe: {{allow: {json.dumps(subscribe)}}}"
        text, count = pattern.subn(lambda match: f"{match[1]}{allowed}{match[2]}", self._accounts)
        assert count == 1
        self._write("accounts.cfg", text)
        before = self._read_load_time()
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE
        while self._read_load_time() == before:
            assert time.monotonic() < deadline, (self.directory / "server.log").read_text()
            time.sleep(0.01)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.address.client}"

    def user_of(self, role: str) -> str:
        return self.user.replace("vstream", role)

    def violations(self) -> list[str]:
        """The subjects that the server has refused so far."""
        return _VIOLATION.findall((self.directory / "server.log").read_text())

    def _read_load_time(self) -> str:
        """When the server has loaded its configuration."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError), urllib.request.urlopen(self._monitor, timeout=5) as answer:
                return str(json.loads(answer.read())["config_load_time"])
            assert self.process.poll() is None, (self.directory / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _write(self, path: str, text: str) -> None:
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@contextmanager
def running(directory: Path, routing: str, more: str = "") -> Iterator[PermittedServer]:
    """A server of a topology that says *more*."""
    server = PermittedServer(directory, routing, more)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait(PATIENCE)
