"""Many worlds in one lab: each is a virtual stream, and one command is asked about all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.command import vstream
from tests.support.labs import processes_in
from tests.support.worlds import judging
from tests.support.worlds.judging import Verdict
from tests.support.worlds.settings import REGIONS, SETTINGS, Setting, Version, write_topology
from tests.support.worlds.tampering import BY_NAME, KINDS, Kind
from tests.support.worlds.world import World
from vstream.audit.pipeline import begin_reading, read_and_judge
from vstream.audit.request import AuditProgress, AuditRequest, NamedTarget, SparkAddress
from vstream.audit.scratch import scratch_directory
from vstream.audit.spark.audit_session import AuditSession
from vstream.cli.audit import find_target
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.topology.replication import physical_streams

_AT_ONCE = 30
"""Worlds that something is done to at a time."""
_LATE = 32.0
"""Seconds after which what has not arrived is late."""
_MESSAGES = 20
_HEALTHY = 6
"""One in so many worlds is left alone."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one world is to be."""

    setting: Setting
    kinds: tuple[Kind, ...]
    seed: int


def draw_plans(seed: int, number: int, version: Version) -> list[Plan]:
    """*number* worlds in which each kind comes as often as the others."""
    random = Random(seed)
    settings = [setting for setting in SETTINGS if setting.since <= version]
    kinds = [kind for kind in KINDS if kind.since <= version]
    plans = []
    for index in range(number):
        # What is healthy is as hard to tell as what is not.
        kind = kinds[0] if index % _HEALTHY == _HEALTHY - 1 else kinds[(seed * number + index) % len(kinds)]
        setting = random.choice([setting for setting in settings if kind.fits(setting)])
        more = [
            kind_beside
            for kind_beside in kinds
            if kind_beside.fits(setting) and not kind_beside.is_alone and kind_beside is not kind
        ]
        is_joined = not kind.is_alone and more and random.random() < 0.4
        second = (random.choice(more),) if is_joined else ()
        plans.append(Plan(setting=setting, kinds=(kind, *second), seed=random.getrandbits(32)))
    return plans


def smoke_plans() -> list[Plan]:
    """A few worlds for the suite: nothing is late in them, and nothing has to be waited for."""
    settings = {setting.name: setting for setting in SETTINGS}
    worlds = (
        ("latest", "nothing"),
        ("count", "delete-in-read"),
        ("kv-history", "purge-subject"),
        ("write-count", "delete-in-all-reads"),
        ("plain", "delete-everywhere", "put-in-twice"),
        ("ttl", "delete-in-write"),
    )
    return [
        Plan(setting=settings[setting], kinds=tuple(BY_NAME[kind] for kind in kinds), seed=number)
        for number, (setting, *kinds) in enumerate(worlds)
    ]


class WorldsLab:
    """A running lab with *worlds*, whose topology is in *file*."""

    def __init__(self, name: str, file: Path, plans: list[Plan], version: Version) -> None:
        self.name = name
        self.file = file
        self.plans = plans
        self.version = version
        self.worlds: list[World] = []

    async def live(self) -> None:
        """Let clients publish, do to each world what is planned, and let clients go on."""
        topology = check_topology(self.file.read_bytes(), self.file.name).require()
        plans = dict(self.named_plans())
        async with AsyncExitStack() as stack:
            connections = {
                region: await stack.enter_async_context(connect(endpoint, region, timeout=30))
                for region, endpoint in list_endpoints(self.name).items()
            }
            for stream in topology.streams:
                name = stream.name.removeprefix("KV_")
                plan = plans[name]
                parts = {(part.role.value, part.place): part.name for part in physical_streams(stream)}
                self.worlds.append(
                    World(
                        name, plan.setting, [kind.name for kind in plan.kinds],
                        seed=plan.seed, version=self.version, connections=connections, physical=parts,
                    )
                )  # fmt: skip
            await self._for_all(lambda world: world.settle())
            await self._for_all(lambda world: world.traffic(_MESSAGES, "k"))
            await self._for_all(lambda world: world.settle())
            await self._for_all(self._tamper)
            await self._for_all(self._go_on)

    def named_plans(self) -> list[tuple[str, Plan]]:
        return [(f"w{index:03}", plan) for index, plan in enumerate(self.plans)]

    async def _for_all(self, work: Any) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def run(world: World) -> None:
            async with slots:
                await work(world)

        await asyncio.gather(*(run(world) for world in self.worlds))

    async def _tamper(self, world: World) -> None:
        for name in world.kinds:
            await BY_NAME[name].act(world)

    async def _go_on(self, world: World) -> None:
        if not world.is_frozen:
            before = {origin: len(messages) for origin, messages in world.sent.items()}
            await world.traffic(4, "l")
            await world.settle()
            for reader, origin in world.unfed:
                if "remove-source" in world.kinds:
                    world.truth.claims["lost", reader, origin] += len(world.sent[origin]) - before[origin]
        world.claim_repeated_sequences()
        await world.claim_disputes()

    def ask(self, *command: str, codes: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
        ran = vstream(*command, self.file, "--format", "json", timeout=550)
        assert ran.code in codes, ran.err
        report: dict[str, Any] = json.loads(ran.out)
        return report

    def audit(self, spark: SparkSession) -> dict[str, Any]:
        """What the command prints, without a Spark of its own."""
        request = AuditRequest()
        target = find_target(NamedTarget.at(str(self.file)), request)
        with scratch_directory() as scratch, closing(begin_reading(request, target, SparkAddress(), scratch)) as reader:
            session = AuditSession(spark=spark, scratch=scratch, progress=AuditProgress())
            return read_and_judge(request, reader, session).as_dict()


@contextmanager
def running_worlds(directory: Path, plans: list[Plan], version: str) -> Iterator[WorldsLab]:
    """A lab of servers of *version* with a virtual stream for each of *plans*, in a state directory of its own."""
    numbers = (int(version.split(".", maxsplit=1)[0]), int(version.split(".")[1]))
    file = directory / "worlds.yaml"
    worlds = WorldsLab("worlds", file, plans, numbers)
    settings = {name: plan.setting for name, plan in worlds.named_plans()}
    file.write_text(write_topology(worlds.name, numbers, settings), encoding="utf-8")
    state = directory / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSTREAM_STATE_DIR", str(state))
        try:
            for command in (("lab", "up", file, "--server-version", version), ("apply", file, "--yes")):
                ran = vstream(*command)
                assert ran.code == 0, ran.out + ran.err
            yield worlds
        finally:
            vstream("lab", "down", worlds.name, "--purge")
            left = processes_in(state)
            for process in left:
                process.kill()
    assert left == []


def run_worlds(directory: Path, plans: list[Plan], version: str, spark: SparkSession) -> list[Verdict]:
    """
    Make worlds, and hold what `audit`, `doctor`, `status` and `repair` say against the truth.

    After a repair a plan of another has nothing to put back, and `audit` finds what cannot be repaired.
    """
    with running_worlds(directory, plans, version) as worlds:
        asyncio.run(worlds.live())
        written = time.monotonic()
        status, report = worlds.ask("status", codes=(0, 1, 3)), worlds.ask("doctor", codes=(0, 1, 3))
        verdicts = [judging.judge_status(world, status) for world in worlds.worlds]
        absent = sum("VD502" in world.truth.doctor for world in worlds.worlds)
        verdicts += [judging.judge_doctor(world, report, status, absent) for world in worlds.worlds]
        report = worlds.ask("repair", "messages", codes=(0, 1, 3))
        verdicts += [judging.judge_repair(world, report) for world in worlds.worlds]
        if worlds.version < (2, 15) or any(world.unfed for world in worlds.worlds):
            # What has not arrived by then is late, and no longer on its way.
            time.sleep(max(0.0, written + _LATE - time.monotonic()))
        report = worlds.audit(spark)
        verdicts += [judging.judge_audit(world, report) for world in worlds.worlds]
        assert set(REGIONS) == set(report["regions"])
        done = worlds.ask("repair", "messages", "--yes", codes=(0, 1, 3))
        refilled = {item["origin"] for item in done["refills"] if not item["blocked"]}
        again = worlds.ask("repair", "messages", codes=(0, 1, 3))
        left = [(item["reader"], item["missing"]) for item in again["replays"] if item["missing"]]
        assert (left, [item for item in again["doubles"] if item["copies"]]) == ([], []), again
        report = worlds.audit(spark)
        for world in worlds.worlds:
            verdict = judging.judge_audit(world, report, judging.after_repair(world, refilled))
            verdicts.append(replace(verdict, command="repaired"))
        return verdicts
