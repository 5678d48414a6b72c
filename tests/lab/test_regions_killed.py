"""A region comes and goes while every run of `apply` dies after its first request: each next run goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.labs import silent
from tests.support.publishing import Load, audited, under_load
from vstream.cli import inputs
from vstream.cli.plan import compare
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.jetstream.gauges import LiveGauges
from vstream.jetstream.observe import any_connection, connect_all
from vstream.lab import binaries, lab
from vstream.lab.mappings import LabMappings
from vstream.lab.shrinking import LabServers
from vstream.load import bundle, load
from vstream.model.consumers import ConsumerConfig
from vstream.model.streams import StreamConfig
from vstream.model.topology import Topology
from vstream.plan.apply import apply
from vstream.plan.changes import Plan

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("state"), pytest.mark.timeout(600)]

TWO = ["west", "central"]
ALL = ["west", "central", "east"]
RUNS = 20
"""More than there are requests."""


class KilledError(Exception):
    """As kill -9: nothing in vstream catches it."""


class Mortal:
    """What apply changes the world through: the first request has its effect, and then everything ends."""

    def __init__(self, admin: JetStreamAdmin, mappings: LabMappings, servers: LabServers, done: list[str]) -> None:
        self._admin = admin
        self._mappings = mappings
        self._servers = servers
        self._done = done

    def _dies(self, what: str) -> None:
        self._done.append(what)
        raise KilledError

    async def create(self, config: StreamConfig) -> None:
        await self._admin.create(config)
        self._dies(f"create {config.name}")

    async def update(self, config: StreamConfig) -> None:
        await self._admin.update(config)
        self._dies(f"update {config.name}")

    async def delete(self, name: str) -> None:
        await self._admin.delete(name)
        self._dies(f"delete {name}")

    async def forget(self, name: str) -> None:
        await self._admin.forget(name)
        self._dies(f"forget {name}")

    async def create_consumer(self, config: ConsumerConfig) -> None:
        await self._admin.create_consumer(config)
        self._dies(f"create {config.name}")

    async def update_consumer(self, config: ConsumerConfig) -> None:
        await self._admin.update_consumer(config)
        self._dies(f"update {config.name}")

    async def delete_consumer(self, config: ConsumerConfig) -> None:
        await self._admin.delete_consumer(config)
        self._dies(f"delete {config.name}")

    async def load(self) -> None:
        await self._mappings.load()
        self._dies("load mappings")

    async def retire(self, servers: Sequence[str]) -> None:
        await self._servers.retire(servers)
        self._dies(f"retire {', '.join(servers)}")


def document(regions: list[str], known: list[str]) -> str:
    streams = {
        "foo": {"subjects": ["foo.>"], "regions": regions, "write": {"max_age": "1h"}, "consumers": {"reader": {}}}
    }
    return json.dumps(
        {
            "version": 1,
            "name": "killed",
            "server_version": "2.12",
            "regions": {name: {"servers": 1} for name in known},
            "streams": streams,
        }
    )


def topology(regions: list[str], known: list[str] = ALL) -> Topology:
    return load(document(regions, known).encode(), "topology.yaml").require()


async def run(wanted: Topology, done: list[str] | None, lost: tuple[str, ...] = ()) -> Plan:
    """One run of `apply`, which dies after its first request if *done* is given. The plan that it had."""
    where = inputs.target(wanted, "killed")
    rendered = inputs.bundle_for(wanted, where, None)
    plan = await compare(wanted, where, rendered, frozenset(), lost)
    async with connect_all(wanted, where.endpoints) as connections:
        connection = any_connection(connections)
        admin, mappings = JetStreamAdmin(connection), LabMappings("killed", rendered, lost=lost)
        servers = LabServers("killed")
        mortal = None if done is None else Mortal(admin, mappings, servers, done)
        assert not plan.blocked
        applied = await apply(
            plan,
            mortal or admin,
            mortal or mappings,
            LiveGauges(connection),
            servers=mortal or servers,
            patience=120,
        )
        assert applied.is_complete, applied
    return plan


async def killed_until_done(wanted: Topology, lost: tuple[str, ...] = ()) -> list[str]:
    done: list[str] = []
    for _ in range(RUNS):
        try:
            plan = await run(wanted, done, lost)
        except KilledError:
            continue
        assert plan.is_empty
        return done
    raise AssertionError(f"not done after {RUNS} runs: {done}")


@pytest.mark.parametrize("version", ["2.15.1", pytest.param("2.12.8", marks=pytest.mark.versions)])
async def test_killed_after_every_request(version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("vstream.plan.apply.IN_FLIGHT", 1)
    small = topology(TWO)
    await lab.up(
        "killed",
        small,
        lambda addresses: bundle(small, addresses=addresses),
        binary=binaries.locate(version),
        on_progress=silent,
        timeout=120,
    )
    await run(small, None)
    sent, later = Load(100), Load(100, tag="b")
    endpoints = lab.endpoints("killed")
    async with under_load(sent, {region: endpoints[region] for region in TWO}):
        await sent.acknowledged(100)
        added = await killed_until_done(topology(ALL))
        there = Load(100)
        async with under_load(there, {"east": endpoints["east"]}):
            await there.acknowledged(100)
    both = replace(sent, acked={**sent.acked, **there.acked}, unknown=sent.unknown | there.unknown)
    await audited("killed", {region: f"foo-read-{region}" for region in ALL}, both)
    async with under_load(later, {region: endpoints[region] for region in TWO}):
        removed = await killed_until_done(small)
    assert sorted(added) == sorted(
        [
            "create foo-write-east",
            "create foo-read-east",
            "update foo-read-west",
            "update foo-read-central",
            "update foo-read-east",
            "update foo-read-east",
            "create foo-read-east > reader",
            "load mappings",
        ]
    )
    assert sorted(removed) == sorted(
        [
            "load mappings",
            "update foo-read-west",
            "update foo-read-central",
            "delete foo-read-east",
            "delete foo-write-east",
        ]
    )
    for one in (sent, later):
        assert (one.refused, one.unknown) == ({"west": 0, "central": 0}, set())
    assert there.acked["east"]
    acked = {region: both.acked[region] | later.acked.get(region, set()) for region in ALL}
    await audited("killed", {region: f"foo-read-{region}" for region in TWO}, replace(both, acked=acked))
    await run(topology(ALL), None)
    # What comes from a region that was gone arrives everywhere: servers before 2.15 do not notice that its stream is new.
    heard = Load(100, tag="h")
    async with under_load(heard, {"east": endpoints["east"]}):
        await heard.acknowledged(20)
    everything = merged(replace(both, acked=acked), heard)
    await audited("killed", {region: f"foo-read-{region}" for region in TWO}, everything)
    if version == "2.15.1":
        await dies_for_good(*files(tmp_path), everything)
    await lab.down("killed", purge=True)


def files(directory: Path) -> tuple[Path, Path]:
    """The topology with all regions, and without the one that dies."""
    whole, small = directory / "whole.yaml", directory / "small.yaml"
    whole.write_text(document(ALL, ALL))
    small.write_text(document(TWO, TWO))
    return whole, small


async def dies_for_good(whole: Path, file: Path, before: Load) -> None:
    """A region dies while one of the others could not hear it: it is given up, and what is lost is said before."""
    endpoints = lab.endpoints("killed")
    cut = await asyncio.to_thread(vstream, "chaos", "partition", "central | east", "-t", whole, "--yes-really")
    assert cut.code == 0, cut.err
    unheard = Load(100, tag="u")
    async with under_load(unheard, {"east": endpoints["east"]}):
        await unheard.acknowledged(50)
    await audited("killed", {"west": "foo-read-west"}, merged(before, unheard))
    alive = await asyncio.to_thread(vstream, "plan", file, "--lost", "east")
    assert (alive.code, "is not dead" in alive.err) == (1, True), alive.err
    async with connect(endpoints["west"], "west") as connection:
        last = int((await JetStreamAdmin(connection).info("foo-write-east"))["state"]["last_seq"])
    assert (await asyncio.to_thread(vstream, "chaos", "kill-region", "east", "-t", whole, "--yes-really")).code == 0

    used = await asyncio.to_thread(vstream, "plan", file, "--lost", "west")
    assert "still has `foo` in region `west`" in used.err
    shown = await asyncio.to_thread(vstream, "plan", file, "--lost", "east", "--format", "json")
    assert shown.code == 0, shown.err
    (loss,) = json.loads(shown.out)["losses"]
    later = Load(100, tag="l")
    async with under_load(later, {region: endpoints[region] for region in TWO}):
        done = await killed_until_done(topology(TWO, TWO), ("east",))
    assert sorted(done) == sorted(
        [
            "load mappings",
            "update foo-read-west",
            "update foo-read-central",
            "forget foo-read-east",
            "forget foo-write-east",
            "retire east-1",
        ]
    )
    assert later.refused == {"west": 0, "central": 0}
    assert "`foo-read-central` will never get the rest" in loss
    assert f"after sequence {last:,} of `foo-write-east` is lost" in loss
    await audited("killed", {"west": "foo-read-west"}, merged(before, unheard, later))
    await audited("killed", {"central": "foo-read-central"}, merged(before, later))
    assert (await asyncio.to_thread(vstream, "plan", file, "--detailed-exitcode")).code == 0


def merged(*loads: Load) -> Load:
    """What all of *loads* were told."""
    acked = {region: set().union(*(one.acked.get(region, set()) for one in loads)) for region in ALL}
    return replace(loads[0], acked=acked, unknown=set().union(*(one.unknown for one in loads)))
