"""The servers of a run: its own lab with the topology applied, proven by a probe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from vstream.apply import region_change
from vstream.apply.pipeline import AppliedPlan, apply_and_replan
from vstream.apply.shipping import ShippingOptions
from vstream.errors import UnsupportedError, VstreamError
from vstream.health.live.drain import DrainState
from vstream.health.live.rescue import choose_rescuable_groups, rescue_groups
from vstream.health.live.resync_readers import ResyncMode, resync_readers
from vstream.jetstream.region_connections import connect_all
from vstream.lab import lifecycle
from vstream.lab.binaries import find_or_fetch_binaries
from vstream.lab.endpoints import list_client_endpoints
from vstream.lab.links.state import Backend
from vstream.lab.start import LabSetup
from vstream.lab.state import lab_directory
from vstream.plan.model import Plan, RegionLoss
from vstream.plan.topology_edit import TopologyEdit
from vstream.probe.pipeline import ProbeOptions, run_probe
from vstream.probe.report import CheckStatus
from vstream.scenario.model import ChangeRegion, RegionCommand, Scenario
from vstream.servers.bundles import provide_bundle, render_lab
from vstream.servers.find_servers import find_and_trust_servers
from vstream.servers.server_plan import make_server_plan
from vstream.servers.target_servers import load_and_trust_lab_of
from vstream.topology import physical
from vstream.topology.bundle import Bundle
from vstream.topology.model import Endpoint, Topology
from vstream.value_class import value_class

_LAB_TIMEOUT = 90.0
"""Seconds until the lab of a scenario must be ready: others may run beside it."""
_RESYNC_TIMEOUT = 240.0
"""Seconds. A stream of one replica cannot be stepped down: it asks again when it does so by itself."""
_PROBE_TIMEOUT = 20.0
_PAUSE_SECONDS = 1.0
_WORKING_TIMEOUT = 90.0
"""Seconds until a probe must have passed, or a meta group can be repaired. After a start, sourcing takes a second or two."""


@value_class
class Environment:
    """A running lab, and the topology on it."""

    lab: str
    bundle: Bundle
    endpoints: Mapping[str, Endpoint]
    clients: Mapping[str, Endpoint]
    """Endpoints for applications: with hidden accounts, they see virtual streams only."""
    logs: Path
    """Where its servers log."""
    edit: TopologyEdit
    """The topology as it is written: a region that is given up or drained is so there."""
    templates: Path | None = None
    """Those that win over the built-in ones."""

    @property
    def topology(self) -> Topology:
        """The topology that it has now."""
        return self.edit.topology

    def write_stream_name(self, virtual: str, region: str) -> str:
        """The physical stream that stores what is published on *virtual* in *region*."""
        return physical.write_stream_in(self.topology.stream(virtual), region)

    def read_stream_name(self, virtual: str, region: str) -> str:
        """The physical stream that answers reads of *virtual* in *region*."""
        return physical.read_stream_in(self.topology.stream(virtual), region)


async def prepare_lab(scenario: Scenario, name: str, report: Callable[[str], None]) -> Environment:
    """
    Start lab *name*, apply the topology of *scenario* and prove that it works; *report* tells each step.

    Raises VstreamError if that fails. The caller takes down what was started.
    """
    topology, text, stated = scenario.topology, scenario.topology_text, scenario.lab.versions
    templates = None if scenario.lab.templates is None else Path(scenario.lab.templates)
    report("starting servers")
    binaries = await asyncio.to_thread(find_or_fetch_binaries, topology, stated) if stated else {}
    await lifecycle.up(
        name,
        topology,
        partial(render_lab, name, topology, templates),
        LabSetup(binaries=binaries, links=_choose_backend(scenario.lab.links)),
        on_progress=lambda step: report(f"waiting for {step.stage.value}"),
        timeout=_LAB_TIMEOUT,
    )
    edit = TopologyEdit(file=scenario.topology_file, text=text, original=text, topology=topology)
    environment = _build_environment(name, edit, templates)
    report("applying the topology")
    planned = await make_server_plan(topology, find_and_trust_servers(topology, name), templates)
    if planned.plan.blocked:
        raise _make_blocked_error(planned.plan)
    applied = await apply_and_replan(planned, ShippingOptions(), allowed=())
    if (reason := _explain_unfinished(applied)) is not None:
        raise VstreamError(reason)
    report("probing")
    await _wait_until_probe_passes(environment)
    return environment


def _build_environment(name: str, edit: TopologyEdit, templates: Path | None) -> Environment:
    servers = find_and_trust_servers(edit.topology, name)
    return Environment(
        lab=name,
        bundle=provide_bundle(edit.topology, servers, templates),
        endpoints=servers.endpoints,
        logs=lab_directory(name).log,
        clients=list_client_endpoints(name),
        edit=edit,
        templates=templates,
    )


def _choose_backend(name: str) -> Backend:
    try:
        return Backend(name)
    except ValueError:
        raise UnsupportedError(
            f"labs have no links of the kind `{name}` here", hint="`proxy` works everywhere"
        ) from None


def _make_blocked_error(plan: Plan) -> VstreamError:
    first = plan.blocked[0]
    return VstreamError(f"the topology cannot be applied: stream `{first.name}`: {first.reason}", hint=first.hint)


def _explain_unfinished(applied: AppliedPlan) -> str | None:
    """Why the servers are not as the topology says; None if they are."""
    if applied.is_done:
        return None
    failure = applied.result.failure
    reason = failure.message if failure is not None else "some changes were not made"
    return f"the topology was not applied: {reason}"


@value_class
class ChangedRegion:
    """The servers after a change of a whole region, and why it is not complete."""

    environment: Environment
    losses: tuple[RegionLoss, ...] = ()
    """What was said to be lost, before anything was changed."""
    problem: str | None = None


async def change_region_in_lab(environment: Environment, action: ChangeRegion) -> ChangedRegion:
    """
    Do what `vstream region drain`, `failover` or `failback` do with `--yes`.

    Raises VstreamError, also for what they would refuse. Once servers may have been changed, what went wrong is the
    *problem* of the result: the run goes on with what they are now.
    """
    request = region_change.RegionRequest(
        region=action.region,
        before=environment.edit,
        lab=environment.lab,
        templates=environment.templates,
        is_approved=True,
        writes_file=False,
    )
    result = await _change_region(action, request)
    if isinstance(result, region_change.MaybeAlive):
        raise VstreamError(f"not proved dead: {'; '.join((*result.report.alive, *result.report.unknown))}")
    assert isinstance(result, region_change.PlannedChange)
    if result.applied is None:
        raise _make_blocked_error(result.planned.plan)
    changed = _build_environment(environment.lab, result.edit.as_written(), environment.templates)
    seen = result.drain_state or DrainState()
    failure = None if result.failure is None else result.failure.message
    problems = filter(None, (_explain_unfinished(result.applied), failure, *seen.obstacles, *seen.unknown))
    return ChangedRegion(environment=changed, losses=result.planned.plan.losses, problem="; ".join(problems) or None)


async def _change_region(action: ChangeRegion, request: region_change.RegionRequest) -> region_change.RegionResult:
    observer = region_change.RegionObserver()
    match action.command:
        case RegionCommand.DRAIN:
            return await region_change.drain(request, observer)
        case RegionCommand.UNDO_DRAIN:
            return await region_change.undo_drain(request, observer)
        case RegionCommand.FAILOVER:
            return await region_change.fail_over(request, observer, also=action.also)
        case RegionCommand.FAILBACK:
            return await region_change.fail_back(request, observer)


async def repair_meta(environment: Environment) -> None:
    """Do what `vstream repair meta` does with `--yes`, once it can. Raises VstreamError."""
    topology = environment.topology
    deadline = time.monotonic() + _WORKING_TIMEOUT
    while True:
        groups = await rescue_groups(topology, find_and_trust_servers(topology, environment.lab), is_approved=True)
        if choose_rescuable_groups(groups):
            return
        if time.monotonic() > deadline:
            reasons = [reason for group in groups for reason in (group.refusal, *group.unknown) if reason is not None]
            raise VstreamError(f"the meta group cannot be repaired: {'; '.join(reasons)}")
        await asyncio.sleep(_PAUSE_SECONDS)


async def resync_streams(environment: Environment) -> None:
    """Do what `vstream repair sources` does. Raises VstreamError if it is not complete."""
    topology = environment.topology
    target = load_and_trust_lab_of(topology, environment.lab)
    result = await resync_readers(topology, target, timeout=_RESYNC_TIMEOUT, mode=ResyncMode.ALL)
    if result.behind:
        raise VstreamError("; ".join(f"{stream.stream}: {stream.note}" for stream in result.behind))


async def _wait_until_probe_passes(environment: Environment) -> None:
    deadline = time.monotonic() + _WORKING_TIMEOUT
    while True:
        async with connect_all(environment.topology, environment.endpoints) as connections:
            report = await run_probe(environment.topology, connections, ProbeOptions(timeout=_PROBE_TIMEOUT))
        if report.is_pass:
            return
        if time.monotonic() > deadline:
            wrong = next(check for check in report.checks if check.status not in {CheckStatus.OK, CheckStatus.SKIPPED})
            raise VstreamError(
                f"stream `{wrong.stream}` does not work before any fault: {wrong.detail}",
                hint="`vstream lab up`, `vstream apply` and `vstream probe` show the same by themselves",
            )
