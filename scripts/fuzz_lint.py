"""
Feeds `vstream lint` with generated files for as long as it is told to: the long form of the robustness tests.

    scripts/fuzz_lint.py [--minutes 30]

A failure is printed with the smallest input that causes it, and kept in .hypothesis for the next run.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hypothesis import HealthCheck, given, settings

from tests.support.lint_inputs import INPUTS, check_files

ROUND = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz vstream lint.")
    parser.add_argument("--minutes", type=float, default=30)
    end = time.monotonic() + 60 * parser.parse_args().minutes
    inputs = 0

    @settings(max_examples=ROUND, deadline=None, suppress_health_check=list(HealthCheck))
    @given(files=INPUTS)
    def one_round(files: dict[str, bytes]) -> None:
        nonlocal inputs
        inputs += 1
        check_files(files)

    while time.monotonic() < end:
        one_round()
        print(f"{inputs:,} inputs, no failure", flush=True)


if __name__ == "__main__":
    main()
