"""`vstream plan --drift` on real servers: a configuration file that was edited and not loaded, and another feature flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.command import vstream
from tests.support.topologies import begin_topology
from vstream.lab.state import lab_directory

pytestmark = pytest.mark.lab

LAB = "edited"
TEXT = begin_topology(LAB, "2.14", west=1, central=1, east=1) + "streams: {}\n"


def drift(file: Path) -> list[dict[str, Any]]:
    ran = vstream("plan", "--drift", file, "--format", "json")
    assert ran.code in {0, 1}, ran.err
    told = ran.json()
    assert told["drift"] == bool(ran.code)
    assert told["configs_compared"] == 3
    findings: list[dict[str, Any]] = told["findings"]
    return findings


def test_drift_finds_an_edited_file_and_another_flag(state: Path, tmp_path: Path) -> None:
    """Servers do not reload feature flags: the file says one thing, its server does another, until it is restarted."""
    file = tmp_path / "topology.yaml"
    file.write_text(TEXT)
    try:
        up = vstream("lab", "up", file)
        assert up.code == 0, up.err
        assert drift(file) == []
        conf = lab_directory(LAB).conf / "servers" / "east-1.conf"
        conf.write_text(f"{conf.read_text()}\n# a comment makes no difference\n")
        assert drift(file) == []
        conf.write_text(f"{conf.read_text()}feature_flags {{ js_ack_fc_v2: true }}\n")
        (finding,) = drift(file)
        assert (finding["code"], finding["name"], finding["about"]) == ("VD410", "config-not-loaded", "east-1")
        assert "servers/east-1.conf" in finding["evidence"]

        again = vstream("chaos", "rolling-restart", "east-1", "--topology", file)
        assert again.code == 0, again.err
        (finding,) = drift(file)
        assert (finding["code"], finding["about"]) == ("VD411", "east-1")
        assert finding["evidence"] == (
            "`js_ack_fc_v2` is on there, and off on `west-1`, `central-1`, which run the same version"
        )
    finally:
        vstream("lab", "down", LAB, "--purge")
