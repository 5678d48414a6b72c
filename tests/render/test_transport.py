"""TLS between rendered servers: they find each other by their certificates, and nobody else joins."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nats
import psutil
import pytest
import trustme

from tests.support.paths import CERTIFICATES
from tests.support.ports import free_port
from tests.support.rogue_server import OWN_CERTIFICATE, write_rogues
from vstream import resources
from vstream.lab import binaries
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.render.targets import render_target
from vstream.syntax import natsconf
from vstream.topology.bundle import placeholder_for
from vstream.topology.model import Routing
from vstream.topology.profiles import PROFILES
from vstream.topology.profiles.profile import Profile

PATIENCE = 60.0
LEAF_PASSWORD = "not-a-secret-in-a-test"
EACH_PROFILE = pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.routing.value)


def topology_text(routing: str, certificates: Path = CERTIFICATES) -> str:
    ports = {name: {port: free_port() for port in ("client", "monitor", "cluster", "gateway")} for name in "weh"}
    hubs = f"hubs: {{ports: {json.dumps(ports['h'])}}}\n" if PROFILES[Routing(routing)].has_domains else ""
    return (
        'version: 1\nname: acme\nserver_version: "2.15"\n'
        f"routing: {routing}\n"
        f"security: {{transport: {{cert_file: {certificates}/server.pem, key_file: {certificates}/server.key, "
        f"ca_file: {certificates}/ca.pem}}}}\n"
        f"{hubs}"
        "regions:\n"
        f"  west: {{servers: [127.0.0.1], ports: {json.dumps(ports['w'])}}}\n"
        f"  east: {{servers: [localhost], ports: {json.dumps(ports['e'])}}}\n"
        "streams: {orders: {subjects: [orders.>], write: {max_age: 24h}, read: {max_age: 30d}}}\n"
    )


class SuperCluster:
    """The servers of a rendered bundle, each a process of its own, on loopback."""

    def __init__(self, directory: Path, text: str, ca_file: Path = CERTIFICATES / "ca.pem") -> None:
        self.directory = directory
        self.ca_file = ca_file
        self.bundle = render_bundle(check_topology(text.encode(), "t.yaml").require())
        for address in self.bundle.servers:
            if address.is_hub and address.region == "east":
                self.moved = {f"localhost:{port}": f"localhost:{free_port()}" for port in ports_of(address)}
        for artifact in self.bundle.artifacts:
            self.write(artifact.path, artifact.text)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    moved: dict[str, str] = {}  # noqa: RUF012 - both hubs are on this machine, where they cannot have the same ports

    def write(self, path: str, text: str) -> None:
        for old, new in self.moved.items():
            text = text.replace(old, new)
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def start(self) -> None:
        hubs = {address.region: address for address in self.bundle.servers if address.is_hub}
        for path in ("passwords.cfg", "hub-passwords.cfg", "system-password.cfg"):
            self.write(path, (placeholder_for(path) or "").replace("$2a$11$none", LEAF_PASSWORD))
        for region in ("west", "east"):
            self.write(f"passwords-{region}.cfg", placeholder_for(f"passwords-{region}.cfg") or "")
            if region in hubs:
                self.write(
                    f"leaf-{region}.cfg", f'VSTREAM_LEAF: "tls://leaf:{LEAF_PASSWORD}@{hubs[region].leaf_address}"\n'
                )
        for address in sorted(self.bundle.servers, key=lambda server: not server.is_hub):
            self.run(address.server.name, self.directory / "servers" / f"{address.server.name}.conf")

    def run(self, name: str, configuration: Path) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [binaries.find_or_fetch(), "-c", configuration], cwd=self.directory, stdout=log, stderr=log
            )

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(timeout=20)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def ask(self, name: str, page: str) -> dict[str, Any]:
        """What the monitoring port of the server *name* says, over TLS."""
        text = (self.directory / "servers" / f"{name}.conf").read_text()
        where = text.split('https: "')[1].split('"')[0]
        context = ssl.create_default_context(cafile=self.ca_file)
        with urllib.request.urlopen(f"https://{where}/{page}", context=context, timeout=60) as answer:
            return dict(json.loads(answer.read()))

    def has_meta_leader(self) -> bool:
        return bool(self.ask("west-1", "jsz").get("meta_cluster", {}).get("leader"))

    def wait(self, is_true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError):
                if is_true():
                    return
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} ended: {self.log(name)}"
            assert time.monotonic() < deadline, f"{what} within {PATIENCE} s"
            time.sleep(0.05)


def ports_of(address: Any) -> tuple[int, ...]:
    return (address.client, address.monitor, address.cluster, address.gateway)


@contextmanager
def running(cluster: SuperCluster) -> Iterator[SuperCluster]:
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


HOST_TARGETS = ("files", "systemd", "compose")
ON_HOSTS = """\
version: 1
name: acme
server_version: "2.12"
security: {transport: {cert_file: /etc/nats/server.pem, key_file: /etc/nats/server.key, ca_file: /etc/nats/ca.pem}}
regions:
  west: {servers: [w1.example.net, w2.example.net, w3.example.net]}
  east: {servers: [e1.example.net, e2.example.net]}
streams: {orders: {subjects: [orders.>], write: {max_age: 24h}}}
"""


@pytest.mark.parametrize("target", HOST_TARGETS)
@EACH_PROFILE
def test_no_port_of_a_host_is_without_tls(profile: Profile, target: str) -> None:
    routing = f"routing: {profile.routing.value}\n" + ("account: ACME\n" if profile.has_physical_names else "")
    topology = check_topology((ON_HOSTS + routing).encode(), "t.yaml").require()
    artifacts = render_target(target, topology, render_bundle(topology), [resources.templates()])
    configurations = [artifact.text for artifact in artifacts if artifact.path.endswith(".conf")]
    assert len(configurations) == (7 if profile.has_domains else 5)
    for text in configurations:
        assert open_ports(text) == []
    without = [re.sub(r"(?m)^  tls \{[^}]*\}\n", "", text) for text in configurations]
    assert all(open_ports(text) for text in without), "or nothing is looked for"


def open_ports(text: str) -> list[str]:
    """The listeners of a server's configuration that take clear text, or connections of servers that show no certificate."""
    root = natsconf.parse(text, "x", include=lambda path, _: (path, placeholder_for(path) or "")).root
    configuration: dict[str, Any] = dict(natsconf.to_python(root))  # type: ignore[arg-type]
    clear: list[str] = [
        key for key in ("websocket", "mqtt", "http", "http_port", "monitor_port") if key in configuration
    ]
    clear += [] if "cert_file" in configuration.get("tls", {}) else ["listen"]
    for key in ("cluster", "gateway", "leafnodes"):
        block = configuration.get(key, {})
        if "listen" in block and not (block.get("tls", {}).get("cert_file") and block["tls"].get("verify") is True):
            clear.append(key)
    return clear


def send_in_clear(port: int) -> bytes:
    """What a port answers to somebody who speaks its protocol without TLS, until it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(b'CONNECT {"verbose":true,"server_id":"X","name":"x"}\r\nPING\r\nGET /varz HTTP/1.0\r\n\r\n')
        answer = b""
        with suppress(ConnectionError):
            while chunk := connection.recv(65_536):
                answer += chunk
    return answer


@pytest.mark.server
@pytest.mark.parametrize("certificate", [None, OWN_CERTIFICATE], ids=["without a certificate", "with one of its own"])
@EACH_PROFILE
def test_a_rogue_server_that_knows_no_secret_joins_nothing(
    tmp_path: Path, profile: Profile, certificate: tuple[Path, Path] | None
) -> None:
    with running(SuperCluster(tmp_path, topology_text(profile.routing.value))) as cluster:
        joined = next(address for address in cluster.bundle.servers if address.is_hub == profile.has_domains)
        peer = "hub-east" if profile.has_domains else "east"
        name = joined.server.name
        cluster.wait(
            lambda: peer in cluster.ask(name, "gatewayz")["outbound_gateways"], "the regions find each other over TLS"
        )
        leafs = 1 if profile.has_domains else 0
        cluster.wait(lambda: cluster.ask(name, "leafz")["leafnodes"] == leafs, "a region joins its hub over TLS")
        for rogue, configuration in write_rogues(tmp_path, joined, certificate).items():
            cluster.run(rogue, configuration)
        cluster.wait(lambda: len(re.findall("gid:.*TLS.* error", cluster.log(name))) >= 2, "it refuses a gateway")
        cluster.wait(lambda: cluster.log(name).count("TLS") >= 4, "the rogues are refused more than once")
        assert cluster.ask(name, "routez")["num_routes"] == 0
        assert cluster.ask(name, "leafz")["leafnodes"] == leafs
        gateways = cluster.ask(name, "gatewayz")
        assert set(gateways["outbound_gateways"]) == {peer}
        assert set(gateways["inbound_gateways"]) <= {peer}
        check_clear_text_is_refused(cluster)


def check_clear_text_is_refused(cluster: SuperCluster) -> None:
    """On every port that a server of the bundle listens on."""
    listening = set[int]()
    for address in cluster.bundle.servers:
        connections = psutil.Process(cluster.processes[address.server.name].pid).net_connections(kind="tcp")
        listening |= {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
    assert len(listening) >= 3 * len(cluster.bundle.servers)
    with ThreadPoolExecutor(len(listening)) as pool:
        for answer in pool.map(send_in_clear, listening):
            # With its line end: the random keys of an INFO have had these letters.
            assert b"PONG\r\n" not in answer
            assert b"+OK" not in answer
            assert b"200 OK" not in answer


@pytest.mark.parametrize("mode", ["nkeys", "certificates", "operator"])
@EACH_PROFILE
def test_what_is_between_servers_is_the_same_in_every_mode(profile: Profile, mode: str) -> None:
    """So what refuses a rogue server with passwords does so in every mode."""
    account = "account: ACME\n" if profile.has_physical_names and mode != "operator" else ""
    text = topology_text(profile.routing.value) + account
    changed_text = text.replace("security: {", f"security: {{mode: {mode}, ")
    if mode == "certificates":
        changed_text = changed_text.replace("ca_file: ", "client_ca_file: /etc/nats/users-ca.pem, ca_file: ", 1)
    assert between_servers(changed_text) == between_servers(text)
    every = between_servers(text)
    assert any(every.values())
    for blocks in every.values():
        assert all('"verify": true' in block for block in blocks)


def between_servers(text: str) -> dict[str, list[str]]:
    """By server, its blocks for routes, gateways and leaf nodes that have a port."""
    bundle = render_bundle(check_topology(text.encode(), "t.yaml").require())
    blocks: dict[str, list[str]] = {}
    for address in bundle.servers:
        source = bundle.text(f"servers/{address.server.name}.conf")
        root = natsconf.parse(source, "x", include=lambda path, _: (path, placeholder_for(path) or "")).root
        configuration: dict[str, Any] = dict(natsconf.to_python(root))  # type: ignore[arg-type]
        listening = (configuration.get(key, {}) for key in ("cluster", "gateway", "leafnodes"))
        blocks[address.server.name] = [json.dumps(block, sort_keys=True) for block in listening if "listen" in block]
    return blocks


@pytest.mark.server
def test_of_one_authority_only_certificates_with_the_name_of_servers_join(tmp_path: Path) -> None:
    """Not that of an application; a new region does, of which the others have not heard."""
    authority, servers = trustme.CA(), "servers.acme.example"
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name, hosts in (("server", ("127.0.0.1", "127.0.0.2", "localhost", servers)), ("app", ("app.acme.example",))):
        certificate = authority.issue_cert(*hosts)
        certificate.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        certificate.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    text = topology_text("accounts", tmp_path).replace("servers: [127.0.0.1]", "servers: [127.0.0.1, 127.0.0.2]")
    text = text.replace("transport: {", f"transport: {{peer_name: {servers}, ")
    ports = {port: free_port() for port in ("client", "monitor", "cluster", "gateway")}
    more = text.replace("streams:", f"  north: {{servers: [127.0.0.1], ports: {json.dumps(ports)}}}\nstreams:")
    after = render_bundle(check_topology(more.encode(), "t.yaml").require())
    with running(SuperCluster(tmp_path, text, tmp_path / "ca.pem")) as cluster:
        cluster.wait(lambda: "east" in cluster.ask("west-1", "gatewayz")["outbound_gateways"], "two regions are one")
        cluster.wait(lambda: "west-2" in list_routes(cluster, "west-1"), "two servers are one")
        stolen = (tmp_path / "app.pem", tmp_path / "app.key")
        for rogue, configuration in write_rogues(tmp_path, cluster.bundle.servers[0], stolen).items():
            cluster.run(rogue, configuration)
        for kind in ("rid", "gid"):
            refused = re.compile(rf"{kind}:\d+ - authentication error")
            cluster.wait(lambda: refused.search(cluster.log("west-1")) is not None, f"it refuses a {kind}")  # noqa: B023
        cluster.write("servers/north-1.conf", after.text("servers/north-1.conf"))
        cluster.run("north-1", tmp_path / "servers" / "north-1.conf")
        for name in ("west-1", "east-1"):
            cluster.wait(
                lambda: "north" in cluster.ask(name, "gatewayz")["outbound_gateways"],  # noqa: B023
                "the new region joins",
            )
            gateways = cluster.ask(name, "gatewayz")
            assert {*gateways["outbound_gateways"], *gateways["inbound_gateways"]} <= {"west", "east", "north"}
        assert list_routes(cluster, "west-1") == {"west-2"}


def list_routes(cluster: SuperCluster, name: str) -> set[str]:
    """The servers that *name* has routes to."""
    return {route["remote_name"] for route in cluster.ask(name, "routez")["routes"] or ()}


@pytest.mark.server
def test_a_cluster_that_is_not_in_the_configuration_joins_only_where_that_is_allowed(tmp_path: Path) -> None:
    """With a certificate of the authority, as of a new region."""
    text = topology_text("mapped").replace("transport: {", "transport: {reject_unknown_cluster: true, ")
    ports = {port: free_port() for port in ("client", "monitor", "cluster", "gateway")}
    more = text.replace("streams:", f"  north: {{servers: [127.0.0.1], ports: {json.dumps(ports)}}}\nstreams:")
    with running(SuperCluster(tmp_path / "before", text)) as cluster:
        cluster.wait(lambda: "east" in cluster.ask("west-1", "gatewayz")["outbound_gateways"], "two regions are one")
        after = SuperCluster(tmp_path / "after", more)
        directory, cluster.directory = cluster.directory, after.directory
        cluster.run("north-1", after.directory / "servers" / "north-1.conf")
        cluster.directory = directory
        cluster.wait(
            lambda: 'Rejecting connection from gateway "north"' in cluster.log("west-1"), "the west refuses it"
        )
        assert set(cluster.ask("west-1", "gatewayz")["outbound_gateways"]) == {"east"}
        assert set(cluster.ask("west-1", "gatewayz")["inbound_gateways"]) <= {"east"}


@pytest.mark.server
def test_clients_and_monitoring_are_encrypted(tmp_path: Path) -> None:
    with running(SuperCluster(tmp_path, topology_text("mapped"))) as cluster:
        address = cluster.bundle.servers[0]
        cluster.wait(lambda: "now" in cluster.ask(address.server.name, "varz"), "monitoring answers by https")

        async def ask(context: ssl.SSLContext | None) -> int:
            client = await nats.connect(
                f"tls://{address.host}:{address.client}", tls=context, allow_reconnect=False, connect_timeout=60
            )
            await client.flush()
            await client.close()
            return 1

        assert asyncio.run(ask(ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")))
        with pytest.raises(ssl.SSLError):
            asyncio.run(ask(ssl.create_default_context()))


@contextmanager
def publishing(cluster: SuperCluster) -> Iterator[None]:
    """Publish to a stream in the west, one message after the other: none is refused, and the stream holds them all."""
    address = next(address for address in cluster.bundle.servers if address.server.name == "west-1")
    is_over = threading.Event()

    async def publish() -> None:
        client = await nats.connect(
            address.client_url, tls=ssl.create_default_context(cafile=cluster.ca_file), allow_reconnect=False
        )
        js = client.jetstream(timeout=PATIENCE)
        await js.add_stream(name="published", subjects=["published"])
        count = 0
        while not is_over.is_set() or count == 0:
            await js.publish("published", b"")
            count += 1
        info = await js.stream_info("published")
        assert info.state.messages == count
        await client.close()

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(asyncio.run, publish())
        try:
            yield
        finally:
            is_over.set()
        work.result()


@pytest.mark.server
def test_a_new_region_joins_without_a_change_to_the_others(tmp_path: Path) -> None:
    text = topology_text("mapped")
    ports = {port: free_port() for port in ("client", "monitor", "cluster", "gateway")}
    more = text.replace("streams:", f"  north: {{servers: [127.0.0.1], ports: {json.dumps(ports)}}}\nstreams:")
    with running(SuperCluster(tmp_path / "before", text)) as cluster:
        cluster.wait(lambda: "east" in cluster.ask("west-1", "gatewayz")["outbound_gateways"], "two regions are one")
        cluster.wait(cluster.has_meta_leader, "streams can be created")
        after = SuperCluster(tmp_path / "after", more)
        with publishing(cluster):
            cluster.directory = after.directory  # the new region's files; those of the others are the same as before
            cluster.run("north-1", after.directory / "servers" / "north-1.conf")
            cluster.wait(lambda: "north" in cluster.ask("west-1", "gatewayz")["outbound_gateways"], "it joins the west")
            cluster.wait(lambda: "north" in cluster.ask("east-1", "gatewayz")["outbound_gateways"], "it joins the east")


@pytest.mark.server
def test_certificates_are_rotated_by_a_reload(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    def issue() -> str:
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        certificate.private_key_pem.write_to_path(tmp_path / "server.key")
        certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
        return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert((tmp_path / "server.pem").read_text()))

    def read_certificate(port: int) -> str:
        return ssl.get_server_certificate(("127.0.0.1", port), ca_certs=str(tmp_path / "ca.pem"))

    first = issue()
    with running(SuperCluster(tmp_path, topology_text("mapped", tmp_path), tmp_path / "ca.pem")) as cluster:
        monitors = [address.monitor for address in cluster.bundle.servers]
        cluster.wait(lambda: "east" in cluster.ask("west-1", "gatewayz")["outbound_gateways"], "two regions are one")
        assert {read_certificate(port) for port in monitors} == {first}
        cluster.wait(cluster.has_meta_leader, "streams can be created")
        with publishing(cluster):
            second = issue()
            for process in cluster.processes.values():
                process.send_signal(signal.SIGHUP)
            cluster.wait(
                lambda: {read_certificate(port) for port in monitors} == {second}, "the new certificate is shown"
            )
        cluster.wait(lambda: "east" in cluster.ask("west-1", "gatewayz")["outbound_gateways"], "they stay one")
