"""
How soon everything is everywhere after a region was killed, while `vstream repair sources --watch` runs.

    scripts/benchmarks/bench_back.py [--profiles mapped accounts regional domains] [--version 2.15.1] [--kills 10] [--servers 3]

Under load (`bench_failures`), with streams of each model. Printed, by profile and model: the least, the median and the
most seconds from when the servers of the region were healthy until every region had everything; and what was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))

from scripts.benchmarks import bench_failures
from vstream.capture.verdict.judge_capture import judge_capture
from vstream.lab import lifecycle
from vstream.lint.check_scenario import check_scenario
from vstream.runner.events import WorkloadBegan
from vstream.runner.runner import capture_scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.capture.verdict.model import Verdict
    from vstream.runner.events import Event

NAME = "outages"
BOUND = 10.0
"""Seconds that are promised."""
_NS = 1_000_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 1 where it took longer than promised, or anything was lost, doubled or out of order."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--profiles", nargs="+", default=list(bench_failures.STREAMS_OF), choices=bench_failures.STREAMS_OF
    )
    parser.add_argument("--version", default="2.15.1")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--servers", type=int, default=3)
    options = parser.parse_args(arguments)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.version}, {options.kills} kills each")
    print("profile   model      kills   least  median    most     acked  lost  doubled", flush=True)
    return max(measure(profile, options.version, options.kills, options.servers) for profile in options.profiles)


def measure(profile: str, version: str, kills: int, servers: int) -> int:
    """One run, printed; 1 as `main`. Its capture is kept then."""
    document = bench_failures.scenario(profile, "killed", version, servers)
    document["steps"] = [{"wait": "10s"}]
    for number, region in zip(range(kills), itertools.cycle(bench_failures.REGIONS), strict=False):
        document["steps"] += [
            {"kill-region": region, "as": f"break-{number}"},
            {"wait": bench_failures.LASTS["killed"]},
            {"heal": f"break-{number}"},
            {"converge": "240s"},
        ]
    directory = Path(tempfile.mkdtemp(prefix="vstream-back-"))
    os.environ["VSTREAM_STATE_DIR"] = str(directory / "state")
    file = directory / "topology.yaml"
    file.write_text(json.dumps(document["topology"]), encoding="utf-8")
    service: list[subprocess.Popen[bytes]] = []

    def begin_watching(event: Event) -> None:
        if isinstance(event, WorkloadBegan):
            command = [sys.executable, "-m", "vstream", "repair", "sources", str(file), "--lab", NAME, "--watch"]
            with (directory / "watch.log").open("wb") as log:
                service.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))

    scenario = check_scenario(json.dumps(document).encode(), "outages.yaml", lambda _name: b"").require()
    try:
        work = capture_scenario(scenario, capture_dir=directory / "capture", lab_name=NAME, on_event=begin_watching)
        verdict = judge_capture(asyncio.run(work))
    finally:
        for process in service:
            process.terminate()
            process.wait()
        asyncio.run(lifecycle.down(NAME, purge=True))
    is_late = show(profile, verdict)
    wrong = bench_failures.problems(verdict)
    for problem in (*wrong, *verdict.warnings):
        print(f"  {problem}", flush=True)
    if wrong or is_late:
        print(f"  the capture is kept: {directory}", flush=True)
        return 1
    shutil.rmtree(directory)
    return 0


def show(profile: str, verdict: Verdict) -> bool:
    """Print a line for each model. Whether one was later than promised."""
    is_late = False
    for stream in verdict.streams:
        took = []
        for broken in verdict.faults:
            arrivals = [arrival.took for arrival in broken.convergences if arrival.stream == stream.name]
            if None in arrivals or not arrivals:
                took.append(float("inf"))
            else:
                took.append(max(moment for moment in arrivals if moment is not None) / _NS)
        acked = sum(tally.acknowledged for tally in stream.origins.values())
        lost = sum(stream.lost_by_origin.values())
        doubled = sum(physical.duplicated.count for physical in stream.physical)
        model = "named" if "virtual_name" in bench_failures.STREAMS[stream.name] else stream.model
        print(
            f"{profile:<8}  {model:<9}  {len(took):>5}  {min(took):>6.1f}  {statistics.median(took):>6.1f}  "
            f"{max(took):>6.1f}  {acked:>8,}  {lost:>4}  {doubled:>7}   {' '.join(f'{moment:.1f}' for moment in took)}",
            flush=True,
        )
        is_late = is_late or max(took) > BOUND
    return is_late


if __name__ == "__main__":
    sys.exit(main())
