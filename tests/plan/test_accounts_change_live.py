"""A live topology of `routing: accounts` changes: servers load what is new, and one that was left out is named."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.render.accounts.test_accounts_live import PATIENCE, client
from tests.support.command import vstream
from tests.support.labs import fetch_all
from tests.support.probe_lab import until
from tests.support.shared_lab import own_lab
from vstream.jetstream import monitoring
from vstream.lab.endpoints import list_addresses
from vstream.lab.server import NatsServer
from vstream.lab.state import lab_directory

pytestmark = pytest.mark.lab

THREE = ("west", "central", "east")
FOUR = (*THREE, "south")
BEFORE = {"foo": "{subjects: [foo.>]}", "one": "{subjects: [v.one.>], canary: v.one._canary.*}"}
AFTER = {
    **BEFORE,
    "two": "{subjects: [v.two.>], canary: v.two._canary.*}",
    "bar": "{subjects: [bar.*.x]}",
    "rates": "{subjects: [rates.>], consistency: homed, home: west, canary: rates._canary.*}",
}


def wants(file: Path, streams: dict[str, str], regions: tuple[str, ...]) -> None:
    """From now on the topology has *streams* in *regions*."""
    file.write_text(
        "\n".join(
            [
                "version: 1",
                "name: accounts",
                'server_version: "2.12"',
                "routing: accounts",
                "roots: [v.>]",
                f"regions: {{{', '.join(f'{region}: {{servers: 1}}' for region in regions)}}}",
                "defaults: {write: {max_age: 1h}}",
                "streams:",
                *(f"  {name}: {text}" for name, text in streams.items()),
            ]
        )
    )


def loads(text: str | None = None) -> str:
    """The file that servers load: what it says, after it was made to say *text*."""
    path = lab_directory("accounts").conf / "accounts.cfg"
    if text is not None:
        path.write_text(text)
    return path.read_text()


@pytest.fixture
def file(state: Path, tmp_path: Path) -> Iterator[Path]:
    with own_lab(state, tmp_path, "accounts") as path:
        yield path


async def count_searches() -> int:
    """How often servers were asked for their subscriptions."""
    answers = [await monitoring.get(address.monitor_url, "/varz") for address in list_addresses("accounts")]
    return sum(int(answer["http_req_stats"].get("/subsz", 0)) for answer in answers)


def apply_file(file: Path, *options: str) -> str:
    ran = vstream("apply", file, "--yes", *options)
    assert ran.code == 0, ran.out + ran.err
    planned = vstream("plan", file, "--detailed-exitcode")
    assert planned.code == 0, planned.out
    return ran.out


@pytest.mark.asyncio
async def test_servers_load_what_is_new_and_one_that_was_left_out_is_named(file: Path, binary: Path) -> None:
    wants(file, BEFORE, THREE)
    up = vstream("lab", "up", file)
    assert up.code == 0, up.err
    apply_file(file)
    assert await count_searches() == 0  # a server that has loaded its files once serves what it lists
    before = loads()

    async with client("east", "app") as early:
        waiting = await early.jetstream(timeout=PATIENCE).pull_subscribe("foo.>", durable="early", stream="foo")
        # A stream below a root asks nothing of servers.
        wants(file, {**BEFORE, "two": AFTER["two"]}, THREE)
        assert "accounts.cfg loaded" not in apply_file(file)
        assert loads() == before

        wants(file, AFTER, THREE)
        assert "accounts.cfg loaded on every server" in apply_file(file)
        searches = await count_searches()
        assert vstream("plan", file).code == 0
        assert await count_searches() > searches
        for region in THREE:
            await publishes(region, "rates.", "bar.", "v.two.", "foo.")
        for region in THREE:
            await reads(region, THREE)
        # Who was there before goes on: its consumer, and what it may publish now.
        assert len(await fetch_all(waiting, len(THREE))) == len(THREE)
        assert (await early.jetstream(timeout=PATIENCE).publish("rates.early", b"")).stream == "rates"

    await one_server_is_left_out(file, before, binary)

    wants(file, AFTER, FOUR)
    assert vstream("lab", "up", file).code == 0
    assert "accounts.cfg loaded on every server" in apply_file(file, "--allow-many")
    await publishes("south", "rates.", "bar.", "v.two.")
    await reads("south", FOUR)
    gone_too_early(file)


async def publishes(region: str, *subjects: str) -> None:
    async with client(region, "app") as connection:
        js = connection.jetstream(timeout=PATIENCE)
        for subject in subjects:
            await js.publish(f"{subject}{region}{'.x' if subject == 'bar.' else ''}", region.encode())


async def reads(region: str, regions: tuple[str, ...]) -> None:
    """Everything that was published is in *region*, for a client that knows nothing of vstream."""
    async with client(region, "app") as connection:
        js = connection.jetstream(timeout=PATIENCE)
        for subject in ("rates.>", "bar.*.x", "v.two.>"):
            stream = {"rates.>": "rates", "bar.*.x": "bar", "v.two.>": "two"}[subject]
            await until(partial(lacking, js, stream, len(regions)))
            pull = await js.pull_subscribe(subject, stream=stream)
            origins = {message.data.decode() for message in await fetch_all(pull, len(regions))}
            assert origins - {""} <= set(regions)


async def lacking(js: Any, stream: str, wanted: int) -> str | None:
    held = (await js.stream_info(stream)).state.messages
    return None if held >= wanted else f"{stream}: {held} of {wanted}"


async def one_server_is_left_out(file: Path, before: str, binary: Path) -> None:
    """As if east-1 had not been reloaded: it has what it had before."""
    after = loads()
    loads(before)
    (address,) = (address for address in list_addresses("accounts") if address.server.name == "east-1")
    server = NatsServer(lab_directory("accounts"), "east-1")
    await server.reload(address.monitor_url, binary=binary, timeout=PATIENCE)
    loads(after)

    planned = vstream("plan", file, "--format", "json")
    mappings = planned.json()["mappings"]
    assert {server for mapping in mappings for server in mapping["servers"]} == {"east-1"}
    assert {mapping["kind"] for mapping in mappings} == {"mapping", "import", "export", "users"}
    assert "import APP rates.>" in {mapping["source"] for mapping in mappings}
    drifted = vstream("plan", "--drift", file)
    assert drifted.code == 1
    assert "account R_west: 2 entries on east-1" in drifted.out
    examined = vstream("doctor", file)
    assert "`east-1`: error VD402: half-reloaded" in examined.out
    assert "put `accounts.cfg` there" in examined.out
    apply_file(file)
    for server_address in list_addresses("accounts"):
        detail = await monitoring.read_account_detail(server_address.monitor_url, "APP")
        assert "rates.>" in {imported["local_subject"] for imported in detail["imports"]}


def gone_too_early(file: Path) -> None:
    """A region cannot go with its streams: their account would be gone before them."""
    wants(file, AFTER, THREE)
    planned = vstream("plan", file, "--format", "json")
    assert planned.code == 1
    blocked = planned.json()["blocked"]
    assert {blocker["name"] for blocker in blocked} >= {"W_south/foo", "R_south/rates"}
    assert "take it out of the `regions` of each stream" in blocked[0]["hint"]
