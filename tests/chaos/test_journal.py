"""Open faults on disk: wherever the tool is killed, the next one knows what to undo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.lab_bundle import stopped_lab, topology
from tests.support.paths import ROOT
from vstream.chaos import inject as drill
from vstream.chaos import journal
from vstream.chaos.faults.base import LabFault, LastingInjection
from vstream.chaos.faults.disk_full import DiskFull
from vstream.chaos.faults.kill import Kill
from vstream.chaos.faults.links import LinkShape, Partition
from vstream.chaos.faults.pause import Pause
from vstream.chaos.faults.restart import Restart
from vstream.chaos.journal import Journal
from vstream.errors import LabError, RefusedError, UnsupportedError, VstreamError
from vstream.lab.links.state import Cut, LinkState
from vstream.lab.server import SpawnedServers
from vstream.servers.target_servers import TargetServers


def order(where: TargetServers, *, is_forced: bool = False) -> drill.InjectionRequest:
    return drill.InjectionRequest(
        target=where, topology=topology(3, 1), command="kill-server r0-0", is_forced=is_forced, timeout=1
    )


def lasting(fault: LabFault) -> LastingInjection:
    return LastingInjection(fault=fault, regions=("r0",))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    directory = stopped_lab(tmp_path).directory
    book, first = Journal().add("kill-region r0", Kill(servers=("r0-0",)))
    book, second = book.add("pause r1-0", Pause(servers=("r1-0",)))
    slow = {("r0", "r1"): LinkState(delay=0.07, loss=0.05), ("r1", "r0"): LinkState(cut=Cut.DROP)}
    for fault in (LinkShape(states=slow), Partition(states=slow), Restart(servers=("r0-0",))):
        book, _ = book.add("more", fault)
    book = book.confirm(second.id)
    journal.write_journal(directory, book)
    assert journal.read_journal(directory) == book
    assert [fault.id for fault in book.faults if fault.is_confirmed] == ["f2"]
    assert book.remove("f5").add("again", first.fault)[1].id == "f6"


def test_no_journal_is_nothing_open_and_a_broken_one_names_the_way_out(tmp_path: Path) -> None:
    directory = stopped_lab(tmp_path).directory
    assert journal.read_journal(directory) == Journal()
    journal.journal_path(directory).write_text('{"format": 1')
    with pytest.raises(LabError, match=r"chaos\.json` cannot be read") as caught:
        journal.read_journal(directory)
    assert "vstream lab down a" in str(caught.value.hint)


DRIVER = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.chaos.test_journal import lasting, order
from tests.support.lab_bundle import stopped_lab
from vstream.chaos import inject as drill
from vstream.chaos.faults.kill import Kill
where = stopped_lab(Path(sys.argv[1]))
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "before-the-journal":
    drill.write_journal = die
else:
    async def inject(self, target, name):
        die()
    Kill.inject = inject
asyncio.run(drill.inject(order(where, is_forced=True), lasting(Kill(servers=("r0-0",)))))
"""


@pytest.mark.parametrize(("when", "opened"), [("before-the-journal", []), ("before-the-signal", ["f1"])])
def test_killed_before_the_first_signal(tmp_path: Path, when: str, opened: list[str]) -> None:
    """No signal without an entry: after kill -9 the journal holds the fault, or nothing has happened."""
    ended = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path), when], cwd=ROOT, env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    book = journal.read_journal(stopped_lab(tmp_path).directory)
    assert [fault.id for fault in book.faults] == opened


async def test_a_fault_begins_once_it_is_allowed_and_before_its_first_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    async def inject(self: Kill, at: TargetServers, name: str) -> str:
        happened.append("signal")
        return "gone"

    def begin() -> int:
        happened.append("begin")
        return 7

    monkeypatch.setattr(Kill, "inject", inject)
    request = replace(
        order(stopped_lab(tmp_path), is_forced=True),
        on_impact=lambda _: happened.append("impact"),
        now=begin,
    )
    injected = await drill.inject(request, lasting(Kill(servers=("r0-0",))))
    assert (happened, injected.began) == (["impact", "begin", "signal"], 7)
    with pytest.raises(RefusedError):
        await drill.inject(replace(request, is_forced=False), lasting(Kill(servers=("r0-0",))))
    assert happened[3:] == ["impact"]


async def test_a_fault_that_does_not_bite_is_undone_and_not_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = stopped_lab(tmp_path)

    async def inject(self: Kill, at: TargetServers, name: str) -> str:
        raise LabError("it does not bite")

    monkeypatch.setattr(Kill, "inject", inject)
    with pytest.raises(LabError, match="it does not bite"):
        await drill.inject(order(where, is_forced=True), lasting(Kill(servers=("r0-0",))))
    book = journal.read_journal(where.directory)
    assert book.faults == ()


async def test_healing_what_is_not_open_names_what_is(tmp_path: Path) -> None:
    where = stopped_lab(tmp_path)
    journal.write_journal(where.directory, Journal().add("pause r0-0", Pause(servers=("r0-0",)))[0])
    with pytest.raises(VstreamError, match="there is no open fault `f9`") as caught:
        await drill.heal(where, ("f9",), timeout=1, on_progress=lambda _: None)
    assert caught.value.hint == "open: `f1` (pause r0-0)"


def test_faults_of_a_lab_that_was_taken_down_since_are_over(tmp_path: Path) -> None:
    where = stopped_lab(tmp_path)
    book, _ = Journal().add("kill-server r0-0", Kill(servers=("r0-0",)))
    book, _ = book.add("pause r1-0", Pause(servers=("r1-0",)))
    journal.write_journal(where.directory, book)
    assert drill.close_finished_faults(where).faults == ()


async def test_the_fault_that_was_injected_last_is_healed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was paused after its disk was full cannot be restarted before it goes on."""
    where = stopped_lab(tmp_path)
    healed: list[str] = []

    async def heal(self: Kill | Pause, at: TargetServers, name: str) -> SpawnedServers:
        healed.append(name)
        if len(healed) == 2:
            raise LabError("no server here gets healthy")
        return SpawnedServers()

    monkeypatch.setattr(Kill, "heal", heal)
    monkeypatch.setattr(Pause, "heal", heal)
    book, _ = Journal().add("kill-server r0-0", Kill(servers=("r0-0",)))
    book, _ = book.add("pause r1-0", Pause(servers=("r1-0",)))
    journal.write_journal(where.directory, book)
    with pytest.raises(LabError, match="no server here"):
        await drill.heal(where, None, timeout=1, on_progress=lambda _: None)
    assert healed == ["f2", "f1"]


async def test_healing_nothing_writes_nothing(tmp_path: Path) -> None:
    where = stopped_lab(tmp_path)
    assert (await drill.heal(where, None, timeout=1, on_progress=lambda _: None)).faults == ()
    assert not journal.journal_path(where.directory).exists()


async def test_where_no_disk_can_be_filled_that_is_said_and_nothing_is_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS."""
    where = stopped_lab(tmp_path)
    monkeypatch.delattr(psutil.Process, "rlimit", raising=False)
    with pytest.raises(UnsupportedError, match="only Linux"):
        await drill.inject(order(where, is_forced=True), lasting(DiskFull(servers=("r0-0",))))
    book = journal.read_journal(where.directory)
    assert book.faults == ()
