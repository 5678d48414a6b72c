"""`vstream repair messages` on real servers in three regions: what a region lacks and what it holds twice, while clients publish."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support import probe_lab
from tests.support.command import environment, vstream
from tests.support.night import with_night
from tests.support.probe_lab import LAB, REGIONS, World, empty_world, running_lab, topology, until
from vstream.errors import VstreamError
from vstream.health.doctor.examine import examine
from vstream.health.live.collect import collect_snapshot
from vstream.health.repair.live.replay import find_leftovers
from vstream.jetstream import direct
from vstream.jetstream.source_header import parse_provenance, parse_replay
from vstream.lab import binaries
from vstream.lab.endpoints import list_endpoints

pytestmark = pytest.mark.lab

READ = tuple(f"foo-read-{region}" for region in REGIONS)
Message = tuple[str, int, str, bytes, str | None]
"""Origin, sequence there, subject, payload, message id."""


@pytest.fixture(scope="module", params=with_night(["2.15.1"], ["2.12.8"]))
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """On servers that store how far they are in their sources, and on some that look it up in what they hold (as single ones do in test_single_server.py)."""
    with running_lab(tmp_path_factory.mktemp("repair") / "state", binaries.find_or_fetch(request.param)):
        yield request.param


@pytest_asyncio.fixture
async def world(running: str) -> AsyncIterator[World]:
    async with empty_world() as live_world:
        yield live_world


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "topology.yaml"
    file.write_bytes(probe_lab.TOPOLOGY)
    return file


async def read_held(world: World, stream: str) -> list[Message]:
    """All that *stream* holds, as it holds it."""
    connection, result = next(iter(world.connections.values())), []
    state = (await world.api(f"STREAM.INFO.{stream}"))["state"]
    for start in range(max(1, state["first_seq"]), state["last_seq"] + 1, 100):
        seqs = range(start, min(start + 100, state["last_seq"] + 1))
        for message in await asyncio.gather(
            *(direct.get_by_seq_from_leader(connection, stream, seq, timeout=30) for seq in seqs)
        ):
            if message is not None:
                provenance = parse_provenance(message.headers)
                assert provenance is not None, message
                result.append(
                    (
                        provenance.origin,
                        provenance.seq,
                        message.subject,
                        message.data,
                        message.headers.get("Nats-Msg-Id"),
                    )
                )
    return result


async def all_hold(world: World, wanted: set[Message], *streams: str) -> None:
    """Return once all read streams hold *wanted*, each once, and nothing else."""

    async def complaint() -> str | None:
        for stream in streams or READ:
            counts = Counter(await read_held(world, stream))
            if counts != Counter(dict.fromkeys(wanted, 1)):
                lacks, has = Counter(wanted) - counts, counts - Counter(wanted)
                return f"{stream} lacks {dict(lacks)} and has besides {dict(has)}"
        return None

    await until(complaint, within=90)


async def fill_regions(world: World, number: int, start: int = 1, *, subject: str = "foo.{}") -> set[Message]:
    """*number* messages in each region, with what they become everywhere."""
    result: set[Message] = set()
    for region in REGIONS:
        for index in range(start, start + number):
            name, data, msg_id = subject.format(index), f"{region}-{index}".encode(), f"{region}-{index}"
            answer = await world.connections[region].request(name, data, headers={"Nats-Msg-Id": msg_id, "X-Own": "y"})
            ack = json.loads(answer.data)
            result.add((ack["stream"], ack["seq"], name, data, msg_id))
    return result


@asynccontextmanager
async def publish_meanwhile(world: World) -> AsyncIterator[set[Message]]:
    """What is published in each region while the block runs."""
    result: set[Message] = set()
    is_over = asyncio.Event()

    async def publish() -> None:
        number = 1000
        while not is_over.is_set():
            result.update(await fill_regions(world, 1, number))
            number += 1
            await asyncio.sleep(0.05)

    task = asyncio.create_task(publish())
    try:
        yield result
    finally:
        is_over.set()
        await task


async def healthy(world: World, *left: str) -> None:
    """Nothing is wrong any more, but for the codes that are *left*."""

    async def complaint() -> str | None:
        facts = await collect_snapshot(topology(), list_endpoints(LAB), timeout=15, is_deep=True)
        findings = [finding for finding in examine(topology(), world.bundle, facts).findings if finding.code != "VD102"]
        return None if {finding.code for finding in findings} == set(left) else str(findings)

    await until(complaint, within=90)


def narrow(world: World, reader: str, origin: str) -> dict[str, Any]:
    """*reader* that passes what is not on `foo.>` of *origin*, as it does with whatever it has skipped."""
    region = origin.rpartition("-")[2]
    return {
        "sources": [
            source | {"subject_transforms": [{"src": f"_vs.foo.{region}.foo.>", "dest": "foo.>"}]}
            if source["name"] == origin
            else source
            for source in world.config(reader)["sources"]
        ]
    }


async def update_stream(world: World, fields: dict[str, Any]) -> None:
    """Update a stream. Beside much else, servers may need more than the seconds that a request has."""

    async def complaint() -> str | None:
        try:
            await world.api(f"STREAM.UPDATE.{fields['name']}", fields)
        except VstreamError as error:
            return str(error)
        return None

    await until(complaint)


CONTENTS = ("--kind", "clear", "--kind", "replay", "--kind", "delete")
"""Without those to which a source matters that is silent for a moment."""


def repair(file: Path, *arguments: str) -> dict[str, Any]:
    """What `vstream repair messages` says, by default of contents alone, with its exit code."""
    kinds = () if "--kind" in arguments else CONTENTS
    ran = vstream("repair", "messages", file, "--lab", LAB, "--format", "json", *kinds, *arguments)
    assert ran.code in {0, 1}, ran.err
    return {**ran.json(), "code": ran.code}


async def test_what_is_missing_comes_back_and_what_comes_twice_goes(world: World, file: Path) -> None:
    await world.create_all(changes={"foo-read-east": narrow(world, "foo-read-east", "foo-write-west")})
    expected = await fill_regions(world, 4)
    expected |= await fill_regions(world, 3, 5, subject="bar.{}.baz")
    expected |= await fill_regions(world, 2, 8)
    await all_hold(world, expected, "foo-read-west", "foo-read-central")
    skipped = {message for message in expected if message[0] == "foo-write-west" and message[2].startswith("bar.")}
    await all_hold(world, expected - skipped, "foo-read-east")
    # One of them the write stream does not have any more, as after its `max_age`.
    await world.api("STREAM.MSG.DELETE.foo-write-west", {"seq": 6})

    shown = vstream("repair", "messages", file, "--lab", LAB, *CONTENTS)
    assert shown.code == 1, shown.err
    assert "replay  foo-read-east in east: it lacks 3 messages of foo-write-west, 5-7" in shown.out
    assert "from `foo-read-west`, `foo-write-west`" in shown.out
    await all_hold(world, expected - skipped, "foo-read-east")  # it was only shown
    async with publish_meanwhile(world) as meanwhile:
        done = await asyncio.to_thread(vstream, "repair", "messages", file, "--lab", LAB, "--yes", *CONTENTS)
    assert done.code == 0, done.out + done.err
    assert "replayed foo-read-east: 3 messages of foo-write-west" in done.out
    assert len(meanwhile) > 3
    expected |= meanwhile
    await all_hold(world, expected)
    await healthy(world, "VD509")  # the source is as narrow as before
    again = vstream("repair", "messages", file, "--lab", LAB, *CONTENTS)
    assert (again.code, again.out) == (0, "Nothing to repair (checked: clear, replay, delete).\n"), again.err

    # The source is given back what it should take: servers take that for another one, which begins at the beginning.
    await update_stream(world, world.config("foo-read-east"))
    ever = sum(message[0] == "foo-write-west" for message in expected) - 1

    async def lacks_doubles() -> str | None:
        count = (await world.messages())["foo-read-east"]
        return None if count == len(expected) + ever else str(count)

    await until(lacks_doubles, within=90)
    answer = repair(file)
    assert answer["code"] == 1
    assert [(double["reader"], double["copies"], double["differing"]) for double in answer["doubles"]] == [
        ("foo-read-east", ever, 0)
    ]
    deleted = repair(file, "--yes", "--kind", "delete", "--stream", "foo")
    assert (deleted["code"], deleted["repaired"]) == (0, ["foo-read-east"]), deleted
    await all_hold(world, expected)
    # Servers before 2.15 do not say how far a reader is. What it stores does.
    expected |= await fill_regions(world, 1, 5000)
    await all_hold(world, expected)
    await healthy(world)
    again = vstream("repair", "messages", file, "--lab", LAB, *CONTENTS)
    assert (again.code, again.out) == (0, "Nothing to repair (checked: clear, replay, delete).\n"), again.err


async def kill_repair(world: World, file: Path, reader: str) -> str:
    """A repair of *reader* dies in the middle; the stream that it leaves."""
    command = [
        sys.executable,
        "-m",
        "vstream",
        "repair",
        "messages",
        str(file),
        "--lab",
        LAB,
        "--kind",
        "replay",
        "--yes",
    ]

    async def not_begun() -> str | None:
        sources = (await world.api(f"STREAM.INFO.{reader}"))["config"]["sources"]
        return None if any(parse_replay(source["name"]) for source in sources) else f"exit code {killed.returncode}"

    async def not_ended() -> str | None:
        leftovers = await find_leftovers(topology(), world.connections["east"])
        return None if [leftover.is_running for leftover in leftovers] == [False] else str(leftovers)

    killed = await asyncio.create_subprocess_exec(*command, env=environment(), stdout=asyncio.subprocess.DEVNULL)
    try:
        await until(not_begun, pause=0)
    finally:
        if killed.returncode is None:
            killed.kill()
        await killed.wait()
    await until(not_ended)
    (leftover,) = await find_leftovers(topology(), world.connections["east"])
    assert leftover.readers == (reader,)
    return leftover.stream


async def test_what_a_killed_repair_has_left_is_removed_before_anything_is_read(world: World, file: Path) -> None:
    await world.create_all(changes={"foo-read-east": narrow(world, "foo-read-east", "foo-write-west")})
    west = world.connections["west"]
    for start in range(0, 2000, 100):
        await asyncio.gather(*(west.request(f"bar.{number}.baz", b"x") for number in range(start, start + 100)))
    await west.request("foo.last", b"x")

    async def lacks(number: int) -> str | None:
        counts = await world.messages()
        return None if (counts["foo-read-west"], counts["foo-read-east"]) == (2001, number) else str(counts)

    await until(lambda: lacks(1))
    leftover = await kill_repair(world, file, "foo-read-east")
    # Whoever reads says that this one does not answer.
    await world.api("STREAM.DELETE.foo-read-central")
    sentence = (
        f"missing messages are not looked for before `{leftover}` is gone: "
        "`vstream repair messages --kind clear --yes` removes what a killed repair has left"
    )
    refused = vstream("repair", "messages", file, "--lab", LAB, "--kind", "replay", "--yes")
    assert (refused.code, refused.out) == (1, f"open     {sentence}\n"), refused.err
    shown = repair(file, "--kind", "clear", "--kind", "replay")
    assert (shown["code"], shown["open"], shown["unread"]) == (1, [sentence], {})
    cleared = vstream("repair", "messages", file, "--lab", LAB, "--kind", "clear", "--yes")
    assert (cleared.code, cleared.out.split()[-2:]) == (0, ["cleared", leftover]), cleared.out + cleared.err
    await world.api("STREAM.CREATE.foo-read-central", world.config("foo-read-central"))
    left = repair(file, "--kind", "replay")
    assert (left["open"], [replay["origin"] for replay in left["replays"]]) == ([], ["foo-write-west"])
