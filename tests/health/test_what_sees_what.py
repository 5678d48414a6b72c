"""
What each command says in each of many broken labs, and that they agree with each other.

The truth of each lab is known (`tests.support.broken_labs`). The table of docs/what-sees-what.md is written, row by row,
from what the commands said.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.broken_labs import (
    CASES,
    LAB,
    MAPPED,
    QUESTIONS,
    BrokenLab,
    Case,
    Truth,
    lost_mappings,
    running_lab,
    unfinished_restore,
    wrong_login,
)
from tests.support.command import require_success, vstream
from tests.support.golden import Golden
from tests.support.night import IS_NIGHT
from tests.support.paths import ROOT
from tests.support.relay import relay
from vstream.health.live import collect
from vstream.health.snapshot import ServerSnapshot, SourceSnapshot, StreamSnapshot
from vstream.lab.endpoints import list_endpoints
from vstream.lint.check_topology import check_topology

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

FILE = ROOT / "docs" / "what-sees-what.md"
COMMANDS = ("status", "export", "doctor", "plan --drift", "probe", "audit")
_ROW = re.compile(r"^\| (?P<title>\w.*?) \|.*$", re.MULTILINE)
HEAD = f"| | {' | '.join(f'`{command}`' for command in COMMANDS)} |\n|---|{'---|' * len(COMMANDS)}\n"
SLOW = "audit"
"""Starts Spark: its column is compared at night only."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokenLab]:
    with running_lab(tmp_path_factory.mktemp("small"), west=1, central=1, east=1) as started:
        yield started


@pytest.fixture
def large(tmp_path: Path) -> Iterator[BrokenLab]:
    """For one case: what it sets for commands is gone after it, and `small` is asked again."""
    with running_lab(tmp_path, west=3, central=2, east=2) as started:
        yield started


@pytest.fixture
def routed_lab(case: Case, tmp_path: Path) -> Iterator[BrokenLab]:
    """For one case, like `large`: its users and accounts are those of the profile."""
    with running_lab(tmp_path, case.routing, west=1, central=1, east=1) as started:
        yield started


def ask(command: str, broken: BrokenLab) -> tuple[str, int]:
    """The verdict and the exit code of *command*; of `export`, its metrics."""
    if command == "export":
        text = broken.vstream("export", str(broken.file), "--once").out
        matches = {
            name: re.search(rf"^vstream_{name}{{.*}} (\d+)$", text, re.MULTILINE) for name in ("problems", "unknown")
        }
        return ", ".join(f"{name} {match[1] if match else '?'}" for name, match in matches.items()), 0
    options = ("--timeout", "20") if command == "probe" else ()
    ran = broken.vstream(*command.split(), str(broken.file), *options)
    print(command, ran.code, ran.out, ran.err)  # noqa: T201 - what is shown of a failure
    verdicts = re.findall(r"^(?:[✓✗?] )?(NO DRIFT|[A-Z]{2,})\b", ran.out, re.MULTILINE)
    assert len(verdicts) == 1 or (not verdicts and ran.err.startswith("error:")), ran.out + ran.err
    return verdicts[0] if verdicts else "error", ran.code


def disagreements(case: Case, codes: dict[str, int]) -> Iterator[str]:
    """What *codes* say that is not so, by the definition that the page gives."""
    for command, code in codes.items():
        question = QUESTIONS[command]
        if code == 0 and question.asks & case.false and command not in case.unseen_by:
            yield f"{command} is green, and not true: {sorted(truth.value for truth in question.asks & case.false)}"
        if code == 1 and not (question.asks | question.notices) & case.false:
            yield f"{command} is red without a reason"
        if code == 3 and not case.hides:
            yield f"{command} does not know, and nothing is hidden"
        if code not in {0, 1, 3}:
            yield f"{command} ends with {code}"


def row_of(title: str, answers: dict[str, tuple[str, int]]) -> str:
    """The row of the page: the verdict of each command and its exit code; the metrics of `export`."""
    cells = {command: f"{verdict} ({code})" for command, (verdict, code) in answers.items()}
    cells["export"] = answers["export"][0]
    return f"| {title} | {' | '.join(cells[command] for command in COMMANDS if command in cells)} |"


def read_rows() -> dict[str, str]:
    """The rows of the page by their titles."""
    table = FILE.read_text().partition(HEAD)[2]
    return {match["title"]: match[0] for match in _ROW.finditer(table)}


def update_row(title: str, row: str) -> None:
    """Write *row* into the page, where the order of the cases has it."""
    rows = {**read_rows(), title: row}
    text = FILE.read_text().partition(HEAD)[0] + HEAD
    FILE.write_text(text + "".join(f"{rows[case.title]}\n" for case in CASES if case.title in rows))


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.title, marks=() if case.is_in_suite else pytest.mark.night) for case in CASES],
)
async def test_every_command_tells_the_truth(case: Case, request: pytest.FixtureRequest, golden: Golden) -> None:
    unlike_small = "large" if case.is_large else "routed_lab"
    is_small = not case.is_large and case.routing == MAPPED
    broken: BrokenLab = request.getfixturevalue("small" if is_small else unlike_small)
    commands = [command for command in COMMANDS if IS_NIGHT or command != SLOW]
    await broken.reset()
    async with case.break_lab(broken):
        # A probe publishes: it comes last.
        asked = sorted(commands, key=lambda command: command == "probe")
        answers = {command: await asyncio.to_thread(ask, command, broken) for command in asked}
    codes = {command: code for command, (_, code) in answers.items() if command in QUESTIONS}
    assert list(disagreements(case, codes)) == []
    row = row_of(case.title, answers)
    if golden.update:
        update_row(case.title, row if IS_NIGHT else f"{row} not asked |")
    # A row that is not there was not measured yet, nor was a cell that says so.
    expected = read_rows().get(case.title, "").removesuffix(" not asked |")
    assert row.startswith(expected) or expected.startswith(row)


def test_the_page_is_in_the_order_of_the_cases() -> None:
    titles = list(read_rows())
    assert titles == [case.title for case in CASES if case.title in titles]
    page = FILE.read_text()
    assert [truth.value for truth in Truth if f"**{truth.value}**" not in page] == []
    for command, question in QUESTIONS.items():
        cells = ("✓" if truth in question.asks else "if seen" if truth in question.notices else "" for truth in Truth)
        assert f"| `{command}` | {' | '.join(cells)} |" in page


async def test_lost_mapping_rules_are_named(small: BrokenLab) -> None:
    """The status names the server, the operations that fail and the finding; the exporter has it per server."""
    await small.reset()
    async with lost_mappings(small):
        status = await asyncio.to_thread(small.vstream, "status", str(small.file), "--format", "json")
        page = await asyncio.to_thread(small.vstream, "export", str(small.file), "--once")
    seen = status.json()
    (problem,) = seen["problems"]
    assert (problem["about"], problem["code"]) == ("west-1", "VD402")
    publish = {region["name"]: region["publish"]["works"] for region in seen["regions"]}
    assert publish == {"west": 0, "central": 1, "east": 1}
    loaded = dict(re.findall(r'^vstream_server_mapping_ok{.*server="(.*)"} (\d)$', page.out, re.MULTILINE))
    assert loaded == {"west-1": "0", "central-1": "1", "east-1": "1"}


async def test_a_server_that_hangs_is_not_one_to_start(small: BrokenLab) -> None:
    await small.reset()
    by_fault = {}
    for fault in ("pause", "kill-region"):
        await small.chaos(fault, "central")
        doctor = (await asyncio.to_thread(vstream, "doctor", small.file, "--format", "json")).json()
        (by_fault[fault],) = (finding for finding in doctor["findings"] if finding["code"] == "VD404")
        require_success(await asyncio.to_thread(vstream, "chaos", "heal", "--lab", LAB))
    assert "takes connections, but has not answered" in by_fault["pause"]["evidence"]
    assert ["restart it" in finding["hint"] for finding in by_fault.values()] == [True, False]


async def test_what_a_region_that_refuses_the_login_hides_is_unknown(small: BrokenLab, tmp_path: Path) -> None:
    await small.reset()
    sync, take = ("consumer", "sync", "-t", small.file), ("backup", "take", tmp_path / "backup", small.file)
    async with wrong_login(small):
        for command in (sync, take):
            ran = await asyncio.to_thread(vstream, *command)
            assert (ran.code, "Authorization Violation" in ran.out + ran.err) == (3, True), ran.out + ran.err
        planned = await asyncio.to_thread(vstream, "plan", small.file)
        assert "No changes: what answered is as the topology says" in planned.out
        await small.api("CONSUMER.DELETE.foo-read-east.billing")
        ran = await asyncio.to_thread(vstream, *sync)
        assert (ran.code, "there is no consumer `billing` on `foo-read-east`" in ran.out) == (1, True), ran.out


async def test_a_stream_that_listens_to_nobody_is_named(small: BrokenLab) -> None:
    """Its server has all of it, and was never told that a restore is at its end."""
    await small.reset()
    async with unfinished_restore(small):
        status = await asyncio.to_thread(small.vstream, "status", str(small.file), "--format", "json")
        doctor = await asyncio.to_thread(small.vstream, "doctor", str(small.file), "--format", "json")
    seen = status.json()
    assert "foo-write-west" in {problem["about"] for problem in seen["problems"] if problem["code"] == "VD512"}
    publish = {region["name"]: region["publish"]["works"] for region in seen["regions"]}
    assert publish == {"west": 0, "central": 1, "east": 1}
    assert [finding["about"] for finding in doctor.json()["findings"] if finding["code"] == "VD512"] == [
        "foo-write-west"
    ]


async def test_a_silent_monitoring_port_leaves_time_to_ask_a_region_that_is_far_away(small: BrokenLab) -> None:
    """What is not asked for lack of time is not unavailable; and a server that takes connections runs."""
    await small.reset()
    endpoints = dict(list_endpoints(LAB))
    port = int(endpoints["central"].urls[0].rpartition(":")[2])
    topology = check_topology(small.file.read_bytes(), small.file.name).require()
    with socket.create_server(("127.0.0.1", 0)) as silent, relay(port, lambda _: None, delay=0.1) as far:
        monitor = (f"http://127.0.0.1:{silent.getsockname()[1]}",)
        endpoints["west"] = replace(endpoints["west"], monitor=monitor)
        endpoints["central"] = replace(endpoints["central"], urls=(f"nats://127.0.0.1:{far}",))
        snapshot = await collect.collect_snapshot(topology, endpoints, timeout=8)
    assert {region.name: region.control for region in snapshot.regions} == dict.fromkeys(small.sizes)
    (west,) = (server for server in snapshot.servers if server.region == "west")
    assert (west.is_reached, west.url) == (False, None)
    assert "but it runs" in (west.problem or "")


OPTIONAL = {
    ServerSnapshot: {"problem", "rules_problem", "hangs"},
    StreamSnapshot: {"unsubscribed", "following"},
    SourceSnapshot: {"error", "lag"},
}
"""What no server says where all is well."""


async def test_every_fact_is_collected(small: BrokenLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of a snapshot that nobody fills is a check that never finds anything. Ages are told by the servers' clocks."""
    await small.reset()
    slow = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() - 3600)
    monkeypatch.setattr(collect, "time", slow)
    topology = check_topology(small.file.read_bytes(), small.file.name).require()
    snapshot = await collect.collect_snapshot(topology, list_endpoints(LAB), timeout=15, is_deep=True)
    assert abs(snapshot.at - time.time()) < 60
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
        if field.name not in OPTIONAL[kind] and not any(getattr(instance, field.name) for instance in objects)
    }
    assert empty == set(), "collect it in `vstream/health/live`; if it is empty where all is well, enter it in OPTIONAL"
