"""What unmodified clients can do, on every version, in every profile: runs it all, and writes what it has found."""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import os
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.conformance import javascript, matrix, results, table

VERSIONS = ("2.11.11", "2.12.8", "2.14.6", "2.15.1")
UNSIGNED = ("2.11.11",)
"""Refuse the tokens of operator mode (docs/security.md)."""
DOCUMENT = Path(__file__).parent.parent / "docs" / "compatibility.md"


def main() -> int:
    """Run what is asked for, and keep what is known of the rest; 1 if an operation fails for a reason nobody expects."""
    asked = _parse_arguments()
    clients = {"nats.py": importlib.metadata.version("nats-py"), "nats.js": javascript.install()}
    for version in asked.version or VERSIONS:
        for profile in asked.profile or matrix.PROFILES:
            if asked.security != "operator":
                _try(version, profile, clients, asked.operation, is_signed=False)
            if asked.security != "configuration" and profile in matrix.SIGNED and version not in UNSIGNED:
                _try(version, profile, clients, asked.operation, is_signed=True)
    recorded = results.read()
    DOCUMENT.write_text(table.document(recorded), encoding="utf-8", newline="\n")
    problems = [*table.list_unexplained(recorded), *table.differing(recorded)]
    print("\n".join(problems) or f"{len(recorded.cells)} cells, all as expected", file=sys.stderr)
    return 1 if problems else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", action="append", choices=VERSIONS, help="only on this nats-server; repeatable")
    parser.add_argument("--profile", action="append", choices=matrix.PROFILES, help="only this profile; repeatable")
    parser.add_argument("--security", choices=("configuration", "operator"), help="only with accounts from there")
    parser.add_argument("--operation", action="append", default=[], help="only this row; repeatable")
    return parser.parse_args()


def _try(version: str, profile: str, clients: dict[str, str], only: list[str], *, is_signed: bool) -> None:
    """Every operation of both clients on one lab, or *only* some, in the place of what was known of them."""
    called = matrix.name_signed(profile) if is_signed else profile
    print(f"{version}, {called}", file=sys.stderr, flush=True)
    models = matrix.PROFILES[profile]
    places = [(model, region) for model in models for region in matrix.REGIONS]
    with matrix.running(profile, version, models, is_signed=is_signed) as name:
        cells = {"nats.py": asyncio.run(matrix.run(name, places, only)), "nats.js": javascript.run(name, places, only)}
    recorded = results.read()
    recorded.clients = clients
    if not only:
        recorded.forget(version, called)
    for client, outcomes in cells.items():
        for (model, region, group, operation), outcome in outcomes.items():
            recorded.add(results.Cell(client, called, model, group, operation), (version, region), outcome)
    recorded.write()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the lab that runs goes down, as with Ctrl-C
    with tempfile.TemporaryDirectory(prefix="vstream-conformance-") as directory:
        os.environ["VSTREAM_STATE_DIR"] = directory
        sys.exit(main())
