"""Scenarios for tests, short and small, and what their captures say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.support.night import repetitions
from tests.support.topologies import begin_topology
from vstream.capture.records import OperationKind, OperationOutcome, OperationRecord
from vstream.capture.store import Capture
from vstream.findings import Span
from vstream.lint.check_topology import check_topology
from vstream.runner.events import Event
from vstream.runner.runner import capture_scenario
from vstream.scenario.model import (
    Action,
    LabSpec,
    Publishers,
    ReaderKind,
    Readers,
    Retry,
    Scenario,
    Step,
    Workload,
)

NS = 1_000_000_000
RATE = repetitions(40, night=100)
"""Messages that each publisher sends in a second."""
HERE = Span.point("test.yaml", 1, 1)
REGIONS = ("west", "central", "east")
TOPOLOGY = (
    begin_topology("rehearsed", "2.10", west=1, central=1, east=1)
    + """\
streams:
  foo:
    subjects: [foo.>]
    canary: foo._canary.*
    write: {max_age: 1h}
"""
)
TEXT = "scenario: 1\nname: test\n"


def scenario(
    *steps: tuple[str | None, Action],
    retries: Sequence[Retry] = (Retry.NONE,),
    readers: Sequence[ReaderKind] = (),
    version: str | None = None,
    topology: str = TOPOLOGY,
    timeout: int = NS,
    rate: float = RATE,
    links: str = "none",
) -> Scenario:
    """Publishers in every region for each of *retries*, readers of these kinds, and these named steps."""
    return Scenario(
        name="test",
        description="",
        seed=7,
        topology_file="test.yaml",
        topology_text=topology,
        topology=check_topology(topology.encode(), "test.yaml").require(),
        lab=LabSpec(versions={} if version is None else {"*": version}, links=links),
        workload=Workload(
            publishers=tuple(
                Publishers(
                    stream="foo",
                    subject="foo.{region}.{key}",
                    regions=REGIONS,
                    rate=rate,
                    size=(40, 200),
                    keys=5,
                    retry=retry,
                    timeout=timeout,
                    give_up=60 * NS,
                    span=HERE,
                )
                for retry in retries
            ),
            readers=tuple(
                Readers(stream="foo", kind=kind, regions=REGIONS, rate=20, timeout=NS, span=HERE) for kind in readers
            ),
        ),
        steps=tuple(Step(action=action, span=HERE, name=name) for name, action in steps),
        expectations=(),
        text=TEXT,
    )


async def run_scenario(wanted: Scenario, directory: Path) -> tuple[Capture, list[Event]]:
    """Run *wanted*, and take its lab down."""
    seen: list[Event] = []
    capture = await capture_scenario(wanted, capture_dir=directory, lab_name="rehearsal", on_event=seen.append)
    return capture, seen


def operations(capture: Capture, kind: OperationKind, region: str | None = None) -> list[OperationRecord]:
    return [
        operation for operation in capture.operations() if operation.kind is kind and region in {None, operation.region}
    ]


def find_acknowledged(capture: Capture) -> set[str]:
    return {
        operation.id or ""
        for operation in operations(capture, OperationKind.PUBLISH)
        if operation.outcome is OperationOutcome.OK
    }


def count_stored(capture: Capture, role: str) -> dict[str, Counter[str]]:
    """How often each identity is in each stream of *role*, by stream."""
    return {
        stream.name: Counter(message.id or "" for message in capture.read_stored(stream.name))
        for stream in capture.manifest().streams
        if stream.role == role
    }
