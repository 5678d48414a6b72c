"""Runs of scenarios on real super-clusters: what is captured, and that nothing is left behind, whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.command import start_vstream
from tests.support.labs import eventually, processes_in
from tests.support.night import with_night
from tests.support.scenario_runs import (
    NS,
    REGIONS,
    TOPOLOGY,
    count_stored,
    find_acknowledged,
    operations,
    run_scenario,
    scenario,
)
from vstream.capture.records import FaultOutcome, OperationKind, OperationOutcome, OperationRecord
from vstream.capture.store import Capture
from vstream.capture.verdict.judge_capture import judge_capture
from vstream.capture.verdict.model import CaseStatus
from vstream.errors import VstreamError
from vstream.lab import lifecycle
from vstream.lab.status import list_lab_names
from vstream.runner.events import SampleTaken, StepBegan, StepEnded, WorkerProgress
from vstream.scenario import fault_types
from vstream.scenario.fault_types import FaultSpec
from vstream.scenario.model import (
    ChangeRegion,
    ClientOperation,
    Converge,
    Heal,
    Inject,
    ReaderKind,
    RegionCommand,
    Retry,
    Try,
    Wait,
)

pytestmark = pytest.mark.lab


async def test_a_run_without_faults_captures_everything(state: Path, tmp_path: Path) -> None:
    rehearsal = scenario(
        ("load", Wait(nanoseconds=2 * NS)),
        ("together", Converge(within=60 * NS)),
        ("matrix", Try(regions=("west", "east"))),
        readers=tuple(ReaderKind),
    )
    capture, seen = await run_scenario(rehearsal, tmp_path / "capture")

    manifest = capture.manifest()
    assert (manifest.is_complete, manifest.stopped_by, manifest.seed) == (True, None, 7)
    assert [server.name for server in manifest.servers] == ["west-1", "central-1", "east-1"]
    assert (capture.path / "topology.yaml").read_text() == TOPOLOGY
    assert {path.name for path in capture.logs.iterdir()} >= {"west-1.log", "central-1.log", "east-1.log"}
    assert {(operation.outcome, operation.error) for operation in capture.operations()} == {(OperationOutcome.OK, None)}

    acked = find_acknowledged(capture)
    tried = {
        operation.id or ""
        for operation in operations(capture, OperationKind.TRY)
        if operation.subject == ClientOperation.PUBLISH.value
    }
    assert acked
    for counts in count_stored(capture, "read").values():
        assert set(counts) == acked | tried
        assert set(counts.values()) == {1}
    assert {delivery.client for delivery in capture.deliveries()} == {f"{region}/consumer-foo" for region in REGIONS}
    assert {delivery.id for delivery in capture.deliveries() if delivery.region == "west"} == acked | tried

    assert [window.name for window in capture.windows()] == ["load", "together", "matrix", "quiesce"]
    assert all(window.is_ok for window in capture.windows())
    assert {sample.region for sample in capture.samples()} == set(REGIONS)
    assert any(sample.control_plane for sample in capture.samples())
    assert any(sample.links for sample in capture.samples())
    assert {type(event) for event in seen} >= {StepBegan, StepEnded, WorkerProgress, SampleTaken}
    assert list_lab_names() == ()
    every_client_operation_is_tried_once(capture)


def every_client_operation_is_tried_once(capture: Capture) -> None:
    """In each region that was asked for."""
    for region in ("west", "east"):
        tried = [
            (operation.subject, operation.outcome, operation.error)
            for operation in operations(capture, OperationKind.TRY, region)
        ]
        assert tried == [(trial.value, OperationOutcome.OK, None) for trial in ClientOperation]
        counts = {operation.subject: operation.count for operation in operations(capture, OperationKind.TRY, region)}
        assert (counts[ClientOperation.FETCH.value], counts[ClientOperation.CREATE_CONSUMER.value]) == (1, 1)
    assert operations(capture, OperationKind.TRY, "central") == []


async def test_a_capture_is_never_written_over(state: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(VstreamError, match="holds a capture already"):
        await run_scenario(scenario(("load", Wait(nanoseconds=NS))), tmp_path)
    assert (tmp_path / "manifest.json").read_text() == "{}"


async def test_a_lab_that_cannot_start_leaves_nothing_but_the_reason(state: Path, tmp_path: Path) -> None:
    (tmp_path / "server.conf.j2").write_text("broken: {\n")
    rehearsal = scenario(("load", Wait(nanoseconds=NS)))
    rehearsal = replace(rehearsal, lab=replace(rehearsal.lab, templates=str(tmp_path)))
    with pytest.raises(VstreamError):
        await run_scenario(rehearsal, tmp_path / "capture")
    manifest = Capture(tmp_path / "capture").manifest()
    assert not manifest.is_complete
    assert manifest.stopped_by
    assert (processes_in(state), list_lab_names()) == ([], ())


FILE = """\
scenario: 1
name: long
description: It lasts until somebody ends it.
topology:
{topology}
workload: {{rate: 50/s}}
steps:
{steps}
  - wait: 1h
"""


StartRun = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def long_run(tmp_path: Path) -> Iterator[StartRun]:
    """Starts `vstream scenario run` of something that does not end by itself, after some steps. It ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(steps: str = "") -> subprocess.Popen[str]:
        indented = "".join(f"  {line}\n" for line in TOPOLOGY.splitlines())
        (tmp_path / "long.yaml").write_text(FILE.format(topology=indented, steps=steps))
        arguments = ("scenario", "run", "long.yaml", "--output", "capture")
        process = start_vstream(*arguments, cwd=tmp_path, stderr=subprocess.STDOUT)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


async def wait_for_clients(running: subprocess.Popen[str], capture: Capture) -> None:
    """Wait until clients work."""
    await eventually(lambda: running.poll() is not None or any(capture.operations()), within=60)
    assert running.poll() is None, running.communicate()[0]


def of_run(directory: Path) -> list[psutil.Process]:
    """Workers and samplers that work in *directory*."""

    def works_here(process: psutil.Process) -> bool:
        try:
            return process.cwd() == str(directory) and "vstream.runner" in " ".join(process.cmdline())
        except psutil.Error:
            return False

    return [process for process in psutil.process_iter() if works_here(process)]


@pytest.mark.parametrize(
    ("send", "number"),
    # To the whole group, as a terminal does, or to the process alone.
    with_night([(os.killpg, signal.SIGINT)], [(os.killpg, signal.SIGTERM), (os.kill, signal.SIGINT)]),
)
async def test_an_interrupted_run_says_so_undoes_what_is_open_and_leaves_nothing(
    state: Path, tmp_path: Path, send: Callable[[int, int], None], number: signal.Signals, long_run: StartRun
) -> None:
    running = long_run("  - pause: west\n    as: stopped")
    capture = Capture(tmp_path / "capture")
    await eventually(lambda: running.poll() is not None or any(capture.windows()), within=60)
    await wait_for_clients(running, capture)
    send(running.pid, number)
    output, _ = await asyncio.to_thread(running.communicate, timeout=60)

    assert running.returncode == (130 if number == signal.SIGINT else -number), output
    assert "Traceback" not in output
    (line,) = [line for line in output.splitlines() if line.startswith("interrupted")]
    assert line.endswith("was taken down; the capture capture is incomplete, its verdict UNKNOWN"), line
    manifest = capture.manifest()
    assert (manifest.is_complete, manifest.stopped_by) == (False, "interrupted")
    assert find_acknowledged(capture)
    assert [(fault.id, fault.outcome) for fault in capture.faults()] == [("stopped", FaultOutcome.CONFIRMED)]
    assert (of_run(tmp_path), processes_in(state), list_lab_names()) == ([], [], ())


async def test_a_killed_run_leaves_a_lab_that_can_be_removed_and_no_clients(
    state: Path, tmp_path: Path, long_run: StartRun
) -> None:
    running = long_run()
    capture = Capture(tmp_path / "capture")
    await wait_for_clients(running, capture)
    assert of_run(tmp_path)
    running.kill()
    await asyncio.to_thread(running.communicate, timeout=60)

    await eventually(lambda: not of_run(tmp_path), within=60)
    assert not capture.manifest().is_complete
    assert find_acknowledged(capture)
    (name,) = list_lab_names()
    await lifecycle.down(name, purge=True)
    assert processes_in(state) == []


async def test_clients_that_die_make_the_capture_incomplete(state: Path, tmp_path: Path, long_run: StartRun) -> None:
    running = long_run()
    capture = Capture(tmp_path / "capture")
    await wait_for_clients(running, capture)
    of_run(tmp_path)[0].kill()
    output, _ = await asyncio.to_thread(running.communicate, timeout=60)

    assert running.returncode == 3, output
    assert "ended by itself" in (capture.manifest().stopped_by or "")
    assert json.loads((tmp_path / "capture" / "manifest.json").read_text())["is_complete"] is False
    assert list_lab_names() == ()


BROKEN = (
    (None, Wait(nanoseconds=NS)),
    ("drained", ChangeRegion(command=RegionCommand.DRAIN, region="west")),
    ("elsewhere", Wait(nanoseconds=NS)),
    ("undone", ChangeRegion(command=RegionCommand.UNDO_DRAIN, region="west")),
    ("no", Inject(fault=FaultSpec(type=fault_types.PARTITION, targets=("west", "east")), id="no")),
    ("one", Inject(fault=FaultSpec(type=fault_types.STEP_DOWN, targets=("foo-read-west",)), id="one")),
    ("paused", Inject(fault=FaultSpec(type=fault_types.PAUSE, targets=("west",)), id="paused", lasting=3 * NS)),
    (None, Wait(nanoseconds=NS)),
    ("killed", Inject(fault=FaultSpec(type=fault_types.KILL_REGION, targets=("west",)), id="killed")),
    ("without west", Wait(nanoseconds=2 * NS)),
    ("healing", Heal(ids=("killed",))),
)


@pytest.fixture(scope="module")
def broken_west(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """West is paused, and later killed. Half of the publishers repeat what was not acknowledged."""
    rehearsal = scenario(*BROKEN, retries=(Retry.NONE, Retry.SAME_ID), rate=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSTREAM_STATE_DIR", str(tmp_path_factory.mktemp("broken") / "state"))
        return asyncio.run(run_scenario(rehearsal, tmp_path_factory.mktemp("broken") / "capture"))[0]


def during(capture: Capture, window: str, region: str) -> Counter[tuple[OperationOutcome, str | None]]:
    """How publishes of *region* ended that were due in *window*, and were tried once."""
    period = next(run_window for run_window in capture.windows() if run_window.name == window)
    return Counter(
        (operation.outcome, operation.error)
        for operation in operations(capture, OperationKind.PUBLISH, region)
        if period.start <= operation.due < period.end and not is_retried(operation)
    )


def is_retried(operation: OperationRecord) -> bool:
    return operation.client.endswith("/publish-foo-2")


def test_whatever_was_acknowledged_is_everywhere_once(broken_west: Capture) -> None:
    assert broken_west.manifest().is_complete
    acked = find_acknowledged(broken_west)
    published = {
        operation.id
        for operation in operations(broken_west, OperationKind.PUBLISH)
        if operation.outcome is not OperationOutcome.REJECTED
    }
    for counts in count_stored(broken_west, "read").values():
        assert acked <= set(counts) <= published
        assert set(counts.values()) == {1}


def test_a_fault_is_felt_where_it_is_and_as_what_it_is(broken_west: Capture) -> None:
    for window in ("paused", "without west"):
        assert {outcome for outcome, _ in during(broken_west, window, "east")} == {OperationOutcome.OK}
    assert (OperationOutcome.INDETERMINATE, "no answer in time") in during(broken_west, "paused", "west")
    assert set(during(broken_west, "without west", "west")) == {(OperationOutcome.REJECTED, "not connected")}


def test_a_step_drains_a_region_as_the_command_does(broken_west: Capture) -> None:
    windows = {window.name: window for window in broken_west.windows()}
    assert [windows[name].is_ok for name in ("drained", "undone")] == [True, True]
    elsewhere = windows["elsewhere"]
    publishes = operations(broken_west, OperationKind.PUBLISH, "west")
    takers = {publish.acked_by for publish in publishes if elsewhere.start <= publish.due < elsewhere.end}
    assert takers == {"foo-write-central"}
    assert {publish.acked_by for publish in publishes if publish.due < windows["drained"].start} == {"foo-write-west"}


def test_faults_are_recorded_with_what_showed_them(broken_west: Capture) -> None:
    confirmed = [fault for fault in broken_west.faults() if fault.outcome is FaultOutcome.CONFIRMED]
    assert [(operation.id, operation.command, operation.regions, operation.outcome) for operation in confirmed] == [
        ("paused", "pause west", ("west",), FaultOutcome.CONFIRMED),
        ("killed", "kill-region west", ("west",), FaultOutcome.CONFIRMED),
    ]
    for finding in confirmed:
        assert finding.evidence is not None
        assert "west-1" in finding.evidence
        assert finding.injected <= (finding.confirmed or 0) <= (finding.healing or 0) <= (finding.healed or 0)
    window = next(window for window in broken_west.windows() if window.name == "paused")
    assert window.start == confirmed[0].injected
    assert (confirmed[0].healing or 0) - NS // 10 <= window.end <= (confirmed[0].healing or 0)


def test_retried_messages_are_all_acknowledged_and_stored_once(broken_west: Capture) -> None:
    publishes = [operation for operation in operations(broken_west, OperationKind.PUBLISH) if is_retried(operation)]
    assert {publish.outcome for publish in publishes} == {OperationOutcome.OK}
    assert max(publish.attempts for publish in publishes) > 1
    identities = {publish.id for publish in publishes}
    for role in ("read", "write"):
        for counts in count_stored(broken_west, role).values():
            assert {count for identity, count in counts.items() if identity in identities} == {1}


def test_a_fault_that_cannot_be_is_recorded_and_the_run_goes_on(broken_west: Capture) -> None:
    assert broken_west.manifest().is_complete
    assert [(fault.id, fault.outcome) for fault in list(broken_west.faults())[:2]] == [
        ("no", FaultOutcome.UNSUPPORTED),
        ("one", FaultOutcome.FAILED),
    ]
    refused = [window for window in broken_west.windows() if window.name in {"no", "one"}]
    assert [window.is_ok for window in refused] == [False, False]
    assert during(broken_west, "paused", "east")


async def test_a_full_disk_loses_nothing_and_lost_power_what_is_counted(state: Path, tmp_path: Path) -> None:
    full = FaultSpec(type=fault_types.DISK_FULL, targets=("east",))
    dark = FaultSpec(type=fault_types.POWER_LOSS, targets=("west",), options={"lose": 2 * NS})
    rehearsal = scenario(
        (None, Wait(nanoseconds=2 * NS)),
        ("full", Inject(fault=full, id="full")),
        ("no room", Wait(nanoseconds=2 * NS)),
        ("room", Heal(ids=("full",))),
        (None, Wait(nanoseconds=NS)),
        ("dark", Inject(fault=dark, id="dark")),
        (None, Wait(nanoseconds=NS)),
    )
    capture, _ = await run_scenario(rehearsal, tmp_path / "capture")
    assert [(fault.command, fault.outcome) for fault in capture.faults()] == [
        ("disk-full east", FaultOutcome.CONFIRMED),
        ("power-loss west --lose 2s", FaultOutcome.CONFIRMED),
    ]
    assert not any(outcome is OperationOutcome.OK for outcome, _ in during(capture, "no room", "east"))
    elsewhere = {text for text in find_acknowledged(capture) if not text.startswith("west/")}
    assert {identity.partition("/")[0] for identity in elsewhere} == {"central", "east"}
    for name, counts in count_stored(capture, "read").items():
        assert elsewhere <= set(counts), f"{name} lacks {sorted(elsewhere - set(counts))[:3]}"
    (stream,) = judge_capture(capture).streams
    assert {origin for origin, count in stream.lost_by_origin.items() if count} == {"west"}
    assert next(reader for reader in stream.served if reader.region == "west").lost.count > 0


@pytest.mark.night
async def test_a_version_without_cursors_converges_too_and_an_upgrade_says_what_runs_then(
    state: Path, tmp_path: Path
) -> None:
    upgrade = FaultSpec(type=fault_types.UPGRADE, targets=("west",), options={"to": "2.15.1"})
    rehearsal = scenario(
        ("load", Wait(nanoseconds=2 * NS)),
        ("together", Converge(within=60 * NS)),
        ("upgrade", Inject(fault=upgrade, id="up")),
        version="2.12.8",
    )
    capture, _ = await run_scenario(rehearsal, tmp_path / "capture")
    assert capture.manifest().is_complete
    windows = {window.name: window.is_ok for window in capture.windows()}
    assert windows == {"load": True, "together": True, "upgrade": True, "quiesce": True}
    (fault,) = capture.faults()
    assert (fault.command, fault.regions) == ("upgrade west --to 2.15.1", ("west",))
    assert fault.outcome is FaultOutcome.CONFIRMED
    assert "1 restarted, and running 2.15.1" in (fault.evidence or "")
    assert {server.name: server.version for server in capture.manifest().servers} == {
        "west-1": "2.15.1",
        "central-1": "2.12.8",
        "east-1": "2.12.8",
    }
    assert all(find_acknowledged(capture) <= set(counts) for counts in count_stored(capture, "read").values())


@pytest.mark.night
async def test_a_region_that_is_cut_off_is_tried_and_sampled_as_it_is(state: Path, tmp_path: Path) -> None:
    # A meta leader looks every 10 s whether its peers were silent for 10 s: it may be the region's own for 20 s.
    isolate = FaultSpec(type=fault_types.ISOLATE, targets=("west",))
    rehearsal = scenario(
        (None, Wait(nanoseconds=NS)),
        ("cut", Inject(fault=isolate, id="cut")),
        ("alone", Wait(nanoseconds=22 * NS)),
        ("matrix", Try(regions=("west", "east"))),
        ("together", Heal(ids=("cut",))),
        links="proxy",
    )
    capture, _ = await run_scenario(rehearsal, tmp_path / "capture")

    (fault,) = capture.faults()
    assert (fault.command, fault.regions) == ("isolate west", ("west",))
    assert fault.outcome is FaultOutcome.CONFIRMED
    assert "central ↔ west, east ↔ west" in (fault.evidence or "")
    for region in REGIONS:
        assert {outcome for outcome, _ in during(capture, "alone", region)} == {OperationOutcome.OK}
    works = {
        operation.subject: operation.outcome is OperationOutcome.OK
        for operation in operations(capture, OperationKind.TRY, "west")
    }
    assert [
        works[operation.value]
        for operation in (
            ClientOperation.PUBLISH,
            ClientOperation.DIRECT_GET,
            ClientOperation.FETCH,
            ClientOperation.ACKNOWLEDGE,
        )
    ] == [True] * 4
    assert [
        works[operation.value]
        for operation in (ClientOperation.CREATE_STREAM, ClientOperation.CREATE_CONSUMER, ClientOperation.LIST_STREAMS)
    ] == [False] * 3
    assert {operation.outcome for operation in operations(capture, OperationKind.TRY, "east")} == {OperationOutcome.OK}
    window = next(window for window in capture.windows() if window.name == "matrix")
    last = {sample.region: sample for sample in capture.samples() if sample.at <= window.start}
    assert last["west"].control_plane is None
    assert last["west"].links == {}
    assert last["east"].control_plane is not None
    assert last["east"].links == {"central": 1}
    assert all(find_acknowledged(capture) <= set(counts) for counts in count_stored(capture, "read").values())


async def test_a_region_that_was_killed_is_given_up(state: Path, tmp_path: Path) -> None:
    rehearsal = scenario(
        (None, Wait(nanoseconds=2 * NS)),
        ("dead", Inject(fault=FaultSpec(type=fault_types.KILL_REGION, targets=("west",)), id="dead")),
        ("failover", ChangeRegion(command=RegionCommand.FAILOVER, region="west")),
        ("without", Wait(nanoseconds=2 * NS)),
        readers=(ReaderKind.CONSUMER, ReaderKind.CONSUMER),
    )
    capture, _ = await run_scenario(rehearsal, tmp_path / "capture")
    assert (capture.manifest().is_complete, capture.manifest().stopped_by) == (True, None)
    assert [(window.name, window.detail) for window in capture.windows() if not window.is_ok] == []
    assert judge_capture(capture).status is CaseStatus.PASS, judge_capture(capture).cases


async def test_a_disk_without_room_for_the_capture_leaves_no_server_behind(state: Path, tmp_path: Path) -> None:
    directory = tmp_path / "capture"
    directory.mkdir()
    (directory / "windows.jsonl").symlink_to("/dev/full")
    with pytest.raises(VstreamError, match="No space left on device"):
        await run_scenario(scenario(("load", Wait(nanoseconds=NS))), directory)
    assert list_lab_names() == ()
    assert processes_in(state) == []
