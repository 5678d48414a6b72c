"""A fourth region that comes and goes at 200 publishes per second and region: what the publishers of the others notice."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.moving_region import comes_and_goes
from vstream.lab import lifecycle

RATE = 200
ROUTING = ("mapped", "accounts", "domains")
VERSIONS = ("2.12.8", "2.15.1")
NAME = "bench-regions"


def main(servers: int) -> int:
    """Print the table; 1 if anything was lost, doubled or restarted, or the regions that stay were not available."""
    print(f"{RATE} publishes per second and region, {servers} servers in each region")
    print("routing    server   publishes   lost   doubled   restarted   available    longest gap   joined    left")
    is_good = True
    for routing, version in itertools.product(ROUTING, VERSIONS):
        with tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory:
            os.environ["VSTREAM_STATE_DIR"] = directory
            file = Path(directory) / "regions.yaml"
            try:
                run = asyncio.run(
                    comes_and_goes(file, routing, version=version, rate=RATE, servers=servers, name=NAME, settled=5)
                )
            finally:
                asyncio.run(lifecycle.down(NAME, purge=True))
        is_good &= (run.lost, run.doubled, run.strange, run.restarted) == (0, 0, 0, 0) and run.availability >= 0.999  # noqa: PLR2004
        print(
            f"{routing:<9}  {version}  {run.publishes:>9,}  {run.lost:>5}  {run.doubled:>8}  {run.restarted:>10}  "
            f"{run.availability:>9.3%}  {run.gap:>9.2f} s  {run.joined:>5.1f} s  {run.left:>5.1f} s",
            flush=True,
        )
    return 0 if is_good else 1
