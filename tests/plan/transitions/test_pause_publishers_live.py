"""A stream with one replica moves while clients publish, and `apply` is killed after each of its requests."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import killed_apply
from tests.support.command import Ran, require_success, start_vstream, vstream
from tests.support.labs import pids
from tests.support.meta_leader import lead_meta_group_from
from tests.support.plans import topology
from vstream.errors import VstreamError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection, connect
from vstream.lab.endpoints import list_endpoints
from vstream.plan.live import gate_checks
from vstream.plan.model import GateKind
from vstream.plan.pipeline import PlanRequest, make_plan
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Topology
from vstream.topology.naming import is_paused, pause_subject
from vstream.topology.stream_config import MOVED_KEY, StreamConfig

pytestmark = pytest.mark.lab

LAB, WRITE = "paused", "foo-write-west"


def place(tag: str) -> Topology:
    write: dict[str, Any] = {"max_age": "1h", "replicas": 1, "placement_tags": [tag]}
    foo = {"subjects": ["foo.>"], "write": write, "read": {"replicas": 1, "placement_tags": ["az:c"]}}
    west = {"servers": 3, "tags": ["az:a", "az:b", "az:c"]}
    return topology({"foo": foo}, name=LAB, server_version="2.12", regions={"west": west})


async def publish(connection: Connection, acknowledged: list[int], stopped: asyncio.Event) -> None:
    while not stopped.is_set():
        with suppress(VstreamError):
            acknowledged.append(int((await connection.request_json("foo.x", timeout=2))["seq"]))
        await asyncio.sleep(0.005)


async def test_a_move_that_is_killed_after_each_request_loses_nothing(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(killed_apply, "REQUESTS", 1)
    monkeypatch.setattr(gate_checks, "MOVE_START_SECONDS", 4.0)
    async with killed_apply.running_lab(LAB, place("az:a"), "2.12.8"):
        await killed_apply.run(place("az:a"), LAB)
        async with connect(list_endpoints(LAB)["west"], "west") as connection:
            acknowledged: list[int] = []
            stopped = asyncio.Event()
            publishing = asyncio.create_task(publish(connection, acknowledged, stopped))
            async with asyncio.timeout(120):
                while len(acknowledged) < 100:
                    await asyncio.sleep(0.01)
                done = await killed_apply.apply_until_done(place("az:b"), LAB)
                # If that took 15 seconds, a fourth one forgets the note of the move.
                assert done in ([f"update {WRITE}"] * 3, [f"update {WRITE}"] * 4)
                resumed = len(acknowledged)
                while len(acknowledged) == resumed:
                    await asyncio.sleep(0.01)
            stopped.set()
            await publishing
            info = await JetStreamAdmin(connection).info(WRITE)
            assert info["cluster"]["leader"] == "west-2"
            assert (info["state"]["first_seq"], info["state"].get("num_deleted", 0)) == (1, 0)
            assert info["state"]["last_seq"] >= max(acknowledged)
            async with asyncio.timeout(30):  # its reader goes on by itself
                while (await JetStreamAdmin(connection).info("foo-read-west"))["state"]["messages"] < len(acknowledged):
                    await asyncio.sleep(0.1)


def write_topology(file: Path, tag: str) -> None:
    """As `place`, with another region."""
    file.write_text(
        f"""version: 1
name: {LAB}
server_version: "2.12"
regions: {{west: {{servers: 3, tags: ["az:a", "az:b", "az:c"]}}, east: {{servers: 1}}}}
streams:
  foo:
    subjects: [foo.>]
    write: {{max_age: 1h, replicas: 1}}
    read: {{replicas: 1}}
    overrides: {{west: {{write: {{placement_tags: ["{tag}"]}}}}}}
"""
    )


async def is_stream_paused(connection: Connection) -> bool:
    info = await JetStreamAdmin(connection).info(WRITE)
    return is_paused(StreamConfig(name=WRITE, fields=info["config"]))


async def has_begun_to_move(connection: Connection) -> bool:
    """Half of its servers may be gone by then, so that it has no leader."""
    try:
        return bool((await JetStreamAdmin(connection).info(WRITE))["cluster"].get("replicas"))
    except VstreamError:
        return True


async def end_while_paused(connection: Connection, file: Path, number: signal.Signals, killed: str = "") -> Ran:
    """
    `apply` of *file*, which is sent a signal once it has paused the stream.

    Where that moves to server *killed*, it is sent then; the server is killed before.
    """
    running = start_vstream("apply", file, "--yes")
    async with asyncio.timeout(60):
        while not await is_stream_paused(connection):
            await asyncio.sleep(0.05)
        if killed:
            pid = pids(LAB)[killed]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            while not await has_begun_to_move(connection):
                await asyncio.sleep(0.05)
    running.send_signal(number)
    out, err = await asyncio.to_thread(running.communicate, timeout=60)
    return Ran(running.returncode, out, err)


@contextmanager
def asked_to_resume(file: Path) -> Iterator[Callable[[str], Ran]]:
    """`apply` of *file* on a terminal, which asks whether paused streams may go on; what is given answers it, and waits."""
    terminal, stdin = pty.openpty()
    with start_vstream("apply", file, stdin=stdin) as running:
        assert running.stderr is not None
        shown = ""
        while "change nothing else?" not in shown and (character := running.stderr.read(1)):
            shown += character

        def answer(text: str) -> Ran:
            os.write(terminal, f"{text}\n".encode())
            out, err = running.communicate(timeout=60)
            return Ran(running.returncode, out, shown + err)

        try:
            yield answer
        finally:
            running.kill()
            os.close(terminal)
            os.close(stdin)


def answer_about_paused(file: Path) -> None:
    """No ends it as before, and a yes that comes after another run has resumed the stream changes nothing."""
    with asked_to_resume(file) as answer:
        ran = answer("n")
    assert ran.code == 3, ran.out + ran.err
    assert "Nothing was changed: resolve what is blocked first." in ran.err
    assert f'Publishers get "no responders" from `{WRITE}`.' in ran.err
    assert "`vstream apply --yes` lets them go on" in ran.err
    with asked_to_resume(file) as answer:
        ran = vstream("apply", file, "--yes")
        assert (ran.code, "Nothing else was changed" in ran.err) == (3, True), ran.out + ran.err
        assert f"`{WRITE}` takes publishes again, on `_vs.foo.west.>`." in ran.out
        assert "no responders" not in ran.err
        ran = answer("y")
    assert (ran.code, "the servers have changed since the plan was made" in ran.err) == (3, True), ran.out + ran.err


async def require_short_wait(connection: Connection, file: Path) -> None:
    """Where a plan is blocked, `apply` of *file* waits 20 seconds for a paused stream, and not as long as for other gates."""
    admin = JetStreamAdmin(connection)
    before = await admin.read(WRITE)

    async def keep_telling_to_move() -> None:
        while True:  # so it may begin to move at any moment
            moved = {**before.metadata, MOVED_KEY: str(int(time.time()))}
            await admin.update(before.with_fields(subjects=[pause_subject(WRITE)], metadata=moved))
            await asyncio.sleep(3)

    telling = asyncio.create_task(keep_telling_to_move())
    try:
        while not await is_stream_paused(connection):
            await asyncio.sleep(0.05)
        ran = await asyncio.to_thread(vstream, "apply", file, "--yes", timeout=100)
        assert ran.code == 3, ran.out + ran.err
        assert f"`{WRITE}` stays paused: `{WRITE}` has just been told to move" in ran.out
        assert f'Publishers get "no responders" from `{WRITE}`.' in ran.err
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        await admin.update(before)


async def test_whoever_ends_a_run_the_stream_goes_on_or_it_is_said(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "paused.yaml"
    write_topology(file, "az:a")
    require_success(await asyncio.to_thread(vstream, "lab", "up", file, "--server-version", "2.12.8"))
    require_success(await asyncio.to_thread(vstream, "apply", file, "--yes"))
    await lead_meta_group_from(LAB, "west-2")
    west = list_endpoints(LAB)["west"]
    async with connect(replace(west, urls=west.urls[:1]), "west") as connection:
        acknowledged: list[int] = []
        stopped = asyncio.Event()
        publishing = asyncio.create_task(publish(connection, acknowledged, stopped))
        write_topology(file, "az:c")
        # Nothing has been moved: it takes publishes at once.
        ran = await end_while_paused(connection, file, signal.SIGINT)
        assert (ran.code, "takes no publishes" in ran.err) == (130, False), ran.out + ran.err
        assert not await is_stream_paused(connection)
        # Nobody can do that for a run that is killed: the next one does, whatever else is blocked.
        ran = await end_while_paused(connection, file, signal.SIGKILL)
        assert await is_stream_paused(connection)
        require_success(await asyncio.to_thread(vstream, "chaos", "kill-region", "east", "--lab", LAB))
        await asyncio.to_thread(answer_about_paused, file)
        assert not await is_stream_paused(connection)
        await require_short_wait(connection, file)
        require_success(await asyncio.to_thread(vstream, "chaos", "heal", "--lab", LAB))
        # It moves to a server that is dead.
        ran = await end_while_paused(connection, file, signal.SIGTERM, killed="west-3")
        assert (ran.code, f"`{WRITE}` takes no publishes now" in ran.err) == (-signal.SIGTERM, True), ran.out + ran.err
        require_success(await asyncio.to_thread(vstream, "lab", "up", file))
        require_success(await asyncio.to_thread(vstream, "apply", file, "--yes"))
        stopped.set()
        await publishing
        info = await JetStreamAdmin(connection).info(WRITE)
        assert info["cluster"]["leader"] == "west-3"
        assert info["state"]["messages"] >= len(acknowledged) > 0
        assert (info["state"]["first_seq"], info["state"]["last_seq"] >= max(acknowledged)) == (1, True)
    require_success(await asyncio.to_thread(vstream, "lab", "down", LAB, "--purge"))


async def test_while_servers_are_upgraded_any_older_one_may_hold_the_stream(state: Path) -> None:
    """It is another that answers the requests, and the topology says that all are new."""
    async with killed_apply.running_lab(LAB, place("az:b"), "2.15.1", west="2.14.6"):
        await killed_apply.run(place("az:b"), LAB)
        endpoints, moved = list_endpoints(LAB), replace(place("az:c"), server_version=(2, 15))
        async with connect(endpoints["west"], "west") as connection:
            acknowledged: list[int] = []
            stopped = asyncio.Event()
            publishing = asyncio.create_task(publish(connection, acknowledged, stopped))
            async with asyncio.timeout(30):  # until this server has heard who listens
                while not acknowledged:
                    await asyncio.sleep(0.01)
            stopped.set()
            await publishing
        for url in endpoints["west"].urls[1:]:
            west = replace(endpoints["west"], urls=(url,))
            request = PlanRequest(topology=moved, bundle=render_bundle(moved), endpoints={"west": west})
            assert GateKind.QUORUM_IS_CURRENT in {gate.kind for gate in (await make_plan(request)).gates}
