"""The lab of a scenario has all that its topology says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.meta_leader import lead_meta_group_from
from tests.support.scenario_runs import TOPOLOGY, scenario
from vstream.apply import region_change
from vstream.chaos.faults import resolve
from vstream.chaos.inject import InjectionRequest, heal, inject
from vstream.errors import RefusedError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.region_connections import connect_all, join_connections
from vstream.lab import lifecycle
from vstream.lab.state import lab_directory
from vstream.runner.environment import change_region_in_lab, prepare_lab
from vstream.scenario import fault_types
from vstream.scenario.fault_types import FaultSpec
from vstream.scenario.model import ChangeRegion, RegionCommand
from vstream.servers.target_servers import load_and_trust_lab

pytestmark = pytest.mark.lab


async def test_the_lab_of_a_scenario_has_the_consumers_of_its_topology(state: Path) -> None:
    rehearsal = scenario(topology=TOPOLOGY + "    consumers: {billing: {}, audit: {regions: [east]}}\n")
    try:
        environment = await prepare_lab(rehearsal, "rehearsal", lambda _text: None)
        async with connect_all(environment.topology, environment.endpoints) as connections:
            admin = JetStreamAdmin(join_connections(connections))
            consumers = {
                region: sorted((await admin.consumers(f"foo-read-{region}"))[0])
                for region in ("west", "central", "east")
            }
    finally:
        await lifecycle.down("rehearsal", purge=True)
    assert consumers == {"west": ["billing"], "central": ["billing"], "east": ["audit", "billing"]}


async def test_a_step_refuses_what_its_command_would_refuse(state: Path) -> None:
    rehearsal = scenario(topology=TOPOLOGY)
    try:
        environment = await prepare_lab(rehearsal, "rehearsal", lambda _text: None)
        async with connect_all(environment.topology, environment.endpoints) as connections:
            await JetStreamAdmin(join_connections(connections)).delete("foo-read-east")
            with pytest.raises(RefusedError, match="the servers differ from the topology already"):
                await change_region_in_lab(environment, ChangeRegion(command=RegionCommand.DRAIN, region="west"))
    finally:
        await lifecycle.down("rehearsal", purge=True)


async def test_a_step_that_fails_halfway_leaves_the_run_with_the_servers_as_they_are(state: Path) -> None:
    rehearsal = scenario(topology=TOPOLOGY)
    drain = ChangeRegion(command=RegionCommand.DRAIN, region="west")
    try:
        environment = await prepare_lab(rehearsal, "rehearsal", lambda _text: None)
        config = lab_directory("rehearsal").config("east-1")
        valid = config.read_text()
        config.write_text(valid + "broken: {\n")
        changed = await change_region_in_lab(environment, drain)
        assert changed.problem is not None
        assert "refuses the configuration of server `east-1`" in changed.problem
        # As a command, which has written the file before: the next one goes on from there.
        assert "drained: central" in changed.environment.edit.text
        assert not changed.environment.edit.is_changed
        config.write_text(valid)
        again = await change_region_in_lab(changed.environment, drain)
        assert again.problem is None
    finally:
        await lifecycle.down("rehearsal", purge=True)


async def test_a_step_after_which_readers_do_not_resume_leaves_the_run_with_what_it_has_changed(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_change, "_RESYNC_TIMEOUT", 1.0)
    rehearsal = scenario(topology=TOPOLOGY, links="proxy")
    cut = FaultSpec(type=fault_types.PARTITION, targets=("west", "east"))
    try:
        environment = await prepare_lab(rehearsal, "rehearsal", lambda _text: None)
        target = load_and_trust_lab("rehearsal")
        request = InjectionRequest(
            target=target, topology=environment.topology, command=cut.command, is_forced=True, timeout=30
        )
        await lead_meta_group_from("rehearsal", "central-1")  # which everybody still reaches
        await inject(request, await resolve(cut, target, environment.topology, needs_successor=True))
        drain = ChangeRegion(command=RegionCommand.DRAIN, region="central")
        changed = await change_region_in_lab(environment, drain)
        assert changed.problem is not None
        assert "misses a gateway to one or more of" in changed.problem
        assert "drained: west" in changed.environment.edit.text
        assert (await change_region_in_lab(changed.environment, drain)).problem == changed.problem
        await heal(target, None, timeout=60)
        assert (await change_region_in_lab(changed.environment, drain)).problem is None
    finally:
        await lifecycle.down("rehearsal", purge=True)
