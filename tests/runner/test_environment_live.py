"""The lab of a scenario has all that its topology says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scenario_runs import TOPOLOGY, scenario
from vstream.jetstream.admin import JetStreamAdmin
from vstream.lab import lab
from vstream.plan.live.connections import choose_connection, connect_all
from vstream.runner.environment import prepare_lab, topology_of

pytestmark = pytest.mark.lab


async def test_the_lab_of_a_scenario_has_the_consumers_of_its_topology(state: Path) -> None:
    rehearsal = scenario(topology=TOPOLOGY + "    consumers: {billing: {}, audit: {regions: [east]}}\n")
    try:
        environment = await prepare_lab(rehearsal, topology_of(rehearsal), "rehearsal", lambda _text: None)
        async with connect_all(environment.topology, environment.endpoints) as connections:
            admin = JetStreamAdmin(choose_connection(connections))
            consumers = {
                region: sorted((await admin.consumers(f"foo-read-{region}"))[0])
                for region in ("west", "central", "east")
            }
    finally:
        await lab.down("rehearsal", purge=True)
    assert consumers == {"west": ["billing"], "central": ["billing"], "east": ["audit", "billing"]}
