"""
Whole configurations through `vstream lint` against `nats-server -t`: both refuse the same ones.

What counts is the parser of the language, and the mappings of the global account and of others. Whatever else
the server refuses is set aside. In 50,000 configurations, that was: unknown fields, reserved or duplicate names of
accounts, accounts that are no maps, options of other types than they should be, a file without values, and what
the options say (durations, URLs, sizes).

Known differences, on purpose: files in which nothing speaks for NATS are passed over (VS007), and those with a
NUL byte are not read at all (VS004). Of `Weight: 1, weight: 2` the server takes one by chance: not generated.

VSTREAM_ORACLE_EXAMPLES is the number of configurations that are compared; 300 if not set.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.configurations import Configurations
from tests.support.lint_inputs import make_context
from vstream.findings import Severity
from vstream.lab import binaries
from vstream.lint.engine import lint
from vstream.lint.parse_files import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

NATS_SERVER: Final = str(binaries.find_or_fetch("2.15.1"))
"""The version that the model follows."""
EXAMPLES: Final = int(os.environ.get("VSTREAM_ORACLE_EXAMPLES", "100"))
MAIN: Final = "oracle.conf"
ENVIRONMENT: Final = {"PASSWORD": "secret", "PATH": "/bin"}

SYNTAX: Final = frozenset({"VS010", "VS011", "VS012"})
MAPPINGS: Final = frozenset({"VS304", "VS305", "VS307", "VS310", "VS311", "VS312"})
"""With the errors of SYNTAX, the codes that say that the server refuses a configuration."""

PARSER: Final = re.compile(
    r"nats-server: (Parse error on line \d|config is invalid \(|variable reference for '|integer '|expected integer"
    r"|float '|expected float|expected boolean|expected Zulu|error parsing include file '|error opening config file)"
    r"|runtime: goroutine stack exceeds"
)
MAPPING: Final = re.compile(
    r'Subject ".*" is not a valid subject$|Error adding mapping for "|Expected an entry for the mapping destination$'
    r'|Invalid weight (?:".*"|-?\d+) for mapping destination$|Unknown entry type for weight of '
    r'|Unknown field ".*" for mapping destination$|Missing weight for mapping destination "'
)
PANIC: Final = "interface conversion: interface {} is "
"""Any option of a wrong type; ours are told from others by what the type should have been, and by where it is."""
PASSED_OVER: Final = "is a Reserved Account"
"""The server refuses the account `$G`, and does not look at what is in it; we do."""
MESSAGE: Final = re.compile(r"(?:nats-server: )?([^:\n]+):(\d+):-?\d+: (.*)")

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(180 + EXAMPLES // 5),
]


def server_says(directory: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        (directory / name).write_bytes(text.encode())
    command = [NATS_SERVER, "-t", "-c", MAIN]
    result = subprocess.run(command, cwd=directory, env=ENVIRONMENT, capture_output=True, timeout=60, check=False)
    output = result.stderr.decode(errors="replace")
    assert (result.returncode == 0) == ("is valid (sha256:" in output), output
    return output


def refusals(output: str) -> tuple[list[str], list[str]]:
    """What the server says of syntax and mappings, and what it says of anything else."""
    if "is valid (sha256:" in output:
        return [], []
    if PARSER.match(output):
        return [output], []
    lines = [line for line in output.splitlines() if line]
    ours = [line for line in lines if (match := MESSAGE.match(line)) and MAPPING.match(match[3])]
    return ours, [line for line in lines if line not in ours]


def we_say(files: Mapping[str, str]) -> list[str] | None:
    """Why the server refuses the configuration; None if nothing in it tells it from files of other programs (VS007)."""
    report = lint(
        [Source(name=MAIN, content=files[MAIN].encode())], make_context({n: t.encode() for n, t in files.items()})
    )
    if any(finding.code == "VS007" for finding in report.findings):
        return None
    return [
        f"{finding.code} {finding.message}"
        for finding in report.findings
        if finding.severity is Severity.ERROR and finding.code in SYNTAX | MAPPINGS
    ]


def disagreement(files: Mapping[str, str], directory: Path, aside: Counter[str]) -> str | None:
    output = server_says(directory, files)
    theirs, other_lines = refusals(output)
    ours = we_say(files)
    panics = [line for line in other_lines if PANIC in line]
    for line in other_lines:
        match = MESSAGE.match(line)
        text = re.sub(r'"(?:[^"\\]|\\.)*"', '"…"', match[3] if match else line)
        aside[re.sub(r"-?\d+", "0", text)] += 1
    if ours is None or bool(theirs) == bool(ours) or (ours and any(PASSED_OVER in line for line in other_lines)):
        return None
    if panics and not theirs:
        # A value of a wrong type, of a mapping or of something else that ends the reading of an account.
        return None if ours or not any(is_mapping(files, line) for line in panics) else output
    return output


def is_mapping(files: Mapping[str, str], line: str) -> bool:
    """Whether a panic is of a mapping: the place is inside of a block, roughly."""
    match = MESSAGE.match(line)
    if match is None:
        return False
    lines = files.get(Path(match[1]).name, "").split("\n")[: int(match[2])]
    return any(word in "\n".join(lines[-3:]).lower() for word in ("mappings", "maps", "dest", "weight", "cluster:"))


def test_we_refuse_the_configurations_that_the_server_refuses(tmp_path: Path) -> None:
    generator = Configurations(random.Random(5))
    passed_over: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for _ in range(EXAMPLES):
        files = generator.files(MAIN)
        problem = disagreement(files, tmp_path, passed_over)
        ours = we_say(files)
        counts["passed over" if ours is None else "refused" if ours else "accepted"] += 1
        if problem:
            wrong.append(f"{files}\nserver: {problem}\nwe: {ours}")
    assert not wrong, "\n\n".join(wrong[:5]) + f"\n{len(wrong)} of {EXAMPLES}"
    assert min(counts["refused"], counts["accepted"]) > EXAMPLES // 10
    assert counts["passed over"] < EXAMPLES // 10
