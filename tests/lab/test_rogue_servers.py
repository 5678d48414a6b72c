"""A real rogue server against real labs, in every profile and every mode: it joins nothing."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.support.command import vstream
from tests.support.labs import processes_in
from tests.support.rogue_server import OWN_CERTIFICATE, write_rogues
from vstream.jetstream import monitoring
from vstream.jetstream.keyring import Keyring
from vstream.lab.binaries import find_or_fetch
from vstream.lab.endpoints import list_addresses
from vstream.lab.state import lab_directory
from vstream.lint.check_topology import check_topology
from vstream.render import account_view
from vstream.topology.model import Security, Topology
from vstream.topology.profiles import PROFILES
from vstream.topology.profiles.profile import Profile

pytestmark = [pytest.mark.lab, pytest.mark.night]
"""The short form, with passwords, is in `tests/render/test_transport.py`."""

LAB = "besieged"
PATIENCE = 60.0


@contextmanager
def run_besieged(directory: Path, profile: Profile, mode: str) -> Iterator[None]:
    """A running lab that speaks TLS."""
    account = "account: ACME\n" if profile.has_physical_names and mode != "operator" else ""
    file = directory / "besieged.yaml"
    file.write_text(
        f'version: 1\nname: {LAB}\nserver_version: "2.12"\nrouting: {profile.routing.value}\n'
        f"{account}security: {{mode: {mode}}}\n"
        "regions: {west: {servers: 2}, east: {servers: 1}}\ndefaults: {write: {max_age: 1h}}\n"
        "streams: {foo: {subjects: [foo.>]}}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSTREAM_STATE_DIR", str(directory / "state"))
        patch.setenv("VSTREAM_KEYS", str(directory / "keys"))
        topology = check_topology(file.read_bytes(), str(file)).require()
        if topology.security is Security.CERTIFICATES:
            issue_certificates(topology, directory / "keys" / LAB)
        try:
            ran = vstream("lab", "up", file, "--tls")
            assert ran.code == 0, ran.err
            yield
        finally:
            vstream("lab", "down", LAB, "--purge")
    assert processes_in(directory) == []


def issue_certificates(topology: Topology, files: Path) -> None:
    """Certificates of all users and of the servers: they are the user's, and vstream makes none."""
    authority = trustme.CA()
    files.mkdir(parents=True)
    authority.cert_pem.write_to_path(files / "ca.pem")
    server = authority.issue_cert("127.0.0.1", "localhost")
    server.cert_chain_pems[0].write_to_path(files / "server.pem")
    server.private_key_pem.write_to_path(files / "server.key")
    for user in account_view.index_users(topology):
        certificate, key = Keyring(files).certificate_paths(user)
        issued = authority.issue_cert(user)
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
    for secret in files.glob("*.key"):
        secret.chmod(0o600)


async def list_neighbours() -> dict[str, Any]:
    """Who every server of the lab is connected to, by its address."""
    neighbours: dict[str, Any] = {}
    for address in list_addresses(LAB):
        ask = address.monitor_url
        routes = (await monitoring.get(ask, "/routez"))["routes"] or []
        gateways = await monitoring.get(ask, "/gatewayz")
        leafs = (await monitoring.get(ask, "/leafz")).get("leafs") or []
        neighbours[address.server.name] = (
            {route["remote_name"] for route in routes},
            {*gateways.get("outbound_gateways", ()), *gateways.get("inbound_gateways", ())},
            {leaf["name"] for leaf in leafs},
        )
    return neighbours


def count_refusals(log: Path) -> tuple[int, int]:
    """How often TLS was refused: to gateways, and to all."""
    text = log.read_text()
    return len(re.findall("gid:.*TLS", text)), text.count("TLS")


@contextmanager
def run_rogue(configuration: Path) -> Iterator[None]:
    with configuration.with_suffix(".log").open("wb") as output:
        rogue = subprocess.Popen([find_or_fetch(), "-c", configuration], stdout=output, stderr=output)
    try:
        yield
        assert rogue.poll() is None, configuration.with_suffix(".log").read_text()
    finally:
        rogue.kill()
        rogue.wait()


@pytest.mark.parametrize("mode", [mode.value for mode in Security])
@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.routing.value)
def test_a_rogue_server_that_knows_no_secret_joins_no_lab(tmp_path: Path, profile: Profile, mode: str) -> None:
    with run_besieged(tmp_path, profile, mode):
        authority = str(lab_directory(LAB).certificates / "ca.pem")
        monitoring.trust_ca([address.monitor_url for address in list_addresses(LAB)], authority)
        names = {address.server.name for address in list_addresses(LAB)}
        peers = [address for address in list_addresses(LAB) if address.region == "west"]
        for peer in peers:
            log = lab_directory(LAB).log / f"{peer.server.name}.log"
            for certificate in (None, OWN_CERTIFICATE):
                has_gateway = not profile.has_domains or peer.is_hub
                gateways, refusals = count_refusals(log)
                expected = (gateways + 2 * has_gateway, refusals + 2)
                with ExitStack() as stack:
                    for configuration in write_rogues(tmp_path, peer, certificate).values():
                        stack.enter_context(run_rogue(configuration))
                    deadline = time.monotonic() + PATIENCE
                    while any(count < number for count, number in zip(count_refusals(log), expected, strict=True)):
                        assert time.monotonic() < deadline, log.read_text()
                        time.sleep(0.05)
                    neighbours = asyncio.run(list_neighbours())
                joined = [name for routes, _, leafs in neighbours.values() for name in (*routes, *leafs)]
                assert "rogue" not in joined
                assert names.issuperset(joined), neighbours
