"""The servers of a run: its own lab with the topology applied, proven by a probe."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vstream.errors import UnsupportedError, VstreamError
from vstream.lab import keys, lab
from vstream.lab.binaries import locate_binaries
from vstream.lab.links.state import Backend
from vstream.lab.mappings import mapping_admin
from vstream.lab.state import lab_directory
from vstream.lint.load_topology import load
from vstream.lint.load_topology import render_bundle as rendered
from vstream.plan.live.observe import connect_all
from vstream.plan.pipeline import PlanRequest, apply_plan, make_plan
from vstream.probe import checks
from vstream.probe.report import CheckStatus
from vstream.topology import physical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vstream.scenario.model import Scenario
    from vstream.topology.bundle import Bundle, ServerAddress
    from vstream.topology.model import Endpoint, Topology

_UP = 90.0
_PROBE = 20.0
_WORKS = 90.0
"""Seconds until a probe must have passed. After a start, sourcing takes a second or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A running lab, and the topology on it."""

    lab: str
    topology: Topology
    bundle: Bundle
    endpoints: Mapping[str, Endpoint]
    clients: Mapping[str, Endpoint]
    """Endpoints for applications: with hidden accounts, they see virtual streams only."""
    logs: Path
    """Where its servers log."""

    def write_stream(self, virtual: str, region: str) -> str:
        """The physical stream that stores what is published on *virtual* in *region*."""
        return physical.write_stream_in(
            next(stream for stream in self.topology.streams if stream.name == virtual), region
        )

    def read_stream(self, virtual: str, region: str) -> str:
        """The physical stream that answers reads of *virtual* in *region*."""
        return physical.read_stream_in(
            next(stream for stream in self.topology.streams if stream.name == virtual), region
        )


def topology_of(scenario: Scenario) -> Topology:
    """The topology of *scenario*. Raises InvalidInputError with everything wrong in it."""
    return load(scenario.topology_text.encode(), scenario.topology_file).require()


async def set_up(scenario: Scenario, topology: Topology, name: str, say: Callable[[str], None]) -> Environment:
    """
    Start lab *name*, apply the topology and prove that it works; *say* reports each stage.

    Raises VstreamError if that fails. The caller takes down what was started.
    """
    stated = scenario.lab.versions
    templates = None if scenario.lab.templates is None else Path(scenario.lab.templates)

    def render(addresses: Sequence[ServerAddress]) -> Bundle:
        return rendered(topology, addresses=addresses, templates=templates, signer=keys.signer(name, topology))

    say("starting servers")
    binaries = await asyncio.to_thread(locate_binaries, topology, stated) if stated else None
    await lab.up(
        name,
        topology,
        render,
        binaries=binaries,
        on_progress=lambda step: say(f"waiting for {step.stage.value}"),
        timeout=_UP,
        links=_backend(scenario.lab.links),
    )
    stage = Environment(
        lab=name,
        topology=topology,
        bundle=render(lab.addresses(name)),
        endpoints=lab.endpoints(name),
        logs=lab_directory(name).log,
        clients=lab.client_endpoints(name),
    )
    say("applying the topology")
    await _apply(stage)
    say("probing")
    await _prove(stage)
    return stage


def _backend(name: str) -> Backend:
    try:
        return Backend(name)
    except ValueError:
        raise UnsupportedError(
            f"labs have no links of the kind `{name}` here", hint="`proxy` works everywhere"
        ) from None


async def _apply(stage: Environment) -> None:
    request = PlanRequest(topology=stage.topology, bundle=stage.bundle, endpoints=stage.endpoints)
    plan = await make_plan(request)
    if plan.blocked:
        first = plan.blocked[0]
        raise VstreamError(f"the topology cannot be applied: stream `{first.name}`: {first.reason}", hint=first.hint)
    applied = await apply_plan(request, plan, mapping_admin(stage.lab, stage.bundle))
    if not applied.is_complete:
        reason = applied.failure.message if applied.failure is not None else "some changes were not made"
        raise VstreamError(f"the topology was not applied: {reason}")


async def _prove(stage: Environment) -> None:
    deadline = time.monotonic() + _WORKS
    while True:
        async with connect_all(stage.topology, stage.endpoints) as connections:
            report = await checks.run_probe(
                stage.topology, connections, deadline=_PROBE, on_progress=lambda _step: None
            )
        if report.is_pass:
            return
        if time.monotonic() > deadline:
            wrong = next(check for check in report.checks if check.status not in {CheckStatus.OK, CheckStatus.SKIPPED})
            raise VstreamError(
                f"stream `{wrong.stream}` does not work before any fault: {wrong.detail}",
                hint="`vstream lab up`, `vstream apply` and `vstream probe` show the same by themselves",
            )
