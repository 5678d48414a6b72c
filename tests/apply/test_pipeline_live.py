"""What the pipeline says of servers that end while it applies."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

from tests.support.labs import ignore_progress
from tests.support.topologies import begin_topology
from vstream.apply.pipeline import AppliedPlan, ApplyEnd, apply_and_replan
from vstream.apply.result import ApplyObserver
from vstream.apply.shipping import ShippingOptions
from vstream.errors import NotReachableError
from vstream.lab import lifecycle
from vstream.lab.server import NatsServer
from vstream.lab.state import lab_directory
from vstream.lint.check_topology import check_topology
from vstream.plan.model import Change, Update
from vstream.servers.bundles import render_lab
from vstream.servers.find_servers import find_and_trust_servers
from vstream.servers.server_plan import make_server_plan

pytestmark = pytest.mark.lab


async def apply(max_age: str, observer: ApplyObserver) -> AppliedPlan:
    streams = f"streams:\n  foo: {{subjects: [foo.>], write: {{max_age: {max_age}}}}}\n"
    topology = check_topology((begin_topology("alone", "2.12", west=1) + streams).encode(), "t.yaml").require()
    render = partial(render_lab, "alone", topology, None)
    await lifecycle.up("alone", topology, render, on_progress=ignore_progress)
    planned = await make_server_plan(topology, find_and_trust_servers(topology, "alone"), None)
    return await apply_and_replan(planned, ShippingOptions(), allowed=(), observer=observer)


async def test_what_was_done_is_known_where_planning_again_fails(state: Path) -> None:
    def kill(_change: Change) -> None:
        NatsServer(lab_directory("alone"), "west-1").signal(signal.SIGKILL)

    try:
        assert (await apply("1h", ApplyObserver())).is_done
        applied = await apply("2h", ApplyObserver(on_done=kill))
    finally:
        await lifecycle.down("alone", purge=True)
    assert [type(change) for change in applied.result.done] == [Update]
    assert isinstance(applied.result.failure, NotReachableError)
    assert (applied.outcome, applied.is_done, applied.remaining) == (ApplyEnd.FAILED, False, None)
