"""What a plan looks like when it is large."""

from __future__ import annotations

from tests.support.plans import FakeServers, make_plan, rendered
from vstream.cli.views import plan as view
from vstream.plan.plan import Plan

MANY = [f"s{number}" for number in range(50)]


async def plan(max_age: str, after: str) -> Plan:
    before = rendered({name: {"subjects": [f"{name}.>"], "write": {"max_age": max_age}} for name in MANY})
    wanted = rendered(
        {name: {"subjects": [f"{name}.>"], "write": {"max_age": after}, "description": name} for name in MANY}
    )
    servers = FakeServers()
    for stream in before.streams:
        await servers.create(stream.config)
    return make_plan("acme", wanted, servers.observed())


async def test_many_changes_of_one_kind_are_counted_by_what_they_do() -> None:
    lines = [line.plain for line in view.text(await plan("1h", "2h"))]
    assert lines[0].startswith("  ~ 300 streams to update: s0-write-central, ")
    assert "      max_age: 1h → 2h  safe: keeps more than before  (150 streams)" in lines
    assert "      description: 50 different values  safe: a text  (300 streams)" in lines
    assert len(lines) < 10


async def test_what_loses_messages_is_never_only_counted() -> None:
    lines = [line.plain for line in view.text(await plan("2h", "1h"))]
    assert sum(line.startswith("  ~ s") for line in lines) == 150
    assert sum("data loss" in line for line in lines) == 150
    assert lines[0].startswith("  ~ 150 streams to update: s0-read-central, ")
