"""Pushing accounts to one server in operator mode: what is said where it does not work."""

from __future__ import annotations

import copy
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.ports import free_port
from tests.support.probe_lab import until
from vstream.apply import push_accounts
from vstream.apply.push_accounts import SignedAccounts, read_loaded_claims
from vstream.errors import NotReachableError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.connection import connect
from vstream.jetstream.keyring import Keyring
from vstream.lab import binaries
from vstream.lint.check_topology import check_topology
from vstream.plan.live.loaded_rules import read_loaded_rules
from vstream.plan.model import USERS
from vstream.plan.rules import list_account_entries, spell_destinations
from vstream.render.claims import make_digest_export
from vstream.render.pipeline import render_bundle
from vstream.topology.bundle import Bundle
from vstream.topology.model import Endpoint, Topology
from vstream.topology.server_address import ServerAddress
from vstream.topology.signing import account_key

pytestmark = pytest.mark.server

TOPOLOGY = """\
version: 1
name: alone
server_version: "2.12"
routing: accounts
security: {mode: operator}
regions: {west: {servers: 1}}
defaults: {write: {max_age: 1h}}
streams: {foo: {subjects: [foo.>]}}
"""


class Running(NamedTuple):
    topology: Topology
    ring: Keyring
    bundle: Bundle
    urls: tuple[str, ...]
    monitor: str

    def admin(self, *, servers: tuple[str, ...] = ("west-1",), bundle: Bundle | None = None) -> SignedAccounts:
        used = bundle or self.bundle
        system = Endpoint(urls=self.urls, creds=str(self.ring.credentials_path("system")))
        return SignedAccounts(used.claims, self.ring, system={"west": system}, servers=servers, monitors=[self.monitor])


def start_server(directory: Path) -> subprocess.Popen[bytes]:
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            [binaries.find_or_fetch(), "-c", directory / "conf" / "servers" / "west-1.conf"], stdout=log, stderr=log
        )


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    topology = check_topology(TOPOLOGY.encode(), "alone.yaml").require()
    ring = Keyring(tmp_path / "keys")
    ring.ensure_keys(topology)
    client, monitor, cluster, gateway = (free_port() for _ in range(4))
    address = ServerAddress(
        server=topology.regions[0].servers[0],
        region="west",
        cluster_name="west",
        host="127.0.0.1",
        client=client,
        monitor=monitor,
        cluster=cluster,
        gateway=gateway,
        store_dir=str(tmp_path / "data"),
    )
    rendered = render_bundle(topology, addresses=[address], signer=ring)
    for artifact in rendered.artifacts:
        path = tmp_path / "conf" / artifact.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(artifact.text)
    process = start_server(tmp_path)
    url = f"http://127.0.0.1:{monitor}"

    async def silent() -> str | None:
        try:
            return await monitoring.find_health_problem(url)
        except NotReachableError as error:
            return str(error)

    try:
        await until(silent)
        yield Running(topology, ring, rendered, (f"nats://127.0.0.1:{client}",), url)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(tmp_path / "data")


@pytest.mark.asyncio
async def test_what_is_pushed_is_loaded_and_what_is_there_is_not_pushed_again(running: Running) -> None:
    grown = TOPOLOGY.replace("foo: {", "bar: {subjects: [bar.>]}, foo: {")
    bundle = render_bundle(check_topology(grown.encode(), "alone.yaml").require(), signer=running.ring)
    await running.admin(bundle=bundle).ensure_loaded()
    for claim in bundle.claims:
        if claim["name"] != "SYS":
            loaded = await read_loaded_claims(running.monitor, claim["sub"], 5)
            assert loaded is not None
            assert make_digest_export(loaded) == make_digest_export(claim)
    before = [await read_loaded_claims(running.monitor, claim["sub"], 5) for claim in bundle.claims]
    await running.admin(bundle=bundle).ensure_loaded()
    assert [await read_loaded_claims(running.monitor, claim["sub"], 5) for claim in bundle.claims] == before


@pytest.mark.asyncio
async def test_what_a_server_has_loaded_is_compared_with_the_topology(running: Running) -> None:
    bundle = running.bundle
    desired = {
        **{mapping.source: spell_destinations(mapping) for mapping in bundle.mappings},
        **list_account_entries(bundle.accounts),
    }
    clients = running.ring.public_key(account_key("APP"))
    assert await read_loaded_rules(running.monitor, clients, (), 5) == desired
    # Somebody lets applications publish everything, which no rule, export or import shows.
    changed = copy.deepcopy(bundle.claims)
    claimed = next(claim for claim in changed if claim["name"] == "APP")
    claimed["nats"]["signing_keys"][0]["template"]["pub"] = {"allow": [">"]}
    await running.admin(bundle=replace(bundle, claims=changed)).ensure_loaded()
    loaded = await read_loaded_rules(running.monitor, clients, (), 5)
    assert {key for key in desired.keys() | loaded.keys() if loaded.get(key) != desired.get(key)} == {USERS}
    await running.admin().ensure_loaded()
    assert await read_loaded_rules(running.monitor, clients, (), 5) == desired


@pytest.mark.asyncio
async def test_a_server_that_does_not_confirm_is_named(running: Running) -> None:
    with pytest.raises(VstreamError, match="was not confirmed by east-1"):
        await running.admin(servers=("west-1", "east-1")).ensure_loaded()


@pytest.mark.asyncio
async def test_tokens_of_another_operator_are_not_loaded(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_accounts, "_LOADED_TIMEOUT", 1)
    good = running.bundle
    foreign_ring = Keyring(tmp_path / "other")
    foreign_ring.ensure_keys(running.topology)
    trusted = Path(shutil.copytree(running.ring.directory, tmp_path / "trusted"))
    # The same accounts, signed by whom the server does not trust.
    shutil.copy(foreign_ring.directory / "signer.nk", running.ring.directory / "signer.nk")
    stranger = Keyring(running.ring.directory)
    foreign = running._replace(ring=stranger, bundle=render_bundle(running.topology, signer=stranger))
    with pytest.raises(VstreamError, match="not loaded it"):
        await foreign.admin().ensure_loaded()
    await SignedAccounts(
        good.claims,
        Keyring(trusted),
        system={"west": Endpoint(urls=running.urls, creds=str(running.ring.credentials_path("system")))},
        servers=("west-1",),
        monitors=[running.monitor],
    ).ensure_loaded()


@pytest.mark.asyncio
@pytest.mark.parametrize("user", ["app", "vstream", "probe", "audit", "system"])
async def test_every_user_logs_in_and_nobody_without_credentials(running: Running, user: str) -> None:
    creds = str(running.ring.credentials_path(user))
    async with connect(Endpoint(urls=running.urls, creds=creds), "west") as connection:
        assert connection.is_connected
    with pytest.raises(NotReachableError):
        async with connect(Endpoint(urls=running.urls), "west"):
            pass
