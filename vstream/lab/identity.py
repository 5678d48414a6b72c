"""Recognise a lab's servers: their own logs give their ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_SUFFIXES = (".log", ".err")


@dataclass(frozen=True, slots=True)
class OwnServers:
    """
    The servers of the lab whose logs are in *logs*. All others are strangers.

    Names and ports say nothing: another lab has the same names, and may have got the
    ports. A server takes a new id each time it starts, and writes it into its
    log before it listens.
    """

    logs: Path

    def knows(self, server: str, server_id: str) -> bool:
        """Whether the lab started *server* with the id *server_id*; both as in a server's INFO."""
        if not server_id or server != Path(server).name:
            return False
        pattern = re.compile(rb"\bID: +" + re.escape(server_id.encode()) + rb"\s")
        return any(pattern.search(_read(self.logs / f"{server}{suffix}")) for suffix in _SUFFIXES)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the lab may have been removed
        return b""
