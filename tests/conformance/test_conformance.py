"""What docs/compatibility.md says holds on the servers that run here: every operation of nats.py, in each profile."""

from __future__ import annotations

import asyncio
import importlib.metadata
from pathlib import Path

import pytest

from tests.conformance import matrix, results, table
from tests.support.labs import processes_in
from tests.support.night import with_night
from tests.support.paths import ROOT

VERSION = "2.15.1"
DOCUMENT = ROOT / "docs" / "compatibility.md"
PLACES = {
    "mapped": [("virtual", "west"), ("homed", "central"), ("ordered", "east"), ("named", "west")],
    "accounts": [("virtual", "east"), ("ordered", "west"), ("stretch", "central"), ("homed", "west")],
    "domains": [("virtual", "central")],
    "regional": [("virtual", "west"), ("homed", "central")],
}
"""Each model in each profile where it differs from a plain stream, in a region that is not its home."""


@pytest.mark.lab
@pytest.mark.parametrize("profile", with_night(["mapped"], sorted(matrix.PROFILES.keys() - {"mapped"})))
def test_clients_find_what_the_table_says(profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "state"))
    recorded = results.read()
    places = PLACES.get(profile, [("virtual", "west")])
    with matrix.running(profile, VERSION, [model for model, _ in places]) as name:
        outcomes = asyncio.run(matrix.run(name, places))
    assert processes_in(tmp_path) == []
    differs = {}
    for (model, region, group, operation), outcome in outcomes.items():
        expected = recorded.cells[results.Cell("nats.py", profile, model, group, operation)][VERSION, region]
        if outcome != expected:
            differs[model, region, operation] = f"{outcome}, and the table has {expected}"
    assert differs == {}


def test_every_routing_profile_is_asked() -> None:
    recorded = {cell.profile for cell in results.read().cells}
    assert [profile for profile in matrix.PROFILES if profile not in recorded] == [], "run scripts/conformance"


def test_the_document_is_what_was_found_and_every_failure_has_a_reason() -> None:
    """After a change of clients, operations or reasons: `scripts/conformance`."""
    recorded = results.read()
    assert recorded.clients["nats.py"] == importlib.metadata.version("nats-py")
    assert table.list_unexplained(recorded) == []
    assert table.differing(recorded) == []
    assert DOCUMENT.read_text(encoding="utf-8") == table.document(recorded), "run scripts/conformance"
    everywhere = {(version, region) for version in recorded.versions() for region in matrix.REGIONS}
    plain = {cell: outcomes for cell, outcomes in recorded.cells.items() if cell.profile in matrix.PROFILES}
    assert [cell for cell, outcomes in plain.items() if outcomes.keys() != everywhere] == []
    operations = {cell.operation for cell in recorded.cells if cell.client == "nats.py"}
    assert operations == {operation for named in matrix.all_operations().values() for operation in named}
