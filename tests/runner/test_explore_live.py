"""Exploring on real servers: a run is judged, and one that is stopped leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.command import check_output, start_vstream
from tests.support.labs import eventually, processes_in
from tests.support.topologies import begin_topology
from vstream.lab.status import list_lab_names

pytestmark = pytest.mark.lab

TOPOLOGY = begin_topology("small", west=1) + "streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}\n"


def exploring(directory: Path) -> subprocess.Popen[str]:
    (directory / "small.yaml").write_text(TOPOLOGY)
    arguments = [
        "explore",
        "--runs",
        "1",
        "--shrinking-runs",
        "0",
        "--seed",
        "7",
        "-t",
        "small.yaml",
        "--format",
        "json",
        "--output",
        "explored",
    ]
    return start_vstream("scenario", *arguments, cwd=directory)


async def test_a_random_scenario_is_run_and_judged(state: Path, tmp_path: Path) -> None:
    running = exploring(tmp_path)
    output, talk = await asyncio.to_thread(running.communicate, timeout=150)
    assert running.returncode == 0, talk
    answer = json.loads(output)
    check_output(answer)
    assert (answer["runs"], answer["pass"], answer["lost"], answer["duplicated"]) == (1, 1, 0, 0)
    assert answer["acknowledged"] > 0
    assert answer.pop("schema") == "vstream.scenario-explore/2"
    assert answer == json.loads((tmp_path / "explored" / "explored.json").read_text())
    directory = tmp_path / answer["explored"][0]["directory"]
    assert [path.name for path in directory.iterdir()] == ["scenario.yaml"]
    assert (processes_in(state), list_lab_names()) == ([], ())


async def test_stopped_it_says_what_it_knows_and_leaves_nothing(state: Path, tmp_path: Path) -> None:
    running = exploring(tmp_path)
    await eventually(
        lambda: running.poll() is not None or bool(list(tmp_path.glob("explored/*/capture/operations/*"))), 60
    )
    # To the whole group, as a terminal does.
    os.killpg(running.pid, signal.SIGINT)
    output, talk = await asyncio.to_thread(running.communicate, timeout=60)
    assert running.returncode == 130, talk
    assert "Traceback" not in talk
    assert json.loads(output)["runs"] == 0
    assert (processes_in(state), list_lab_names()) == ([], ())
