"""
Streams leave `ordered`, `homed` and `stretch` for `virtual` while clients publish, and every run of `apply` dies after a few requests.

Nothing is refused, lost or doubled.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.killed_apply import apply_until_done, plan_lab, run, running_lab
from tests.support.night import repetitions, with_night
from tests.support.publish_load import Load, check_contents, under_load
from vstream.lab.endpoints import list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.topology.model import Topology

pytestmark = pytest.mark.lab

NAME = "turning"
REGIONS = ("west", "central", "east")
RATE = repetitions(20, night=50)
VIRTUAL = {"write": {"max_age": "1h"}}


def topology(foo: dict[str, Any], bar: dict[str, Any], baz: dict[str, Any]) -> Topology:
    """`foo` needs a stretch cluster at first, `bar` a home. Nobody publishes into `baz` any more when it changes."""
    document = {
        "version": 1,
        "name": NAME,
        "server_version": "2.12",
        "regions": {region: {"servers": 1} for region in REGIONS},
        "stretch": {"members": "all"},
        "streams": {
            "foo": {"subjects": ["foo.>"], **foo},
            "bar": {"subjects": ["bar.>"], **bar},
            "baz": {"subjects": ["baz.>"], **baz},
        },
    }
    return check_topology(json.dumps(document).encode(), "topology.yaml").require()


BEFORE = topology(
    {**VIRTUAL, "consistency": "ordered"}, {"consistency": "homed", "home": "west"}, {"consistency": "stretch"}
)
BETWEEN = topology(VIRTUAL, {**VIRTUAL, "takes_over": "bar"}, {**VIRTUAL, "takes_over": "baz"})
AFTER = topology(VIRTUAL, VIRTUAL, VIRTUAL)


@pytest_asyncio.fixture
async def version(state: Path, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Of the servers of a lab."""
    async with running_lab(NAME, BEFORE, request.param):
        yield str(request.param)


@pytest.mark.parametrize("version", with_night(["2.15.1"], ["2.12.8"]), indirect=True)
async def test_read_streams_that_mirrored_source_from_where_they_are(version: str) -> None:
    await run(BEFORE, NAME)
    short = await plan_lab(AFTER, NAME)
    quiet = [f"baz-read-{region}" for region in REGIONS]
    assert {blocker.name for blocker in short.blocked} == {"bar-read-central", "bar-read-east", *quiet}
    assert "add `takes_over: bar`" in short.blocked[0].hint

    foo, bar, baz = Load(RATE), Load(RATE, prefix="bar"), Load(RATE, prefix="baz")
    endpoints = list_endpoints(NAME)
    async with under_load(baz, endpoints):
        await baz.wait_for_acknowledged(10)
    async with under_load(foo, endpoints), under_load(bar, endpoints):
        await foo.wait_for_acknowledged(RATE)
        await bar.wait_for_acknowledged(RATE)
        turned = await apply_until_done(BETWEEN, NAME)
        await bar.wait_for_acknowledged(RATE)
        ended = await apply_until_done(AFTER, NAME)
        await foo.wait_for_acknowledged(RATE)
        await bar.wait_for_acknowledged(RATE)
    mirrors = [*(f"update foo-read-{region}" for region in REGIONS), "update bar-read-central", "update bar-read-east"]
    mirrors += [f"update {name}" for name in quiet]
    assert sorted(turned) == sorted(
        [
            *(f"create bar-write-{region}" for region in REGIONS),
            *(f"create baz-write-{region}" for region in REGIONS),
            "create bar-read-west",
            *2 * mirrors,
            "load mappings",
            "delete foo-order-stretch",
        ]
    )
    last = [*(f"update bar-read-{region}" for region in REGIONS), *(f"update {name}" for name in quiet)]
    assert sorted(ended) == sorted([*last, "update bar", "update baz", "delete bar", "delete baz"])
    for sent in (foo, bar):
        assert (sent.refused, sent.unknown) == (dict.fromkeys(REGIONS, 0), set())
    for sent in (foo, bar, baz):
        await check_contents(NAME, {region: f"{sent.prefix}-read-{region}" for region in REGIONS}, sent)
