"""
Labs up and down again, and vstream killed at random points: what is left, and how long it takes.

A cycle is `vstream lab up` of three regions and `vstream lab down --purge`. Beside it a client asks the same servers
for a stream of each region, from the moment they are started: `up` should not take much longer than they do.
A kill is `kill -9` of `lab down`, `lab up`, a `chaos` command or `scenario run`, in turn, at a random moment;
then `lab down --purge` has to remove what it leaves (after `chaos` a `chaos heal` has to heal first).

After each, no process, open port, held lock or file of the lab may be left. Exits with 1 if something is.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from vstream.errors import VstreamError
from vstream.jetstream.connection import connect
from vstream.lab import lifecycle, ports, server_records
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lab.state import lab_directory, labs_directory, list_lab_directories
from vstream.lab.status import list_lab_names
from vstream.scenario.fault_types import FAULTS, Target

VSTREAM = [sys.executable, "-m", "vstream"]
NAME = "soak"
REGIONS = ("west", "central", "east")
KINDS = ("lab down", "lab up", "chaos", "scenario run")
"""In turn. The suite kills the first one here, and each of the others in a test of its own."""
PATIENCE = 10.0
"""Seconds until what was killed must be gone: a `nats-server -t` that was under way ends by itself, and so do clients."""
POLL = 0.05


def list_chaos_commands() -> list[list[str]]:
    """The first example of every fault, with a second for it to last; but for faults of streams: there are none."""
    commands = []
    for declared in FAULTS.values():
        if declared.target is not Target.STREAM:
            words = shlex.split(declared.examples[0].partition(" --for ")[0])
            lasts = ["--for", "1s"] if declared.command_stays_open else []
            commands.append([*words, *lasts, "--yes-really"])
    return commands


@dataclass
class Soak:
    """What is measured and found. *files* hold the topology and a scenario."""

    backend: str
    files: Path
    random: random.Random
    left: list[str] = field(default_factory=list)
    up: list[float] = field(default_factory=list)
    placed: list[float] = field(default_factory=list)
    down: list[float] = field(default_factory=list)
    longest: dict[str, float] = field(default_factory=dict)
    """How long each kind of command takes that nobody kills: the latest moment for a kill."""

    @property
    def topology(self) -> str:
        return str(self.files / "topology.yaml")

    def argv(self, kind: str) -> list[str]:
        match kind:
            case "lab up":
                return ["lab", "up", self.topology, "--lab", NAME, "--links", self.backend]
            case "lab down":
                return ["lab", "down", NAME, "--purge"]
            case "chaos":
                return ["chaos", *self.random.choice(list_chaos_commands()), "--topology", self.topology]
            case _:
                return ["scenario", "run", str(self.files / "scenario.yaml"), "--output", str(self.files / "capture")]

    def cycle(self) -> None:
        """Up, and down."""
        began = time.monotonic()
        with self.spawn("lab up") as up:
            placed = asyncio.run(streams_placed(up))
            self.wait_for_end("lab up", up)
        self.up.append(time.monotonic() - began)
        if placed is not None:
            self.placed.append(placed)
        self.taken_down()

    def taken_down(self) -> None:
        """Take every lab down, and look for what is left."""
        held = Held.of_labs()
        for name in list_lab_names():
            began = time.monotonic()
            with self.spawn("lab down", name) as down:
                self.wait_for_end("lab down", down)
            self.down.append(time.monotonic() - began)
        self.left += held.find_leftovers()

    def kill(self, kind: str) -> str:
        """Kill a command of *kind*, and clean up after it. Returns at which second it was."""
        if kind in {"lab down", "chaos"}:
            with self.spawn("lab up") as up:
                self.wait_for_end("lab up", up)
        if kind not in self.longest:
            self.longest[kind] = self.measure(kind)
        at = self.random.uniform(0, self.longest[kind])
        held = Held.of_labs()
        with self.spawn(kind) as victim:
            with suppress(subprocess.TimeoutExpired):
                victim.wait(at)
            held.add()
            victim.kill()
        if kind == "chaos":
            healing = subprocess.run([*VSTREAM, "chaos", "heal"], capture_output=True, text=True, check=False)
            if healing.returncode != 0:
                self.left.append(f"chaos, killed after {at:.2f} s, and not healed: {healing.stderr.strip()}")
        self.taken_down()
        self.left += held.find_leftovers()
        return f"killed after {at:.2f} s"

    def measure(self, kind: str) -> float:
        """How long *kind* takes, with everything back as it was."""
        began = time.monotonic()
        with self.spawn(kind) as command:
            self.wait_for_end(kind, command)
        took = time.monotonic() - began
        if kind == "lab down":
            with self.spawn("lab up") as up:
                self.wait_for_end("lab up", up)
        if kind == "lab up":
            self.taken_down()
        return took

    def spawn(self, kind: str, name: str | None = None) -> subprocess.Popen[str]:
        argv = self.argv(kind) if name is None else ["lab", "down", name, "--purge"]
        output = (self.files / "said.txt").open("w")
        with output:
            return subprocess.Popen([*VSTREAM, *argv], stdout=output, stderr=output, text=True, cwd=self.files)

    def wait_for_end(self, kind: str, command: subprocess.Popen[str]) -> None:
        code = command.wait()
        # A verdict of a busy machine, or of a scenario cut short, is not what this is about.
        if code != 0 and not (kind == "scenario run" and code in {1, 3}):
            self.left.append(f"{kind} ended with {code}: {(self.files / 'said.txt').read_text().strip()}")


@dataclass
class Held:
    """What labs hold while they are there, to be looked for when they should not."""

    ports: set[int] = field(default_factory=set)

    @classmethod
    def of_labs(cls) -> Held:
        held = cls()
        held.add()
        return held

    def add(self) -> None:
        """What labs hold now, too."""
        for directory in list_lab_directories():
            with suppress(VstreamError):
                if record := directory.read():
                    for address in record.servers:
                        self.ports |= {*ports.server_ports(address), *ports.front_ports(address)}

    def find_leftovers(self) -> list[str]:
        """What is still there. Waits a moment for what ends by itself."""
        deadline = time.monotonic() + PATIENCE
        while (leftovers := self._find_leftovers()) and time.monotonic() < deadline:
            time.sleep(POLL)
        return leftovers

    def _find_leftovers(self) -> list[str]:
        busy_ports = {port for port in self.ports if not ports.is_free(port)}
        listening = [f"port {port}" for port in sorted(busy_ports - of_other_labs(busy_ports))]
        processes = [f"process {our.pid}: {' '.join(our.cmdline())}" for our in ours() if our.is_running()]
        labs = labs_directory()
        files = [f"file {path}" for path in sorted(labs.rglob("*"))] if labs.exists() else []
        locks = [f"lock {path}" for path in labs.rglob("*.lock") if is_held(path)]
        return [*processes, *listening, *locks, *files]


def ours() -> list[psutil.Process]:
    """The processes that work for a lab or a run of this soak: they name its directory, or are in it."""
    root, processes = str(labs_directory().parent.parent), []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and (
                any(root in argument for argument in process.cmdline()) or root in process.cwd()
            ):
                processes.append(process)
    return processes


def of_other_labs(taken: set[int]) -> set[int]:
    """Those ports that labs of somebody else have got since: no lab keeps a port that was purged."""
    result = set()
    for connection in psutil.net_connections("tcp") if taken else ():
        if connection.laddr and connection.laddr.port in taken and connection.pid is not None:
            with suppress(psutil.Error):
                command_line = " ".join(psutil.Process(connection.pid).cmdline())
                if "/labs/" in command_line and str(labs_directory()) not in command_line:
                    result.add(connection.laddr.port)
    return result


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock *path*."""
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    lock.release()
    return False


async def streams_placed(up: subprocess.Popen[str]) -> float | None:
    """Seconds from the start of the first server until each region has a stream of its own; None if `up` ended first."""

    async def place_stream(region: str) -> None:
        servers = sum(address.region == region for address in list_addresses(NAME))
        stream = {"name": f"soak-{region}", "subjects": [f"soak.{region}"], "num_replicas": servers}
        body = {**stream, "placement": {"cluster": region}}
        while up.poll() in {None, 0}:
            with suppress(VstreamError):
                async with connect(list_endpoints(NAME)[region], region, timeout=1) as connection:
                    while True:
                        subject = f"$JS.API.STREAM.CREATE.soak-{region}"
                        answer = await connection.request_json(subject, body, timeout=1)
                        if "error" not in answer:
                            return
                        await asyncio.sleep(POLL)
            await asyncio.sleep(POLL)

    while (first := first_server()) is None:
        if up.poll() is not None:
            return None
        await asyncio.sleep(POLL)
    await asyncio.gather(*(place_stream(region) for region in REGIONS))
    return time.time() - first if up.poll() in {None, 0} else None


def first_server() -> float | None:
    """When the first server of the lab was started, as the time of the day."""
    directory = lab_directory(NAME)
    servers = [server_records.read(directory, server) for server in server_records.list_recorded_servers(directory)]
    times = [server.create_time for server in servers if server is not None and server.create_time is not None]
    return min(times, default=None)


def write_files(directory: Path, servers: int) -> None:
    """A topology, and a scenario that kills a region of it."""
    regions = ", ".join(f"{name}: {{servers: {servers}}}" for name in REGIONS)
    (directory / "topology.yaml").write_text(
        f'version: 1\nname: {NAME}\nserver_version: "2.12"\nregions: {{{regions}}}\n'
        "streams: {foo: {subjects: [foo.>], canary: foo._canary.*, write: {max_age: 1h}}}\n"
    )
    (directory / "scenario.yaml").write_text(
        f"scenario: 1\nname: {NAME}\ntopology: topology.yaml\nworkload: {{rate: 20/s}}\n"
        "steps:\n  - wait: 1s\n  - kill-region: west\n    for: 1s\n  - resync\n  - converge\n"
    )


def figures(name: str, seconds: list[float]) -> str:
    if not seconds:
        return f"{name}: not measured"
    return f"{name}: median {statistics.median(seconds):.2f} s, from {min(seconds):.2f} to {max(seconds):.2f}"


def report(soak: Soak, cycles: int, kills: int) -> None:
    print(f"\n{cycles} cycles and {kills} kills, links: {soak.backend}, load {os.getloadavg()[0]:.1f}")
    print(figures("lab up", soak.up))
    print(figures("the servers themselves, until each region has a stream", soak.placed))
    ratios = [up / placed for up, placed in zip(soak.up, soak.placed, strict=False)]
    if ratios:
        print(f"lab up is {statistics.median(ratios):.2f} × that (median; most {max(ratios):.2f})")
    print(figures("lab down", soak.down))
    print("\n".join(["left:", *soak.left]) if soak.left else "nothing left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--links", default="proxy", choices=["proxy", "none"])
    parser.add_argument("--servers", type=int, default=3, help="in each region")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="vstream-soak.") as directory:
        files = Path(directory).resolve()
        os.environ["VSTREAM_STATE_DIR"] = str(files / "state")
        write_files(files, options.servers)
        soak = Soak(options.links, files, random.Random(options.seed))
        try:
            for number in range(options.cycles):
                soak.cycle()
                print(f"cycle {number + 1}: up {soak.up[-1]:.2f} s, down {soak.down[-1]:.2f} s", flush=True)
            for number in range(options.kills):
                kind = KINDS[number % len(KINDS)]
                print(f"kill {number + 1}: {kind}, {soak.kill(kind)}", flush=True)
        finally:
            for name in list_lab_names():
                asyncio.run(lifecycle.down(name, purge=True))
        report(soak, options.cycles, options.kills)
    sys.exit(1 if soak.left else 0)


if __name__ == "__main__":
    main()
