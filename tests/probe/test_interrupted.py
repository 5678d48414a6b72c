"""Probes that are cancelled, have no time, or meet regions that are down or hang."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.support.probe_lab import (
    LAB,
    REGIONS,
    World,
    bad,
    connect_world,
    of,
    physical,
    start,
    until,
)
from vstream.errors import NotReachableError
from vstream.jetstream.connection import open_connection
from vstream.lab.endpoints import list_endpoints
from vstream.lab.server import NatsServer
from vstream.lab.state import lab_directory
from vstream.probe.report import CheckKind, CheckStatus, Progress
from vstream.topology.model import Role

pytestmark = pytest.mark.lab


async def test_a_cancelled_probe_cleans_up(world: World) -> None:
    # One pair never arrives: the probe is still waiting when it is cancelled.
    sources = [source for source in world.config("foo-read-east")["sources"] if source["name"] != "foo-write-west"]
    await world.create_all(changes={"foo-read-east": {"sources": sources}})
    steps: list[Progress] = []
    probe = asyncio.create_task(world.probe(timeout=60.0, on_progress=steps.append))

    async def missing() -> str | None:
        counts = await world.messages()
        stored = sum(counts.get(physical(Role.READ, region), 0) for region in REGIONS)
        return None if stored == 8 else f"{stored} canaries are stored"

    await until(missing)
    probe.cancel()
    # A second Ctrl-C does not leave more behind.
    asyncio.get_running_loop().call_later(0.01, probe.cancel)
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert set((await world.messages()).values()) == {0}
    cleaned = {step.check.answered_by: step.check for step in steps if step.check.kind is CheckKind.CLEANUP}
    assert len(cleaned) == 6
    assert {check.status for check in cleaned.values()} == {CheckStatus.OK}


async def test_a_probe_that_is_cancelled_while_it_publishes_cleans_up(world: World) -> None:
    await world.create_all()
    first = world.connections["west"]
    sent = asyncio.Event()
    original = first.request

    async def request(subject: str, *arguments: object, **options: object) -> object:
        if subject.startswith("foo._canary"):
            sent.set()
        return await original(subject, *arguments, **options)  # type: ignore[arg-type]

    first.request = request  # type: ignore[method-assign, assignment]
    probe = asyncio.create_task(world.probe(timeout=60.0))
    await sent.wait()
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe

    async def find_left() -> str | None:
        counts = await world.messages()
        return None if not any(counts.values()) else str(counts)

    await until(find_left, within=30)


async def test_no_time_is_unknown_and_no_pass(world: World) -> None:
    await world.create_all()
    report = await world.probe(timeout=0.0)
    assert not report.is_pass
    assert {check.status for check in report.checks} == {CheckStatus.UNKNOWN, CheckStatus.SKIPPED}
    assert {check.hint for check in of(report, CheckKind.MAPPING)} == {"give the probe more time"}


@pytest.mark.parametrize("is_stale", [False, True])
async def test_the_probe_names_a_region_that_is_down(world: World, binary: Path, is_stale: bool) -> None:
    await world.create_all()
    await world.sourcing()
    victim = NatsServer(lab_directory(LAB), "west-1")
    assert victim.signal(signal.SIGKILL)

    async def alive() -> str | None:
        return "west-1 still runs" if victim.is_running() or world.connections["west"].is_connected else None

    await until(alive)
    connections = dict(world.connections)
    if not is_stale:
        with pytest.raises(NotReachableError) as caught:
            await open_connection(list_endpoints(LAB)["west"], "west", timeout=1.0)
        connections["west"] = caught.value  # type: ignore[assignment]
    try:
        report = await world.probe(connections=connections, timeout=6.0)
        assert not report.is_pass
        assert {region for _, _, region in bad(report)} == {"west"}
        if is_stale:
            assert {check.detail for check in of(report, CheckKind.MAPPING) if check.region == "west"} == {
                "region `west`: lost the connection to its servers"
            }
        else:
            (check,) = of(report, CheckKind.CONNECTION)
            assert (check.region, check.status) == ("west", CheckStatus.FAILED)
            assert "region `west` cannot be reached" in check.detail
        matrix = report.matrix()
        assert all(matrix[origin][reader] is not None for origin in REGIONS[1:] for reader in REGIONS[1:])
        assert all(matrix["west"][reader] is None for reader in REGIONS)
    finally:
        await start(binary)
    async with connect_world() as healed:

        async def find_left() -> str | None:
            try:
                counts = await healed.messages()
            except NotReachableError as error:  # its server has just begun, and may not know of a meta leader yet
                return error.message
            return None if set(counts.values()) == {0} and len(counts) == 6 else str(counts)

        await until(find_left)


async def test_a_region_that_hangs_keeps_nobody_waiting(world: World) -> None:
    await world.create_all()
    await world.sourcing()
    victim = NatsServer(lab_directory(LAB), "west-1")
    assert victim.signal(signal.SIGSTOP)
    try:
        report = await world.probe(timeout=8.0)
    finally:
        assert victim.signal(signal.SIGCONT)
    assert not report.is_pass
    matrix = report.matrix()
    assert all(matrix[origin][reader] is not None for origin in REGIONS[1:] for reader in REGIONS[1:])
    publish = bad(report)["canary_publish", "west", "west"]
    assert publish.status is CheckStatus.UNKNOWN
    # It may be stored once the server goes on: the report says by which mark to know it.
    left = [check for check in of(report, CheckKind.CLEANUP) if check.answered_by == "foo-write-west"]
    assert [check.status for check in left] == [CheckStatus.UNKNOWN]
    assert "Vstream-Canary" in str(left[0].hint)
