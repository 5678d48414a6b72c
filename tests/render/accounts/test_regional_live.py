"""`routing: regional` on real servers: an account for each region, and unmodified clients in each, in every model."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext

from tests.support import access_attempts, labs
from tests.support.command import Ran, vstream
from tests.support.core_subscribers import everybody_hears_everything_once
from tests.support.labs import fetch_all
from tests.support.night import repetitions
from tests.support.outages import goes_on_alone
from tests.support.probe_lab import until
from tests.support.profile_checks import check_apply_makes_everything, check_audit_reads_everything, read_in_every_form
from tests.support.publish_load import Load, check_contents, under_load
from tests.support.shared_lab import own_lab
from tests.support.topologies import begin_topology
from vstream.health.live.cross_region_listener import CrossRegionListener
from vstream.lab.endpoints import list_client_endpoints, list_endpoints
from vstream.lab.state import lab_directory
from vstream.lab.status import read_lab_status
from vstream.lint import check_topology
from vstream.topology.model import Topology

pytestmark = pytest.mark.lab

REGIONS = ("west", "central", "east")
ROUTING = "routing: regional\nroots: [v.>]\n"
MODELS = f"""\
{begin_topology("regional", west=1, central=1, east=1)}{ROUTING}stretch: {{}}
defaults: {{write: {{max_age: 1h}}}}
streams:
  foo: {{subjects: [v.foo.>], canary: v.foo._canary.*, consumers: {{reader: {{}}}}}}
  log: {{subjects: [log.>], consistency: ordered, canary: log._canary.*}}
  news: {{subjects: [v.news.>], core_subscribers: true}}
  told: {{subjects: [told.>], consistency: ordered, core_subscribers: true}}
  prices: {{subjects: [prices.>], consistency: homed, home: east, canary: prices._canary.*}}
  stock: {{subjects: [stock.>], consistency: stretch, canary: stock._canary.*}}
"""
STREAMS = {"foo": "v.foo", "log": "log", "prices": "prices", "stock": "stock"}
MESSAGES = 40
BURST, SIZE = 400, 10_000
"""Messages and bytes: more than servers have under way without flow control between accounts, which is 2 MB or so."""
PATIENCE = 60.0
RATE = repetitions(30, night=100)


@pytest.fixture
def file(state: Path, tmp_path: Path) -> Iterator[Path]:
    with own_lab(state, tmp_path, "regional") as path:
        yield path


client = partial(labs.client, "regional")


def says(file: Path, text: str) -> None:
    file.write_text(text)


async def command(*arguments: str | Path) -> Ran:
    return await asyncio.to_thread(vstream, *arguments, timeout=240)


@pytest.mark.asyncio
async def test_unmodified_clients_use_every_model_in_the_account_of_their_region(file: Path, tmp_path: Path) -> None:
    says(file, MODELS)
    assert vstream("lab", "up", file).code == 0
    check_apply_makes_everything(file)
    probed = vstream("probe", file)
    assert probed.code == 0, probed.out + probed.err
    assert "APP_east/foo-write" in probed.out
    nobody_else_reads_the_passwords()

    for region in REGIONS:
        async with client(region) as connection:
            await publishes(connection.jetstream(timeout=PATIENCE), region)
    for region in REGIONS:
        async with client(region) as connection:
            js = connection.jetstream(timeout=PATIENCE)
            await until(partial(lacking, js, 3 * (MESSAGES + BURST)), within=60)
            await reads_everything(js, region)
    await asyncio.to_thread(check_audit_reads_everything, "regional", file, tmp_path)
    await a_user_stays_in_its_region(check_topology.check_topology(MODELS.encode(), "regional.yaml").require())
    async with client("west") as west, client("central") as central, client("east") as east:
        for prefix in ("v.news", "told"):
            await everybody_hears_everything_once({"west": west, "central": central, "east": east}, prefix)
    for asked in (["status"], ["doctor"], ["plan", "--drift"]):
        ran = vstream(*asked, file)
        assert ran.code == 0, ran.out
    await goes_on_alone("regional", file, "west", "v.foo.west.alone")


def nobody_else_reads_the_passwords() -> None:
    """Each region has its own, and no two are the same."""
    paths = [lab_directory("regional").conf / f"passwords-{region}.cfg" for region in REGIONS]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    secrets = [line.split('"')[1] for path in paths for line in path.read_text().splitlines()]
    assert len(set(secrets)) == len(secrets) == 4 * len(REGIONS)


async def publishes(js: JetStreamContext, region: str) -> None:
    for stream, subject in STREAMS.items():
        acks = await asyncio.gather(*(js.publish(f"{subject}.{region}.{n}", b"x") for n in range(MESSAGES)))
        is_aside = stream in {"foo", "log"}
        assert {ack.stream for ack in acks} == {f"{stream}-write" if is_aside else stream}
        for _ in range(BURST // 100):
            await asyncio.gather(*(js.publish(f"{subject}.{region}.burst", b"x" * SIZE) for _ in range(100)))


async def lacking(js: JetStreamContext, wanted: int) -> str | None:
    held = {name: (await js.stream_info(name)).state.messages for name in STREAMS}
    return None if set(held.values()) == {wanted} else f"{held} of {wanted}"


async def reads_everything(js: JetStreamContext, region: str) -> None:
    """Every way of reading that the library has, by the virtual name."""
    for stream, subject in STREAMS.items():
        fetched = await read_in_every_form(js, stream, f"{subject}.*.7", 3)
        assert {message.subject for message in fetched} == {f"{subject}.{region}.7" for region in REGIONS}
        got = await js.get_last_msg(stream, f"{subject}.{region}.7", direct=True)
        assert got.subject == f"{subject}.{region}.7"
        assert (await js.stream_info(stream)).config.placement.cluster == region  # type: ignore[union-attr]
    by_subject = await js.pull_subscribe("v.foo.*.7", durable="by-subject")  # the library looks up whose subject it is
    assert (await by_subject.consumer_info()).stream_name == "foo"
    declared = await js.pull_subscribe_bind("reader", "foo")
    assert len(await fetch_all(declared, MESSAGES)) == MESSAGES


async def a_user_stays_in_its_region(topology: Topology) -> None:
    """Also where it connects to another: there it writes to its own, and is named. And it reaches nothing else."""
    named: list[str] = []
    unheard: list[str] = []
    listener, forbidden = CrossRegionListener(named.append), CrossRegionListener(unheard.append)
    listener.follow(topology, list_endpoints("regional"))
    forbidden.follow(topology, list_endpoints("regional", "app"))
    elsewhere = list_endpoints("regional", "app")["east"]
    mine = list_endpoints("regional", "app")["west"]
    connection = await nats.connect(list(elsewhere.urls), user=mine.user, password=mine.password, connect_timeout=30)

    async def is_named() -> str | None:
        await connection.jetstream(timeout=PATIENCE).stream_info("foo")
        return None if named and len(unheard) == len(REGIONS) else f"{named} {unheard}"

    await until(is_named)
    info = await connection.jetstream(timeout=PATIENCE).stream_info("foo")
    await connection.close()
    assert info.config.placement.cluster == "west"  # type: ignore[union-attr]
    tried = access_attempts.in_regions("west", REGIONS)
    await access_attempts.nothing_physical_is_reached("regional", "west", tried)
    await access_attempts.the_rest_is_permitted("regional", "west", tried)
    async with client("west", "audit") as connection:
        answer = json.loads((await connection.request("_vs.api.APP_east.STREAM.INFO.foo", timeout=PATIENCE)).data)
        assert answer["config"]["placement"]["cluster"] == "east"
    assert named == ["a client without a name (user `app-west`, 127.0.0.1) in east uses `APP_west/foo` of west"]
    assert all("the user may not subscribe to `$JS.EVENT.ADVISORY.API`" in line for line in unheard)
    assert not forbidden.uses()
    for each in (listener, forbidden):
        each.follow(topology, {})  # it ends


def moving(regions: tuple[str, ...], streams: tuple[str, ...]) -> str:
    return (
        f"{begin_topology('regional', **dict.fromkeys(regions, 1))}{ROUTING}"
        f"streams: {{foo: {{subjects: [v.foo.>], regions: [{', '.join(streams)}], write: {{max_age: 1h}}}}}}\n"
    )


@pytest.mark.night
@pytest.mark.asyncio
async def test_regions_join_and_leave_while_clients_publish(file: Path) -> None:
    two, three = ("west", "central"), ("west", "central", "east")
    says(file, moving(two, two))
    assert (await command("lab", "up", file)).code == 0
    assert (await command("apply", file, "--yes")).code == 0
    load, east_load = Load(RATE, prefix="v.foo"), Load(RATE, prefix="v.foo")
    async with under_load(load, list_client_endpoints("regional")):
        await load.wait_for_acknowledged(RATE)
        says(file, moving(three, three))
        grown = await command("lab", "up", file)
        assert grown.code == 0, grown.err
        joined = await command("apply", file, "--yes", "--allow-many")
        assert joined.code == 0, joined.out + joined.err
        async with under_load(east_load, {"east": list_client_endpoints("regional")["east"]}):
            await east_load.wait_for_acknowledged(RATE)
        await load.wait_for_acknowledged(RATE)
        # First out of the streams, then out of the topology: its account must outlive its streams.
        says(file, moving(three, two))
        left = await command("apply", file, "--yes", "--allow-destructive", "--allow-many")
        assert left.code == 0, left.out + left.err
        says(file, moving(two, two))
        gone = await command("apply", file, "--yes", "--allow-destructive", "--allow-many")
        assert gone.code == 0, gone.out + gone.err
        await load.wait_for_acknowledged(RATE)
    assert {server.region for server in read_lab_status("regional").servers} == {*two}
    assert (load.unknown, east_load.unknown) == (set(), set())
    assert (load.refused["west"], load.refused["central"], east_load.refused["east"]) == (0, 0, 0)
    load.acked |= east_load.acked
    await check_contents("regional", {region: f"APP_{region}/foo" for region in two}, load)
    planned = await command("plan", file, "--detailed-exitcode")
    assert planned.code == 0, planned.out
