"""`vstream lab doctor`: what it says is true, and it leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.labs import processes_in


def test_lab_doctor_says_what_the_machine_can_do_and_leaves_nothing(state: Path) -> None:
    ran = vstream("lab", "doctor", "--format", "json")
    assert ran.code == 0, ran.err
    answer = ran.json()
    found = {one["what"]: one for one in answer["findings"]}
    assert answer["can_run_labs"] is True
    assert all(one["can"] for one in found.values() if one["needed"])
    assert found["links: proxy"]["can"] is True
    assert found["nats-server"]["can"] is True
    # Whatever is not possible has a way out.
    assert all(one["way_out"] for one in found.values() if not one["can"])
    assert processes_in(state) == []
    assert list(state.rglob("*.json")) == []
    shown = vstream("lab", "doctor")
    assert all(what in shown.out for what in found)


def test_a_machine_that_can_run_no_lab_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "file" / "state"))
    ran = vstream("lab", "doctor")
    assert ran.code == 3
    assert "VSTREAM_STATE_DIR" in ran.err
