"""
Runs commands against real servers that give one wrong answer: the long form of `tests/cli/test_wrong_answers.py`.

    scripts/fuzz_answers.py [--runs 2000] [--seed 0] [--minutes 240] [--only plan apply] [--at-once 4] [--audits 100]

It prints each run that fails, with what reproduces it, and in the end how commands ended, also for each way to be wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.changed_answers import DAMAGES
from tests.support.fuzzed_commands import COMMANDS, ENDINGS, WITH_STRETCH, Outcome, open_bench, running_lab

_PAUSE = 0.5
"""Seconds between two looks at the memory of processes; each knows the most that it has had."""


class MemoryWatch:
    """The most memory that a process of each program has had, in kilobytes: what audits start is not Python alone."""

    def __init__(self) -> None:
        self.peaks: Counter[str] = Counter()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        this_process = psutil.Process(os.getpid())
        while not self._is_over.wait(_PAUSE):
            for process in this_process.children(recursive=True):
                program, peak = _peak(process.pid)
                self.peaks[program] = max(self.peaks[program], peak)


def _peak(pid: int) -> tuple[str, int]:
    """The program of a process, and the most memory that it has had so far; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return "", 0
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return fields["Name"].rstrip("0123456789."), int(fields.get("VmHWM", "0 kB").split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(description="Run commands against servers that give one wrong answer.")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first run; each has the next")
    parser.add_argument("--minutes", type=float, default=240, help="after which no run is begun")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, metavar="COMMAND", help="of " + ", ".join(COMMANDS))
    parser.add_argument("--at-once", type=int, default=4, help="commands, which mostly wait")
    parser.add_argument("--audits", type=int, default=100, help="of so many runs, one is an audit")
    options = parser.parse_args()
    names = options.only or list(COMMANDS)
    seeds = iter(range(options.seed, options.seed + options.runs))
    ends_at = time.monotonic() + options.minutes * 60
    outcomes: list[Outcome] = []
    lock = threading.Lock()

    def work(directory: Path) -> None:
        with open_bench(directory, WITH_STRETCH) as bench:
            while True:
                with lock:
                    seed = next(seeds, None) if time.monotonic() < ends_at else None
                if seed is None:
                    return
                name = "audit" if seed % options.audits == 0 and not options.only else names[seed % len(names)]
                outcome = bench.run(name, seed)
                with lock:
                    outcomes.append(outcome)
                    if outcome.problem:
                        print(outcome, flush=True)
                    if len(outcomes) % 100 == 0:
                        print(f"{len(outcomes):,} runs", flush=True)

    with tempfile.TemporaryDirectory(prefix="vstream-fuzz-") as name, running_lab(Path(name), WITH_STRETCH):
        directories = [Path(name) / str(number) for number in range(options.at_once)]
        for directory in directories:
            directory.mkdir()
        try:
            with MemoryWatch() as watch, ThreadPoolExecutor(options.at_once) as pool:
                list(pool.map(work, directories))
        finally:
            _report(outcomes)
            peaks = ", ".join(f"{program} {peak // 1000}" for program, peak in watch.peaks.most_common() if peak)
            print(f"most MB of one process: {peaks}")
    return int(any(outcome.problem for outcome in outcomes))


def _report(outcomes: list[Outcome]) -> None:
    """Print how often each command ended how, and by the way in which an answer was wrong: `0 1 3 failed`."""
    commands = sorted({outcome.command for outcome in outcomes})
    print(f"{'':18}" + "".join(f"{ending:>11}" for ending in ENDINGS) + f"{'most MB':>11}{'longest s':>11}")
    for command in commands:
        of_command = [outcome for outcome in outcomes if outcome.command == command]
        ended = Counter(outcome.kind for outcome in of_command)
        row = [*(ended[ending] for ending in ENDINGS), max(outcome.memory for outcome in of_command) // 1000]
        longest = max(outcome.seconds for outcome in of_command)
        print(f"{command:18}" + "".join(f"{number:>11}" for number in row) + f"{longest:>11.1f}")
    print(f"\n{'exit codes 0/1/3/failed':22}" + "".join(f"{command:>18}" for command in commands))
    for damage in DAMAGES:
        cells = [_count_endings(outcomes, command, damage) for command in commands]
        print(f"{damage:22}" + "".join(f"{cell:>18}" for cell in cells))
    unchanged = sum(not outcome.changed for outcome in outcomes)
    print(f"\n{len(outcomes):,} runs, {unchanged} in which nothing was changed")


def _count_endings(outcomes: list[Outcome], command: str, damage: str) -> str:
    matching = [outcome for outcome in outcomes if outcome.command == command and outcome.change.damage == damage]
    ended = Counter("failed" if outcome.problem else outcome.kind for outcome in matching)
    return "/".join(str(ended[key]) for key in ("0", "1", "3", "failed"))


if __name__ == "__main__":
    sys.exit(main())
