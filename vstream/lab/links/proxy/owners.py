"""
Find the region that a connection comes from, by the process that owns the socket at its other end.

All servers dial from 127.0.0.1 with arbitrary ports, and the bytes of a connection say only later who speaks. The
operating system knows which process owns which socket. Asking takes milliseconds, and servers that are cut off dial
every second. So a thread asks for all waiting connections at once, and established ones do not wait with them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

_PAUSES_SECONDS = (0.0, 0.01, 0.03, 0.1, 0.3)
"""Seconds before each look: a new process may not be recognisable yet."""
_SUFFIX = ".conf"


End = tuple[int, int]
"""A connection: the port that it comes from, and the front that it goes to."""


class SocketOwners:
    """Finds the servers of a lab. *configs* is the directory of their configurations; *regions* are by server."""

    def __init__(self, configs: str, regions: Mapping[str, str]) -> None:
        self._configs = configs if configs.endswith(os.sep) else configs + os.sep
        self.regions = regions
        self._server_pids: list[int] = []
        self._asked: set[End] = set()
        self._next: asyncio.Task[Mapping[End, str]] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def region_of(self, port: int, front: int) -> str | None:
        """The region of the server that connected from *port* to *front*; None if it is not a server of this lab."""
        for pause in _PAUSES_SECONDS:
            await asyncio.sleep(pause)
            self._asked.add((port, front))
            self._next = self._next or asyncio.create_task(self._scan_sockets())
            # Others wait for it too.
            regions = await asyncio.shield(self._next)
            if (port, front) in regions:
                return regions[port, front]
        return None

    async def _scan_sockets(self) -> Mapping[End, str]:
        """One look for all that have asked until it begins; who asks later gets the next."""
        async with self._one_at_a_time:
            asked, self._asked, self._next = self._asked, set(), None
            return await asyncio.to_thread(self._find_regions, asked)

    def _find_regions(self, asked: set[End]) -> Mapping[End, str]:
        regions = self._find_owning_regions(asked, self._server_pids)
        return (
            regions
            if len(regions) == len(asked)
            else regions | self._find_owning_regions(asked - regions.keys(), self._list_server_pids())
        )

    def _find_owning_regions(self, asked: Collection[End], candidates: Iterable[int]) -> dict[End, str]:
        regions = self.regions
        # A process id may have been given to another server since.
        servers = {end: self._find_server(pid) or "" for end, pid in find_owners(asked, candidates).items()}
        return {end: regions[server] for end, server in servers.items() if server in regions}

    def _list_server_pids(self) -> list[int]:
        self._server_pids = [pid for pid in _list_process_ids() if self._find_server(pid)]
        return self._server_pids

    def _find_server(self, pid: int) -> str | None:
        """The server that process *pid* is, by the arguments that only servers of this lab have."""
        match _read_arguments(pid):
            case [_, "-c", config] if config.startswith(self._configs) and config.endswith(_SUFFIX):
                return config[len(self._configs) : -len(_SUFFIX)]
        return None


if sys.platform == "linux":

    def find_owners(asked: Collection[End], candidates: Iterable[int]) -> Mapping[End, int]:
        """Which of *candidates* have the sockets of the connections *asked*."""
        owner_of: dict[End, int] = {}
        sought = _find_descriptors(asked)
        for pid in candidates:
            if not sought:
                break
            for descriptor in _list_descriptors(pid) & sought.keys():
                owner_of[sought.pop(descriptor)] = pid
        return owner_of

    def _find_descriptors(asked: Collection[End]) -> dict[str, End]:
        """By what their owners have as descriptors."""
        ends = {(f"0100007F:{port:04X}", f"0100007F:{front:04X}"): (port, front) for port, front in asked}
        descriptors: dict[str, End] = {}
        with open("/proc/net/tcp", encoding="ascii") as table:  # noqa: PTH123 - in a hurry
            for line in table:
                _, port, front, rest = line.split(None, 3)
                if (end := ends.get((port, front))) is not None:
                    descriptors[f"socket:[{rest.split()[6]}]"] = end
                    if len(descriptors) == len(ends):
                        break
        return descriptors

    def _list_descriptors(pid: int) -> set[str]:
        descriptors = set()
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    descriptors.add(os.readlink(entry.path))  # noqa: PTH115 - a Path for each would take most of the time
        return descriptors

    def _list_process_ids() -> Iterable[int]:
        with os.scandir("/proc") as entries:
            return [int(entry.name) for entry in entries if entry.name.isdecimal()]

    def _read_arguments(pid: int) -> list[str]:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
                return [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]
        except OSError:
            return []

else:
    import psutil

    def find_owners(asked: Collection[End], candidates: Iterable[int]) -> Mapping[End, int]:
        """Which of *candidates* have the sockets of the connections *asked*."""
        return {end: pid for pid in candidates for end in _list_ends(pid) if end in asked}

    def _list_ends(pid: int) -> Iterator[tuple[int, int]]:
        with suppress(psutil.Error):
            for connection in psutil.Process(pid).net_connections(kind="tcp"):
                if connection.raddr:
                    yield connection.laddr.port, connection.raddr.port

    def _list_process_ids() -> Iterable[int]:
        return psutil.pids()

    def _read_arguments(pid: int) -> list[str]:
        try:
            return psutil.Process(pid).cmdline()
        except psutil.Error:
            return []
