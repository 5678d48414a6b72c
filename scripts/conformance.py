"""What unmodified clients can do, on every version, in every profile: runs it all, and writes what it has found."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.conformance import javascript, matrix, results, table

VERSIONS = ("2.11.11", "2.12.8", "2.14.6", "2.15.1")
DOCUMENT = Path(__file__).parent.parent / "docs" / "compatibility.md"


def main() -> int:
    """Run it all; 1 if an operation fails for a reason that nobody expects."""
    found = results.Results(
        clients={"nats.py": importlib.metadata.version("nats-py"), "nats.js": javascript.installed()}
    )
    for version in VERSIONS:
        for profile, models in matrix.PROFILES.items():
            places = [(model, region) for model in models for region in matrix.REGIONS]
            with matrix.running(profile, version) as name:
                print(f"{version}, {profile}", file=sys.stderr, flush=True)
                cells = {"nats.py": asyncio.run(matrix.run(name, places)), "nats.js": javascript.run(name, places)}
            for client, outcomes in cells.items():
                for (model, region, group, operation), outcome in outcomes.items():
                    found.add(results.Cell(client, profile, model, group, operation), (version, region), outcome)
    found.write()
    DOCUMENT.write_text(table.document(found), encoding="utf-8", newline="\n")
    problems = table.unexplained(found)
    print("\n".join(problems) or f"{len(found.cells)} cells, all as expected", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="vstream-conformance-") as directory:
        os.environ["VSTREAM_STATE_DIR"] = directory
        sys.exit(main())
