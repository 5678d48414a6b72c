"""
Runs commands against real servers that give one wrong answer: the long form of `tests/cli/test_wrong_answers.py`.

    scripts/fuzz_answers.py [--runs 2000] [--seed 0] [--only plan]

It prints each run that fails, with what reproduces it, and in the end how commands ended for each way to be wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.changed_answers import WAYS
from tests.support.fuzzed_commands import COMMANDS, Outcome, open_bench, running_lab

AT_ONCE = 2
AUDITS = 50
"""Of so many runs, one is an audit."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run commands against servers that give one wrong answer.")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first run; each has the next")
    parser.add_argument("--only", help="a command")
    options = parser.parse_args()
    names = [options.only] if options.only else list(COMMANDS)
    seeds = iter(range(options.seed, options.seed + options.runs))
    outcomes: list[Outcome] = []
    lock = threading.Lock()

    def work(directory: Path) -> None:
        with open_bench(directory) as bench:
            while True:
                with lock:
                    seed = next(seeds, None)
                if seed is None:
                    return
                name = "audit" if seed % AUDITS == 0 and not options.only else names[seed % len(names)]
                outcome = bench.run(name, seed)
                with lock:
                    outcomes.append(outcome)
                    if outcome.problem:
                        print(outcome, flush=True)
                    if len(outcomes) % 100 == 0:
                        print(f"{len(outcomes):,} runs", flush=True)

    with tempfile.TemporaryDirectory(prefix="vstream-fuzz-") as name, running_lab(Path(name)):
        directories = [Path(name) / str(number) for number in range(AT_ONCE)]
        for directory in directories:
            directory.mkdir()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(work, directories))
    _report(outcomes)
    return int(any(outcome.problem for outcome in outcomes))


def _report(outcomes: list[Outcome]) -> None:
    """Print how often each command ended how, by the way in which an answer was wrong: `0 1 3 failed`."""
    commands = sorted({outcome.command for outcome in outcomes})
    print(f"\n{'exit codes 0/1/3/failed':22}" + "".join(f"{command:>14}" for command in commands))
    for way in WAYS:
        cells = []
        for command in commands:
            ended = Counter(
                "failed" if outcome.problem else outcome.code
                for outcome in outcomes
                if outcome.command == command and outcome.change.way == way
            )
            cells.append("/".join(str(ended[key]) for key in (0, 1, 3, "failed")))
        print(f"{way:22}" + "".join(f"{cell:>14}" for cell in cells))
    unchanged = sum(not outcome.changed for outcome in outcomes)
    print(f"\n{len(outcomes):,} runs, {unchanged} in which nothing was changed")
    print(f"most memory {max(outcome.memory for outcome in outcomes) // 1000} MB")
    print(f"longest {max(outcome.seconds for outcome in outcomes):.1f} s")


if __name__ == "__main__":
    sys.exit(main())
