"""Three pushes of changed accounts in operator mode, at 200 publishes per second and region: what publishers notice."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.moving_region import command
from tests.support.publish_load import Load, compare, under_load
from vstream.lab import lifecycle
from vstream.lab.endpoints import list_client_endpoints
from vstream.lint.check_topology import check_topology
from vstream.topology import physical

if TYPE_CHECKING:
    from collections.abc import Sequence

RATE = 200
PUSHES = 3
REGIONS = ("west", "central", "east")
VERSION = "2.15.1"
NAME = "bench-pushes"


def document(routing: str, more: int) -> str:
    """A topology with *more* streams than one. Each changes what applications may do, and so every client's permissions."""
    streams = {f"s{number}": {"subjects": [f"s{number}.>"], "write": {"max_age": "1h"}} for number in range(more)}
    document: dict[str, Any] = {
        "version": 1,
        "name": NAME,
        "server_version": "2.12",
        "routing": routing,
        "security": {"mode": "operator"},
        "regions": {region: {"servers": 1} for region in REGIONS},
        "streams": {"foo": {"subjects": ["foo.>"], "write": {"max_age": "1h"}}, **streams},
    }
    return json.dumps(document)


async def push_changes(file: Path, routing: str, *, has_ids: bool) -> tuple[Load, list[float], int, int]:
    """The load, how long each apply took in seconds, and how many messages were lost and doubled, of all regions together."""
    await asyncio.to_thread(file.write_text, document(routing, 0))
    await command("lab", "up", file, "--server-version", VERSION)
    await command("apply", file, "--yes")
    load, took = Load(RATE, has_ids=has_ids), []
    async with under_load(load, list_client_endpoints(NAME)):
        await load.wait_for_acknowledged(2 * RATE)
        for number in range(PUSHES):
            await asyncio.to_thread(file.write_text, document(routing, number + 1))
            began = time.monotonic()
            await command("apply", file, "--yes")
            took.append(time.monotonic() - began)
            await load.wait_for_acknowledged(2 * RATE)
    (stream, *_) = check_topology(document(routing, 0).encode(), file.name).require().streams
    comparisons = [await compare(NAME, region, physical.read_stream_in(stream, region), load) for region in REGIONS]
    return load, took, sum(len(lost) for lost, _, _ in comparisons), sum(len(doubled) for _, doubled, _ in comparisons)


def main(profiles: Sequence[str]) -> int:
    """Print the table; 1 if anything was lost, or doubled although it had a message id."""
    print(f"{PUSHES} pushes, {RATE} publishes per second and region, {len(REGIONS)} regions, nats-server {VERSION}")
    print("routing    message ids   acknowledged   refused   no answer   longest gap   an apply   lost   doubled")
    is_good = True
    for routing, has_ids in itertools.product(profiles, (False, True)):
        with tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory:
            os.environ["VSTREAM_STATE_DIR"] = directory
            try:
                load, took, lost, doubled = asyncio.run(
                    push_changes(Path(directory) / "pushes.yaml", routing, has_ids=has_ids)
                )
            finally:
                asyncio.run(lifecycle.down(NAME, purge=True))
        is_good &= not lost and not (doubled and has_ids)
        print(
            f"{routing:<9}  {'yes' if has_ids else 'no':>11}   {len(load.everything):>12,}  "
            f"{sum(load.refused.values()):>8}  {len(load.unknown):>10}  "
            f"{max(load.gap.values()):>9.2f} s  {max(took):>6.1f} s  {lost:>5}  {doubled:>8}",
            flush=True,
        )
    return 0 if is_good else 1
