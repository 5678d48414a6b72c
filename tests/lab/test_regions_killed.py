"""A region comes and goes while every run of `apply` dies after its first request: each next run goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.labs import silent
from tests.support.publishing import Load, audited, under_load
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.gauges import LiveGauges
from vstream.jetstream.observe import any_connection, connect_all, observe
from vstream.lab import binaries, lab
from vstream.lab.mappings import LabMappings
from vstream.load import bundle, load
from vstream.model.artifacts import Bundle
from vstream.model.consumers import ConsumerConfig
from vstream.model.streams import StreamConfig
from vstream.model.topology import Topology
from vstream.plan.apply import apply
from vstream.plan.changes import Plan
from vstream.plan.diff import diff

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("state"), pytest.mark.timeout(400)]

TWO = ["west", "central"]
ALL = ["west", "central", "east"]
RUNS = 20
"""More than there are requests."""


class KilledError(Exception):
    """As kill -9: nothing in vstream catches it."""


class Mortal:
    """What apply changes the world through: the first request has its effect, and then everything ends."""

    def __init__(self, admin: JetStreamAdmin, mappings: LabMappings, done: list[str]) -> None:
        self._admin = admin
        self._mappings = mappings
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


def topology(regions: list[str]) -> Topology:
    document: Mapping[str, Any] = {
        "version": 1,
        "name": "killed",
        "server_version": "2.12",
        "regions": {name: {"servers": 1} for name in ALL},
        "streams": {
            "foo": {"subjects": ["foo.>"], "regions": regions, "write": {"max_age": "1h"}, "consumers": {"reader": {}}}
        },
    }
    return load(json.dumps(document).encode(), "topology.yaml").require()


async def run(wanted: Topology, done: list[str] | None) -> Plan:
    """One run of `apply`, which dies after its first request if *done* is given. The plan that it had."""
    rendered: Bundle = bundle(wanted, addresses=lab.addresses("killed"))
    endpoints = lab.endpoints("killed")
    async with connect_all(wanted, endpoints) as connections:
        observed = await observe(wanted, connections, endpoints)
        plan = diff(wanted.name, rendered.streams, rendered.mappings, observed, durables=rendered.consumers)
        connection = any_connection(connections)
        admin, mappings = JetStreamAdmin(connection), LabMappings("killed", rendered)
        mortal = None if done is None else Mortal(admin, mappings, done)
        assert not plan.blocked
        applied = await apply(plan, mortal or admin, mortal or mappings, LiveGauges(connection), patience=120)
        assert applied.is_complete, applied
    return plan


async def killed_until_done(wanted: Topology) -> list[str]:
    done: list[str] = []
    for _ in range(RUNS):
        try:
            plan = await run(wanted, done)
        except KilledError:
            continue
        assert plan.is_empty
        return done
    raise AssertionError(f"not done after {RUNS} runs: {done}")


@pytest.mark.parametrize("version", ["2.15.1", pytest.param("2.12.8", marks=pytest.mark.versions)])
async def test_killed_after_every_request(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
    await lab.down("killed", purge=True)
