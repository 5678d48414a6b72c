"""
Network namespaces: one for each region of a lab, and one between them that forwards packets.

Linux only. As root, or as anybody where the system lets users have namespaces of their own.
They last as long as a process is in them, or holds them open.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_NEW_USER = 0x10000000
_NEW_NET = 0x40000000
_TIMEOUT = 10.0
FIRST_DIALING_PORT = 32768
"""The kernel gives ports from here on to those who dial; servers of a lab listen below."""


def address_of(index: int) -> str:
    """The address of all servers of the region with *index*, counting from 0."""
    return f"10.71.{index}.1"


class Namespaces:
    """Makes and holds the namespaces of *regions*; this process is in the one between them. Raises OSError."""

    def __init__(self, regions: Iterable[str]) -> None:
        self.addresses: Mapping[str, str] = {region: address_of(index) for index, region in enumerate(regions)}
        _leave()
        self._between = _current()
        self._held: dict[str, int] = {}
        run("ip", "-batch", "-", said="link set lo up\n")
        _write("/proc/sys/net/ipv4/ip_forward", "1")
        for index, region in enumerate(self.addresses):
            self._held[region] = self._made(index)

    @property
    def descriptors(self) -> Mapping[str, int]:
        """The descriptor of this process at which each region's namespace is."""
        return self._held

    @property
    def devices(self) -> Mapping[str, str]:
        """The device through which packets go to each region."""
        return {region: f"r{index}" for index, region in enumerate(self.addresses)}

    @contextmanager
    def inside(self, region: str) -> Iterator[None]:
        """Be in the namespace of *region*. What is opened there stays there."""
        _enter(self._held[region], _NEW_NET)
        try:
            yield
        finally:
            _enter(self._between, _NEW_NET)

    def socket(self, region: str) -> socket.socket:
        """A TCP socket that dials from within *region*."""
        with self.inside(region):
            made = socket.socket()
        made.setblocking(False)  # noqa: FBT003 - its only argument
        return made

    def connections(self) -> Iterator[tuple[str, str]]:
        """Open connections between regions: who dialed, and who was dialed."""
        region_at = {_in_hexadecimal(address): region for region, address in self.addresses.items()}
        for region in self.addresses:
            with self.inside(region), open("/proc/self/net/tcp", encoding="ascii") as table:  # noqa: PTH123
                rows = [line.split()[2:4] for line in table]
            for remote, state in rows[1:]:
                address, port = remote.split(":")
                other = region_at.get(address)
                if state == "01" and other not in {None, region} and int(port, 16) < FIRST_DIALING_PORT:
                    assert other is not None
                    yield region, other

    def _made(self, index: int) -> int:
        _call("unshare", _NEW_NET)
        held = _current()
        _enter(self._between, _NEW_NET)
        here, router = f"r{index}", f"10.71.{index}.254"
        run(
            "ip",
            "-batch",
            "-",
            said=f"link add {here} type veth peer name eth0 netns /proc/{os.getpid()}/fd/{held}\n"
            f"addr add {router}/24 dev {here}\nlink set {here} up\n",
        )
        _enter(held, _NEW_NET)
        try:
            inner = f"link set lo up\naddr add {address_of(index)}/24 dev eth0\nlink set eth0 up\n"
            run("ip", "-batch", "-", said=f"{inner}route add default via {router}\n")
        finally:
            _enter(self._between, _NEW_NET)
        return held


@contextmanager
def entrance(process: int, descriptor: int) -> Iterator[Callable[[], None]]:
    """What a new process has to call so that it is in the namespace that *process* holds. Raises OSError."""
    with ExitStack() as stack:
        user, net = (
            stack.enter_context(open(f"/proc/{process}/{path}", "rb")).fileno()  # noqa: PTH123
            for path in ("ns/user", f"fd/{descriptor}")
        )
        is_another = not os.path.samestat(os.fstat(user), os.stat("/proc/self/ns/user"))  # noqa: PTH116

        def enter() -> None:
            if is_another:
                _enter(user, _NEW_USER)
            _enter(net, _NEW_NET)

        yield enter


def run(*argv: str, said: str) -> None:
    """Run a program of the system with *said* on its input. Raises OSError with its words if it fails."""
    try:
        done = subprocess.run(argv, input=said, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except FileNotFoundError:
        raise OSError(f"there is no `{argv[0]}` here (it belongs to iproute2)") from None
    except subprocess.TimeoutExpired as error:
        raise OSError(f"`{argv[0]}` did not end within {_TIMEOUT:g} s") from error
    if done.returncode != 0:
        raise OSError(f"`{' '.join(argv)}`: {done.stderr.strip() or f'exit code {done.returncode}'}")


def can(*commands: Sequence[str]) -> bool:
    """Whether each of *commands* succeeds."""
    try:
        for command in commands:
            run(*command, said="")
    except OSError:
        return False
    return True


def _leave() -> None:
    """Leave the machine's network namespace for a new one; and its users, unless root may without."""
    try:
        _call("unshare", _NEW_NET)
    except PermissionError:
        user, group = os.getuid(), os.getgid()
        _call("unshare", _NEW_USER | _NEW_NET)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {user} 1")
        _write("/proc/self/gid_map", f"0 {group} 1")


def _current() -> int:
    return os.open("/proc/self/ns/net", os.O_RDONLY)


def _enter(descriptor: int, kind: int) -> None:
    _call("setns", descriptor, kind)


def _call(name: str, *arguments: int) -> None:
    # Python has these two from 3.12 on.
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


_libc = ctypes.CDLL(None, use_errno=True)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(text)


def _in_hexadecimal(address: str) -> str:
    return socket.inet_aton(address)[::-1].hex().upper()
