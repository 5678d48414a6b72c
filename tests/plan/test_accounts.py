"""Accounts in plans: what servers have loaded of them, when they load what is new, and what does not go in one step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.plans import FakeServers, make_plan, render_streams, topology
from vstream.apply.execute import execute_plan
from vstream.cli.views import apply as apply_view
from vstream.cli.views import plan as view
from vstream.plan.context import Observed
from vstream.plan.live.loaded_rules import read_account
from vstream.plan.model import Plan
from vstream.plan.rules import list_account_entries, list_rule_entries
from vstream.plan.stages import Stage, list_stages, loading_stage_of
from vstream.render.pipeline import render_bundle
from vstream.topology.accounts import ShareKind
from vstream.topology.bundle import Bundle

TWO = {"west": {"servers": 1}, "east": {"servers": 1}}
THREE = {**TWO, "south": {"servers": 1}}
FOO = {"foo": {"subjects": ["foo.>"]}}
ROOTED = {**FOO, "one": {"subjects": ["v.one.>"], "canary": "v.one._canary.*"}}
HOMED = {**FOO, "rates": {"subjects": ["rates.>"], "consistency": "homed", "home": "west"}}
CLIENTS = frozenset({"APP", "W_west", "W_east", "R_west", "R_east"})


def accounts(streams: dict[str, Any], regions: dict[str, Any], **over: Any) -> Bundle:
    return render_streams(streams, regions=regions, routing="accounts", roots=["v.>"], server_version="2.12", **over)


def entries(of: Bundle) -> dict[str, tuple[str, ...]]:
    return {**list_rule_entries(of.mappings), **list_account_entries(of.accounts)}


async def plan_change(before: Bundle, after: Bundle) -> Plan:
    """The plan for *after* where servers are as *before* says."""
    servers = FakeServers()
    for stream in before.streams:
        await servers.create(stream.config)
    rules = {address.server.name: entries(before) for address in before.servers}
    observed = Observed(streams=servers.streams_by_name, rules=rules)
    return make_plan("acme", after, observed, server_version=(2, 12))


async def test_what_is_loaded_as_it_should_be_needs_nothing() -> None:
    of = accounts(HOMED, TWO)
    assert (await plan_change(of, of)).is_empty


async def test_what_only_adds_is_loaded_before_the_streams_that_need_it() -> None:
    plan = await plan_change(accounts(FOO, TWO), accounts(HOMED, THREE))
    assert plan.blocked == ()
    assert loading_stage_of(plan) is Stage.LOAD_ACCOUNTS
    assert next(iter(list_stages(plan))).title == "load accounts"
    assert {"account W_south", "import APP rates.>", "import R_east _vs.from.R_west.CONSUMER.CREATE.>", "users"} <= {
        rule.source for rule in plan.rule_changes
    }


async def test_nothing_is_made_before_somebody_has_loaded_what_it_needs() -> None:
    before, after = accounts(FOO, TWO), accounts(FOO, THREE)
    servers = FakeServers()
    plan = await plan_change(before, after)
    applied = await execute_plan(plan, servers.administer(None))
    assert applied.mappings_pending
    assert applied.skipped == plan.changes
    assert servers.calls == []
    shown = " ".join(line.plain for line in apply_view.render_applied(applied, "accounts.cfg"))
    assert "accounts.cfg must be loaded by you" in shown
    assert "twice for a new account" in shown


async def test_what_goes_is_loaded_before_its_streams_are_deleted() -> None:
    plan = await plan_change(accounts(HOMED, TWO), accounts(FOO, TWO))
    assert loading_stage_of(plan) is Stage.LOAD_MAPPINGS
    assert plan.blocked == ()
    assert [stage.title for stage in list_stages(plan)] == [
        "load mappings",
        "delete read streams",
        "delete write streams",
    ]


async def test_a_stream_below_a_root_changes_nothing_that_servers_load() -> None:
    plan = await plan_change(accounts(FOO, TWO), accounts(ROOTED, TWO))
    assert plan.rule_changes == ()
    assert len(plan.changes) == 4


async def test_users_are_compared_though_servers_do_not_tell_them() -> None:
    streams = {"foo": {"subjects": ["foo.>"], "canary": "foo._canary.*"}}
    plan = await plan_change(accounts(FOO, TWO), accounts(streams, TWO))
    assert [rule.source for rule in plan.rule_changes] == ["users"]
    assert plan.rule_changes[0].servers == ("east-1", "west-1")


@pytest.mark.parametrize("before", [HOMED, FOO])
async def test_a_region_does_not_go_before_its_streams(before: dict[str, Any]) -> None:
    plan = await plan_change(accounts(before, THREE), accounts(before, TWO))
    assert {blocker.name for blocker in plan.blocked} >= {"R_south/foo", "W_south/foo"}
    empty = {name: {**stream, "regions": ["west", "east"]} for name, stream in before.items()}
    assert (await plan_change(accounts(before, THREE), accounts(empty, THREE))).blocked == ()
    assert (await plan_change(accounts(empty, THREE), accounts(before, TWO))).blocked == ()


async def test_a_new_account_is_not_loaded_together_with_what_goes() -> None:
    plan = await plan_change(accounts(HOMED, TWO), accounts(FOO, THREE))
    assert {blocker.name for blocker in plan.blocked} == {"W_south", "R_south"}


def test_what_a_server_tells_is_spelled_as_what_is_rendered() -> None:
    """In the shape of `/accountz?acc=R_east` of 2.15.1."""
    detail = {
        "jetstream_enabled": True,
        "exports": [
            {"subject": "$JS.API.DIRECT.GET.>", "type": "service", "response_type": "Streamed",
             "approved_accounts": ["APP"]},
            {"subject": "_INBOX.>", "type": "stream", "approved_accounts": ["APP"]},
        ],
        "imports": [
            {"subject": "$JS.API.>", "account": "$SYS", "type": "service", "local_subject": "$JS.API.>"},
            {"subject": "theirs.>", "account": "OTHER", "type": "service", "local_subject": "theirs.>"},
            {"subject": "$JS.FC.>", "account": "W_west", "type": "service", "local_subject": "$JS.FC.>"},
            {"subject": "_vs.to.W_west.R_east.>", "account": "W_west", "type": "stream",
             "local_subject": "_vs.to.W_west.R_east.>"},
        ],
    }  # fmt: skip
    told = list_account_entries([read_account("R_east", detail, CLIENTS)])
    expected = list_account_entries(accounts(FOO, TWO).accounts)
    assert set(told) == {
        "account R_east",
        "export R_east $JS.API.DIRECT.GET.>",
        "export R_east _INBOX.>",
        "import R_east $JS.FC.>",
        "import R_east _vs.to.W_west.R_east.>",
    }
    several = "import R_east $JS.FC.>"
    assert told[several] == ("service $JS.FC.> of W_west",)
    assert set(told[several]) < set(expected.pop(several))
    assert {key: expected[key] for key in told if key != several} == {key: told[key] for key in told if key != several}


def test_what_the_text_says_is_what_was_meant() -> None:
    from vstream.topology.profiles.hidden_accounts import accounts as meant  # noqa: PLC0415 - the name is taken here

    desired = topology(HOMED, regions=THREE, routing="accounts", roots=["v.>"], server_version="2.12")
    read = render_bundle(desired).accounts
    assert [(account.name, account.has_jetstream, account.imports) for account in read] == [
        (account.name, account.has_jetstream, account.imports) for account in meant(desired)
    ]
    assert [account.exports for account in read[1:]] == [account.exports for account in meant(desired)[1:]]
    (mark,) = read[0].exports
    assert mark.kind is ShareKind.STREAM
    assert mark.subject.startswith("_vs.text.")


async def test_a_new_region_begins_with_what_write_streams_hold_and_the_plan_says_why() -> None:
    before, after = accounts(FOO, TWO), accounts(FOO, THREE)
    servers = FakeServers()
    for stream in before.streams:
        await servers.create(stream.config)
    servers.hold("R_west/foo", 7)
    plan = make_plan("acme", after, servers.observe())
    (note,) = plan.notes
    assert note.name == "R_south/foo"
    assert "does not reach another's" in note.text


def test_a_plan_says_how_clients_reach_streams_and_what_that_costs() -> None:
    hidden = topology(ROOTED, routing="accounts", roots=["v.>"], server_version="2.12")
    assert view.describe_routing(hidden, render_bundle(hidden)) == (
        "routing: accounts, 5 mapping rules; a publish and its acknowledgement cost a server about 25 µs"
    )
    assert view.routing_as_dict(hidden, render_bundle(hidden)) == {
        "profile": "accounts",
        "rules": 5,
        "acknowledged_us": 25.0,
    }
    for beside, cost in (("domains", 8), ("regional", 9)):
        desired = topology(ROOTED, routing=beside, roots=["v.>"], server_version="2.12")
        assert view.describe_routing(desired, render_bundle(desired)) == (
            f"routing: {beside}, 2 mapping rules; a publish and its acknowledgement cost a server about {cost} µs"
        )
    many = topology({f"s{number}": {"subjects": [f"s{number}.>"]} for number in range(100)})
    assert view.describe_routing(many, render_bundle(many)) == (
        "routing: mapped, 900 mapping rules; a publish and its acknowledgement cost a server about 55 µs: "
        "`routing: accounts` needs 3 and one for each root (docs/routing.md)"
    )
    ordered = {"foo": {"subjects": ["foo.>"], "consistency": "ordered", "virtual_name": "order"}}
    named = topology(ordered, stretch={"members": "all"})
    assert view.describe_routing(named, render_bundle(named)).endswith(
        "; consumers on `foo` live in the stretch cluster: their messages and acknowledgements cross regions, "
        "and a region that is cut off has none (docs/consistency.md)"
    )


SIGNED = {"security": {"mode": "operator"}}


async def test_a_token_that_publishes_pass_through_twice_while_it_is_loaded_is_said() -> None:
    """server/accounts.go, updateAccountClaimsWithRefresh; `scripts/bench --pushes` counts them."""
    of, wider, below = accounts(FOO, TWO, **SIGNED), accounts(HOMED, TWO, **SIGNED), accounts(ROOTED, TWO, **SIGNED)
    assert [note.name for note in (await plan_change(of, wider)).notes] == ["APP"]
    assert (await plan_change(of, of)).notes == ()
    # Below a root, nothing of the account of clients changes.
    assert (await plan_change(of, below)).notes == ()
    # Configuration files are loaded at one moment.
    assert (await plan_change(accounts(FOO, TWO), accounts(HOMED, TWO))).notes == ()


async def test_core_subscribers_of_an_account_that_is_new_are_told_to_connect_again() -> None:
    streams = {"foo": {"subjects": ["foo.>"], "core_subscribers": True}}
    for servers, number in ((2, 1), (1, 0)):
        two = {region: {"servers": servers} for region in TWO}
        three = {region: {"servers": servers} for region in THREE}
        before, after = rendered_in(streams, two), rendered_in(streams, three)
        notes = [note.text for note in (await plan_change(before, after)).notes if "nats-server 8560" in note.text]
        assert len(notes) == number
        assert all("imports from W_south, which is new" in note for note in notes)
    assert (
        await plan_change(
            rendered_in(FOO, {r: {"servers": 2} for r in TWO}), rendered_in(FOO, {r: {"servers": 2} for r in THREE})
        )
    ).notes == ()


def rendered_in(streams: dict[str, Any], regions: dict[str, Any]) -> Bundle:
    return render_streams(streams, regions=regions, routing="accounts", server_version="2.12")
