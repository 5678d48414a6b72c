"""
docs/production.md as it is walked, with clients that publish all the time: hosts, containers and pods on loopback.

First deployment, a changed mapping, a new stream, a new region, a write stream that moves. `apply` is killed in each of them
after each of its stages, and the next run goes on. In the end, what was acknowledged is in every region, once.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
import trustme
import yaml

from tests.support.chart_pods import PASSWORD, Pods, make_configuration, read_releases
from tests.support.command import vstream
from tests.support.killed_command import run_and_kill
from tests.support.ports import free_port
from tests.support.publish_load import Load, check_contents, under_load
from vstream import resources
from vstream.files import write_atomically
from vstream.lab import binaries
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.render.targets import render_target
from vstream.topology.bundle import placeholder_for
from vstream.topology.model import VSTREAM_INBOX, Endpoint

pytestmark = [pytest.mark.server, pytest.mark.night]

HOSTS = {
    "west": ["127.0.0.11", "127.0.0.12"],
    "central": ["127.0.0.21"],
    "east": ["127.0.0.31"],
    "north": ["127.0.0.41"],
}
OLD, ALL = ("west", "central", "east"), tuple(HOSTS)
Document = dict[str, Any]


def make_document(
    regions: tuple[str, ...] = OLD,
    *,
    subjects: tuple[str, ...] = ("foo.>",),
    streams: tuple[str, ...] = (),
    zone: str = "a",
) -> Document:
    west = {"write": {"placement_tags": [f"az:{zone}"]}}
    first = {"subjects": list(subjects), "overrides": {"west": west}}
    return {
        "version": 1,
        "name": "acme",
        "server_version": "2.12",
        "routing": "accounts",
        "security": {
            "transport": {
                "cert_file": "/etc/nats/server.pem",
                "key_file": "/etc/nats/server-key.pem",
                "ca_file": "/etc/nats/ca.pem",
            }
        },
        "regions": {region: {} for region in regions},
        "defaults": {"replicas": 1, "write": {"max_age": "1h"}},
        "streams": {"foo": first, **{name: {"subjects": [f"{name}.>"]} for name in streams}},
    }


class Site(Protocol):
    """Where the servers of a document run."""

    def complete(self, document: Document) -> Document:
        """*document* with its servers and how they are reached."""

    def install(self, document: Document) -> None:
        """Start what is new in *document*, as the page says it."""

    def ship(self, document: Document) -> None:
        """Bring what `apply` does not bring itself."""

    def arguments(self) -> list[str]:
        """Of `apply`."""

    def stop(self) -> None: ...


class Hosts:
    """Directories that stand for hosts: files of the target `systemd` or `compose`, copied as the page says."""

    def __init__(self, directory: Path, target: str, version: str) -> None:
        self.directory = directory
        self.target = target
        self.version = version
        self.etc = "etc/nats" if target == "systemd" else "nats"
        self.ports = {port: free_port() for port in ("client", "monitor", "cluster", "gateway")}
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(directory / "ca.pem"))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def complete(self, document: Document) -> Document:
        regions: Document = {}
        for region in document["regions"]:
            regions[region] = {"servers": HOSTS[region], "ports": self.ports}
        # Only west has a server to move to.
        regions["west"]["tags"] = ["az:a", "az:b"]
        connect = {
            region: {
                "urls": [f"tls://{host}:{self.ports['client']}" for host in HOSTS[region]],
                "user": "vstream",
                "password_env": "VSTREAM_PASSWORD_VSTREAM",
                "tls": {"ca": str(self.directory / "ca.pem")},
                "monitor": [f"https://{host}:{self.ports['monitor']}" for host in HOSTS[region]],
                "system": {"user": "system", "password_env": "VSTREAM_PASSWORD_SYSTEM"},
            }
            for region in regions
        }
        storage = {"store_dir": "/var/lib/nats", "max_file": "1GiB", "max_memory": "256MiB"}
        return {**document, "regions": regions, "jetstream": storage, "connect": connect}

    def install(self, document: Document) -> None:
        topology = check_topology(json.dumps(document).encode(), "acme.yaml").require()
        files = {
            a.path: a.text
            for a in render_target(self.target, topology, render_bundle(topology), [resources.templates()])
        }
        for region in topology.regions:
            for server in region.servers:
                if server.name not in self.processes:
                    self._install(str(server.host), server.name, files)

    def _install(self, host: str, server: str, files: Mapping[str, str]) -> None:
        root, etc = self.directory / "hosts" / host, self.directory / "hosts" / host / self.etc
        for path, text in files.items():
            if path.startswith(f"{host}/"):
                file = self.directory / "hosts" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                # Paths of a host or container are below its directory.
                file.write_text(text.replace("/etc/nats", str(etc)).replace("/var/lib/nats", str(root / "data")))
        certificate = self.authority.issue_cert(host)
        certificate.private_key_and_cert_chain_pem.write_to_path(str(etc / "server.pem"))
        certificate.private_key_pem.write_to_path(str(etc / "server-key.pem"))
        shutil.copy(self.directory / "ca.pem", etc)
        (etc / "passwords.cfg").write_text((placeholder_for("passwords.cfg") or "").replace("$2a$11$none", PASSWORD))
        if self.target == "compose":
            (service,) = yaml.safe_load((root / "compose.yaml").read_text())["services"].values()
            arguments = service["command"]
        else:
            unit = next(root.glob("etc/systemd/system/*.service")).read_text()
            line = re.search(r"^ExecStart=/usr/bin/nats-server (.*)$", unit, re.MULTILINE)
            assert line is not None
            arguments = line[1].replace("%i", server).split()
        with (root / "log").open("wb") as log:
            command = [binaries.find_or_fetch(self.version), *arguments]
            self.processes[server] = subprocess.Popen(command, cwd=root, stdout=log, stderr=log)

    def ship(self, document: Document) -> None:
        """`apply` does."""

    def arguments(self) -> list[str]:
        return ["--ship-with", f"cp -r {{directory}}/. {self.directory}/hosts/{{host}}/{self.etc}/"]

    def stop(self) -> None:
        stop(self.processes)


class Kubernetes:
    """Pods as our model of the chart makes them, with a sidecar that loads a changed ConfigMap once."""

    def __init__(self, directory: Path, version: str) -> None:
        self.directory = directory
        self.version = version
        self.pods: Pods | None = None
        self._ended = threading.Event()
        self._sidecar = threading.Thread(target=self._watch)

    def complete(self, document: Document) -> Document:
        regions: Document = {}
        for region in document["regions"]:
            names = [f"{region}-nats-{number}" for number in range(len(HOSTS[region]))]
            gateway = f"nats-gw.{region}.example.net"
            regions[region] = {"servers": len(names), "names": names, "gateway": gateway}
        completed = {**document, "regions": regions}
        completed["streams"] = {**document["streams"], "foo": self._without_tags(document["streams"]["foo"])}
        return {**completed, "connect": self._connect()} if self.pods else completed

    @staticmethod
    def _without_tags(stream: Document) -> Document:
        """Instead of moving to another zone, it is scaled: pods of a release have the same tags."""
        moved = stream["overrides"]["west"]["write"]["placement_tags"] == ["az:b"]
        return {**stream, "overrides": {"west": {"write": {"replicas": 2 if moved else 1}}}}

    def _connect(self) -> Document:
        assert self.pods is not None
        system = {"user": "system", "password_env": "VSTREAM_PASSWORD_SYSTEM"}
        return {region: {**connect, "system": system} for region, connect in self.pods.connect().items()}

    def install(self, document: Document) -> None:
        topology = check_topology(json.dumps(document).encode(), "acme.yaml").require()
        releases = read_releases(render_target("helm", topology, render_bundle(topology), [resources.templates()]))
        configurations = {name: make_configuration(values) for name, values in releases.items()}
        (self._texts,) = {values["extraResources"][0]["data"]["accounts.cfg"] for values in releases.values()}
        if self.pods is None:
            self.pods = Pods(self.directory / "pods", topology, configurations)
            self._loaded = self._texts
            self.pods.ship(self._texts)
            self.pods.start(self.version)
            self._sidecar.start()
        else:
            before = set(self.pods.processes)
            self.pods.install(topology, configurations)
            for server in self.pods.ports.keys() - before:
                self._rules(server).write_text(self._texts)
            self.pods.start(self.version)
        self.pods.wait_until_ready()

    def _rules(self, server: str) -> Path:
        assert self.pods is not None
        return self.pods.directory / server / "nats-vstream" / "accounts.cfg"

    def ship(self, document: Document) -> None:
        """`helm upgrade` with new values, in every region."""
        topology = check_topology(json.dumps(document).encode(), "acme.yaml").require()
        for server in self.pods.processes if self.pods else ():
            # As Kubernetes does: a sidecar that saw an empty file would load it, and all accounts would be gone.
            write_atomically(self._rules(server), render_bundle(topology).text("accounts.cfg"))

    def _watch(self) -> None:
        """The reloader: one SIGHUP for each change of the file."""
        assert self.pods is not None
        loaded: dict[str, str] = {}
        while not self._ended.wait(0.3):
            for server, process in list(self.pods.processes.items()):
                text = self._rules(server).read_text()
                if loaded.setdefault(server, text) != text:
                    loaded[server] = text
                    process.send_signal(signal.SIGHUP)

    def arguments(self) -> list[str]:
        return ["--wait-loaded", "120"]

    def stop(self) -> None:
        self._ended.set()
        if self.pods is not None:
            self._sidecar.join()
            stop(self.pods.processes)


def stop(processes: Mapping[str, subprocess.Popen[bytes]]) -> None:
    for process in processes.values():
        process.kill()
    for process in processes.values():
        process.wait(timeout=20)


@contextmanager
def running(target: str, directory: Path, version: str) -> Iterator[Site]:
    site: Site = Kubernetes(directory, version) if target == "helm" else Hosts(directory, target, version)
    try:
        yield site
    finally:
        site.stop()


class Walk:
    """Changes one after the other; each `apply` is killed after each of its stages, and then run to its end."""

    def __init__(self, site: Site, directory: Path) -> None:
        self.site = site
        self.directory = directory
        self.file = directory / "acme.yaml"
        self.killed: list[list[str]] = []

    def write(self, document: Document) -> Document:
        completed = self.site.complete(document)
        self.file.write_text(json.dumps(completed))
        return completed

    def endpoints(self, user: str, regions: tuple[str, ...]) -> dict[str, Endpoint]:
        topology = check_topology(self.file.read_bytes(), "acme.yaml").require()
        endpoints = {region: topology.region(region).endpoint for region in regions}
        variable = f"VSTREAM_PASSWORD_{user.upper()}"
        # An application's answers come where applications have theirs.
        inbox = "_INBOX" if user == "app" else VSTREAM_INBOX
        return {
            region: replace(endpoint, user=user, password_env=variable, inbox=inbox)
            for region, endpoint in endpoints.items()
            if endpoint is not None
        }

    async def apply(self) -> None:
        arguments = ["apply", str(self.file), "--yes", "--allow-destructive", "--allow-many", *self.site.arguments()]
        stages = await asyncio.to_thread(run_and_kill, self.directory / f"killed-{len(self.killed)}", *arguments)
        self.killed.append(stages)
        left = await asyncio.to_thread(vstream, "plan", self.file, "--detailed-exitcode")
        assert left.code == 0, left.out + left.err

    async def change(self, document: Document) -> None:
        completed = self.write(document)
        await asyncio.to_thread(self.site.ship, completed)
        await self.apply()


@asynccontextmanager
async def publishing(walk: Walk, load: Load, regions: tuple[str, ...]) -> AsyncIterator[None]:
    async with under_load(load, walk.endpoints("app", regions)):
        await load.wait_for_acknowledged(20)
        yield
        await load.wait_for_acknowledged(20)


@pytest.mark.parametrize("version", ["2.12.8", "2.15.1"])
@pytest.mark.parametrize("target", ["systemd", "compose", "helm"])
async def test_five_changes_by_the_documented_way_lose_and_double_nothing(
    target: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("VSTREAM", "SYSTEM", "PROBE", "APP", "AUDIT"):
        monkeypatch.setenv(f"VSTREAM_PASSWORD_{user}", PASSWORD)
    with running(target, tmp_path, version) as site:
        walk = Walk(site, tmp_path)
        await asyncio.to_thread(site.install, walk.write(make_document()))
        walk.write(make_document())  # now it is known where they are
        await walk.apply()
        old, added, new = Load(20), Load(20, prefix="bar", tag="b"), Load(20, tag="n")
        async with publishing(walk, old, OLD):
            subjects = ("foo.>", "bar.>")
            await walk.change(make_document(subjects=subjects))  # a changed mapping
            async with publishing(walk, added, OLD):
                await walk.change(make_document(subjects=subjects, streams=("events",)))  # a new stream
                more = make_document(ALL, subjects=subjects, streams=("events",))  # a new region
                await asyncio.to_thread(site.install, walk.write(more))
                await walk.change(more)
                async with publishing(walk, new, ("north",)):
                    moved = make_document(ALL, subjects=subjects, streams=("events",), zone="b")
                    await walk.change(moved)  # a write stream that moves
        loads = (old, added, new)
        total = Load(0)
        total.acked = {str(number): load.everything for number, load in enumerate(loads)}
        total.unknown = set().union(*(load.unknown for load in loads))
        streams = {region: f"R_{region}/foo" for region in ALL}
        await check_contents(walk.endpoints("vstream", ALL), streams, total)
        refused = sum(sum(load.refused.values()) for load in loads)
        sys.stdout.write(
            f"{target} {version}: {len(total.everything):,} acknowledged, 0 lost, 0 doubled, "
            f"{refused} refused, {len(total.unknown)} without an answer, killed after: {walk.killed}\n"
        )
        assert all(walk.killed), walk.killed
        probed = await asyncio.to_thread(vstream, "probe", walk.file, "--each-server")
        assert probed.code == 0, probed.out + probed.err
