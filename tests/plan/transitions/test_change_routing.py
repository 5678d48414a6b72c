"""Plans of a topology that moves from `routing: mapped` to `accounts`: what is done when, and what is not done at all."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import vstream
from tests.support.plans import FakeServers, make_plan, render_streams
from vstream.apply.execute import execute_plan
from vstream.cli.views import plan as view
from vstream.plan.context import Observed
from vstream.plan.model import Create, Delete, GateKind, Plan
from vstream.plan.rules import list_account_entries, list_rule_entries
from vstream.plan.stages import Stage, list_stages, loading_stage_of, stage_of
from vstream.topology.bundle import Bundle
from vstream.topology.stream_config import StreamConfig

TWO = {"west": {"servers": 1}, "east": {"servers": 1}}


def bundle(routing: str, **over: Any) -> Bundle:
    return render_streams(routing=routing, account="ACME", regions=TWO, server_version="2.12", **over)


MAPPED = bundle("mapped")
AHEAD = bundle("mapped", moves_to="accounts")
BEHIND = bundle("accounts", moves_from="mapped")
AFTER = bundle("accounts")
NEW = {f"{account}_{region}/foo" for account in "WR" for region in TWO}
FORMER = {f"M_clients/foo-{role}-{region}" for role in ("read", "write") for region in TWO}


async def servers_with(before: Bundle, *, as_former: bool) -> FakeServers:
    """What there is as *before* says; what is in the account of clients is perhaps asked for aside."""
    servers = FakeServers()
    for stream in before.streams:
        name = stream.config.name
        stream_name = f"M_clients/{name}" if as_former and "/" not in name else name
        await servers.create(StreamConfig(name=stream_name, fields=stream.config.fields))
    return servers


def plan_change(before: Bundle, after: Bundle, servers: FakeServers) -> Plan:
    entries = {**list_rule_entries(before.mappings), **list_account_entries(before.accounts)}
    rules = {address.server.name: entries for address in before.servers}
    observed = Observed(streams=servers.streams_by_name, rules=rules)
    return make_plan("acme", after, observed, server_version=(2, 12))


def render_plan(plan: Plan) -> str:
    return "\n".join(line.plain for line in view.render_plan(plan))


async def test_the_new_layout_is_made_and_fed_beside_the_old_one() -> None:
    plan = plan_change(MAPPED, AHEAD, await servers_with(MAPPED, as_former=False))
    assert (plan.blocked, plan.gates) == ((), ())
    assert "clients notice nothing of this step: they stay" in render_plan(plan)
    assert {change.config.name for change in plan.changes if isinstance(change, Create)} == NEW
    assert len(plan.changes) == len(NEW)
    assert loading_stage_of(plan) is Stage.LOAD_ACCOUNTS
    for change in (change for change in plan.changes if isinstance(change, Create)):
        region = change.config.name.removesuffix("/foo")[2:]
        follows = {f"M_clients/foo-read-{region}"} if change.config.name.startswith("R_") else set()
        assert set(change.config.source_names) - NEW == follows
    after = plan_change(AHEAD, AHEAD, await servers_with(AHEAD, as_former=False))
    assert (after.is_empty, after.notes) == (True, ())


async def test_clients_are_led_over_once_the_new_layout_has_everything() -> None:
    plan = plan_change(AHEAD, BEHIND, await servers_with(AHEAD, as_former=True))
    assert (plan.blocked, plan.changes, plan.is_destructive) == ((), (), False)
    assert loading_stage_of(plan) is Stage.LOAD_MAPPINGS
    assert [(gate.kind, gate.stream, gate.counterparts) for gate in plan.gates] == [
        (GateKind.HAS_ALL_OF_FORMER, f"R_{region}/foo", (f"M_clients/foo-read-{region}",)) for region in TWO
    ]
    assert "clients move over: " in render_plan(plan)
    after = plan_change(BEHIND, BEHIND, await servers_with(BEHIND, as_former=True))
    assert (after.is_empty, after.notes) == (True, ())


async def test_the_old_layout_goes_once_it_is_read_to_its_end_and_the_accounts_go_last() -> None:
    servers = await servers_with(BEHIND, as_former=True)
    plan = plan_change(BEHIND, AFTER, servers)
    assert plan.blocked == ()
    assert plan.is_destructive
    assert {change.config.name for change in plan.changes if isinstance(change, Delete)} == FORMER
    assert [(stage.title, [gate.kind for gate in stage.gates]) for stage in list_stages(plan)] == [
        ("drain former streams", [GateKind.FORMER_READERS_HAVE_ALL] * 2),
        ("remove sources", [GateKind.READERS_HAVE_ALL] * 2),
        ("delete read streams", [GateKind.NOTHING_HAS_ARRIVED_SINCE] * 4),
        ("delete write streams", []),
        ("unload former accounts", []),
    ]
    assert "every server has loaded the mappings" not in render_plan(plan)
    assert "clients lose the consumers of the old streams" in render_plan(plan)

    for region in TWO:  # a run that ended once the sources had gone
        name = f"R_{region}/foo"
        after = next(stream.config for stream in AFTER.streams if stream.config.name == name)
        await servers.update(after)
    rest = plan_change(BEHIND, AFTER, servers)
    assert {stage_of(change) for change in rest.changes} == {Stage.DELETE_READ_STREAMS, Stage.DELETE_WRITE_STREAMS}
    assert {gate.kind for gate in rest.gates} == {GateKind.NOTHING_HAS_ARRIVED_SINCE}
    assert loading_stage_of(rest) is Stage.UNLOAD_FORMER_ACCOUNTS


async def test_accounts_that_are_yours_to_load_are_left_until_the_old_layout_has_gone() -> None:
    servers = await servers_with(BEHIND, as_former=True)
    applied = await execute_plan(plan_change(BEHIND, AFTER, servers), servers.administer(None))
    assert (applied.mappings_pending, applied.skipped, applied.gate_timeouts) == (True, (), ())
    assert servers.streams_by_name.keys() == NEW


async def test_accounts_stay_while_what_they_serve_may_not_go() -> None:
    servers = await servers_with(BEHIND, as_former=True)
    plan = replace(plan_change(BEHIND, AFTER, servers), unread_servers=("east-1",))
    assert "every server has loaded the mappings" in render_plan(plan)
    applied = await execute_plan(plan, servers.administer(AFTER))
    assert (applied.unread_servers, applied.done, applied.mappings_loaded) == (("east-1",), (), False)
    assert servers.streams_by_name.keys() == NEW | FORMER


@pytest.mark.parametrize("after", [BEHIND, AFTER])
async def test_no_step_is_left_out(after: Bundle) -> None:
    first = plan_change(MAPPED, after, await servers_with(MAPPED, as_former=False))
    assert {blocker.name for blocker in first.blocked} == {name.partition("/")[2] for name in FORMER}
    assert all("`moves_to: accounts` first" in blocker.hint for blocker in first.blocked)
    if after is AFTER:
        second = plan_change(AHEAD, after, await servers_with(AHEAD, as_former=True))
        assert {blocker.name for blocker in second.blocked} == FORMER
        assert all("`moves_from: mapped`" in blocker.hint for blocker in second.blocked)


async def test_there_is_a_way_back_until_clients_have_been_led_over() -> None:
    servers = await servers_with(AHEAD, as_former=False)
    plan = plan_change(AHEAD, MAPPED, servers)
    assert plan.blocked == ()
    assert {change.config.name for change in plan.changes if isinstance(change, Delete)} == NEW
    assert loading_stage_of(plan) is Stage.UNLOAD_FORMER_ACCOUNTS
    assert "clients notice nothing of this step: they have not left" in render_plan(plan)

    servers.hold("W_west/foo", 1)
    assert {blocker.name for blocker in plan_change(AHEAD, MAPPED, servers).blocked} == NEW
    for to in (AHEAD, MAPPED):
        back = plan_change(BEHIND, to, await servers_with(BEHIND, as_former=True))
        assert {blocker.name for blocker in back.blocked} >= FORMER
        assert "forward only" in next(blocker.hint for blocker in back.blocked if blocker.name in FORMER)


async def test_what_is_somebody_elses_in_the_account_is_not_cut_off() -> None:
    servers = await servers_with(AHEAD, as_former=True)
    await servers.create(StreamConfig(name="M_clients/logs", fields={"name": "logs", "subjects": ["logs.>"]}))
    plan = plan_change(AHEAD, BEHIND, servers)
    assert [(blocker.name, "another account" in blocker.hint) for blocker in plan.blocked] == [("M_clients/logs", True)]


async def test_only_the_name_of_the_account_makes_an_account_of_its_own() -> None:
    plain = render_streams(routing="mapped", regions=TWO, server_version="2.12")
    assert plain.accounts == ()
    assert [artifact.path for artifact in plain.artifacts if artifact.path.endswith(".cfg")] == ["mappings.cfg"]
    (account,) = MAPPED.accounts
    assert (account.name, account.has_jetstream) == ("ACME", True)
    assert replace(account, has_jetstream=False).exports == account.exports
    assert MAPPED.mappings == plain.mappings


@pytest.mark.parametrize("between", [AHEAD, BEHIND])
def test_clients_may_publish_in_either_layout_while_they_are_led_over(between: Bundle) -> None:
    text = between.text("accounts.cfg")
    (app,) = re.findall(r'user: "app".*?\]', text, re.DOTALL)
    assert {'"_vs.at.*.foo.>"', '"_vs.foo.west.foo.>"', '"_vs.foo.east.foo.>"'} <= set(app.split())
    assert '"_vs.at.*.foo.>"' not in MAPPED.text("accounts.cfg")
    assert '"_vs.foo.west.foo.>"' not in AFTER.text("accounts.cfg")


@pytest.mark.parametrize("move", ["routing: mapped\nmoves_to: accounts", "routing: accounts\nmoves_from: mapped"])
def test_what_is_rendered_in_between_has_no_findings_of_mappings(tmp_path: Path, move: str) -> None:
    file = tmp_path / "acme.yaml"
    file.write_text(
        f'version: 1\nname: acme\nserver_version: "2.12"\n{move}\naccount: ACME\n'
        "regions: {west: {servers: 1}, east: {servers: 1}}\n"
        "defaults: {write: {max_age: 1h}}\nstreams: {foo: {subjects: [foo.>]}}\n"
    )
    ran = vstream("lint", file).out
    assert "VS410" in ran  # two regions
    assert "VS3" not in ran
