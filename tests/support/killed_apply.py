"""
`apply` that dies after a few requests, again and again: as kill -9 at stage boundaries, in the test's process.

At night it dies after its first request, so at every boundary.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.support.labs import ignore_progress
from tests.support.night import repetitions
from vstream.apply import execute as module
from vstream.apply.interfaces import LEFT_TO_OTHERS, Administration
from vstream.apply.mappings import LabMappings
from vstream.jetstream.admin import JetStreamAdmin, ask_until_available
from vstream.jetstream.region_connections import connect_all, join_connections
from vstream.lab import binaries, lifecycle
from vstream.lab.remove_servers import LabServerAdmin
from vstream.lab.start import LabSetup
from vstream.plan.live.gate_checks import LiveGateChecker
from vstream.plan.live.reader_positions import LivePositionReader
from vstream.plan.model import Plan
from vstream.render.pipeline import render_bundle
from vstream.servers.find_servers import find_and_trust_servers
from vstream.servers.server_plan import make_server_plan
from vstream.topology.consumer_config import ConsumerConfig
from vstream.topology.model import Topology
from vstream.topology.stream_config import StreamConfig

REQUESTS = repetitions(8, night=1)
"""How many a run makes before it dies."""
RUNS = 40
"""More than there are requests."""


class KilledError(Exception):
    """As kill -9: nothing in vstream catches it."""


class Mortal:
    """What apply changes the world through: the first requests have their effect, and then everything ends."""

    def __init__(self, admin: JetStreamAdmin, mappings: LabMappings, servers: LabServerAdmin, done: list[str]) -> None:
        self._admin = admin
        self._mappings = mappings
        self._servers = servers
        self._done = done
        self._left = REQUESTS

    def _dies(self, what: str) -> None:
        self._done.append(what)
        self._left -= 1
        if self._left == 0:
            raise KilledError

    async def create(self, config: StreamConfig) -> None:
        await self._admin.create(config)
        self._dies(f"create {config.name}")

    async def update(self, config: StreamConfig) -> None:
        await self._admin.update(config)
        self._dies(f"update {config.name}")

    async def read(self, name: str) -> StreamConfig:
        return await self._admin.read(name)

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

    async def ensure_loaded(self) -> None:
        await self._mappings.ensure_loaded()
        self._dies("load mappings")

    async def retire(self, servers: Sequence[str]) -> None:
        await self._servers.retire(servers)
        self._dies(f"retire {', '.join(servers)}")


@asynccontextmanager
async def running_lab(name: str, topology: Topology, version: str, **others: str) -> AsyncIterator[None]:
    """
    Lab *name* of *topology* with servers of *version*, and nothing in it; it is taken down in the end.

    *others* are the versions of the first servers of regions.
    """
    await lifecycle.up(
        name,
        topology,
        lambda addresses: render_bundle(topology, addresses=addresses),
        LabSetup(
            binary=binaries.find_or_fetch(version),
            binaries={f"{region}-1": binaries.find_or_fetch(first) for region, first in others.items()},
        ),
        on_progress=ignore_progress,
        timeout=120,
    )
    try:
        yield
    finally:
        await lifecycle.down(name, purge=True)


async def plan_lab(
    wanted: Topology, name: str, *, adopt: frozenset[str] = frozenset(), lost: tuple[str, ...] = ()
) -> Plan:
    """What is left to do on lab *name*, once its servers say so: with a link cut, they may elect for longer than a plan waits."""
    servers = find_and_trust_servers(wanted, name)
    planned = await ask_until_available(lambda: make_server_plan(wanted, servers, None, adopt=adopt, lost=lost))
    return planned.plan


async def run(
    wanted: Topology,
    name: str,
    done: list[str] | None = None,
    *,
    adopt: frozenset[str] = frozenset(),
    lost: tuple[str, ...] = (),
) -> Plan:
    """One run of `apply`, which dies after a few requests, added to *done*, if that is given. The plan that it had."""
    servers = find_and_trust_servers(wanted, name)
    planned = await make_server_plan(wanted, servers, None, adopt=adopt, lost=lost)
    plan = planned.plan
    assert not plan.blocked, plan.blocked
    async with connect_all(wanted, servers.endpoints) as connections:
        connection = join_connections(connections)
        admin, mappings = JetStreamAdmin(connection), LabMappings(name, planned.request.bundle, lost=lost)
        server_admin = LabServerAdmin(name)
        mortal = None if done is None else Mortal(admin, mappings, server_admin, done)
        applied = await module.execute_plan(
            plan,
            Administration(
                streams=mortal or admin,
                checker=LiveGateChecker(connection),
                positions=LivePositionReader(connection),
                mappings=mortal or mappings,
                servers=mortal or server_admin,
                readers=LEFT_TO_OTHERS,
            ),
            gate_timeout=120,
        )
        assert applied.is_complete, (applied.failure, applied.gate_timeouts, applied)
    return plan


async def apply_until_done(
    wanted: Topology, name: str, *, adopt: frozenset[str] = frozenset(), lost: tuple[str, ...] = ()
) -> list[str]:
    """What all runs together did."""
    done: list[str] = []
    in_flight, module.MAX_PARALLEL_REQUESTS = module.MAX_PARALLEL_REQUESTS, 1
    try:
        for _ in range(RUNS):
            try:
                plan = await run(wanted, name, done, adopt=adopt, lost=lost)
            except KilledError:
                continue
            if plan.is_empty:
                return done
    finally:
        module.MAX_PARALLEL_REQUESTS = in_flight
    raise AssertionError(f"not done after {RUNS} runs: {done}")
