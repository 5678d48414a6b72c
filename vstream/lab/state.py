"""
Where labs live on disk, and who may change them.

    STATE/labs/NAME/
        lab.json     what the lab is made of: servers, addresses, binaries
        topology     a link to the file that it was started from, if that was one file
        lab.lock     held by the command that is changing the lab
        lab.holder   the process id of the last one that held it
        tls/         what servers speak TLS with, if they do (see `certificates`)
        conf/        the rendered bundle; servers read conf/servers/SERVER.conf
        run/         one record per server that was started (see `server_records`)
        links/       the settings of links between regions, and the process that applies them (see `links.state`)
        chaos.json   the open faults, and in chaos/ what they keep (see `vstream.chaos`)
        log/         SERVER.log, and SERVER.err for what comes before the log
        data/SERVER/ JetStream's store; .SERVER.next is one that is to take its place

STATE is $VSTREAM_STATE_DIR, else the user's state directory.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from vstream.errors import LabError
from vstream.files import PathBelow, state_directory, write_private
from vstream.lab.binaries import Program
from vstream.topology.model import Server, Transport
from vstream.topology.server_address import ServerAddress
from vstream.value_class import value_class

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FORMAT = 3
_BEFORE_TRANSPORT = "is_encrypted"
"""A field of records of labs before they could speak TLS."""
_LOCK_TIMEOUT = 1.0
_LOCK_POLL_SECONDS = 0.02
_PRIVATE_MODE = 0o700


@value_class
class LabRecord:
    """What a lab consists of: written before its first server starts, kept until it is purged."""

    topology: str
    servers: tuple[ServerAddress, ...]
    programs: Mapping[str, Program]
    """The program of each server, by name; those that were removed keep theirs."""
    removed: tuple[ServerAddress, ...] = ()
    """Where servers were that are no part of it any more: if they come back, clients look for them there."""

    @property
    def transport(self) -> Transport | None:
        """The TLS files of all its ports, if they use TLS."""
        return next((address.transport for address in self.servers if address.transport is not None), None)


KEYS = "keys"
"""The directory of a lab with the keys of its users."""


@dataclass(frozen=True, slots=True)
class LabDirectory:
    """The directory of one lab. It may not exist yet."""

    name: str
    path: Path

    topology = PathBelow("topology")
    """A link to the topology's file."""
    keys = PathBelow(KEYS)
    """The keys and certificates of its users, if they have any."""
    certificates = PathBelow("tls")
    """The TLS files of its servers, if they use TLS."""
    conf = PathBelow("conf")
    """The rendered bundle."""
    run = PathBelow("run")
    """Records of started servers."""
    links = PathBelow("links")
    """The orders and answers of the link proxy."""
    faults = PathBelow("chaos")
    """Data of open faults: a directory for each that needs one, by its name."""
    log = PathBelow("log")
    """The logs of the servers."""
    data = PathBelow("data")
    """The stores of the servers."""

    def config(self, server: str) -> Path:
        """The configuration of *server*: its identity in the process table."""
        return self.conf / "servers" / f"{server}.conf"

    def store(self, server: str) -> Path:
        """The store of *server*."""
        return self.data / server

    def next_store(self, server: str) -> Path:
        """The store that will replace that of *server*; for a moment it may be the only one."""
        return self.data / f".{server}.next"

    def recover_store(self, server: str) -> None:
        """
        Give *server* a store again, if its own was removed for the next one, and that process was killed then.

        A server that starts without its store silently begins with an empty one.
        """
        following, store = self.next_store(server), self.store(server)
        if following.exists() and not store.exists():
            following.rename(store)

    def create(self) -> None:
        """Create the directory and its parts, readable by nobody else."""
        above = (self.path.parent.parent, self.path.parent, self.path)
        try:
            for directory in (*above, self.conf, self.conf / "servers", self.run, self.links, self.log, self.data):
                # The mode holds for the last part only, so each part is made by itself.
                directory.mkdir(mode=_PRIVATE_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(
                f"lab `{self.name}` cannot write its directory {self.path}: {error.strerror}",
                hint="set VSTREAM_STATE_DIR to a directory that can be written",
            ) from error

    def read(self) -> LabRecord | None:
        """The recorded lab; None if there is none. Raises LabError if the record cannot be parsed."""
        path = self.path / "lab.json"
        try:
            return _read_lab_record(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise LabError(
                f"the record of lab `{self.name}` at `{path}` cannot be read: {error}",
                hint=f"`vstream lab down {self.name} --purge` stops its servers and forgets it",
            ) from error

    def write(self, record: LabRecord) -> None:
        """Replace the record."""
        write_private(
            self.path / "lab.json", json.dumps({"format": _FORMAT, **asdict(record)}, indent=2, default=str) + "\n"
        )

    @asynccontextmanager
    async def lock(self, *, patience: float | None = None) -> AsyncIterator[None]:
        """
        Hold the lab's lock: no other command changes the lab. The kernel releases it if its holder dies.

        Raises LabError that names the holder if another process still holds it after *patience* seconds.
        """
        self.create()
        async with hold_lock(
            self.path / "lab.lock", patience=_LOCK_TIMEOUT if patience is None else patience
        ) as is_held:
            if not is_held:
                raise LabError(
                    f"lab `{self.name}` is being changed by {self._read_holder()}",
                    hint="wait until it is done, or interrupt it",
                )
            self.create()  # whom we waited for may have purged it
            with suppress(OSError):  # it is a courtesy; on a full disk, `lab down` is what makes room
                write_private(self.path / "lab.holder", f"{os.getpid()}\n")
            yield

    def _read_holder(self) -> str:
        try:
            pid = int((self.path / "lab.holder").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return "another process"
        return f"process {pid}" if psutil.pid_exists(pid) else "another process"

    def purge(self) -> None:
        """Remove everything, the lock last: whoever waits for it must not see half a lab. Needs the lock held."""
        for path in self.path.iterdir():
            if path.name == "lab.lock":
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        (self.path / "lab.lock").unlink()
        self.path.rmdir()


def labs_directory() -> Path:
    """The directory that holds a directory per lab."""
    # Servers are recognised by the path of their configuration: it must not depend on how one got here.
    return state_directory() / "labs"


def lab_directory(name: str) -> LabDirectory:
    """The directory of lab *name*. Raises LabError if the name is not allowed."""
    if not _NAME.fullmatch(name):
        raise LabError(
            f"`{name}` cannot be the name of a lab",
            hint="use up to 64 letters, digits, `-` and `_`, with a letter or digit in front",
        )
    return LabDirectory(name, labs_directory() / name)


def list_lab_directories() -> tuple[LabDirectory, ...]:
    """The directories of all recorded labs, by name."""
    return tuple(LabDirectory(path.parent.name, path.parent) for path in sorted(labs_directory().glob("*/lab.json")))


@asynccontextmanager
async def hold_lock(lock_file: Path, *, patience: float) -> AsyncIterator[bool]:
    """Hold *lock_file* inside the block; False if another process still holds it after *patience* seconds."""
    lock = FileLock(lock_file, thread_local=False)
    deadline = time.monotonic() + patience
    while not (is_held := _is_acquired(lock, lock_file)) and time.monotonic() < deadline:
        await asyncio.sleep(_LOCK_POLL_SECONDS)
    try:
        yield is_held
    finally:
        lock.release()


def _is_acquired(lock: FileLock, path: Path) -> bool:
    try:
        lock.acquire(blocking=False)
    except (Timeout, FileNotFoundError):
        return False
    if path.exists():
        return True
    # The holder before us purged the lab: we hold a file that has no name any more.
    lock.release()
    return False


def _read_lab_record(document: Mapping[str, Any]) -> LabRecord:
    if document["format"] != _FORMAT:
        raise ValueError(f"its format is {document['format']}, this vstream knows {_FORMAT}")
    programs = {}
    for server, program in document["programs"].items():
        programs[server] = Program(Path(program["binary"]), program["version"])
    return LabRecord(
        topology=document["topology"],
        servers=tuple(_read_address(server) for server in document["servers"]),
        programs=programs,
        removed=tuple(_read_address(server) for server in document.get("removed", ())),
    )


def _read_address(document: Mapping[str, Any]) -> ServerAddress:
    server, transport = document["server"], document.get("transport")
    fields = {name: value for name, value in document.items() if name != _BEFORE_TRANSPORT}
    return ServerAddress(
        **{
            **fields,
            "server": Server(name=server["name"], host=server["host"], tags=tuple(server["tags"])),
            "transport": transport and Transport(**transport),
        }
    )
