"""
Power loss: servers end at once, and what they had stored in the last seconds is gone.

Nothing that a process does can make the kernel forget what it has written. So the stores
are copied first, as they are at one moment, and put back after the servers were killed:
as if everything had been flushed to disk at that moment, and nothing since.

    STATE/labs/NAME/chaos/FAULT/
        SERVER/        the copy, until it is put back: by way of data/.SERVER.next, where `lab up` finds it too
        SERVER.lost    what was there, for a moment
        copied         the copies are whole
        dead           the process ids of the servers, written before they are killed
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from vstream.chaos.faults import base
from vstream.errors import LabError
from vstream.files import write_private
from vstream.lab import server_records
from vstream.lab.server import SpawnedServers
from vstream.lab.start import finish_despite_cancellation
from vstream.scenario import fault_types
from vstream.servers.target_servers import TargetServers
from vstream.timing import SECOND_NS
from vstream.value_class import value_class

_LOSE_NS = 2 * SECOND_NS


@value_class
class PowerLoss(base.StoppedServersFault):
    """The servers are killed, and their stores go back to what they were *seconds* before."""

    kind: ClassVar[str] = "power-loss"
    keeps_down: ClassVar[bool] = True
    seconds: float

    @property
    def permanent_losses(self) -> tuple[str, ...]:
        """What will be lost for good."""
        span = f"in the last {self.seconds:g} s"
        return (
            f"what {self.target_text} stored and acknowledged {span} will be lost, unless servers elsewhere have it",
        )

    async def inject(self, target: TargetServers, fault_id: str) -> str:
        """
        Copy the stores, wait, kill the servers, and put the copies back.

        All servers are paused while their stores are copied. Confirmed when no process is left and later changes are
        undone.
        """
        place = target.directory.faults / fault_id
        try:
            await self._copy_stores(target, place)
            await asyncio.sleep(self.seconds)
            pids = {server: process.pid for server in self.servers if (process := target.nats_server(server).process())}
            write_private(place / "dead", json.dumps(pids))
            evidence = await self.kill(target)
            changed = await asyncio.to_thread(self._put_back, target, place, self.servers)
        except OSError as error:
            raise self._store_error(error) from error
        return f"{evidence}; {changed} files that had changed in the last {self.seconds:g} s are as they were"

    def journal_entry(self) -> dict[str, Any]:
        """Its servers and seconds."""
        return {"servers": list(self.servers), "seconds": self.seconds}

    @classmethod
    def from_journal(cls, entry: Mapping[str, Any]) -> PowerLoss:
        """The reverse of `journal_entry`."""
        return cls(servers=tuple(entry["servers"]), seconds=float(entry["seconds"]))

    async def heal(self, target: TargetServers, fault_id: str) -> SpawnedServers:
        """
        Start the servers that do not run, on the restored stores.

        After a crash of vstream, an unfinished injection is completed first: not at all if no server has died yet,
        otherwise for every server that, by the lab's records, was not started again since.
        """
        place = target.directory.faults / fault_id
        self.signal(target, signal.SIGCONT)
        dead = base.read_pids(place / "dead")
        alive = base.find_running(target, dead)
        if len(alive) < len(dead):
            for server in alive:
                target.nats_server(server).signal(signal.SIGKILL)
            await base.wait_until_gone(target, alive)
            try:
                await asyncio.to_thread(self._put_back, target, place, _list_not_started_since(target, dead))
            except OSError as error:
                raise self._store_error(error) from error
        return base.start_absent_servers(target, self.servers)

    def _store_error(self, error: OSError) -> LabError:
        return LabError(f"the stores of {self.target_text} cannot be copied and put back: {error}")

    async def _copy_stores(self, target: TargetServers, place: Path) -> None:
        await asyncio.to_thread(place.mkdir, mode=0o700, parents=True)
        try:
            self.signal(target, signal.SIGSTOP)
            await base.wait_until(self.servers, target.is_paused, "is not stopped by SIGSTOP")
            copying = asyncio.ensure_future(asyncio.to_thread(self._copy, target, place))
            await finish_despite_cancellation(copying)  # a thread cannot be stopped half way
        finally:
            self.signal(target, signal.SIGCONT)
        write_private(place / "copied", "")

    def _copy(self, target: TargetServers, place: Path) -> None:
        for server in self.servers:
            store = target.directory.data / server
            if store.exists():
                shutil.copytree(store, place / server, symlinks=True)

    def _put_back(self, target: TargetServers, place: Path, servers: Collection[str]) -> int:
        """
        Put back every copy of *servers* that is still there, and count the files that differed. May be repeated after a crash.

        The stores of the others are left alone.
        """
        changed = 0
        for server in servers:
            store, following = target.directory.store(server), target.directory.next_store(server)
            copy, lost = place / server, place / f"{server}.lost"
            if copy.exists():
                changed += _count_changed(copy, store)
                copy.rename(following)
            if following.exists():
                if store.exists():
                    shutil.rmtree(lost, ignore_errors=True)
                    store.rename(lost)
                following.rename(store)
        for server in self.servers:
            shutil.rmtree(place / f"{server}.lost", ignore_errors=True)
            if server not in servers:
                shutil.rmtree(target.directory.next_store(server), ignore_errors=True)
        return changed


def _list_not_started_since(target: TargetServers, dead: Mapping[str, int]) -> Collection[str]:
    """The servers whose last process was that one of *dead*, which was to be killed."""
    last = {server: server_records.read(target.directory, server) for server in dead}
    return [server for server, record in last.items() if record is not None and record.pid == dead[server]]


def _count_changed(copy: Path, store: Path) -> int:
    before, now = _list_files(copy), _list_files(store)
    return sum(before.get(name) != now.get(name) for name in before.keys() | now.keys())


def _list_files(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of the last change of every file below *root*: copies keep them."""
    files = {}
    for path in root.rglob("*"):
        if path.is_file():
            status = path.stat()
            files[str(path.relative_to(root))] = (status.st_size, status.st_mtime_ns)
    return files


async def _resolve_power_loss(request: base.FaultRequest) -> base.LastingInjection:
    seconds = float(request.spec.options.get("lose", _LOSE_NS)) / SECOND_NS
    return request.make_lasting(PowerLoss(servers=request.servers_of_targets(), seconds=seconds))


RESOLVERS = {fault_types.POWER_LOSS: _resolve_power_loss}
