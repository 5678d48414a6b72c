"""How a plan is shown: folded where it is large, with what apply demands and what nobody could check."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.plans import FakeServers, make_plan, render_streams
from vstream.cli.views import plan as view
from vstream.cli.views.console import print_lines, stdout
from vstream.plan import saved
from vstream.plan.context import Observed
from vstream.plan.model import Delete, Plan, UnreachableRegion
from vstream.topology.model import Role
from vstream.topology.stream_config import STREAM_KEY, StreamConfig

MANY = [f"s{number}" for number in range(50)]


async def plan(max_age: str, after: str) -> Plan:
    before = render_streams({name: {"subjects": [f"{name}.>"], "write": {"max_age": max_age}} for name in MANY})
    bundle = render_streams(
        {name: {"subjects": [f"{name}.>"], "write": {"max_age": after}, "description": name} for name in MANY}
    )
    servers = FakeServers()
    for stream in before.streams:
        await servers.create(stream.config)
    return make_plan("acme", bundle, servers.observe())


async def test_many_changes_of_one_kind_are_counted_by_what_they_do() -> None:
    lines = [line.plain for line in view.render_plan(await plan("1h", "2h"))]
    assert lines[0].startswith("  ~ 300 streams to update: s0-write-central, ")
    assert "      max_age: 1h → 2h  safe: keeps more than before  (150 streams)" in lines
    assert "      description: 50 different values  safe: a text  (300 streams)" in lines
    assert len(lines) < 12


async def test_what_loses_messages_is_never_only_counted() -> None:
    lines = [line.plain for line in view.render_plan(await plan("2h", "1h"))]
    assert sum(line.startswith("  ~ s") for line in lines) == 150
    assert sum("data loss" in line for line in lines) == 150
    assert lines[0].startswith("  ~ 150 streams to update: s0-read-central, ")


NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


async def test_a_deleted_stream_takes_the_positions_of_its_consumers_along() -> None:
    servers = FakeServers()
    for stream in render_streams({name: {"subjects": [f"{name}.>"]} for name in ("foo", "bar")}).streams:
        await servers.create(stream.config)
    for name, held in servers.streams_by_name.items():
        servers.streams_by_name[name] = replace(held, messages=9, consumers=2 if name == "bar-read-west" else 0)
    planned = make_plan("acme", render_streams({"foo": {"subjects": ["foo.>"]}}), servers.observe())
    assert "bar-read-west  read stream in west  data loss: 9 messages, positions of 2 consumers" in text(planned)
    assert "bar-write-west  write stream in west  data loss: 9 messages\n" in text(planned)
    (deleted,) = (item for item in saved.to_dict(planned)["changes"] if item["name"] == "bar-read-west")
    assert deleted["consumers"] == 2


@pytest.mark.parametrize(
    ("mirror", "is_replaced", "loss"),
    [
        ({"mirror": {"name": "prices"}}, False, "of its 9 messages, those that `prices` no longer has"),
        ({}, True, "none of its 9 messages, which `prices` has by then"),
        ({}, False, "9 messages"),
    ],
    ids=["the home moves there", "it becomes the home", "no copy"],
)
def test_a_copy_in_the_new_home_loses_what_the_origin_lacks(
    mirror: dict[str, Any], is_replaced: bool, loss: str
) -> None:
    config = StreamConfig(name="prices-read-east", fields={**mirror, "metadata": {STREAM_KEY: "prices"}})
    deleted = Delete(config=config, region="east", role=Role.READ, messages=9, consumers=1, is_replaced=is_replaced)
    line = next(view.render_plan(Plan(topology="acme", observed_digest="", changes=(deleted,)))).plain
    assert line == f"  - prices-read-east  read stream in east  data loss: {loss}, positions of 1 consumer"


async def shorter(max_age: str, *, oldest: timedelta, messages: int = 9) -> Plan:
    """`foo` kept for `1d` is to be kept for *max_age*; its oldest message is so old."""
    before = render_streams({"foo": {"subjects": ["foo.>"], "write": {"max_age": "1d"}}})
    bundle = render_streams({"foo": {"subjects": ["foo.>"], "write": {"max_age": max_age}}})
    servers = FakeServers()
    for stream in before.streams:
        await servers.create(stream.config)
        current = servers.streams_by_name[stream.config.name]
        servers.streams_by_name[stream.config.name] = replace(current, messages=messages, first_at=NOW - oldest)
    return make_plan("acme", bundle, replace(servers.observe(), at=NOW))


def indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def text(plan: Plan, *, is_verbose: bool = False) -> str:
    return "\n".join(line.plain for line in view.render_plan(plan, is_verbose=is_verbose))


async def test_a_shorter_limit_says_what_it_removes_now() -> None:
    nothing = await shorter("1h", oldest=timedelta(minutes=10))
    assert text(nothing).count("(removes nothing now)") == 3
    plan = await shorter("1h", oldest=timedelta(hours=2))
    assert text(plan).count("(removes up to 9 of 9 messages now)") == 3
    assert "removes up to 9 of 9 messages now" in view.render_markdown(plan, "routing: mapped")
    (field,) = saved.to_dict(plan)["changes"][0]["fields"]
    assert field["removes_now"] == {"at_most": 9, "of": 9}
    # Clients publish meanwhile: that is no other plan.
    saved.require_same(nothing, saved.to_dict(plan))


async def test_a_plan_says_what_apply_demands() -> None:
    plan = await shorter("1h", oldest=timedelta(minutes=10))
    sentence = "apply needs `--allow-destructive`: 3 changes can lose or duplicate messages."
    assert text(plan).endswith(sentence)
    *_, last = view.render_plan(plan, names_options=False)
    assert last.plain == "3 changes can lose or duplicate messages."
    assert sentence in view.render_markdown(plan, "routing: mapped")
    assert [demand["option"] for demand in saved.to_dict(plan)["demands"]] == ["--allow-destructive"]
    longer = await shorter("2d", oldest=timedelta(minutes=10))
    assert "apply needs" not in text(longer)
    assert saved.to_dict(longer)["demands"] == []


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_lines_keep_their_words_and_indentation_on_a_narrow_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe gets each as one line."""
    shorter_plan = await shorter("1h", oldest=timedelta(hours=2))
    sentence = "region `west` cannot be reached at nats://127.0.0.1:1 by anybody " * 3
    plan = replace(
        shorter_plan, unreachable=(UnreachableRegion(region="west", reason=sentence),), answering_region="east"
    )
    lines = [line.plain for line in view.render_plan(plan)]
    print_lines(view.render_plan(plan))
    assert capsys.readouterr().out.splitlines() == lines
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": str(width)}.items():
        monkeypatch.setenv(name, value)
    print_lines(view.render_plan(plan))
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= width < max(map(len, lines))
    for line in lines:
        words = shown.pop(0).split()
        while words != line.split():
            assert indentation(shown[0]) == indentation(line) + 2
            words += shown.pop(0).split()
    assert shown == []
    stdout().print(sentence)
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= width
    assert " ".join(shown).split() == sentence.split()


async def test_rules_of_a_stream_are_one_line_unless_all_are_asked_for() -> None:
    bundle = render_streams({"foo": {"subjects": ["foo.>"]}, "bar": {"subjects": ["bar.>"]}})
    rules: dict[str, dict[str, tuple[str, ...]]] = {address.server.name: {} for address in bundle.servers}
    plan = make_plan("acme", bundle, Observed(streams={}, rules=rules))
    number = len(plan.rule_changes) // 2
    for stream in ("foo", "bar"):
        assert f"  + mappings of {stream}: {number} rules on 3 servers\n" in text(plan)
    assert "mapping foo.>" not in text(plan)
    assert text(plan, is_verbose=True).count("  + mapping ") == 2 * number


async def test_no_changes_is_no_claim_about_rules_that_nobody_could_read() -> None:
    bundle = render_streams()
    servers = FakeServers()
    for stream in bundle.streams:
        await servers.create(stream.config)
    plan = make_plan("acme", bundle, replace(servers.observe(), rules={}))
    assert text(plan) == "No changes: the servers are as the topology says."
    unread = make_plan("acme", bundle, replace(servers.observe(), rules={}, unread_servers=("west-1",)))
    assert "as the topology says" not in text(unread)
    assert "Unknown: whether every server has loaded the 9 rules of the topology." in text(unread)


async def test_a_region_that_cannot_be_reached_is_named_with_the_one_that_answered() -> None:
    plan = replace(
        make_plan("acme", render_streams(), Observed(streams={})),
        unreachable=(UnreachableRegion(region="west", reason="region `west` cannot be reached at nats://127.0.0.1:1"),),
        answering_region="east",
    )
    for shown in (text(plan), view.render_markdown(plan, "routing: mapped")):
        assert "region `west` cannot be reached at nats://127.0.0.1:1; region `east` answered for its streams" in shown
    assert saved.to_dict(plan)["unreachable"][0]["region"] == "west"


async def test_a_rename_is_said_to_move_no_messages() -> None:
    servers = FakeServers()
    for stream in render_streams({"foo": {"subjects": ["foo.>"]}}).streams:
        await servers.create(stream.config)
        servers.hold(stream.config.name, 9)
    plan = make_plan("acme", render_streams({"bar": {"subjects": ["bar.>"]}}), servers.observe())
    (note,) = plan.notes
    assert note.name == "bar"
    assert "`foo`, which goes" in note.text
    assert "(9 messages) is deleted" in note.text
    other_plan = make_plan(
        "acme", render_streams({"bar": {"subjects": ["bar.>"], "regions": ["west"]}}), servers.observe()
    )
    assert other_plan.notes == ()
