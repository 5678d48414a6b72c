"""Steps and faults in words."""

from __future__ import annotations

import pytest

from tests.support.scenario_runs import NS
from vstream.runner.events import describe_action
from vstream.scenario import fault_types
from vstream.scenario.fault_types import FaultSpec
from vstream.scenario.model import (
    Action,
    ChangeRegion,
    Converge,
    Heal,
    Inject,
    RegionCommand,
    RepairMeta,
    Resync,
    Try,
    Wait,
)


def fault(kind: fault_types.FaultType, *targets: str, **options: str | float | bool) -> FaultSpec:
    return FaultSpec(type=kind, targets=targets, options=options)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Wait(nanoseconds=1500 * NS // 1000), "wait 1s500ms"),
        (Inject(fault=fault(fault_types.KILL_REGION, "west", "east"), id="a"), "kill-region west east"),
        (
            Inject(fault=fault(fault_types.PARTITION, "west", "central,east", how="drop", one_way=True), id="a"),
            "partition west | central,east --how drop --one-way",
        ),
        (
            Inject(
                fault=fault(fault_types.LINK, "west", "east", rtt=140 * NS // 1000, loss=0.05), id="a", lasting=9 * NS
            ),
            "link west east --rtt 140ms --loss 5% for 9s",
        ),
        (Inject(fault=fault(fault_types.ROLLING_RESTART, lame_duck=False), id="a"), "rolling-restart"),
        (Heal(), "heal"),
        (Heal(ids=("a", "b")), "heal a, b"),
        (Resync(), "resync"),
        (Converge(within=60 * NS), "converge within 1m"),
        (Try(regions=("west", "east")), "try in west, east"),
        (ChangeRegion(command=RegionCommand.UNDO_DRAIN, region="west"), "drain west --undo"),
        (ChangeRegion(command=RegionCommand.FAILBACK, region="west"), "failback west"),
        (RepairMeta(), "repair meta"),
    ],
)
def test_a_step_is_described_as_people_would_say_it(action: Action, words: str) -> None:
    assert describe_action(action) == words
