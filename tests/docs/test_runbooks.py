"""Runbooks on labs: there is trouble, whoever is on call types what the page says, and all is well again."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import environment, require_success, vstream
from tests.support.paths import ROOT
from tests.support.shared_lab import shared_lab
from vstream.errors import VstreamError
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_client_endpoints
from vstream.lab.state import lab_directory

pytestmark = [pytest.mark.lab, pytest.mark.night]

PAGE = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
DOCUMENT = """\
version: 1
name: acme
server_version: "2.12"
regions:
  west:
    servers: 1
  central:
    servers: 1
  east:
    servers: 1
streams:
  foo: {subjects: [foo.>], write: {max_age: 1h}, consumers: {reader: {}}}
"""
REPEATABLE = {"status", "doctor", "probe", "plan", "audit", "repair"}
"""Commands that change nothing, or only what is wrong. Servers take some seconds to see it, so they are typed again."""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    with shared_lab(tmp_path, DOCUMENT, "--server-version", "2.15.1") as file:
        require_success(vstream("apply", file, "--yes"))
        look(file, "vstream probe acme.yaml", 0)
        asyncio.run(publish())
        yield file


async def publish(*, for_seconds: float = 0) -> None:
    """Twenty messages in each region, and again for some time."""
    deadline = time.monotonic() + for_seconds
    while True:
        for region, endpoint in list_client_endpoints("acme").items():
            async with connect(endpoint, region) as connection:
                for number in range(20):
                    assert "error" not in await connection.request_json(f"foo.{number}")
        if time.monotonic() >= deadline:
            return


def read_commands(section: str, part: str) -> list[str]:
    """The `vstream` commands that the page has in *part* of *section*, such as `Act.`."""
    text = PAGE.partition(f"## {section}\n")[2]
    assert text, section
    matched = re.search(rf"^\*\*{re.escape(part)}\*\*(.*?)(?=^\*\*|^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert matched, part
    return [re.sub(r"\s+", " ", command) for command in re.findall(r"`(vstream [^`]+)`", matched[1])]


def follow(file: Path, section: str, part: str, code: int = 0) -> None:
    """Type the commands of *part* in *section*; each ends with *code*."""
    commands = read_commands(section, part)
    assert commands
    for command in commands:
        look(file, command, code)


def look(file: Path, command: str, code: int) -> str:
    arguments = [str(file) if word == "acme.yaml" else word for word in command.split()[1:]]
    deadline = time.monotonic() + 90
    while True:
        ran = vstream(*arguments)
        if ran.code == code:
            return ran.out
        is_repeatable = arguments[0] in REPEATABLE and time.monotonic() < deadline
        assert is_repeatable, f"{command}: {ran.code}, not {code}\n{ran.out}\n{ran.err}"


def chaos(file: Path, *arguments: str) -> None:
    require_success(vstream("chaos", *arguments, "-t", file))


def heal() -> None:
    require_success(vstream("chaos", "heal", "--lab", "acme"))


@pytest.mark.parametrize(
    ("section", "trouble"),
    [
        ("A region is down", ("kill-region", "west", "--yes-really")),
        ("A region is cut off", ("isolate", "west")),
        ("A source is stuck", ("isolate", "west", "--how", "drop")),
    ],
)
def test_what_comes_back_is_resynced(file: Path, section: str, trouble: tuple[str, ...]) -> None:
    chaos(file, *trouble)
    follow(file, section, "Is it really so?", code=1)
    heal()
    look(file, read_commands(section, "Act.")[0], 0)
    follow(file, "A source is stuck" if "stuck" in section else "A region is down", "Verify.")


SERVICES = (
    ("repair", "sources", "--watch"),
    ("consumer", "sync", "--watch", "--every", "1", "-t"),
    ("export", "--resync", "--every", "1", "--listen", "127.0.0.1:0"),
    ("status", "--watch", "--every", "1", "--format", "json"),
)


@contextmanager
def run_services(file: Path, directory: Path) -> Iterator[dict[str, Path]]:
    """What runs all the time, and the files that it writes into, by name."""
    outputs, running = {}, []
    try:
        for arguments in SERVICES:
            name = " ".join(arguments[:2])
            outputs[name] = directory / f"{name}.log"
            command = [sys.executable, "-m", "vstream", *arguments, str(file)]
            with outputs[name].open("w") as output:
                running.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment()))
        yield outputs
        assert [process.poll() for process in running] == [None] * len(running), read_all(outputs)
    finally:
        for process in running:
            process.terminate()
            process.wait()


def read_all(outputs: dict[str, Path]) -> dict[str, str]:
    return {name: output.read_text() for name, output in outputs.items()}


def wait_until_taken(outputs: dict[str, Path], times: int) -> None:
    """Return once each service goes on with the topology that was written for the *times*-th time."""
    deadline = time.monotonic() + 90
    while any(text.count("has changed: going on") < times for text in read_all(outputs).values()):
        assert time.monotonic() < deadline, read_all(outputs)
        time.sleep(0.1)


def test_a_region_is_dead_for_good(file: Path, tmp_path: Path) -> None:
    with run_services(file, tmp_path) as outputs:
        chaos(file, "kill-region", "west", "--yes-really")
        before = file.read_text()
        follow(file, "A region is dead for good", "Is it really so?")
        assert file.read_text() == before
        follow(file, "A region is dead for good", "Act.")
        follow(file, "A region is dead for good", "Verify.")
        wait_until_taken(outputs, 1)
        _, failback = read_commands("A region is dead for good", "Afterwards.")
        *words, name = failback.split()[1:]
        assert name == "acme.yaml"
        require_success(vstream(*words, file, "--yes", timeout=900))  # five minutes until its servers are let in again
        wait_until_taken(outputs, 2)
        deadline = time.monotonic() + 60
        while {"west", "ok"} - set(
            re.findall(r"\w+", (last := outputs["status --watch"].read_text().splitlines()[-1]))
        ):
            assert time.monotonic() < deadline, last
            time.sleep(0.1)


@pytest.mark.spark
@pytest.mark.parametrize("version", ["2.15.1", "2.12.8"])
def test_most_of_a_region_is_dead(version: str, tmp_path: Path) -> None:
    document = DOCUMENT.replace("servers: 1", "servers: 3")
    section = "Most of a region is dead"
    with shared_lab(tmp_path, document, "--server-version", version) as file:
        require_success(vstream("apply", file, "--yes"))
        look(file, "vstream probe acme.yaml", 0)
        asyncio.run(publish())
        chaos(file, "kill-server", "west-1", "west-3", "--yes-really")
        for server in ("west-1", "west-3"):
            shutil.rmtree(lab_directory("acme").data / server)
        follow(file, section, "Is it really so?", code=1)
        heal()
        resync, doctor = read_commands(section, "Act.")
        look(file, resync, 0)
        assert "VD301" not in vstream(*doctor.split()[1:-1], file).out
        asyncio.run(publish())
        follow(file, section, "Verify.")
        follow(file, section, "Afterwards.")


def test_a_region_has_lost_power(file: Path) -> None:
    chaos(file, "power-loss", "west", "--lose", "2s", "--yes-really")
    heal()
    repair = "vstream repair messages acme.yaml --kind refill"
    assert [*read_commands("A region has lost power", "Act.")] == [
        "vstream doctor acme.yaml",
        repair,
        "vstream repair sources acme.yaml",
    ]
    ran = vstream("doctor", file)
    assert ran.code in {0, 1}, ran.out
    look(file, f"{repair} --yes", 0)
    look(file, "vstream repair sources acme.yaml", 0)
    follow(file, "A region has lost power", "Verify.")


def test_a_disk_is_full(file: Path) -> None:
    chaos(file, "disk-full", "west")
    with pytest.raises((VstreamError, AssertionError)):  # refused, or no answer
        asyncio.run(publish(for_seconds=60))
    follow(file, "A disk is full", "Is it really so?", code=1)
    heal()  # makes room, and restarts the server
    follow(file, "A disk is full", "Act.")
    follow(file, "A disk is full", "Verify.")


def test_a_planned_evacuation(file: Path) -> None:
    follow(file, "Planned evacuation", "Is it really so?")
    plan, drain, undo, server = read_commands("Planned evacuation", "Act.")
    look(file, plan, 1)
    assert "Safe to stop" in look(file, drain, 0)
    chaos(file, "kill-region", "west", "--yes-really")
    heal()
    look(file, undo, 0)
    assert server == "vstream region drain west-1 acme.yaml --yes"
    follow(file, "Planned evacuation", "Verify.")


def test_a_consumer_goes_on_in_another_region(file: Path) -> None:
    failover, sync = read_commands("A region is down", "Clients.")
    look(file, sync.removesuffix(" --watch"), 0)
    chaos(file, "kill-region", "west", "--yes-really")
    failover = failover.replace("STREAM CONSUMER", "foo reader")
    look(file, failover, 0)
    look(file, f"{failover} --yes", 0)


def test_the_quorum_of_the_meta_group_is_lost(file: Path) -> None:
    for region in ("west", "central"):
        chaos(file, "kill-region", region, "--yes-really")
    follow(file, "The quorum of the meta group is lost", "Is it really so?", code=1)
    plan, rescue, *_ = read_commands("The quorum of the meta group is lost", "Act.")
    deadline = time.monotonic() + 60
    while (ran := vstream(*plan.replace("acme.yaml", str(file)).split()[1:])).code:
        assert time.monotonic() < deadline, ran.out
    look(file, rescue, 0)
    doctor = vstream("doctor", file, "--format", "json")
    assert json.loads(doctor.out), doctor.err


@pytest.mark.parametrize(
    ("name", "version"),
    [
        *((name, version) for name in ("planned-evacuation", "dead-region") for version in ("2.15.1", "2.12.8")),
        ("lost-quorum", "2.15.1"),
    ],
)
def test_the_commands_are_rehearsed_by_shipped_scenarios(
    name: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "state"))
    ran = vstream("scenario", "run", name, "--server-version", version, "--output", tmp_path / "capture", timeout=1800)
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.spark
def test_restore(file: Path, tmp_path: Path) -> None:
    backup, check, *_ = re.findall(r"`(vstream [^`]+)`", PAGE.partition("## Restore\n")[2])
    directory = str(tmp_path / "monday")
    look(file, backup.replace("/backups/monday", directory), 0)
    assert check.split() == ["vstream", "audit", "/backups/monday"]  # which may stand in two lines
    require_success(vstream("lab", "down", "acme", "--purge"))
    require_success(vstream("lab", "up", file, "--server-version", "2.15.1"))
    for command in read_commands("Restore", "Act."):
        look(file, command.replace("/backups/monday", directory), 0)
    follow(file, "Restore", "Verify.")
