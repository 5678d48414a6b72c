"""Users of configuration files by key and by certificate, on real servers: every command logs in, and nobody else does."""

from __future__ import annotations

import asyncio
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.support import access_attempts, labs
from tests.support.command import Ran, vstream
from tests.support.labs import processes_in
from tests.support.paths import CERTIFICATES
from vstream.audit.connector.client import connect as audit_client
from vstream.audit.extract.server_access import make_local_access
from vstream.errors import NotReachableError
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_client_endpoints, list_endpoints
from vstream.lab.state import lab_directory
from vstream.topology.accounts import AUDIT_USER
from vstream.topology.model import Endpoint

pytestmark = pytest.mark.lab

REST = """\
roots: [v.>]
regions: {west: {servers: 1}, east: {servers: 1}}
defaults: {write: {max_age: 1h}}
streams:
  foo: {subjects: [v.foo.>], canary: v.foo._canary.*}
"""
BY_KEY = f"""\
version: 1
name: logins
server_version: "2.12"
routing: regional
security: {{mode: nkeys}}
{REST}"""
BY_CERTIFICATE = f"""\
version: 1
name: logins
server_version: "2.12"
routing: domains
security:
  mode: certificates
  certificates: {{probe: probe@acme.example, audit: "spiffe://acme.example/audit", system: "CN=A system,O=Acme"}}
{REST}"""
PATIENCE = 60.0


@pytest.fixture
def file(state: Path, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "logins.yaml"
    yield path
    assert vstream("lab", "down", "logins", "--purge").code == 0
    assert processes_in(state) == []


def run_recorded(*arguments: str | Path, code: int = 0, said: list[Ran]) -> Ran:
    ran = vstream(*arguments)
    assert ran.code == code, f"{arguments}\n{ran.out}\n{ran.err}"
    said.append(ran)
    return ran


async def everybody_logs_in(run: partial[Ran], file: Path, tmp_path: Path) -> None:
    for command in (("lab", "up", file), ("apply", file, "--yes"), ("plan", file, "--detailed-exitcode")):
        await asyncio.to_thread(run, *command)
    async with labs.client("logins", "west") as connection:
        ack = await connection.jetstream(timeout=PATIENCE).publish("v.foo.a", b"")
        assert ack.stream == "foo-write"
    await asyncio.to_thread(run, "probe", file)
    for region, endpoint in list_endpoints("logins", AUDIT_USER).items():
        async with connect(endpoint, region) as connection:
            assert (await connection.request_json("$SYS.REQ.USER.INFO", timeout=PATIENCE))["data"]["user"]
        # What reads streams for an audit is a client of its own.
        with audit_client(make_local_access(endpoint, region, tmp_path)) as reader:
            assert reader.server_version


async def read_refusal(endpoint: Endpoint) -> str:
    """What is said to who may not log in: one line."""
    with pytest.raises(NotReachableError) as caught:
        async with connect(endpoint, "west"):
            pass
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.night
@pytest.mark.asyncio
async def test_users_log_in_with_keys_of_which_servers_know_the_public_half(file: Path, tmp_path: Path) -> None:
    runs: list[Ran] = []
    run = partial(run_recorded, said=runs)
    await asyncio.to_thread(file.write_text, BY_KEY)
    await everybody_logs_in(run, file, tmp_path)
    tried = access_attempts.in_regions("west", ("west", "east"))
    await access_attempts.nothing_physical_is_reached(
        "logins", "west", replace(tried, managed=("_vs.api.APP_west", "_vs.api.APP_east"))
    )

    mine = list_client_endpoints("logins")["west"]
    assert mine.nkey is not None
    old = tmp_path / "old.nk"
    shutil.copyfile(mine.nkey, old)
    assert mine.nkey in run("keys", "show", file, "--lab", "logins").out
    # Another key is a change of what servers load: nothing else tells them.
    run("keys", "rotate", "app-west", file, "--lab", "logins")
    assert "users" in run("plan", file, "--detailed-exitcode", code=2).out
    run("apply", file, "--yes")
    assert "authorization violation" in (await read_refusal(replace(mine, nkey=str(old)))).lower()
    async with labs.client("logins", "west") as connection:
        await connection.jetstream(timeout=PATIENCE).publish("v.foo.b", b"")
    nothing_secret_is_anywhere(runs, old.read_text().strip())


def nothing_secret_is_anywhere(said: list[Ran], old: str) -> None:
    directory = lab_directory("logins").path
    ring = directory / "keys"
    assert stat.S_IMODE(ring.stat().st_mode) == 0o700
    seeds = {old}
    for path in ring.glob("*.nk"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        seeds |= set(re.findall(r"^SU[A-Z2-7]{20,}$", path.read_text(), re.MULTILINE))
    assert len(seeds) == 2 * 4 + 1 + 1
    texts = [text for ran in said for text in (ran.out, ran.err)]
    texts += [
        path.read_bytes().decode(errors="replace")
        for path in directory.rglob("*")
        if path.is_file() and ring not in path.parents
    ]
    assert not any(seed in text for seed in seeds for text in texts)


@pytest.mark.asyncio
async def test_users_are_who_their_certificates_say(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSTREAM_KEYS", str(tmp_path / "keys"))
    await asyncio.to_thread(file.write_text, BY_CERTIFICATE)
    lacking = vstream("lab", "up", file)
    assert lacking.code == 3
    assert f"certificates that are not in {tmp_path / 'keys' / 'logins'}: ca.pem, server.pem" in lacking.err
    assert "Traceback" not in lacking.err
    shutil.copytree(CERTIFICATES, tmp_path / "keys" / "logins")
    runs: list[Ran] = []
    await everybody_logs_in(partial(run_recorded, said=runs), file, tmp_path)
    assert not any("eof_received" in ran.err for ran in runs)
    tried = access_attempts.in_domains("west", ("west", "east"))
    await access_attempts.nothing_physical_is_reached("logins", "west", tried)

    mine = list_client_endpoints("logins")["west"]
    stranger = replace(mine, tls_cert=str(CERTIFICATES / "stranger.pem"), tls_key=str(CERTIFICATES / "stranger.key"))
    assert "authorization violation" in (await read_refusal(stranger)).lower()
    # Whoever has a certificate is that user, whatever name and password come with it.
    async with connect(replace(mine, user="vstream", password=""), "west") as connection:
        await connection.request_json("$JS.API.STREAM.INFO.foo", timeout=PATIENCE)
        with pytest.raises(NotReachableError):  # `vstream` may
            await connection.request("$JS.API.STREAM.INFO.foo-write", timeout=1)
    # Without one, nobody is let in: also not with the name of a user that has no password.
    assert await read_refusal(replace(mine, tls_cert=None, tls_key=None, user="vstream", password=""))
    for path in (lab_directory("logins").path / "keys").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
