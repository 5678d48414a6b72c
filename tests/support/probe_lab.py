"""A lab of three regions with one virtual stream, and what tests do to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.labs import processes_in
from tests.support.topologies import begin_topology
from vstream.errors import NotReachableError, VstreamError
from vstream.jetstream.connection import Connection, open_connection
from vstream.lab import lifecycle
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lab.readiness import ReadinessProgress
from vstream.lab.start import LabSetup
from vstream.lint import check_topology
from vstream.probe.pipeline import ProbeOptions, run_probe
from vstream.probe.report import Check, CheckKind, CheckStatus, ProbeReport, Progress
from vstream.render.pipeline import render_bundle
from vstream.topology.bundle import Bundle
from vstream.topology.model import Role, Topology
from vstream.topology.physical import physical_name
from vstream.topology.server_address import ServerAddress

LAB = "probe"
REGIONS = ("west", "central", "east")
CANARY = "foo._canary.west"

TOPOLOGY = (
    begin_topology("probed", "2.10", west=1, central=1, east=1)
    + """\
streams:
  foo:
    subjects: [foo.>, bar.*.baz]
    canary: foo._canary.*
    write: {max_age: 1h}
"""
).encode()


def topology() -> Topology:
    return check_topology.check_topology(TOPOLOGY, "probed.yaml").require()


def render(addresses: Sequence[ServerAddress]) -> Bundle:
    return render_bundle(topology(), addresses=addresses)


def physical(role: Role, region: str) -> str:
    return physical_name(topology().streams[0], role, region)


async def start(binary: Path) -> None:
    def silent(_: ReadinessProgress) -> None:
        pass

    await lifecycle.up(LAB, topology(), render, LabSetup(binary=binary), on_progress=silent)


@contextmanager
def running_lab(state: Path, binary: Path) -> Iterator[None]:
    """The lab, in a state directory of its own that nothing runs in afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSTREAM_STATE_DIR", str(state))
        asyncio.run(start(binary))
        try:
            yield
        finally:
            asyncio.run(lifecycle.down(LAB, purge=True))
    assert processes_in(state) == []


class World:
    """The running lab with its physical streams. *connections* are by region."""

    def __init__(self, connections: dict[str, Connection]) -> None:
        self.connections = connections
        self.bundle = render(list_addresses(LAB))

    async def api(self, subject: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        connection = next(connection for connection in self.connections.values() if connection.is_connected)
        answer = await connection.request_json(f"$JS.API.{subject}", body)
        assert "error" not in answer, answer
        return answer

    def config(self, name: str) -> dict[str, Any]:
        return next(dict(stream.config.fields) for stream in self.bundle.streams if stream.config.name == name)

    async def create_all(
        self, *, without: Sequence[str] = (), changes: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """All physical streams but *without*, with *changes* of their fields, by name."""
        for stream in self.bundle.streams:
            name = stream.config.name
            if name not in without:
                await self.api(f"STREAM.CREATE.{name}", {**self.config(name), **(changes or {}).get(name, {})})

    async def sourcing(self) -> None:
        """
        Return once every source has been heard from, which makes a short deadline of a probe a fair one.

        Sourcing over gateways was seen to begin 39 s after a restart.
        """

        async def unheard() -> str | None:
            listed = (await self.api("STREAM.LIST"))["streams"] or ()
            sources = [(info["config"]["name"], source) for info in listed for source in info.get("sources", ())]
            silent = [f"{name} <- {source['name']}" for name, source in sources if source["active"] < 0]
            return None if sources and not silent else f"not heard from: {silent}"

        await until(unheard)

    async def delete_all(self) -> None:
        for name in (await self.api("STREAM.NAMES"))["streams"] or ():
            await self.api(f"STREAM.DELETE.{name}")

    async def messages(self) -> dict[str, int]:
        listed = (await self.api("STREAM.LIST"))["streams"] or ()
        return {info["config"]["name"]: info["state"]["messages"] for info in listed}

    async def publish(self, region: str, subject: str) -> None:
        await self.connections[region].request(subject, b"data")

    async def load_mappings(self, region: str, change: Callable[[str], str]) -> None:
        """Make the server of *region* alone run with a changed mappings.cfg. The others keep theirs."""
        (server,) = [address.server.name for address in list_addresses(LAB) if address.region == region]
        server_file = f"servers/{server}.conf"
        text = change(self.bundle.text("mappings.cfg"))
        assert text != self.bundle.text("mappings.cfg")
        artifacts = tuple(
            replace(artifact, text=artifact.text.replace('include "../mappings.cfg"', text))
            if artifact.path == server_file
            else artifact
            for artifact in self.bundle.artifacts
        )
        reloaded = await lifecycle.reload(LAB, replace(self.bundle, artifacts=artifacts))
        assert not reloaded.refused

    async def restore_mappings(self) -> None:
        assert not (await lifecycle.reload(LAB, self.bundle)).refused

    async def probe(
        self,
        *,
        timeout: float = 45.0,
        connections: Mapping[str, Connection | NotReachableError] | None = None,
        regions: Sequence[str] | None = None,
        on_progress: Callable[[Progress], None] = lambda _: None,
        all_forms: bool = False,
    ) -> ProbeReport:
        """The timeout lets sourcing begin; call `sourcing` before a shorter one."""
        return await run_probe(
            topology(),
            self.connections if connections is None else connections,
            ProbeOptions(regions=regions, timeout=timeout, on_progress=on_progress, all_forms=all_forms),
        )


@asynccontextmanager
async def connect_world() -> AsyncIterator[World]:
    connections = {region: await open_connection(endpoint, region) for region, endpoint in list_endpoints(LAB).items()}
    try:
        yield World(connections)
    finally:
        await asyncio.gather(*(connection.close() for connection in connections.values()))


@asynccontextmanager
async def empty_world() -> AsyncIterator[World]:
    """The lab with the right mappings and no streams."""
    async with connect_world() as bare_world:
        await bare_world.restore_mappings()

        async def full() -> str | None:
            try:
                await bare_world.delete_all()
            except (VstreamError, AssertionError) as error:
                return str(error)  # a server that was stopped before is not part of JetStream again yet
            return None

        await until(full)
        yield bare_world


async def until(complaint: Callable[[], Awaitable[str | None]], within: float = 60.0, *, pause: float = 0.1) -> None:
    """
    Return once *complaint* has none; fail with its last one. To ask costs CPU that others need: *pause* in between.

    A new source is asked again after 10 s and later, if its first request met a server that was not yet ready.
    """
    deadline = time.monotonic() + within
    while (text := await complaint()) is not None:
        assert time.monotonic() < deadline, text
        await asyncio.sleep(pause)


def bad(report: ProbeReport) -> dict[tuple[str, str | None, str | None], Check]:
    """What is neither ok nor skipped, by hop, origin and region."""
    return {
        (check.kind.value, check.origin, check.region): check
        for check in report.checks
        if check.status in {CheckStatus.FAILED, CheckStatus.UNKNOWN}
    }


def of(report: ProbeReport, kind: CheckKind) -> list[Check]:
    return [check for check in report.checks if check.kind is kind]
