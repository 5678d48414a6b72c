"""`vstream region failback` that is killed before the lab has started the region's servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lost_region import document
from vstream.cli import failback
from vstream.cli.servers import Servers
from vstream.errors import LabError
from vstream.topology.model import Topology


def test_the_file_says_lost_until_the_lab_has_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lost.yaml"
    lost = document("lost", 1).replace("  west:\n", "  west:\n    lost: {prices: central}\n")
    file.write_text(lost)
    started: list[str] = []

    def die(_lab: str, topology: Topology) -> None:
        started.extend(region.name for region in topology.regions)
        raise LabError("killed")

    monkeypatch.setattr(failback, "_start_in_lab", die)
    monkeypatch.setattr(failback, "find_servers", lambda *_: Servers(endpoints={}, lab="lost", description="lab lost"))
    for _ in range(2):
        with pytest.raises(LabError, match="killed"):
            failback.command(
                "west", file, yes=True, gate_timeout=1, ship_with=None, output="text", lab=None, templates=None
            )
        assert file.read_text() == lost
    assert started == ["west", "central", "east"] * 2
