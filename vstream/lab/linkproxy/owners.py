"""
Which region a connection comes from: the process that owns the socket at its other end.

All servers dial from 127.0.0.1 and with ports that mean nothing, and the bytes of a connection
say only later who speaks. The operating system knows which process has which socket.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_TRIES = (0.0, 0.01, 0.03, 0.1, 0.3)
"""Seconds before each look: a process that was just started may not be recognisable yet."""
_SUFFIX = ".conf"


class Owners:
    """Finds the servers of a lab. *configs* is the directory of their configurations; *regions* are by server."""

    def __init__(self, configs: str, regions: Mapping[str, str]) -> None:
        self._configs = configs if configs.endswith(os.sep) else configs + os.sep
        self.regions = regions
        self._known: list[int] = []

    async def region_of(self, port: int, front: int) -> str | None:
        """The region of the server that has connected from *port* to *front*; None if that is no server of this lab."""
        for pause in _TRIES:
            await asyncio.sleep(pause)
            region = self._region_of(port, front)
            if region is not None:
                return region
        return None

    def _region_of(self, port: int, front: int) -> str | None:
        for candidates in (self._known, self._servers()):
            pid = owner(port, front, candidates)
            if pid is not None:
                # A process id may have been given to another server since.
                return self.regions.get(self._server(pid) or "")
        return None

    def _servers(self) -> list[int]:
        self._known = [pid for pid in _process_ids() if self._server(pid)]
        return self._known

    def _server(self, pid: int) -> str | None:
        """The server that process *pid* is, by the arguments that only servers of this lab have."""
        match _arguments(pid):
            case [_, "-c", config] if config.startswith(self._configs) and config.endswith(_SUFFIX):
                return config[len(self._configs) : -len(_SUFFIX)]
        return None


if sys.platform == "linux":

    def owner(port: int, front: int, candidates: Iterable[int]) -> int | None:
        """Which of *candidates* has the socket that is connected from *port* to *front*."""
        inode = _inode(port, front)
        if inode is None:
            return None
        wanted = f"socket:[{inode}]"
        return next((pid for pid in candidates if wanted in _descriptors(pid)), None)

    def _inode(port: int, front: int) -> str | None:
        ends = [f"0100007F:{port:04X}", f"0100007F:{front:04X}"]
        with open("/proc/net/tcp", encoding="ascii") as table:  # noqa: PTH123 - in a hurry
            for line in table:
                # Most lines belong to others: splitting them all would take most of the time.
                if ends[0] in line:
                    columns = line.split()
                    if columns[1:3] == ends:
                        return columns[9]
        return None

    def _descriptors(pid: int) -> Iterator[str]:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    yield os.readlink(entry.path)  # noqa: PTH115 - a Path for each would take most of the time

    def _process_ids() -> Iterable[int]:
        with os.scandir("/proc") as entries:
            return [int(entry.name) for entry in entries if entry.name.isdecimal()]

    def _arguments(pid: int) -> list[str]:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
                return [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]
        except OSError:
            return []

else:
    import psutil

    def owner(port: int, front: int, candidates: Iterable[int]) -> int | None:
        """Which of *candidates* has the socket that is connected from *port* to *front*."""
        return next((pid for pid in candidates if (port, front) in _ends(pid)), None)

    def _ends(pid: int) -> Iterator[tuple[int, int]]:
        with suppress(psutil.Error):
            for one in psutil.Process(pid).net_connections(kind="tcp"):
                if one.raddr:
                    yield one.laddr.port, one.raddr.port

    def _process_ids() -> Iterable[int]:
        return psutil.pids()

    def _arguments(pid: int) -> list[str]:
        try:
            return psutil.Process(pid).cmdline()
        except psutil.Error:
            return []
