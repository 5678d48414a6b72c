"""A region that goes where mappings stay: its write stream closes, and only then is drained and deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.plans import FakeServers, make_plan, read_back, render_streams
from vstream.apply.execute import execute_plan
from vstream.apply.result import ApplyResult
from vstream.plan.model import Plan, TransitionStep, Update
from vstream.plan.saved import require_same
from vstream.plan.stages import list_stages
from vstream.topology.bundle import Bundle

TWO = ["west", "central"]
ALL = [*TWO, "east"]


def regions(routing: str, names: list[str], known: list[str] = ALL) -> Bundle:
    stream = {"subjects": ["v.foo.>"], "regions": names}
    more: dict[str, Any] = {} if routing == "mapped" else {"roots": ["v.>"], "server_version": "2.12"}
    return render_streams(
        {"foo": stream}, routing=routing, regions={region: {"servers": 1} for region in known}, **more
    )


def plan_change(servers: FakeServers, wanted: Bundle, known: list[str] = ALL) -> Plan:
    is_apart = any("/" in stream.config.name and "_" not in stream.config.name for stream in wanted.streams)
    observed = replace(servers.observe(), rules={})
    return make_plan("acme", wanted, observed, domains=known if is_apart else ())


async def run(servers: FakeServers, wanted: Bundle) -> ApplyResult:
    return await execute_plan(plan_change(servers, wanted), servers.administer(None))


@pytest.mark.parametrize(
    ("routing", "closes"), [("mapped", None), ("accounts", "W_east/foo"), ("domains", "east/foo-write")]
)
async def test_a_write_stream_that_clients_still_reach_closes_before_it_is_drained(
    routing: str, closes: str | None
) -> None:
    servers = FakeServers()
    await run(servers, regions(routing, ALL))
    plan = plan_change(servers, regions(routing, TWO))
    assert plan.blocked == ()
    closing = [change for change in plan.changes if isinstance(change, Update) and change.step is TransitionStep.CLOSE]
    assert [change.config.name for change in closing] == ([closes] if closes else [])
    titles = [stage.title for stage in list_stages(plan)]
    assert titles == [
        *(["close write streams"] if closes else []),
        "remove sources",
        "delete read streams",
        "delete write streams",
    ]
    require_same(plan, read_back(plan))
    if closes is None:
        return
    # Killed after that, the next run does not close it again; and the region can come back instead.
    await servers.update(closing[0].config)
    assert "close write streams" not in [
        stage.title for stage in list_stages(plan_change(servers, regions(routing, TWO)))
    ]
    (again,) = [change for change in plan_change(servers, regions(routing, ALL)).changes if isinstance(change, Update)]
    assert [field.path for field in again.fields] == ["subjects"]
    assert (await run(servers, regions(routing, TWO))).is_complete
    assert closes not in servers.streams_by_name


async def test_a_domain_does_not_leave_the_topology_before_others_have_everything_of_it() -> None:
    servers = FakeServers()
    await run(servers, regions("domains", ALL))
    early = plan_change(servers, regions("domains", TWO, TWO), TWO)
    assert {blocker.name for blocker in early.blocked} == {"west/foo", "central/foo", "east/foo", "east/foo-write"}
    # Nobody connects there any more: the streams of the domain are not even seen.
    for name in ("east/foo", "east/foo-write"):
        del servers.streams_by_name[name]
    unseen = plan_change(servers, regions("domains", TWO, TWO), TWO)
    assert {blocker.name for blocker in unseen.blocked} == {"west/foo", "central/foo"}
    assert "nobody can ask `east`" in unseen.blocked[0].reason
