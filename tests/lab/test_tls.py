"""A lab that speaks TLS on every port: every command works there, with nothing to configure, and nobody else gets in."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
from asyncio.subprocess import DEVNULL
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest

from tests.support.command import Ran, vstream
from tests.support.labs import processes_in
from tests.support.ports import free_port
from vstream.audit.connector.client import connect as audit_client
from vstream.audit.extract.server_access import make_local_access
from vstream.errors import ServerError
from vstream.jetstream import monitoring
from vstream.lab.binaries import find_or_fetch
from vstream.lab.endpoints import list_addresses, list_client_endpoints, list_endpoints
from vstream.lab.readiness import trust_monitors
from vstream.lab.state import lab_directory
from vstream.topology.accounts import AUDIT_USER

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("tls")]

LAB = "sealed"
# Of all kinds of ports there are some: routes in the west, leaf nodes and gateways between all, clients, monitoring.
TOPOLOGY = """\
version: 1
name: sealed
server_version: "2.12"
routing: domains
roots: [v.>]
regions: {west: {servers: 2}, east: {servers: 1}}
defaults: {write: {max_age: 1h}}
streams:
  foo: {subjects: [v.foo.>], canary: v.foo._canary.*, replicas: 1}
"""


@pytest.fixture(scope="module")
def sealed_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The topology of a running lab, applied."""
    directory = tmp_path_factory.mktemp("tls")
    file = directory / "sealed.yaml"
    file.write_text(TOPOLOGY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSTREAM_STATE_DIR", str(directory / "state"))
        try:
            run("lab", "up", file, "--tls")
            run("apply", file, "--yes")
            yield file
        finally:
            vstream("lab", "down", LAB, "--purge")
    assert processes_in(directory) == []


def run(*arguments: str | Path, code: int = 0) -> Ran:
    ran = vstream(*arguments)
    assert ran.code == code, f"{arguments}\n{ran.out}\n{ran.err}"
    return ran


def test_commands_find_the_authority_by_themselves(sealed_file: Path) -> None:
    run("plan", sealed_file, "--detailed-exitcode")
    run("plan", "--drift", sealed_file)
    # Sources have not heard each other at once after `apply`; where a probe has arrived, they have.
    run("probe", sealed_file)
    run("status", sealed_file)
    run("doctor", sealed_file)
    run("export", sealed_file, "--once")
    shown: dict[str, Any] = json.loads(run("lab", "status", LAB, "--format", "json").out)["labs"][0]
    assert {server["url"].partition(":")[0] for server in shown["servers"]} == {"tls"}
    assert {server["monitor"].partition(":")[0] for server in shown["servers"]} == {"https"}


def test_the_client_of_the_audit_finds_it_too(sealed_file: Path, tmp_path: Path) -> None:
    for region, endpoint in list_endpoints(LAB, AUDIT_USER).items():
        with audit_client(make_local_access(endpoint, region, tmp_path)) as reader:
            assert isinstance(reader._socket, ssl.SSLSocket)


@pytest.mark.night
def test_servers_are_killed_restarted_and_cut_off_as_in_any_lab(sealed_file: Path) -> None:
    def chaos(*arguments: str) -> None:
        run("chaos", *arguments, "--topology", sealed_file)

    chaos("kill-region", "east")
    run("chaos", "heal", "--lab", LAB)
    chaos("isolate", "east")
    run("chaos", "heal", "--lab", LAB)
    chaos("rolling-restart", "west")
    run("repair", "sources", sealed_file)
    run("probe", sealed_file)


async def test_nothing_is_said_in_clear(sealed_file: Path) -> None:
    endpoint = list_client_endpoints(LAB)["west"]
    login: dict[str, Any] = {"user": endpoint.user, "password": endpoint.password}
    for address in list_addresses(LAB):
        with pytest.raises(ServerError, match="the server speaks TLS, write `https://`"):
            await monitoring.get(f"http://{address.host}:{address.monitor}", "/varz")
        with pytest.raises((ssl.SSLError, nats.errors.Error, OSError)):
            await nats.connect(
                address.client_url.replace("tls:", "nats:"),
                allow_reconnect=False,
                error_cb=_ignore,
                tls=ssl.create_default_context(),
                **login,
            )


async def test_a_server_without_its_key_joins_nothing(sealed_file: Path, tmp_path: Path) -> None:
    address = next(address for address in list_addresses(LAB) if address.server.name == "west-2")
    log = lab_directory(LAB).log / "west-2.log"
    conf = tmp_path / "rogue.conf"
    conf.write_text(
        f'server_name: rogue\nlisten: "127.0.0.1:{free_port()}"\n'
        f'cluster {{ name: west, listen: "127.0.0.1:{free_port()}", routes: ["nats://127.0.0.1:{address.cluster}"] }}\n'
    )
    before = log.read_text().count("TLS route handshake error")
    rogue = await asyncio.create_subprocess_exec(find_or_fetch(), "-c", conf, stdout=DEVNULL, stderr=DEVNULL)
    try:
        async with asyncio.timeout(60):
            while log.read_text().count("TLS route handshake error") == before:
                await asyncio.sleep(0.05)
    finally:
        rogue.kill()
        await rogue.wait()
    trust_monitors(list_addresses(LAB))
    assert await monitoring.list_routed_servers(list_endpoints(LAB)["west"].monitor[1]) == {"west-1"}


def test_the_authority_can_sign_nothing_else_and_keys_are_private(sealed_file: Path) -> None:
    directory = lab_directory(LAB)
    files = {path.name: path for path in directory.certificates.iterdir()}
    assert files.keys() == {"ca.pem", "server.pem", "server.key"}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files.values())
    assert stat.S_IMODE(directory.certificates.stat().st_mode) == 0o700
    holders = [path for path in directory.path.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert holders == [files["server.key"]]


def test_a_lab_keeps_what_it_speaks(sealed_file: Path) -> None:
    ran = run("lab", "up", sealed_file, "--no-tls", code=3)
    assert "lab `sealed` runs, and speaks TLS" in ran.err
    certificate = (lab_directory(LAB).certificates / "server.pem").read_bytes()
    run("lab", "down", LAB)
    run("lab", "up", sealed_file)
    assert {endpoint.urls[0].partition(":")[0] for endpoint in list_endpoints(LAB).values()} == {"tls"}
    assert (lab_directory(LAB).certificates / "server.pem").read_bytes() == certificate
    run("plan", sealed_file, "--detailed-exitcode")  # a probe waits for sources, for 30 to 40 s with TLS and without


@pytest.mark.night
def test_a_new_region_joins_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a lab of its own: other tests want the regions of theirs."""
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "state"))
    file = tmp_path / "growing.yaml"
    file.write_text(TOPOLOGY)
    try:
        run("lab", "up", file, "--tls")
        run("apply", file, "--yes")
        file.write_text(TOPOLOGY.replace("east: {servers: 1}", "east: {servers: 1}, north: {servers: 1}"))
        run("lab", "up", file)
        run("apply", file, "--yes")
        run("repair", "sources", file)
        run("probe", file)
    finally:
        vstream("lab", "down", LAB, "--purge")


@pytest.mark.night
@pytest.mark.spark
async def test_all_messages_are_audited_over_tls(sealed_file: Path) -> None:
    """Short form: the audit's client alone, above."""
    endpoint = list_client_endpoints(LAB)["west"]
    client = await nats.connect(
        endpoint.urls[0],
        user=endpoint.user,
        password=endpoint.password,
        tls=ssl.create_default_context(cafile=lab_directory(LAB).certificates / "ca.pem"),
    )
    for number in range(10):
        await client.jetstream(timeout=30).publish(f"v.foo.{number}", b"")
    await client.close()
    await asyncio.to_thread(run, "repair", "sources", sealed_file, "--wait-only")
    audited = await asyncio.to_thread(run, "audit", sealed_file)
    assert "every region holds every message" in audited.out


async def _ignore(_: Exception) -> None:
    """The library logs a traceback where nobody listens."""
