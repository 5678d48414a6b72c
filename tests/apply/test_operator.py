"""Operator mode on real servers: accounts are pushed as signed tokens, confirmed by every server, and taken back from others."""

from __future__ import annotations

import asyncio
import re
import shutil
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.support import access_attempts
from tests.support.command import Ran, vstream
from tests.support.night import with_night
from tests.support.probe_lab import until
from tests.support.topologies import begin_topology
from vstream.apply.push_accounts import SignedAccounts
from vstream.errors import NotReachableError
from vstream.jetstream.connection import connect
from vstream.jetstream.keyring import Keyring
from vstream.lab import keys
from vstream.lab.endpoints import find_system_endpoint, list_addresses, list_client_endpoints, list_endpoints
from vstream.lab.state import lab_directory
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Routing

pytestmark = pytest.mark.lab

VERSIONS = with_night(["2.15.1"], ["2.12.8"])
OWN_TOPOLOGY = (
    begin_topology("signed", west=1, east=1)
    + """\
routing: accounts
security: {mode: operator}
roots: [v.>]
defaults: {write: {max_age: 1h}}
streams:
  foo: {subjects: [foo.>], canary: foo._canary.*, consumers: {settled: {}}}
  one: {subjects: [v.one.>], canary: v.one._canary.*}
  prices: {subjects: [prices.>], consistency: homed, home: east, canary: prices._canary.*}
"""
)
GROWN = OWN_TOPOLOGY.replace("east: {servers: 1}}", "east: {servers: 1}, north: {servers: 1}}").replace(
    "  one:", "  two: {subjects: [two.>], canary: two._canary.*}\n  one:"
)
PATIENCE = 60.0
ROUTINGS = [routing.value for routing in Routing]
BEYOND = {
    "accounts": ("$JS.API.STREAM.CREATE.x", "_vs.api.W_west.STREAM.PURGE.foo", "_vs.at.west.$JS.API.STREAM.DELETE.foo"),
    "mapped": ("$JS.API.STREAM.CREATE.x", "$JS.API.STREAM.PURGE.foo-read-west"),
    "regional": ("$JS.API.STREAM.CREATE.x", "_vs.api.APP_east.STREAM.PURGE.foo"),
    "domains": ("$JS.API.STREAM.CREATE.x", "$JS.east.API.STREAM.PURGE.foo"),
}
"""What no application may ask for."""


@asynccontextmanager
async def client(region: str) -> AsyncIterator[tuple[Client, list[str]]]:
    """The library as it is, logged in as an application, and what servers have refused it."""
    endpoint = list_client_endpoints("signed")[region]
    refused: list[str] = []

    async def remember(error: Exception) -> None:
        refused.append(str(error))

    connection = await nats.connect(
        list(endpoint.urls),
        user_credentials=endpoint.creds,
        error_cb=remember,
        reconnect_time_wait=0.1,
        connect_timeout=30,
    )
    try:
        yield connection, refused
    finally:
        await connection.close()


def run_recorded(*arguments: str | Path, code: int = 0, said: list[Ran]) -> Ran:
    ran = vstream(*arguments)
    assert ran.code == code, f"{arguments}\n{ran.out}\n{ran.err}"
    said.append(ran)
    return ran


@pytest.mark.night
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.asyncio
async def test_accounts_are_pushed_and_kept_as_the_topology_says(own_file: Path, tmp_path: Path, version: str) -> None:
    runs: list[Ran] = []
    run = partial(run_recorded, said=runs)
    run("lab", "up", own_file, "--server-version", version)
    # What servers begin with is what is compared: nothing of it is to load.
    saved = tmp_path / "plan.json"
    assert "to load" not in run("plan", own_file, "--output", saved).out
    run("apply", saved, "--yes")
    run("plan", own_file, "--detailed-exitcode")
    probed = run("probe", own_file, "--forms")
    assert probed.out.count("✓ R_west/foo") == 1 + 12 + 4, probed.out
    another_mode_is_refused(tmp_path, run)

    for region in ("west", "east"):
        await applications_use_virtual_streams_and_nothing_else(region, ("foo", "v.one", "prices"), BEYOND["accounts"])
        tried = access_attempts.in_accounts(region, ("west", "east"))
        await access_attempts.nothing_physical_is_reached("signed", region, tried)
        await access_attempts.the_rest_is_permitted("signed", region, tried)

    async with client("west") as (connection, _):
        js = connection.jetstream(timeout=PATIENCE)
        stop = asyncio.Event()
        publishing = asyncio.create_task(publish_until(stop, js))
        await a_region_and_a_stream_join(own_file, run, version)
        stop.set()
        acknowledged = await publishing
    async with client("north") as (connection, _):
        js = connection.jetstream(timeout=PATIENCE)
        await js.publish("two.a", b"")
        await until(partial(lacking, js, acknowledged), within=90)

    old = await what_somebody_else_pushed_is_taken_back(own_file, run, tmp_path)
    run("keys", "rotate", "app", own_file, "--lab", "signed")
    run("apply", own_file, "--yes")
    with pytest.raises(NotReachableError, match=r"(?i)authorization"):
        async with connect(replace(list_client_endpoints("signed")["west"], creds=str(old)), "west"):
            pass
    async with client("west") as (connection, _):
        await connection.jetstream(timeout=PATIENCE).publish("foo.rotated", b"")

    # Tokens in configurations are older than what was pushed: servers that start again keep what they have.
    run("lab", "down", "signed")
    run("lab", "up", own_file, "--server-version", version)
    run("plan", own_file, "--detailed-exitcode")
    nothing_secret_is_anywhere([old.read_text(), saved.read_text()], runs)


# `accounts` is what the tests above are about.
@pytest.mark.parametrize(
    "routing", with_night(["domains"], [name for name in ROUTINGS if name not in {"accounts", "domains"}])
)
def test_other_profiles_are_pushed_through_connect(
    own_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, routing: str
) -> None:
    """From the first apply on, vstream knows of these servers what it knows of real ones."""
    runs: list[Ran] = []
    run = partial(run_recorded, said=runs)
    text = OWN_TOPOLOGY.replace("routing: accounts", f"routing: {routing}")
    if routing == "mapped":
        text = text.replace("roots: [v.>]\n", "")
    names = ["foo", "v.one", "prices"]
    if routing == "domains":
        names.remove("prices")
        text = "".join(line for line in text.splitlines(keepends=True) if "prices" not in line)
    own_file.write_text(text)
    run("lab", "up", own_file)
    monkeypatch.setenv("VSTREAM_KEYS", str(tmp_path / "keys"))
    shutil.copytree(keys.keyring("signed").directory, tmp_path / "keys" / "signed")
    section = connect_section(tmp_path / "keys" / "signed")
    if routing == "regional":
        swapped = {"west.creds": "east.creds", "east.creds": "west.creds"}
        own_file.write_text(text + re.sub(r"\w+\.creds", lambda found: swapped[found[0]], section))
        assert "is in account `APP_east`, not in `APP_west`" in run("apply", own_file, "--yes", code=3).err
    if routing == "mapped":
        own_file.write_text(text + re.sub(r", monitor: \[.*?\]", "", section))
        unseen = run("apply", own_file, "--yes", code=3).out
        assert "Unknown: which accounts east-1, west-1 have loaded. No account was pushed." in unseen
        assert "apply again" in run("apply", own_file, "--yes", code=3).out  # nothing is left but what nobody knows
    own_file.write_text(text + section)
    run("apply", own_file, "--yes")
    for region in ("west", "east"):
        asyncio.run(applications_use_virtual_streams_and_nothing_else(region, names, BEYOND[routing]))
    grown = text.replace("  one:", "  two: {subjects: [two.>], canary: two._canary.*}\n  one:")
    own_file.write_text(grown + section)
    saved = tmp_path / "plan.json"
    assert "to load" in run("plan", own_file, "--output", saved).out
    run("apply", saved, "--yes")
    run("probe", own_file)
    old = asyncio.run(what_somebody_else_pushed_is_taken_back(own_file, run, tmp_path, grown))
    nothing_secret_is_anywhere([old.read_text(), saved.read_text()], runs)


def connect_section(ring: Path) -> str:
    lines = ["connect:"]
    for region, endpoint in list_endpoints("signed").items():
        of_region = ring / f"user-vstream-{region}.creds"
        creds = of_region if of_region.is_file() else ring / "user-vstream.creds"
        lines.append(
            f"  {region}: {{urls: [{', '.join(endpoint.urls)}], creds: {creds}, monitor: [{', '.join(endpoint.monitor)}]}}"
        )
    return "\n".join(lines) + "\n"


async def applications_use_virtual_streams_and_nothing_else(
    region: str, streams: Sequence[str], beyond: Sequence[str]
) -> None:
    async with client(region) as (connection, refused):
        js = connection.jetstream(timeout=PATIENCE)
        for subject in streams:
            await js.publish(f"{subject}.{region}", b"")
        pulled = await js.pull_subscribe("foo.>", "settled", stream="foo")
        message = (await pulled.fetch(1, timeout=PATIENCE))[0]
        await message.ack_sync()
        for subject in beyond:
            before = len(refused)
            with pytest.raises(nats.errors.Error):
                await connection.request(subject, b"{}", timeout=0.5)
            assert len(refused) > before, subject


def another_mode_is_refused(tmp_path: Path, run: partial[Ran]) -> None:
    """A plan of accounts in configurations would take the streams for those of an account before them."""
    file = tmp_path / "passwords.yaml"
    file.write_text(OWN_TOPOLOGY.replace("security: {mode: operator}\n", ""))
    for command in ("plan", "apply", "doctor"):
        refused = run(command, file, code=3)
        assert "the servers are in operator mode" in refused.err
        assert "write `security: {mode: operator}`" in refused.err


async def publish_until(stop: asyncio.Event, js: JetStreamContext) -> int:
    """How many publishes were acknowledged; servers may refuse some while they take over another token."""
    number = acknowledged = 0
    while not stop.is_set():
        number += 1
        try:
            await js.publish("foo.steady", str(number).encode(), timeout=2, headers={"Nats-Msg-Id": str(number)})
            acknowledged += 1
        except (nats.errors.Error, TimeoutError):
            pass
        # Also after a refusal: a publish that fails at once would keep the client from ever connecting again.
        await asyncio.sleep(0.01)
    return acknowledged


async def lacking(js: JetStreamContext, acknowledged: int) -> str | None:
    info = await js.stream_info("foo", subjects_filter="foo.steady")
    stored = (info.state.subjects or {}).get("foo.steady", 0)
    return None if stored >= acknowledged > 0 else f"{stored} of {acknowledged}"


async def a_region_and_a_stream_join(file: Path, run: partial[Ran], version: str) -> None:
    await asyncio.to_thread(file.write_text, GROWN)
    for command in (
        ("lab", "up", file, "--server-version", version),
        ("apply", file, "--yes", "--allow-many"),
        ("plan", file, "--detailed-exitcode"),
    ):
        await asyncio.to_thread(run, *command)


async def what_somebody_else_pushed_is_taken_back(
    file: Path, run: partial[Ran], tmp_path: Path, text: str = GROWN
) -> Path:
    """Gives the credentials that applications had by then."""
    ring = keys.keyring("signed")
    topology = check_topology(text.encode(), "signed.yaml").require()
    clients = next(claim for claim in render_bundle(topology, signer=ring).claims if claim["name"].startswith("APP"))
    clients["nats"]["signing_keys"][0]["template"]["pub"] = {"allow": [">"]}
    servers = [address for address in list_addresses("signed") if address.region == "west" and not address.is_hub]
    servers += [address for address in list_addresses("signed") if address.region != "west" and topology.hubs is None]
    await SignedAccounts(
        [clients],
        ring,
        system={"lab": find_system_endpoint("signed", "west")},
        servers=[server.server.name for server in servers],
        monitors=[server.monitor_url for server in servers],
    ).ensure_loaded()
    drifted = run("plan", "--drift", file, code=1)
    assert "VD507" in drifted.out, drifted.out
    assert clients["name"] in drifted.out, drifted.out
    run("apply", file, "--yes")
    run("plan", file, "--detailed-exitcode", "--format", "json")
    old_creds = tmp_path / "old.creds"
    old_creds.write_text(lab_credentials(ring, "app").read_text())
    return old_creds


def lab_credentials(ring: Keyring, user: str) -> Path:
    files = (ring.credentials_path(f"{user}-west"), ring.credentials_path(user))
    return next(path for path in files if path.is_file())


def nothing_secret_is_anywhere(others: list[str], said: list[Ran]) -> None:
    directory = lab_directory("signed").path
    ring = directory / "keys"
    assert stat.S_IMODE(ring.stat().st_mode) == 0o700
    secrets: set[str] = set()
    for path in ring.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        lines = re.findall(r"^(S[A-Z2-7]{20,}|eyJ\S+)$", path.read_text(), re.MULTILINE)
        assert len(lines) == {".nk": 1, ".creds": 2}.get(path.suffix, 0), path
        secrets.update(lines)
    secrets |= set(re.findall(r"^(S[A-Z2-7]{20,}|eyJ\S+)$", others[0], re.MULTILINE))
    texts = [others[1], *(text for ran in said for text in (ran.out, ran.err))]
    assert not any("eyJ" in text for text in texts), "a token was printed, or saved with a plan"
    texts += [
        path.read_bytes().decode(errors="replace")
        for path in directory.rglob("*")
        if path.is_file() and ring not in path.parents
    ]
    assert not any(secret in text for secret in secrets for text in texts)
    tokens = directory / "conf" / "operator.cfg"
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
