"""Power loss on disk: wherever the tool is killed, a store is what it was or what it is, never a mixture."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.lab_bundle import stopped_lab
from vstream.chaos import inject, journal
from vstream.chaos.faults import base
from vstream.chaos.faults.power_loss import PowerLoss
from vstream.chaos.journal import Journal
from vstream.errors import LabError
from vstream.lab import server_records
from vstream.lab.server import NatsServer, SpawnedServers
from vstream.lab.state import LabDirectory

FAULT = PowerLoss(servers=("r0-0", "r1-0"), seconds=5)
NOBODY = 2**22 + 1
"""A process id that no process has."""


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def ran(directory: LabDirectory, pid: int) -> None:
    """The servers have run, last as process *pid*."""
    for server in FAULT.servers:
        argv = ("nats-server", "-c", "x")
        server_records.write(
            directory,
            server_records.ServerRecord(
                server=server,
                state=server_records.RUNNING,
                argv=argv,
                config="x",
                version="2.15.1",
                pid=pid,
                create_time=0.0,
            ),
        )


def read_files(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("crash", ["before", "one is next", "one is away", "one is back", "all are back"])
async def test_what_was_begun_is_ended_wherever_it_was_cut_off(
    tmp_path: Path, crash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers were killed: their process ids belong to nobody."""
    where = stopped_lab(tmp_path)
    place, data = where.directory.faults / "f1", where.directory.data
    for server in FAULT.servers:
        put(data / server, kept="old", grown="much more", new="new")
        put(place / server, kept="old", grown="more")
    (place / "dead").write_text(json.dumps(dict.fromkeys(FAULT.servers, NOBODY)))
    ran(where.directory, NOBODY)
    monkeypatch.setattr(base, "start_servers", lambda *_: SpawnedServers())
    if crash in {"one is next", "one is away", "one is back"}:
        (place / "r0-0").rename(where.directory.next_store("r0-0"))
    if crash in {"one is away", "one is back"}:
        (data / "r0-0").rename(place / "r0-0.lost")
    if crash == "one is back":
        where.directory.recover_store("r0-0")
    if crash == "all are back":
        await FAULT.heal(where, "f1")
    await FAULT.heal(where, "f1")
    for server in FAULT.servers:
        assert read_files(data / server) == {"kept": "old", "grown": "more"}
    assert read_files(place) == {"dead": (place / "dead").read_text()}


async def test_a_server_that_is_started_between_the_renames_has_its_store(tmp_path: Path) -> None:
    """As `lab up` does where the tool was killed there. An empty store would be a loss that nobody asked for."""
    directory = stopped_lab(tmp_path).directory
    put(directory.next_store("r0-0"), kept="old")
    put(directory.next_store("r1-0"), kept="old")
    put(directory.store("r1-0"), kept="old", new="new")
    for server in FAULT.servers:
        with pytest.raises(LabError, match="cannot be started"):
            NatsServer(directory, server).start(tmp_path / "nowhere", "2.15.1")
    assert read_files(directory.store("r0-0")) == {"kept": "old"}
    assert read_files(directory.store("r1-0")) == {"kept": "old", "new": "new"}


async def test_what_was_started_since_keeps_what_it_has_stored_since(tmp_path: Path) -> None:
    """Also if it was ended again before anybody healed: it would be rolled back a second time, and not for the rehearsal."""
    where = stopped_lab(tmp_path)
    place = where.directory.faults / "f1"
    for server in FAULT.servers:
        put(where.directory.store(server), kept="old", since="new")
        put(place / server, kept="old")
    put(where.directory.next_store("r0-0"), kept="old")
    (place / "dead").write_text(json.dumps(dict.fromkeys(FAULT.servers, NOBODY)))
    await FAULT.heal(where, "f1")
    for server in FAULT.servers:
        assert read_files(where.directory.store(server)) == {"kept": "old", "since": "new"}
        assert not where.directory.next_store(server).exists()


@pytest.mark.parametrize("has_begun", [False, True], ids=["only copied", "about to be killed"])
async def test_while_all_servers_live_nothing_is_lost(tmp_path: Path, has_begun: bool) -> None:
    where = stopped_lab(tmp_path)
    place, data = where.directory.faults / "f1", where.directory.data
    for server in FAULT.servers:
        put(data / server, new="new")
        put(place / server, old="old")
    if has_begun:
        (place / "dead").write_text("{}")
    await FAULT.heal(where, "f1")
    for server in FAULT.servers:
        assert read_files(data / server) == {"new": "new"}


def test_a_fault_that_is_over_leaves_no_copies(tmp_path: Path) -> None:
    where = stopped_lab(tmp_path)
    put(where.directory.faults / "f1" / "r0-0", old="old")
    journal.write_journal(where.directory, Journal().add("power-loss r0 --lose 5s", FAULT)[0])
    book = journal.read_journal(where.directory)
    assert book.faults[0].fault == FAULT
    assert inject.close_finished_faults(where).faults == ()
    assert os.listdir(where.directory.faults) == []  # noqa: PTH208
