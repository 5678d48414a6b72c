"""
What the official NATS chart makes of values, and its pods as processes on loopback.

`make_configuration` is our model of the chart 2.14.2. `scripts/check-targets` holds it against the real one, and runs the pods of that.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import CERTIFICATES
from tests.support.ports import free_port
from vstream.lab import binaries
from vstream.topology.bundle import Artifact, loaded_path, placeholder_for
from vstream.topology.model import Seat, Security, Topology

PASSWORD = "not-a-secret-in-a-test"
_PATIENCE = 60.0
INCLUDE = "$include"
_TLS = {"cert_file": "server.pem", "key_file": "server.key", "ca_file": "ca.pem"}
_PORTS = ("client", "monitor", "cluster", "gateway")


def make_configuration(values: Mapping[str, Any], namespace: str = "nats") -> dict[str, Any]:
    """`nats.conf` as plain data; what it includes is at INCLUDE."""
    config, pods = values["config"], values["fullnameOverride"]
    has_ca = values.get("tlsCA", {}).get("enabled", False)
    made: dict[str, Any] = {
        "lame_duck_duration": "30s",
        "lame_duck_grace_period": "10s",
        "pid_file": "/var/run/nats/nats.pid",
        "port": 4222,
        "server_name": "$SERVER_NAME",
    }
    if config.get("nats", {}).get("tls", {}).get("enabled"):
        made["tls"] = _tls("nats", config["nats"]["tls"], has_ca)
    made["https_port" if config.get("monitor", {}).get("tls", {}).get("enabled") else "http_port"] = 8222
    if config["cluster"]["enabled"]:
        made["cluster"] = _cluster(config["cluster"], f"{pods}-headless.{namespace}.svc.cluster.local", pods, has_ca)
    if config.get("gateway", {}).get("enabled"):
        made["gateway"] = {"port": config["gateway"]["port"], **_with_tls("gateway", config["gateway"], has_ca)}
    if config.get("resolver", {}).get("enabled"):
        made["resolver"] = {"dir": config["resolver"]["dir"], **config["resolver"]["merge"]}
    jetstream = config["jetstream"]
    made["jetstream"] = {
        "store_dir": "/data",
        "max_file_store": int(jetstream["fileStore"]["maxSize"]),
        "max_memory_store": int(jetstream["memoryStore"]["maxSize"]),
        **jetstream.get("merge", {}),
    }
    return {**made, **config["merge"]}


def _cluster(cluster: Mapping[str, Any], domain: str, pods: str, has_ca: bool) -> dict[str, Any]:
    scheme = "tls" if cluster.get("tls", {}).get("enabled") else "nats"
    return {
        "port": cluster.get("port", 6222),
        "no_advertise": True,
        "routes": [f"{scheme}://{pods}-{number}.{domain}:6222" for number in range(cluster["replicas"])],
        **_with_tls("cluster", cluster, has_ca),
    }


def _with_tls(name: str, section: Mapping[str, Any], has_ca: bool) -> dict[str, Any]:
    tls = {"tls": _tls(name, section["tls"], has_ca)} if section.get("tls", {}).get("enabled") else {}
    return {**tls, **section.get("merge", {})}


def _tls(name: str, tls: Mapping[str, Any], has_ca: bool) -> dict[str, Any]:
    files = {key: f"/etc/nats-certs/{name}/tls.{end}" for key, end in (("cert_file", "crt"), ("key_file", "key"))}
    ca = {"ca_file": "/etc/nats-ca-cert/ca.crt"} if has_ca else {}
    return {**files, **ca, **tls.get("merge", {})}


def read_configuration(text: str) -> dict[str, Any]:
    """The `nats.conf` *text* that the real chart has made, as `make_configuration` gives it."""
    include = re.search(r"^ *include ([^;]+);\n", text, re.MULTILINE)
    assert include is not None, text
    plain = text.replace(include[0], "")
    return {**json.loads(re.sub(r": (\$\w+)", r': "\1"', plain)), INCLUDE: include[1].strip('"')}


def read_releases(artifacts: Iterable[Artifact]) -> dict[str, dict[str, Any]]:
    """The values of each release: of a region by its name, of a member of the stretch cluster as `REGION/CLUSTER`."""
    values = [artifact for artifact in artifacts if artifact.path.endswith("values.yaml")]
    return {
        artifact.path.removesuffix("values.yaml").rstrip("/-"): yaml.safe_load(artifact.text) for artifact in values
    }


class Pods:
    """The pods of all releases, each a process on loopback: addresses and files of Kubernetes are replaced by those of here."""

    def __init__(self, directory: Path, topology: Topology, configurations: Mapping[str, Mapping[str, Any]]) -> None:
        self.directory = directory
        self.ports: dict[str, dict[str, int]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.install(topology, configurations)

    def install(self, topology: Topology, configurations: Mapping[str, Mapping[str, Any]]) -> None:
        """The pods of releases that are new in *topology*: nothing of another changes."""
        self.topology = topology
        new = [seat for seat in topology.seats if seat.server.name not in self.ports]
        ports: set[int] = set()
        while len(ports) < len(_PORTS) * len(new):
            ports.add(free_port())  # one that is drawn twice is free both times
        self.ports |= {seat.server.name: {port: ports.pop() for port in _PORTS} for seat in new}
        for seat in new:
            release = f"{seat.region}/{seat.cluster}" if seat.is_stretch else seat.region
            self._write(seat.server.name, seat, configurations[release])

    def connect(self) -> dict[str, Any]:
        """`connect` of a topology, for its user `vstream`."""
        mode, tls = self.topology.security, {"ca": str(CERTIFICATES / "ca.pem")}
        login = {"user": "vstream", "password_env": "VSTREAM_PASSWORD_VSTREAM"}
        if mode is Security.OPERATOR:
            login = {"creds": f"{os.environ['VSTREAM_KEYS']}/{self.topology.name}/user-vstream.creds"}
        elif mode is Security.CERTIFICATES:
            login = {}
            tls |= {"cert": str(CERTIFICATES / "user-vstream.pem"), "key": str(CERTIFICATES / "user-vstream.key")}
        connect = {}
        for region in self.topology.regions:
            names = [server.name for server in region.servers]
            seats = [seat.server.name for seat in self.topology.seats if seat.region == region.name]
            connect[region.name] = {
                "urls": [f"tls://127.0.0.1:{self.ports[name]['client']}" for name in names],
                **login,
                "tls": tls,
                "monitor": [f"https://127.0.0.1:{self.ports[name]['monitor']}" for name in seats],
            }
        return connect

    def ship(self, text: str) -> None:
        """Put *text* where pods have the ConfigMap mounted."""
        for server in self.ports:
            (self.directory / server / "nats-vstream" / loaded_path(self.topology)).write_text(text)

    def start(self, version: str | None = None) -> None:
        binary = binaries.find_or_fetch(version)
        for server in self.ports.keys() - self.processes.keys():
            pod_directory = self.directory / server
            with (pod_directory / "log").open("wb") as log:
                self.processes[server] = subprocess.Popen(
                    [binary, "-c", pod_directory / "nats-config" / "nats.conf"],
                    cwd=pod_directory,
                    stdout=log,
                    stderr=log,
                )

    def wait_until_ready(self) -> None:
        """As the chart's startup probe does: every pod has joined JetStream."""
        deadline = time.monotonic() + _PATIENCE
        context = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
        for server, process in self.processes.items():
            while True:
                with suppress(OSError):
                    url = f"https://127.0.0.1:{self.ports[server]['monitor']}/healthz"
                    with urllib.request.urlopen(url, context=context, timeout=_PATIENCE):
                        break
                log = (self.directory / server / "log").read_text()
                assert process.poll() is None, f"{server} has ended: {log}"
                assert time.monotonic() < deadline, f"{server} is not ready: {log}"
                time.sleep(0.05)

    def reload(self, server: str) -> None:
        """As the chart's sidecar does. Returns once it has taken what is there."""
        before = self._count_loads(server)
        self.processes[server].send_signal(signal.SIGHUP)
        deadline = time.monotonic() + _PATIENCE
        while self._count_loads(server) == before:
            assert time.monotonic() < deadline, (self.directory / server / "log").read_text()
            time.sleep(0.05)

    def _count_loads(self, server: str) -> int:
        return (self.directory / server / "log").read_text().count("Reloaded server configuration")

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(timeout=20)

    def _write(self, server: str, seat: Seat, configuration: Mapping[str, Any]) -> None:
        pod_directory, ports = self.directory / server, self.ports[server]
        local = {
            **configuration,
            "server_name": server,
            "host": "127.0.0.1",
            "port": ports["client"],
            "pid_file": str(pod_directory / "nats.pid"),
            "jetstream": {**configuration["jetstream"], "store_dir": str(pod_directory / "data")},
        }
        local["jetstream"].update(max_file_store=1 << 30, max_memory_store=1 << 28)
        monitor = next(key for key in ("https_port", "http_port") if key in local)
        local[monitor] = ports["monitor"]
        if "resolver" in local:
            local["resolver"] = {**configuration["resolver"], "dir": str(pod_directory / "data" / "accounts")}
        servers = [peer.server.name for peer in self.topology.seats if peer.cluster == seat.cluster]
        if "cluster" in local:
            routes = [url.partition("://")[0] for url in configuration["cluster"]["routes"]]
            urls = [
                f"{scheme}://127.0.0.1:{self.ports[peer]['cluster']}"
                for scheme, peer in zip(routes, servers, strict=True)
            ]
            local["cluster"] = {
                **configuration["cluster"],
                "host": "127.0.0.1",
                "port": ports["cluster"],
                "routes": urls,
            }
        if "gateway" in local:
            local["gateway"] = self._gateway(configuration["gateway"], ports["gateway"])
        for section in (local, local.get("cluster", {}), local.get("gateway", {})):
            if "tls" in section:
                files = {
                    key: str(CERTIFICATES / _TLS[key]) for key in section["tls"] if key in _TLS
                }  # one authority for all
                section["tls"] = {**section["tls"], **files}
        include = local.pop(INCLUDE)
        config = pod_directory / "nats-config" / "nats.conf"
        config.parent.mkdir(parents=True)
        config.write_text(
            f'include "{include}"\n' + "\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in local.items())
        )
        (pod_directory / "nats-vstream").mkdir()
        for file in ("passwords.cfg", "system-password.cfg"):
            text = (placeholder_for(file) or "").replace("$2a$11$none", PASSWORD)
            (pod_directory / "nats-vstream" / file).write_text(text)

    def _gateway(self, gateway: Mapping[str, Any], port: int) -> dict[str, Any]:
        """A load balancer is all pods behind it; a pod says where it is itself."""
        gateways = []
        for remote in gateway["gateways"]:
            scheme = remote["urls"][0].partition("://")[0]
            hosts = {url.partition("://")[2].partition(":")[0] for url in remote["urls"]}
            servers = [seat.server for seat in self.topology.seats if seat.cluster == remote["name"]]
            behind = [server.name for server in servers if server.host is None or server.host in hosts]
            urls = [f"{scheme}://127.0.0.1:{self.ports[name]['gateway']}" for name in behind]
            gateways.append({**remote, "urls": urls})
        return {
            **gateway,
            "host": "127.0.0.1",
            "port": port,
            "advertise": f"127.0.0.1:{port}",
            "gateways": gateways,
        }


@contextmanager
def running_pods(pods: Pods, text: str, version: str | None = None) -> Iterator[Pods]:
    """*pods* with *text* shipped, until the end of the block."""
    pods.ship(text)
    try:
        pods.start(version)
        pods.wait_until_ready()
        yield pods
    finally:
        pods.stop()
        shutil.rmtree(pods.directory, ignore_errors=True)
