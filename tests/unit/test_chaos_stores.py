"""Power loss on disk: wherever the tool is killed, a store is what it was or what it is, never a mixture."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.unit.test_chaos_journal import site
from vstream.chaos import drill, journal
from vstream.chaos.journal import Journal
from vstream.chaos.stores import PowerLoss

FAULT = PowerLoss(servers=("r0-0", "r1-0"), seconds=5)


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def held(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("crash", ["before", "one is away", "one is back", "all are back"])
async def test_what_was_begun_is_ended_wherever_it_was_cut_off(tmp_path: Path, crash: str) -> None:
    """The servers were killed: their process ids belong to nobody."""
    where = site(tmp_path)
    place, data = where.directory.faults / "f1", where.directory.data
    for server in FAULT.servers:
        put(data / server, kept="old", grown="much more", new="new")
        put(place / server, kept="old", grown="more")
    (place / "dead").write_text(json.dumps(dict.fromkeys(FAULT.servers, 2**22 + 1)))
    if crash in {"one is away", "one is back"}:
        (data / "r0-0").rename(place / "r0-0.lost")
    if crash == "one is back":
        (place / "r0-0").rename(data / "r0-0")
    if crash == "all are back":
        await FAULT.heal(where, "f1")
    await FAULT.heal(where, "f1")
    for server in FAULT.servers:
        assert held(data / server) == {"kept": "old", "grown": "more"}
    assert held(place) == {"dead": (place / "dead").read_text()}


@pytest.mark.parametrize("has_begun", [False, True], ids=["only copied", "about to be killed"])
async def test_while_all_servers_live_nothing_is_lost(tmp_path: Path, has_begun: bool) -> None:
    where = site(tmp_path)
    place, data = where.directory.faults / "f1", where.directory.data
    for server in FAULT.servers:
        put(data / server, new="new")
        put(place / server, old="old")
    if has_begun:
        (place / "dead").write_text("{}")
    await FAULT.heal(where, "f1")
    for server in FAULT.servers:
        assert held(data / server) == {"new": "new"}


def test_a_fault_that_is_over_leaves_no_copies(tmp_path: Path) -> None:
    where = site(tmp_path)
    put(where.directory.faults / "f1" / "r0-0", old="old")
    journal.write(where.directory, Journal().opened("power-loss r0 --lose 5s", FAULT)[0])
    kept = journal.read(where.directory)
    assert kept is not None
    assert kept.faults[0].fault == FAULT
    assert drill.settled(where).faults == ()
    assert os.listdir(where.directory.faults) == []  # noqa: PTH208
