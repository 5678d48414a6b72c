"""
A plain stream, and the published layout, become a virtual stream while every run of `apply` dies after a few requests.

Clients publish all the time: nothing is refused, lost or doubled.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.killed_apply import apply_until_done, plan_lab, running_lab
from tests.support.night import repetitions
from tests.support.publish_load import Load, check_contents, under_load
from tests.support.recipe import DOCUMENT, as_published
from vstream.apply.mappings import LabMappings
from vstream.errors import VstreamError
from vstream.jetstream.admin import JetStreamAdmin, ask_until_available
from vstream.jetstream.connection import Connection, connect
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Role, Topology
from vstream.topology.stream_config import StreamConfig

pytestmark = pytest.mark.lab

NAME = "migrating"
RATE = repetitions(30, night=100)
REGIONS = ("west", "east")
READS = {region: f"foo-read-{region}" for region in REGIONS}


def topology(**over: Any) -> Topology:
    document = {**DOCUMENT, "name": NAME, **over}
    return check_topology(json.dumps(document).encode(), "topology.yaml").require()


@pytest_asyncio.fixture
async def connection(state: Path, request: pytest.FixtureRequest) -> AsyncIterator[Connection]:
    """To a lab of two regions, of the version that the test is for."""
    small = topology(naming="isolated", streams={})
    async with running_lab(NAME, small, request.param), connect(list_endpoints(NAME)["west"], "west") as connection:
        yield connection


@pytest.mark.parametrize("connection", ["2.15.1"], indirect=True)
async def test_a_plain_stream_is_taken_over_in_steps_that_die(connection: Connection) -> None:
    foo = DOCUMENT["streams"]["foo"]
    over = topology(naming="isolated", streams={"foo": {**foo, "takes_over": "foo"}})
    after = topology(naming="isolated")
    admin = JetStreamAdmin(connection)
    plain: dict[str, Any] = {"name": "foo", "subjects": ["foo.>"], "placement": {"cluster": "west"}}
    await ask_until_available(lambda: admin.create(StreamConfig(name="foo", fields=plain)))
    first, sent = Load(RATE / 2, tag="f"), Load(RATE)
    async with under_load(first, list_endpoints(NAME)):
        await first.wait_for_acknowledged(20)  # so that the other region has heard of the new stream
    async with under_load(sent, list_endpoints(NAME)):
        await sent.wait_for_acknowledged(RATE)
        done = await apply_until_done(over, NAME)
        await sent.wait_for_acknowledged(RATE)
        ended = await apply_until_done(after, NAME)
        await sent.wait_for_acknowledged(RATE)
    written = [f"create foo-write-{region}" for region in REGIONS]
    assert sorted(done) == sorted([*written, *(f"create {name}" for name in READS.values()), "load mappings"])
    assert sorted(ended) == sorted(f"update {name}" for name in READS.values())
    with pytest.raises(VstreamError, match=r"in account `\$G`, not in `ACME`") as refused:
        await plan_lab(topology(naming="isolated", account="ACME"), NAME)
    assert "leave `account` out" in (refused.value.hint or "")
    assert (sent.refused, sent.unknown) == ({"west": 0, "east": 0}, set())
    assert int((await admin.info_from_list("foo"))["state"]["messages"]) > RATE
    both = {region: first.acked[region] | sent.acked[region] for region in REGIONS}
    await check_contents(NAME, READS, Load(0, acked=both, unknown=first.unknown))


@pytest.mark.parametrize("connection", ["2.12.8"], indirect=True)
async def test_the_published_layout_becomes_the_safe_one_in_steps_that_die(
    state: object, connection: Connection
) -> None:
    desired = topology()
    rendered = render_bundle(desired, addresses=list_addresses(NAME))
    admin = JetStreamAdmin(connection)
    for stream in sorted(rendered.streams, key=lambda one: one.role is Role.READ):
        bare = {key: value for key, value in stream.config.fields.items() if key != "metadata"}
        is_read = stream.role is Role.READ
        config = as_published(stream.config) if is_read else StreamConfig(name=stream.config.name, fields=bare)
        await ask_until_available(partial(admin.create, config))  # the lab has just started: it may elect a leader
    await LabMappings(NAME, rendered).ensure_loaded()
    sent = Load(RATE)
    async with under_load(sent, list_endpoints(NAME)):
        await sent.wait_for_acknowledged(RATE)
        done = await apply_until_done(desired, NAME, adopt=frozenset({"all"}))
        await sent.wait_for_acknowledged(RATE)
    # Each read stream in two steps: its sources go, and come as they shall be.
    assert sorted(done) == sorted(
        [*(f"update foo-write-{region}" for region in REGIONS), *2 * [f"update {name}" for name in READS.values()]]
    )
    assert (sent.refused, sent.unknown) == ({"west": 0, "east": 0}, set())
    assert (await plan_lab(desired, NAME)).is_empty
    await check_contents(NAME, READS, sent)
