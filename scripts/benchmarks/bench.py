"""
What a thousand virtual streams cost: vstream beside a bare pipelined script, on the same servers, in one run.

Rendering and validating: CPU seconds for 1, 10, 100 and N virtual streams in three regions.
Apply: streams created per second by `vstream apply`, and by a script that only sends the
same requests, 32 at a time, write streams before read streams.
Plan: seconds of `vstream plan` on the matching world, and of one full STREAM.LIST sweep.
Status: seconds of `vstream status`, and of its requests by a bare client (bench_asking.py).
Lint (with --lint, and nothing else then): CPU seconds of `vstream lint` and of `nats-server -t` on files of
1,000, 12,000 and 50,000 mapping rules with three destinations each, in turn; medians.
Extract (with --extract, and nothing else then): see bench_extract.py. Needs vstream[audit].
Executors (with --executors, and nothing else then): see bench_executors.py. Needs vstream[audit].
Routing (with --routing, and nothing else then): what a publish costs a server, see bench_routing.py.
Status (with --status, and nothing else then): see bench_status.py.
Regions (with --regions, and nothing else then): a fourth region that comes and goes under load, see bench_regions.py.
Pushes (with --pushes, and nothing else then): what publishers notice of changed accounts in operator mode, see bench_pushes.py.
Failures (with --failures, and nothing else then): regions killed and cut off, in each profile and model, see bench_failures.py.
Moves (with --moves, and nothing else then): what publishers notice of a move to another profile, see bench_moves.py.
Pulls (with --pulls, and nothing else then): what pulls of `accounts` would be as stream imports, see bench_pulls.py.
Fetch (with --fetch, and nothing else then): how fast nats.py and nats.js pull in `accounts`, see bench_fetch.py.
Simulate (with --simulate, and nothing else then): what `vstream size --simulate` predicts, see bench_simulate.py.
Many regions (with --many-regions, and nothing else then): a mesh of up to 30 regions, see bench_many_regions.py.
Created (with --created, and nothing else then): consumers that servers do not find at once, see bench_created.py.
Planted (with --planted, and nothing else then): see bench_planted.py. Needs vstream[audit].
Disorder (with --disorder, and nothing else then): see bench_disorder.py. Needs vstream[audit].
State (with --state, and nothing else then): an audit that reads only what is new, see bench_state.py. Needs vstream[audit].
Audit of many streams (with --audit-streams, and nothing else then): see bench_audit_streams.py. Needs vstream[audit].
Audit (with --audit, and nothing else then): see bench_audit.py. Needs vstream[audit], datacompy, duckdb and polars.

At the end, what was measured is shown beside the goals for it and the last run of the same kind on this machine, and
added to a history file (see bench_goals.py).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import bench_asking
import bench_failures
import bench_goals
import bench_many_regions
import bench_simulate
import nats
import psutil
from bench_routing import LAYOUTS

from vstream.files import state_directory
from vstream.lab import binaries, lifecycle
from vstream.lab.endpoints import list_endpoints
from vstream.lab.start import LabSetup
from vstream.lint import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology import naming
from vstream.topology.model import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.aio.client import Client

    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Endpoint, Topology
    from vstream.topology.stream_config import StreamConfig

VSTREAM = [sys.executable, "-m", "vstream"]
RULES_PER_STREAM = 9
ROUTING = "regional"
"""What is asked of servers: with `mapped` they pass each message of their own through every rule of 1,000 streams."""
FEW = 100
"""Virtual streams that many are compared with."""
SETTLING = 180.0
"""Seconds that servers may take until all new sources are connected: the first request of some is lost."""
MEMORY: list[float] = []
"""Of the commands that were measured, in MB."""


def document(streams: int, routing: str = "mapped") -> str:
    """A topology of three regions. With `mapped` each virtual stream has nine rules, as no root says what they share."""
    lines = [
        "version: 1",
        "name: bench",
        'server_version: "2.12"',
        "jetstream: {max_file: 100GiB}",
        "regions: {west: {servers: 1}, central: {servers: 1}, east: {servers: 1}}",
        "defaults: {write: {max_age: 1h, storage: memory}, read: {storage: memory}}",
        *([] if routing == "mapped" else [f"routing: {routing}", "roots: [v.>]"]),
        "streams:",
        *(f"  s{number:04}: {{subjects: [v.s{number:04}.>]}}" for number in range(streams)),
    ]
    return "\n".join(lines) + "\n"


def rendering(sizes: list[int]) -> None:
    print("\nvalidate and render (CPU seconds, three regions)")
    costs = {}
    for size in sizes:
        content = document(size).encode()
        start = time.process_time()
        bundle = render_bundle(check_topology.check_topology(content, "bench.yaml").require())
        seconds = time.process_time() - start
        costs[size] = seconds / len(bundle.streams)
        print(
            f"  {size:>6,} virtual streams  {seconds:8.3f} s  {1e6 * seconds / len(bundle.streams):8.0f} µs per stream"
        )
    if sizes[-1] > FEW:
        bench_goals.record("render: cost of a stream, all ÷ 100", costs[sizes[-1]] / costs[FEW])


async def log_in(endpoint: Endpoint) -> Client:
    """A bare client of a region."""
    return await nats.connect(
        list(endpoint.urls), user=endpoint.user, password=endpoint.password, inbox_prefix=endpoint.inbox
    )


async def bare_create(endpoint: Endpoint, bundle: Bundle) -> float:
    """Seconds to create every stream with nothing but a client and 32 requests in flight."""
    client = await log_in(endpoint)
    start = time.perf_counter()
    for role in Role:
        waiting = iter([stream.config for stream in bundle.streams if stream.role is role])

        async def worker(waiting: Iterator[StreamConfig] = waiting) -> None:
            for config in waiting:
                subject, body = naming.api_subject("STREAM.CREATE", config.name), json.dumps(config.fields).encode()
                # Busy servers elect another meta leader now and then: as vstream does, ask again until there is one.
                while b'"err_code":10008' in (answer := await client.request(subject, body, timeout=30)).data:
                    await asyncio.sleep(0.25)
                assert b'"error"' not in answer.data, answer.data

        await asyncio.gather(*(worker() for _ in range(32)))
    seconds = time.perf_counter() - start
    await client.close()
    return seconds


async def sweep(endpoint: Endpoint, bundle: Bundle) -> float:
    """Seconds to read every page of STREAM.LIST: one page after another, all accounts at once."""

    async def read(subject: str) -> None:
        offset, total = 0, 1
        while offset < total:
            page = json.loads((await client.request(subject, b'{"offset":%d}' % offset, timeout=30)).data)
            total, offset = page["total"], offset + page["limit"]

    client = await log_in(endpoint)
    subjects = {naming.api_subject("STREAM.LIST", stream.config.name) for stream in bundle.streams}
    start = time.perf_counter()
    await asyncio.gather(*(read(subject) for subject in {subject.rpartition(".")[0] for subject in subjects}))
    seconds = time.perf_counter() - start
    await client.close()
    return seconds


def command(*arguments: str, codes: tuple[int, ...] = (0,)) -> float:
    """Seconds of a command that ends with one of *codes*, whose memory is remembered."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([*VSTREAM, *arguments], stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in codes:
            output.seek(0)
            print(output.read()[-2000:])
            raise subprocess.CalledProcessError(process.returncode, arguments)
    MEMORY.append(used.ru_maxrss / 1000)
    return seconds


async def starting(directory: Path, size: int, planned: float) -> None:
    """CPU seconds of commands that have little to do. *planned*: those of `plan` of *size* virtual streams."""
    seconds = {}
    for few in (1, FEW):
        file = directory / f"{few}.yaml"
        file.write_text(document(few, ROUTING))
        await up(check_topology.check_topology(file.read_bytes(), str(file)).require())
        if few == FEW:
            await asyncio.to_thread(command, "apply", str(file), "--yes")
        seconds[few] = statistics.median([cpu(*VSTREAM, "plan", str(file)) for _ in range(5)])
    nothing = statistics.median([cpu(*VSTREAM, "--version") for _ in range(5)])
    print(
        f"\nCPU of `vstream --version` {nothing:.2f} s, of `plan` of one virtual stream {seconds[1]:.2f} s, "
        f"of {FEW} {seconds[FEW]:.2f} s, of {size:,} {planned:.2f} s"
    )
    bench_goals.record("start of `vstream`, CPU", nothing)
    bench_goals.record("`plan` of one stream, CPU", seconds[1])
    if size > FEW:
        cost = (planned - seconds[1]) / (size - 1), (seconds[FEW] - seconds[1]) / (FEW - 1)
        bench_goals.record("plan: CPU of a stream, all ÷ 100", cost[0] / cost[1])


async def up(topology: Topology) -> Endpoint:
    """A fresh lab; returns how to reach its first region."""
    await lifecycle.down("bench", purge=True)
    await lifecycle.up(
        "bench",
        topology,
        lambda addresses: render_bundle(topology, addresses=addresses),
        LabSetup(binary=binaries.find_or_fetch()),
        on_progress=lambda _step: None,
    )
    return list_endpoints("bench")["west"]


async def servers(size: int, rounds: int, directory: Path) -> None:
    file = directory / "bench.yaml"
    file.write_text(document(size, ROUTING))
    topology = check_topology.check_topology(file.read_bytes(), str(file)).require()
    bundle = render_bundle(topology)
    count = len(bundle.streams)
    print(f"\n{size:,} virtual streams, {count:,} physical streams, {ROUTING}, R1 in memory, one server per region")
    command("validate", str(file))
    command("render", str(file), "--output", str(directory / "rendered"))
    print(f"  memory of validate and render at most {max(MEMORY):.0f} MB")
    bench_goals.record("memory of validate and render", max(MEMORY))
    MEMORY.clear()
    ratios, plans, looks = [], [], []
    asked: dict[str, list[bench_asking.Request]] = {}
    for number in range(rounds):
        bare = await bare_create(await up(topology), bundle)
        endpoint = await up(topology)
        mine = await asyncio.to_thread(command, "apply", str(file), "--yes")
        ratios.append(bare / mine)
        print(
            f"  round {number + 1}: bare {count / bare:6.0f}/s ({bare:5.1f} s)   vstream apply {count / mine:6.0f}/s "
            f"({mine:5.1f} s, with planning before and after)   ratio {bare / mine:.2f}"
        )
        await asyncio.to_thread(settle, file)
        for _ in range(3):
            listed = await sweep(endpoint, bundle)
            planned = await asyncio.to_thread(command, "plan", str(file), "--detailed-exitcode")
            plans.append(planned / listed)
            print(
                f"           STREAM.LIST sweep {listed:6.3f} s   vstream plan {planned:6.3f} s   ratio {planned / listed:.1f}"
            )
            endpoints = list_endpoints("bench")
            asked = asked or await bench_asking.record(topology, endpoints)
            in_turn = await bench_asking.ask(endpoints, asked, is_at_once=False)
            at_once = await bench_asking.ask(endpoints, asked, is_at_once=True)
            looked = await asyncio.to_thread(command, "status", str(file))
            looks.append((looked / in_turn, looked / at_once))
            print(
                f"           its {sum(map(len, asked.values()))} requests bare, in turn {in_turn:6.3f} s, at once "
                f"{at_once:6.3f} s   vstream status {looked:6.3f} s   ratios {looks[-1][0]:.1f}, {looks[-1][1]:.1f}"
            )
        idle, sources = await measure_idle_servers(), sum(len(stream.config.sources) for stream in bundle.streams)
        print(
            f"           servers idle {idle:.2f} cores, {1e6 * idle / sources:.0f} µs a second for each of {sources:,} sources"
        )
        drifted = await asyncio.to_thread(command, "plan", str(file), "--drift")
        # Servers on one machine are warned of, and those of memory storage.
        doctored = await asyncio.to_thread(command, "doctor", str(file), codes=(0, 1, 3))
        print(f"           vstream plan --drift {drifted:6.3f} s   vstream doctor {doctored:6.3f} s")
    to_asking = [statistics.median(column) for column in zip(*looks, strict=True)]
    print(
        f"  median: apply/bare {statistics.median(ratios):.2f}, plan/sweep {statistics.median(plans):.1f}, "
        f"status/asking in turn {to_asking[0]:.1f}, at once {to_asking[1]:.1f}; memory at most {max(MEMORY):.0f} MB"
    )
    bench_goals.record("apply ÷ bare script, streams a second", statistics.median(ratios))
    bench_goals.record("plan ÷ STREAM.LIST sweep, seconds", statistics.median(plans))
    bench_goals.record("status ÷ asking every region, seconds", to_asking[0])
    bench_goals.record("memory of apply, plan, status, drift, doctor", max(MEMORY))
    await starting(directory, size, statistics.median([cpu(*VSTREAM, "plan", str(file)) for _ in range(3)]))
    await lifecycle.down("bench", purge=True)


def settle(file: Path) -> None:
    """Wait until every reader has heard its origins: servers are busy with that after thousands of streams were created."""
    end = time.monotonic() + SETTLING
    while subprocess.run([*VSTREAM, "status", str(file)], capture_output=True, check=False).returncode:
        assert time.monotonic() < end, "the streams do not come to rest"


async def measure_idle_servers(seconds: float = 10) -> float:
    """CPU seconds a second of the lab's servers while nobody asks them anything: sources are heard every second."""
    running = []
    for process in psutil.process_iter(["cmdline"]):
        if "/labs/bench/" in " ".join(process.info["cmdline"] or ()):
            running.append(process)
    before = sum(sum(process.cpu_times()[:2]) for process in running)
    await asyncio.sleep(seconds)
    return (sum(sum(process.cpu_times()[:2]) for process in running) - before) / seconds


def cpu(*arguments: str) -> float:
    """CPU seconds of a command; it may find something wrong."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def linting(sizes: list[int], rounds: int, directory: Path) -> None:
    server = str(binaries.find_or_fetch())
    print(f"\n`vstream lint` beside `nats-server -t` (CPU seconds, three destinations a rule, medians of {rounds})")
    for size in sizes:
        file = directory / "mappings.cfg"
        file.write_text(
            render_bundle(
                check_topology.check_topology(document(size // RULES_PER_STREAM).encode(), "").require()
            ).text(file.name)
        )
        pairs = [(cpu(server, "-t", "-c", str(file)), cpu(*VSTREAM, "lint", str(file))) for _ in range(rounds)]
        theirs, ours = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratio = statistics.median(mine / theirs for theirs, mine in pairs)
        print(
            f"  {size:>6,} rules   nats-server {theirs:7.3f} s   vstream {ours:7.3f} s   ratio {ratio:.2f}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000, help="virtual streams (default 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds on fresh servers (default 3)")
    parser.add_argument("--only-render", action="store_true", help="no servers")
    parser.add_argument("--lint", action="store_true", help="only the linter, five rounds")
    parser.add_argument("--routing", action="store_true", help="only what a publish costs, by routing profile")
    parser.add_argument("--regions", action="store_true", help="only a fourth region that comes and goes under load")
    parser.add_argument(
        "--failures", action="store_true", help="only regions killed and cut off, in each profile and model"
    )
    parser.add_argument(
        "--profiles",
        nargs="+",
        metavar="PROFILE",
        default=list(bench_failures.STREAMS_OF),
        choices=bench_failures.STREAMS_OF,
        help="with --failures and --pushes: these alone",
    )
    parser.add_argument("--pushes", action="store_true", help="only what publishers notice of pushes in operator mode")
    parser.add_argument(
        "--versions",
        nargs="+",
        metavar="VERSION",
        default=list(bench_failures.VERSIONS),
        help="with --failures and --moves: of nats-server",
    )
    parser.add_argument(
        "--faults",
        nargs="+",
        metavar="FAULT",
        default=list(bench_failures.FAULTS),
        choices=bench_failures.FAULTS,
        help="with --failures: these alone",
    )
    parser.add_argument(
        "--servers", type=int, default=1, help="with --regions and --failures: servers in each region (default 1)"
    )
    parser.add_argument(
        "--layouts",
        nargs="+",
        metavar="LAYOUT",
        default=list(LAYOUTS),
        choices=LAYOUTS,
        help="with --routing: these alone",
    )
    parser.add_argument(
        "--counts", type=int, nargs="+", default=[1, 10, 100, 1000], help="with --routing: numbers of virtual streams"
    )
    parser.add_argument(
        "--extract",
        action="store_true",
        help="only reading streams, with Spark and without; with --audit-streams: the audit reads servers",
    )
    parser.add_argument(
        "--executors", action="store_true", help="only reading streams over a long way, with one executor and with two"
    )
    parser.add_argument(
        "--status", action="store_true", help="only `vstream status`, with all regions up and without one"
    )
    parser.add_argument("--moves", action="store_true", help="only a move from `mapped` to `accounts` under load")
    parser.add_argument(
        "--pulls", action="store_true", help="only pulls of `accounts`, as they are and as stream imports"
    )
    parser.add_argument("--fetch", action="store_true", help="only how fast nats.py and nats.js pull in `accounts`")
    parser.add_argument("--simulate", action="store_true", help="only predictions of outages beside real labs")
    parser.add_argument("--many-regions", action="store_true", help="only a mesh of up to 30 regions, beside a tree")
    parser.add_argument("--created", action="store_true", help="only consumers that servers do not find at once")
    parser.add_argument("--audit", action="store_true", help="only reconciliation, beside joins and datacompy")
    parser.add_argument("--audit-streams", action="store_true", help="only an audit of 10,000 small streams, or --many")
    parser.add_argument(
        "--many", type=int, default=10_000, help="with --audit-streams: virtual streams (default 10000)"
    )
    parser.add_argument(
        "--planted", action="store_true", help="only an audit of tables with planted faults of every kind"
    )
    parser.add_argument("--disorder", action="store_true", help="only reconciliation of a read stream in any order")
    parser.add_argument("--state", action="store_true", help="only audits that read what is new, beside whole ones")
    parser.add_argument("--new", type=int, default=100_000, help="with --state: new messages (default 100000)")
    parser.add_argument("--goals", action="store_true", help="one after the other all that there are goals for")
    parser.add_argument(
        "--history",
        type=Path,
        default=state_directory() / "bench.jsonl",
        metavar="FILE",
        help="where what was measured is added (default: bench.jsonl in vstream's state directory)",
    )
    parser.add_argument("--alone", action="store_true", help="with --audit: nothing beside it")
    parser.add_argument(
        "--without-datacompy", action="store_true", help="with --audit: it takes ten times as long as all else"
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="messages to reconcile")
    parser.add_argument("--messages", type=int, default=300_000, help="messages to extract (default 300000)")
    options = parser.parse_args()
    gc.set_threshold(1_000_000, 20, 100)  # as vstream.cli.app does
    load = os.getloadavg()[0]
    print(f"python {sys.version.split()[0]}, {os.cpu_count()} cores, load {load:.1f}")
    # Defaults are left out: a run is not of another kind because an option was added since.
    kind = [
        f"{name}={value}"
        for name, value in vars(options).items()
        if name != "history" and value != parser.get_default(name)
    ]
    if options.goals:
        for more in bench_goals.SECTIONS:
            subprocess.run([sys.executable, __file__, *more, "--history", str(options.history)], check=False)
    try:
        if not options.goals:
            _measure(options)
    finally:
        bench_goals.finish(options.history, kind, load, is_summary=options.goals)


def _measure(options: argparse.Namespace) -> None:  # noqa: C901, PLR0911, PLR0912, PLR0915 - one for each thing that is measured alone
    if options.lint:
        with tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory:
            linting([1_000, 12_000, 50_000], 5, Path(directory))
        return
    if options.audit:
        import bench_audit  # noqa: PLC0415 - needs Spark

        is_beside = not options.alone
        ratio = bench_audit.main(
            options.rows, with_others=is_beside, with_datacompy=is_beside and not options.without_datacompy
        )
        bench_goals.record("reconciliation, first ÷ later", ratio)
        return
    if options.audit_streams:
        import bench_audit_streams  # noqa: PLC0415 - needs Spark

        (bench_audit_streams.read_and_audit if options.extract else bench_audit_streams.main)(options.many)
        return
    if options.planted:
        import bench_planted  # noqa: PLC0415 - needs Spark

        bench_planted.main(options.rows)
        return
    if options.state:
        import bench_state  # noqa: PLC0415 - needs Spark

        bench_state.main(options.rows, options.new)
        return
    if options.disorder:
        import bench_disorder  # noqa: PLC0415 - needs Spark

        bench_disorder.main(options.rows)
        return
    if options.routing:
        import bench_routing  # noqa: PLC0415

        bench_routing.main(options.layouts, options.counts)
        return
    if options.regions:
        import bench_regions  # noqa: PLC0415

        sys.exit(bench_regions.main(options.servers))
    if options.pushes:
        import bench_pushes  # noqa: PLC0415

        sys.exit(bench_pushes.main(options.profiles))
    if options.moves:
        import bench_moves  # noqa: PLC0415

        sys.exit(bench_moves.main(options.versions))
    if options.pulls:
        import bench_pulls  # noqa: PLC0415

        bench_pulls.main()
        return
    if options.fetch:
        import bench_fetch  # noqa: PLC0415 - needs node

        bench_fetch.main()
        return
    if options.created:
        import bench_created  # noqa: PLC0415

        bench_created.main()
        return
    if options.failures:
        sys.exit(bench_failures.main(options.profiles, options.versions, options.faults, options.servers))
    if options.simulate:
        sys.exit(bench_simulate.main())
    if options.many_regions:
        sys.exit(bench_many_regions.main())
    if options.extract:
        import bench_extract  # noqa: PLC0415 - needs Spark

        bench_extract.main(options.messages, options.rounds)
        return
    if options.executors:
        import bench_executors  # noqa: PLC0415 - needs Spark

        bench_executors.main(options.messages, options.rounds)
        return
    if options.status:
        import bench_status  # noqa: PLC0415

        with tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory:
            os.environ["VSTREAM_STATE_DIR"] = directory
            file = Path(directory) / "bench.yaml"
            file.write_text(document(options.streams))
            bench_status.main(file, 5)
        return
    rendering(sorted({1, 10, 100, options.streams}))
    if options.only_render:
        return
    with tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory:
        os.environ["VSTREAM_STATE_DIR"] = directory
        try:
            asyncio.run(servers(options.streams, options.rounds, Path(directory)))
        finally:
            asyncio.run(lifecycle.down("bench", purge=True))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the labs that run go down, as with Ctrl-C
    main()
