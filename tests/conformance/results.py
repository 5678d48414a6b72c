"""What runs have found, in a file; and what a run on some place is expected to find."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILE = Path(__file__).parent / "results.json"
"""Written by scripts/conformance."""

Where = tuple[str, str]
"""A version of nats-server, and a region."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One operation of one client in one profile and model."""

    client: str
    profile: str
    model: str
    group: str
    operation: str


@dataclass(slots=True, kw_only=True)
class Results:
    """What every cell came to, where."""

    clients: dict[str, str] = field(default_factory=dict)
    """The version of each client."""
    cells: dict[Cell, dict[Where, str]] = field(default_factory=dict)

    def add(self, cell: Cell, where: Where, outcome: str) -> None:
        """Note what *cell* came to."""
        self.cells.setdefault(cell, {})[where] = outcome

    def forget(self, version: str, profile: str) -> None:
        """Drop what runs on *version* have found in *profile*: another run replaces all of it."""
        for cell in [cell for cell in self.cells if cell.profile == profile]:
            remaining = {where: outcome for where, outcome in self.cells[cell].items() if where[0] != version}
            if remaining:
                self.cells[cell] = remaining
            else:
                del self.cells[cell]

    def write(self, path: Path = FILE) -> None:
        """Write all of it: one line for each cell and outcome."""
        lines = [
            {"cell": [cell.client, cell.profile, cell.model, cell.group, cell.operation], "outcome": outcome, "at": at}
            for cell, outcomes in sorted(self.cells.items())
            for outcome, at in sorted(_by_outcome(outcomes).items())
        ]
        body = ",\n".join(f"  {json.dumps(line, ensure_ascii=False)}" for line in lines)
        path.write_text(
            f'{{"clients": {json.dumps(self.clients)},\n"cells": [\n{body}\n]}}\n', encoding="utf-8", newline="\n"
        )

    def versions(self) -> tuple[str, ...]:
        """The versions of nats-server, oldest first."""
        versions = {version for places in self.cells.values() for version, _ in places}
        return tuple(sorted(versions, key=lambda version: [int(part) for part in version.split(".")]))


def read(path: Path = FILE) -> Results:
    """What the last run of scripts/conformance has written."""
    answer = json.loads(path.read_text(encoding="utf-8"))
    result = Results(clients=answer["clients"])
    for line in answer["cells"]:
        for version, regions in line["at"].items():
            for region in regions:
                result.add(Cell(*line["cell"]), (version, region), line["outcome"])
    return result


def by_outcome(found: Mapping[Where, str]) -> Iterator[tuple[str, str]]:
    """Each outcome of a cell, most frequent first, and where it was, in words; empty where it was everywhere."""
    versions = {version for version, _ in found}
    regions = {region for _, region in found}
    counted = _by_outcome(found)
    for outcome, at in sorted(counted.items(), key=lambda one: -sum(map(len, one[1].values()))):
        if len(counted) == 1:
            yield outcome, ""
        elif at.keys() == versions and len({tuple(places) for places in at.values()}) == 1:
            yield outcome, "in " + ", ".join(next(iter(at.values())))
        elif all(set(places) == regions for places in at.values()):
            yield outcome, "on " + ", ".join(at)
        else:
            yield outcome, ", ".join(f"{version} in {', '.join(regions)}" for version, regions in at.items())


def _by_outcome(found: Mapping[Where, str]) -> dict[str, dict[str, list[str]]]:
    counted: dict[str, dict[str, list[str]]] = {}
    for (version, region), outcome in sorted(found.items()):
        counted.setdefault(outcome, {}).setdefault(version, []).append(region)
    return counted
