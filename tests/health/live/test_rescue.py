"""`vstream repair meta`: the meta group has lost its majority for good. What counts as dead, and what is left afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Ran, require_success, start_vstream, vstream
from tests.support.labs import pids
from tests.support.publish_load import Load, identities, under_load
from tests.support.shared_lab import shared_lab
from tests.support.topologies import begin_topology
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_client_endpoints, list_endpoints

pytestmark = pytest.mark.lab

NAME = "rescued"
REGIONS = ("west", "central", "east")


def document(servers: int) -> str:
    head = begin_topology(NAME, **dict.fromkeys(REGIONS, servers))
    return f"{head}streams:\n  foo: {{subjects: [foo.>], write: {{max_age: 1h}}}}\n"


def with_stretch() -> str:
    """One server in each region, and a member of the stretch cluster beside it."""
    stock = "  stock: {subjects: [stock.>], consistency: stretch, max_age: unlimited}\n"
    return document(1).replace("streams:\n", "stretch: {members: all}\nstreams:\n") + stock


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with shared_lab(tmp_path_factory.mktemp("rescued"), with_stretch(), "--server-version", "2.15.1") as file:
        require_success(vstream("apply", file, "--yes"))
        yield file


async def ask(region: str, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    async with connect(list_endpoints(NAME)[region], region) as connection:
        return await connection.request_json(subject, body)


async def publish(region: str, number: int, stream: str = "foo") -> None:
    async with connect(list_client_endpoints(NAME)[region], region) as connection:
        for index in range(number):
            answer = await connection.request_json(f"{stream}.{region}.{index}")
            assert answer["stream"] == (f"foo-write-{region}" if stream == "foo" else stream), answer


async def wait_for_messages(region: str, number: int, stream: str = "foo") -> None:
    deadline = time.monotonic() + 60
    while True:
        answer = await ask(region, f"$JS.API.STREAM.INFO.{stream}-read-{region}")
        if answer.get("state", {}).get("messages") == number:
            return
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.2)


async def publish_stock(region: str, number: int, *, stored: int) -> None:
    """Publish to the stretch stream, until the east has all that it has *stored*."""
    await publish(region, number, "stock")
    await wait_for_messages("east", stored, "stock")


def wait_for(code: int, text: str, *arguments: str | Path) -> dict[str, Any]:
    """What `rescue` says once it ends with *code* and says *text*: servers take some seconds to notice who is gone."""
    deadline = time.monotonic() + 60
    while True:
        ran = vstream("repair", "meta", *arguments, "--format", "json")
        answer: dict[str, Any] = ran.json()
        if ran.code == code and text in str(answer):
            return answer
        assert time.monotonic() < deadline, (ran.code, answer)


def kill_after(file: Path, text: str) -> None:
    """Run it with `--yes`, and kill it as soon as it has said *text*, if the run before was not done before it was killed."""
    unbuffered = {"PYTHONUNBUFFERED": "1"}
    process = start_vstream("repair", "meta", file, "--yes", variables=unbuffered, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            process.kill()
            process.communicate()
            return
    require_done(Ran(process.wait(), "".join(lines), ""))


def require_done(ran: Ran) -> None:
    """Fail unless the group was rescued, by this run or by one before it."""
    assert ran.code == 0 or "its quorum is there" in ran.out, ran


@pytest.mark.night
@pytest.mark.parametrize("version", ["2.15.1", "2.12.8"])
async def test_five_of_nine_servers_die_under_load(version: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """West, and two servers of central: what was acknowledged before and after is in every stream that can be read."""
    with shared_lab(tmp_path_factory.mktemp("nine"), document(3), "--server-version", version) as file:
        require_success(await asyncio.to_thread(vstream, "apply", file, "--yes"))
        load = Load(200)
        async with under_load(load, list_client_endpoints(NAME)):
            await load.wait_for_acknowledged(400)
            for server in ("west-1", "west-2", "west-3", "central-1", "central-2"):
                process = pids(NAME)[server]
                assert process
                os.kill(process, signal.SIGKILL)
            if version == "2.12.8":
                answer = await asyncio.to_thread(wait_for, 1, "before 2.15", file, "--yes")
                assert len(answer["groups"][0]["dead"]) == 5
                for server in answer["groups"][0]["alive"]:  # none is healthy before there is a leader
                    upgrade = ("chaos", "upgrade", server, "--to", "2.15.1", "--timeout", "1", "-t", file)
                    assert (await asyncio.to_thread(vstream, *upgrade, "--yes-really")).code == 3
            await asyncio.to_thread(wait_for, 0, "'refused': None", file)
            for stage in ("votes", "leads the meta group", "forgotten", "forgotten"):
                await asyncio.to_thread(kill_after, file, stage)
            require_done(await asyncio.to_thread(vstream, "repair", "meta", file, "--yes"))
            goal = len(load.acked["east"]) + 100
            deadline = time.monotonic() + 60
            while len(load.acked["east"]) < goal:
                assert time.monotonic() < deadline, len(load.acked["east"])
                await asyncio.sleep(0.1)
        created = await ask("east", "$JS.API.STREAM.CREATE.late", {"name": "late", "subjects": ["late"]})
        assert "error" not in created, created
        acknowledged = load.acked["east"] | load.acked["central"]
        for region in ("central", "east"):
            deadline = time.monotonic() + 120
            while missing := acknowledged - (await identities(NAME, region, f"foo-read-{region}")).keys():
                assert time.monotonic() < deadline, (region, len(missing), len(acknowledged))
                await asyncio.sleep(0.5)


async def test_two_of_three_servers_are_dead_for_good(file: Path) -> None:
    refused = await asyncio.to_thread(vstream, "repair", "meta", file, "--yes", "--format", "json")
    assert refused.code == 1
    assert "its quorum is there" in refused.json()["groups"][0]["refused"]
    await asyncio.gather(*(publish(region, 20) for region in REGIONS))
    await wait_for_messages("east", 60)
    await publish_stock("west", 20, stored=20)

    central = pids(NAME)["central-1"]
    assert central
    for server in ("west-1", "stretch-west", "stretch-central"):
        process = pids(NAME)[server]
        assert process
        os.kill(process, signal.SIGKILL)
    os.kill(central, signal.SIGSTOP)
    try:  # it takes connections, and says nothing: whether it is dead is not known
        answer = await asyncio.to_thread(wait_for, 3, "something listens there", file, "--yes")
        assert answer["done"] is False
    finally:
        os.kill(central, signal.SIGKILL)
    planned = await asyncio.to_thread(wait_for, 0, "'refused': None", file)
    assert planned["groups"][0]["remove"] == ["west-1", "central-1", "stretch-west", "stretch-central"]
    assert planned["done"] is False
    unavailable = await ask("east", "$JS.API.STREAM.CREATE.late", {"name": "late", "subjects": ["late"]})
    assert unavailable["error"]["err_code"] == 10008, unavailable

    await asyncio.to_thread(kill_after, file, "leads the meta group")
    rescued = await asyncio.to_thread(vstream, "repair", "meta", file, "--yes")
    require_success(rescued)
    assert "vstream region failover west --also central" in rescued.err
    created = await ask("east", "$JS.API.STREAM.CREATE.late", {"name": "late", "subjects": ["late"]})
    assert "error" not in created, created
    await wait_for_messages("east", 60)
    await publish("east", 5)
    again = await asyncio.to_thread(vstream, "repair", "meta", file, "--yes", "--format", "json")
    assert again.code == 1
    assert "its quorum is there" in again.json()["groups"][0]["refused"]

    # Neither can be given up alone: each is a witness of the other.
    alone = await asyncio.to_thread(vstream, "region", "failover", "central", file, "--yes")
    assert alone.code == 3
    assert "`--also REGION`" in alone.err
    given_up = ("region", "failover", "west", file, "--also", "central", "--yes", "--format", "json")
    # An edit that nobody has applied takes `foo` out.
    renamed = with_stretch().replace("foo:", "bar:").replace("foo.", "bar.")
    await asyncio.to_thread(file.write_text, renamed)
    edited = await asyncio.to_thread(vstream, *given_up)
    assert edited.code == 1
    assert "`foo-read-east`, `foo-write-east` would lose messages" in edited.err
    await asyncio.to_thread(file.write_text, with_stretch())
    both = await asyncio.to_thread(vstream, *given_up)
    require_success(both)
    assert (both.json()["region"], both.json()["also"], both.json()["done"]) == ("west", ["central"], True)
    assert "No changes" in (await asyncio.to_thread(vstream, "plan", file)).out
    await what_is_left_goes_on(file)


async def what_is_left_goes_on(file: Path) -> None:
    """The east, and of the stretch cluster the member that no dead region had. The west could come back."""
    await publish("east", 5)
    await publish_stock("east", 5, stored=25)
    back = await asyncio.to_thread(vstream, "region", "failback", "west", file, "--format", "json")
    assert (back.json()["region"], back.json()["done"]) == ("west", False)
