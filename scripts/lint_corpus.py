"""
Lint public server configurations: the server takes them, so a finding that fails the run is a defect or our mistake.

    scripts/lint_corpus.py [--from DIR]

`tests/corpus/configurations.csv` lists them, `tests/corpus/defects.csv` what is known to be wrong in them, which
`docs/lint-corpus.md` explains. The files are fetched, or read from copies in DIR/owner+name/path. What cannot be had,
is not the listed file any more, or is refused by `nats-server -t` (an included file may be missing), is counted and left out.

Exits with 1 if more than 5 % of the files end with 1, or if anything but the known defects is found; with 3 if too few
files could be had to say so.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vstream.findings import Severity
from vstream.lab import binaries
from vstream.lint import input_files
from vstream.lint.checked_files import LintContext
from vstream.lint.engine import lint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "corpus"
ADDRESS = "https://raw.githubusercontent.com/{repository}/{commit}/{path}"
VERSION = "2.15.1"
MOST_FAILURES = 0.05
LEAST_SHARE = 0.8
"""Of the listed files: with fewer, nothing is said."""
SECONDS = 30
AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A file of a public repository at one commit."""

    repository: str
    commit: str
    path: str
    sha256: str

    @property
    def copy(self) -> Path:
        """Where a copy lies, below a directory of copies."""
        return Path(self.repository.replace("/", "+"), self.path)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Defect:
    """An error or a warning in one of the files."""

    repository: str
    path: str
    line: int
    column: int
    code: str

    def __str__(self) -> str:
        return f"{self.repository} {self.path}:{self.line}:{self.column} {self.code}"


def read_configurations(file: Path = CORPUS / "configurations.csv") -> tuple[Configuration, ...]:
    """The files of the corpus."""
    with file.open(encoding="utf-8", newline="") as lines:
        return tuple(Configuration(**row) for row in csv.DictReader(lines))


def read_defects(file: Path = CORPUS / "defects.csv") -> frozenset[Defect]:
    """What is known to be wrong in the files."""
    with file.open(encoding="utf-8", newline="") as lines:
        return frozenset(
            Defect(
                repository=row["repository"],
                path=row["path"],
                line=int(row["line"]),
                column=int(row["column"]),
                code=row["code"],
            )
            for row in csv.DictReader(lines)
        )


def fetch(configuration: Configuration, directory: Path) -> None:
    """Bring the file to its place in *directory*; raises OSError."""
    address = ADDRESS.format(
        repository=configuration.repository,
        commit=configuration.commit,
        path=urllib.request.pathname2url(configuration.path),
    )
    with urllib.request.urlopen(address, timeout=SECONDS) as response:
        content = response.read()
    place = directory / configuration.copy
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def fetch_all(configurations: Sequence[Configuration], directory: Path) -> None:
    """Bring what can be had to *directory*."""

    def attempt(configuration: Configuration) -> None:
        try:
            fetch(configuration, directory)
        except OSError as error:
            print(f"not fetched: {configuration.repository} {configuration.path}: {error}", file=sys.stderr)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(attempt, configurations))


def state_of(configuration: Configuration, directory: Path, server: Path) -> str:
    """`accepted` by the server, `refused` by it, `missing`, or `changed`."""
    file = directory / configuration.copy
    if not file.is_file():
        return "missing"
    if hashlib.sha256(file.read_bytes()).hexdigest() != configuration.sha256:
        return "changed"
    command = [str(server), "-t", "-c", file.name]
    done = subprocess.run(
        command, cwd=file.parent, env={"PATH": os.defpath}, capture_output=True, timeout=SECONDS, check=False
    )
    return "accepted" if done.returncode == 0 else "refused"


def find_defects(configuration: Configuration, directory: Path) -> Iterator[Defect]:
    """What makes `vstream lint FILE` end with 1."""
    name = str(directory / configuration.copy)
    roots = input_files.Roots([name])
    report = lint(
        input_files.read_sources([name], roots=roots),
        LintContext(read=roots.read, env=None, is_directory=os.path.isdir),
    )
    for finding in report.findings:
        if finding.severity is not Severity.NOTE and finding.span:
            yield Defect(
                repository=configuration.repository,
                path=configuration.path,
                line=finding.span.line,
                column=finding.span.column,
                code=finding.code,
            )


def judge(configurations: Sequence[Configuration], known: frozenset[Defect], directory: Path) -> int:
    """Lint the files in *directory*, print what was found, and return the exit code."""
    server = binaries.find_or_fetch(VERSION)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        states = list(pool.map(lambda configuration: state_of(configuration, directory, server), configurations))
    accepted = [
        configuration for configuration, state in zip(configurations, states, strict=True) if state == "accepted"
    ]
    by_configuration = {configuration: set(find_defects(configuration, directory)) for configuration in accepted}
    failures = sum(map(bool, by_configuration.values()))
    print(f"{dict(Counter(states))}: {failures} of {len(accepted)} accepted files end with 1")
    if len(accepted) < LEAST_SHARE * len(configurations):
        print("too few files to say anything", file=sys.stderr)
        return 3
    places = {(configuration.repository, configuration.path) for configuration in accepted}
    defects = set().union(*by_configuration.values())
    expected = {defect for defect in known if (defect.repository, defect.path) in places}
    for defect in sorted(defects - expected):
        print(f"new: {defect}")
    for defect in sorted(expected - defects):
        print(f"no longer found: {defect}")
    return int(defects != expected or failures > MOST_FAILURES * len(accepted))


def main() -> int:
    parser = argparse.ArgumentParser(description="Lint public server configurations.")
    parser.add_argument("--from", dest="copies", type=Path, help="a directory with copies, owner+name/path")
    copies: Path | None = parser.parse_args().copies
    configurations = read_configurations()
    if copies is not None:
        return judge(configurations, read_defects(), copies.resolve())
    with tempfile.TemporaryDirectory() as directory:
        fetch_all(configurations, Path(directory))
        return judge(configurations, read_defects(), Path(directory).resolve())


if __name__ == "__main__":
    sys.exit(main())
