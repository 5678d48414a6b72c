"""`vstream status` on many virtual streams: with all regions up, and with one region dead."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

VSTREAM = [sys.executable, "-m", "vstream"]
DEADLINE = 4


def run(*arguments: str) -> None:
    subprocess.run([*VSTREAM, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def look(file: Path) -> tuple[float, dict[str, Any]]:
    """Seconds of a whole command, the start of Python included, and what it says."""
    start = time.perf_counter()
    ran = subprocess.run(
        [*VSTREAM, "status", str(file), "--timeout", str(DEADLINE), "--format", "json"],
        check=False,
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - start, json.loads(ran.stdout)


def main(file: Path, rounds: int) -> None:
    run("lab", "up", str(file))
    try:
        # On a machine that does other things, too, some requests have no answer in time: the next one finishes the job.
        while subprocess.run([*VSTREAM, "apply", str(file), "--yes"], check=False, capture_output=True).returncode:
            time.sleep(1)
        while not look(file)[1]["is_well"]:
            time.sleep(1)
        times = [look(file)[0] for _ in range(rounds)]
        print(f"  all regions up:   median {statistics.median(times):.2f} s, slowest {max(times):.2f} s")
        run("chaos", "kill-region", "west", "--topology", str(file), "--yes-really")
        seen = [look(file) for _ in range(rounds)]
        took = [picture["took_s"] for _, picture in seen]
        times = [seconds for seconds, _ in seen]
        print(
            f"  one region dead:  median {statistics.median(times):.2f} s, slowest {max(times):.2f} s, "
            f"of that asking servers {max(took):.2f} s; deadline {DEADLINE} s"
        )
    finally:
        run("lab", "down", "bench", "--purge")
