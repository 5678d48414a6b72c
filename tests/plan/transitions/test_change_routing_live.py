"""
A live topology moves from `routing: mapped` to `accounts` while every run of `apply` dies after a few requests.

Clients publish all the time, as the same users: nothing that was acknowledged is lost, nothing is doubled, and all that was there
before comes along. What is published while servers reload accounts may be refused, or have no answer: it is stored nowhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
import pytest_asyncio

from tests.support.killed_apply import apply_until_done, plan_lab, run, running_lab
from tests.support.night import repetitions
from tests.support.publish_load import Load, check_contents, under_load
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_client_endpoints
from vstream.lint.check_topology import check_topology
from vstream.topology.model import Topology

pytestmark = pytest.mark.lab

NAME = "mover"
RATE = repetitions(30, night=100)
REGIONS = ("west", "east")
OLD = [f"M_clients/foo-{role}-{region}" for role in ("read", "write") for region in REGIONS]


def topology(routing: str, **over: Any) -> Topology:
    document = {
        "version": 1,
        "name": NAME,
        "server_version": "2.12",
        "routing": routing,
        "account": "ACME",
        "regions": {region: {"servers": 1} for region in REGIONS},
        "streams": {"foo": {"subjects": ["foo.>"], "write": {"max_age": "1h"}, "consumers": {"billing": {}}}},
        **over,
    }
    return check_topology(json.dumps(document).encode(), "topology.yaml").require()


BEFORE = topology("mapped")
AHEAD = topology("mapped", moves_to="accounts")
BEHIND = topology("accounts", moves_from="mapped")
AFTER = topology("accounts")


@pytest_asyncio.fixture
async def mover(state: object, request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """A lab of the version that the test is for, with nothing in it."""
    async with running_lab(NAME, BEFORE, request.param):
        yield


async def much(sent: Load) -> None:
    """More than accounts pass on to each other without flow control: sourcing stalls for good after some 2 MB."""
    endpoint = list_client_endpoints(NAME)["west"]
    client = await nats.connect(list(endpoint.urls), user=endpoint.user, password=endpoint.password, connect_timeout=30)
    identities = [f"west-h{number}" for number in range(3000)]
    for batch in (identities[at : at + 250] for at in range(0, len(identities), 250)):
        padded = {"Padding": "x" * 1024}
        await asyncio.gather(
            *(client.request(f"foo.{identity}", identity.encode(), timeout=20, headers=padded) for identity in batch)
        )
    sent.acked["west"].update(identities)
    await client.close()


@pytest.mark.parametrize("mover", ["2.15.1"], indirect=True)
@pytest.mark.usefixtures("mover")
async def test_clients_go_on_while_the_profile_changes_in_steps_that_die() -> None:
    await run(BEFORE, NAME)
    early = await plan_lab(AFTER, NAME)
    assert {blocker.name for blocker in early.blocked} == {name.partition("/")[2] for name in OLD}
    assert all("`moves_to: accounts`" in blocker.hint for blocker in early.blocked)

    sent = Load(RATE)
    async with under_load(sent, list_client_endpoints(NAME)):
        await sent.wait_for_acknowledged(RATE)
        await much(sent)  # what is there before comes along
        made = await apply_until_done(AHEAD, NAME)
        await sent.wait_for_acknowledged(RATE)
        led = await apply_until_done(BEHIND, NAME)
        await sent.wait_for_acknowledged(RATE)
        back = await plan_lab(AHEAD, NAME)
        ended = await apply_until_done(AFTER, NAME)
        await sent.wait_for_acknowledged(RATE)
    assert made[0] == "load mappings"
    assert sorted(made[1:]) == sorted(
        [
            *(f"create {account}_{region}/foo" for account in "WR" for region in REGIONS),
            *(f"create R_{region}/foo > billing" for region in REGIONS),
        ]
    )
    assert led == ["load mappings"]
    assert {blocker.name for blocker in back.blocked} == {*OLD}
    assert sorted(ended[:2]) == sorted(f"update R_{region}/foo" for region in REGIONS)
    assert sorted(ended[2:-1]) == sorted(f"delete {name}" for name in OLD)
    assert ended[-1] == "load mappings"

    await check_contents(NAME, {region: f"R_{region}/foo" for region in REGIONS}, sent)
    for region, endpoint in list_client_endpoints(NAME).items():
        # Nothing is left of what the account of clients had, and `foo` means the new stream there.
        async with connect(endpoint, region) as client:
            info = await client.request_json("$JS.API.STREAM.INFO.foo")
            assert len(sent.everything) <= info["state"]["messages"] <= len(sent.everything | sent.unknown)
            assert (await client.request_json("$JS.API.STREAM.NAMES"))["streams"] == ["foo"]
