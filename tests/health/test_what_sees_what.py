"""
What each command says in each of several labs that something is wrong with, or that little is known of.

One lab, whose truth is known. The table of docs/what-sees-what.md is written from what the commands said.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import yaml

from tests.support import probe_lab
from tests.support.command import vstream
from tests.support.golden import Golden
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.probe_lab import LAB, World, empty_world, topology
from vstream.health.live.collect import collect_snapshot
from vstream.health.snapshot import ServerSnapshot, SourceSnapshot, StreamSnapshot
from vstream.lab import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]

COMMANDS = ("status", "export", "doctor", "drift", "probe")
PAGE = """\
# What each command sees

What each command says, and its exit code, in setups whose truth is known: a lab of one server in each of three regions.
0 is yes, 1 is no, and 3 means that the question could not be answered. `export` has no verdict: shown are its metrics.
Written by `tests/health/test_what_sees_what.py` (`--update-golden`) from what the commands said.

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One state of the lab, and what is known of it. *expected* is the verdict and the exit code of each command."""

    title: str
    expected: dict[str, str]
    has_lost_mappings: bool = False
    is_west_reachable: bool = True
    has_monitor: bool = True


SETUPS = (
    Setup(
        title="all well",
        expected={
            "status": "OK (0)",
            "export": "problems 0, unknown 0, mapping_ok 1 1 1",
            "doctor": "HEALTHY (0)",
            "drift": "NO DRIFT (0)",
            "probe": "PASS (0)",
        },
    ),
    Setup(
        title="all well, no `monitor`",
        has_monitor=False,
        expected={
            "status": "UNKNOWN (3)",
            "export": "problems 0, unknown 3, mapping_ok ? ? ?",
            "doctor": "UNKNOWN (3)",
            "drift": "UNKNOWN (3)",
            "probe": "PASS (0)",
        },
    ),
    Setup(
        title="a server lost its mapping rules",
        has_lost_mappings=True,
        expected={
            "status": "DEGRADED (1)",
            "export": "problems 1, unknown 0, mapping_ok 0 1 1",
            "doctor": "UNHEALTHY (1)",
            "drift": "DRIFT (1)",
            "probe": "FAIL (1)",
        },
    ),
    Setup(
        title="a server lost its mapping rules, no `monitor`",
        has_lost_mappings=True,
        has_monitor=False,
        expected={
            "status": "UNKNOWN (3)",
            "export": "problems 0, unknown 3, mapping_ok ? ? ?",
            "doctor": "UNKNOWN (3)",
            "drift": "UNKNOWN (3)",
            "probe": "FAIL (1)",
        },
    ),
    Setup(
        title="a region cannot be reached",
        is_west_reachable=False,
        expected={
            "status": "DEGRADED (1)",
            "export": "problems 1, unknown 0, mapping_ok ? 1 1",
            "doctor": "UNHEALTHY (1)",
            "drift": "UNKNOWN (3)",
            "probe": "FAIL (1)",
        },
    ),
    Setup(
        title="a region cannot be reached, no `monitor`",
        is_west_reachable=False,
        has_monitor=False,
        expected={
            "status": "DEGRADED (1)",
            "export": "problems 1, unknown 3, mapping_ok ? ? ?",
            "doctor": "UNKNOWN (3)",
            "drift": "UNKNOWN (3)",
            "probe": "FAIL (1)",
        },
    ),
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, binary: Path) -> Iterator[None]:
    with probe_lab.running_lab(tmp_path_factory.mktemp("state"), binary):
        yield


@asynccontextmanager
async def world_with_streams() -> AsyncIterator[World]:
    async with empty_world() as world:
        await world.create_all()
        await world.sourcing()
        yield world


def write_topology(file: Path, setup: Setup) -> None:
    document = yaml.safe_load(probe_lab._TOPOLOGY)
    document["connect"] = {}
    for region, endpoint in lab.endpoints(LAB).items():
        is_reachable = region != "west" or setup.is_west_reachable
        nowhere = f"127.0.0.1:{free_port()}"
        entry = {"urls": list(endpoint.urls) if is_reachable else [f"nats://{nowhere}"]}
        if setup.has_monitor:
            entry["monitor"] = list(endpoint.monitor) if is_reachable else [f"http://{nowhere}"]
        document["connect"][region] = entry
    file.write_text(yaml.safe_dump(document))


def said(command: str, file: Path) -> str:
    """The verdict and the exit code of *command*."""
    if command == "export":
        text = vstream("export", file, "--once").out
        found = {
            name: re.search(rf"^vstream_{name}{{.*}} (\d+)$", text, re.MULTILINE) for name in ("problems", "unknown")
        }
        numbers = ", ".join(f"{name} {match and match[1]}" for name, match in found.items())
        loaded = dict(re.findall(r'^vstream_server_mapping_ok{.*server="(.*)"} (\d)$', text, re.MULTILINE))
        return f"{numbers}, mapping_ok {' '.join(loaded.get(f'{region}-1', '?') for region in probe_lab.REGIONS)}"
    options = ("--deadline", "20") if command == "probe" else ()
    ran = vstream(command, file, *options, timeout=90)
    verdicts = re.findall(r"^(NO DRIFT|[A-Z]{2,})\b:", ran.out, re.MULTILINE)
    assert len(verdicts) == 1, ran.out + ran.err
    return f"{verdicts[0]} ({ran.code})"


async def test_every_command_in_every_setup(running: None, tmp_path: Path, golden: Golden) -> None:
    rows = []
    async with world_with_streams() as world:
        for setup in SETUPS:
            if setup.has_lost_mappings:
                await world.load_mappings("west", lambda _: "mappings = {}")
            else:
                await world.restore_mappings()
            file = tmp_path / "topology.yaml"
            write_topology(file, setup)
            answers = {command: await asyncio.to_thread(said, command, file) for command in COMMANDS}
            assert answers == setup.expected, setup.title
            rows.append(f"| {setup.title} | " + " | ".join(answers.values()) + " |")
        await world.restore_mappings()
    head = f"| | {' | '.join(f'`{command}`' for command in COMMANDS)} |\n|---|{'---|' * len(COMMANDS)}"
    golden.check(ROOT / "docs" / "what-sees-what.md", PAGE + "\n".join((head, *rows)) + "\n")


async def test_lost_mapping_rules_are_named(running: None, tmp_path: Path) -> None:
    async with world_with_streams() as world:
        await world.load_mappings("west", lambda _: "mappings = {}")
        file = tmp_path / "topology.yaml"
        write_topology(file, SETUPS[0])
        ran = await asyncio.to_thread(vstream, "status", file, "--format", "json")
        await world.restore_mappings()
    found = ran.json()
    (problem,) = found["problems"]
    assert (problem["about"], problem["code"]) == ("west-1", "VD402")
    publish = {region["name"]: region["publish"]["works"] for region in found["regions"]}
    assert publish == {"west": 0, "central": 1, "east": 1}


OPTIONAL = {
    ServerSnapshot: {"problem", "rules_problem"},
    StreamSnapshot: set[str](),
    SourceSnapshot: {"error", "lag"},
}
"""What no server says where all is well."""


async def test_every_fact_is_collected(running: None) -> None:
    """A field of a snapshot that nobody fills is a check that never finds anything."""
    async with world_with_streams() as world:
        await world.publish("west", "foo.a")
        snapshot = await collect_snapshot(topology(), lab.endpoints(LAB), deadline=15, is_deep=True)
    streams = list(snapshot.streams.values())
    values: dict[type, Sequence[object]] = {
        ServerSnapshot: list(snapshot.servers),
        StreamSnapshot: streams,
        SourceSnapshot: [source for stream in streams for source in stream.sources],
    }
    empty = {
        f"{kind.__name__}.{field.name}"
        for kind, objects in values.items()
        for field in fields(kind)
        if field.name not in OPTIONAL[kind] and not any(getattr(one, field.name) for one in objects)
    }
    assert empty == set()
