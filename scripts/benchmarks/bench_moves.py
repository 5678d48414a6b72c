"""
What publishers notice of a move from `routing: mapped` to `accounts`, in each security mode that has it.

Three regions of one server, 100 publishes a second in each, all by the command line as docs/changes.md says it. In the end every
region's stream is read: what was acknowledged has to be in it, once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))


from tests.support.command import vstream
from tests.support.paths import CERTIFICATES
from tests.support.publish_load import Load, compare, under_load
from vstream.lab.endpoints import list_client_endpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "bench-moves"
MODES = ("passwords", "nkeys", "certificates")
VERSIONS = ("2.12.8", "2.15.1")
REGIONS = ("west", "central", "east")
RATE = 100
BETWEEN = 200
"""Acknowledgements in each region, before each step and after the last."""
NAMED = {"probe": "probe@acme.example", "audit": "spiffe://acme.example/audit", "system": "CN=A system,O=Acme"}
"""Who is not called by the name of the user there."""
STEPS = (
    {"routing": "mapped", "moves_to": "accounts"},
    {"routing": "accounts", "moves_from": "mapped"},
    {"routing": "accounts"},
)


def topology(mode: str, step: dict[str, str]) -> str:
    """One virtual stream, and what *step* says of its routing."""
    return json.dumps(
        {
            "version": 1,
            "name": NAME,
            "server_version": "2.12",
            "account": "ACME",
            "security": {"mode": mode, **({"certificates": NAMED} if mode == "certificates" else {})},
            "regions": {region: {"servers": 1} for region in REGIONS},
            "streams": {"foo": {"subjects": ["foo.>"], "write": {"max_age": "1h"}, "consumers": {"billing": {}}}},
            **step,
        }
    )


async def _run_vstream(*arguments: str | Path) -> None:
    ran = await asyncio.to_thread(vstream, *arguments, timeout=300)
    if ran.code:
        raise RuntimeError(f"vstream {' '.join(map(str, arguments))}: {ran.code}\n{ran.out}\n{ran.err}")


async def _try_moves(mode: str, version: str, file: Path) -> bool:
    await asyncio.to_thread(file.write_text, topology(mode, {"routing": "mapped"}))
    try:
        await _run_vstream("lab", "up", file, "--server-version", version)
        await _run_vstream("apply", file, "--yes")
        sent = Load(RATE)
        async with under_load(sent, list_client_endpoints(NAME)):
            for step in STEPS:
                await sent.wait_for_acknowledged(BETWEEN)
                await asyncio.to_thread(file.write_text, topology(mode, step))
                await _run_vstream("apply", file, "--yes", "--allow-destructive", "--allow-many")
                await _run_vstream("plan", file, "--detailed-exitcode")
            await sent.wait_for_acknowledged(BETWEEN)
        lost = doubled = strange = 0
        for region in REGIONS:
            comparison = await compare(NAME, region, f"R_{region}/foo", sent)
            lost, doubled, strange = (
                lost + len(comparison[0]),
                doubled + len(comparison[1]),
                strange + len(comparison[2]),
            )
    finally:
        await _run_vstream("lab", "down", NAME, "--purge")
    print(
        f"{mode:13}{version:8}{len(sent.everything):13,}{lost:6}{doubled:9}{strange:9}{sum(sent.refused.values()):9}"
        f"{len(sent.unknown):11}{max(sent.gap.values()):9.2f} s",
        flush=True,
    )
    return not (lost or doubled or strange)


def main(versions: Sequence[str] = VERSIONS) -> int:
    """Print a line for each mode and version; 1 if anything was lost, doubled, or made up."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("mode         server  acknowledged  lost  doubled  strange  refused  no answer  longest gap")
    is_well = True
    for version, mode in itertools.product(versions, MODES):
        with tempfile.TemporaryDirectory(prefix="vstream-bench-") as scratch:
            os.environ.update(VSTREAM_STATE_DIR=f"{scratch}/state", VSTREAM_KEYS=f"{scratch}/keys")
            if mode == "certificates":
                shutil.copytree(CERTIFICATES, Path(scratch) / "keys" / NAME)
            is_well &= asyncio.run(_try_moves(mode, version, Path(scratch) / "topology.yaml"))
    return 0 if is_well else 1
