"""
CPU seconds of `vstream lint` beside those of `nats-server -t`, on one file of mappings.

    scripts/bench_lint.py [RULES ...]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vstream import load

RULES_PER_STREAM = 9
ROUNDS = 3


def mappings(rules: int) -> str:
    """The mappings of a topology with three regions and about that many rules."""
    streams = "\n".join(f"  s{number}: {{subjects: [s{number}.>]}}" for number in range(rules // RULES_PER_STREAM))
    topology = (
        'version: 1\nname: bench\nserver_version: "2.12"\njetstream: {max_file: 100GiB}\n'
        "regions: {west: {servers: 1}, central: {servers: 1}, east: {servers: 1}}\n"
        f"defaults: {{write: {{max_age: 1h}}}}\nstreams:\n{streams}\n"
    )
    return load.bundle(load.load(topology.encode(), "bench.yaml").require()).text("mappings.cfg")


def cpu(*command: str) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return best


def main() -> None:
    print("   rules  nats-server -t  vstream lint  ratio")
    with tempfile.TemporaryDirectory() as directory:
        for rules in map(int, sys.argv[1:] or ("1000", "12000")):
            file = Path(directory, "mappings.cfg")
            file.write_text(mappings(rules))
            server = cpu("nats-server", "-t", "-c", str(file))
            ours = cpu(sys.executable, "-m", "vstream", "lint", str(file), "--format", "concise")
            print(f"{rules:>8,}  {server:>12.2f} s  {ours:>10.2f} s  {ours / server:>5.2f}", flush=True)


if __name__ == "__main__":
    main()
