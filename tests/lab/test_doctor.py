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
    findings = {finding["code"]: finding for finding in answer["findings"]}
    assert answer["can_run_labs"] is True
    assert not [finding for finding in findings.values() if finding["severity"] == "error"]
    assert findings["links"]["severity"] == "note"
    assert findings["nats-server"]["severity"] == "note"
    # What is not possible says what to do, and nothing else does.
    assert all((finding["hint"] is None) == (finding["severity"] == "note") for finding in findings.values())
    assert processes_in(state) == []
    assert list(state.rglob("*.json")) == []
    shown = vstream("lab", "doctor")
    assert all(code in shown.out for code in findings)


def test_a_machine_that_can_run_no_lab_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "file" / "state"))
    ran = vstream("lab", "doctor")
    assert ran.code == 3
    assert "VSTREAM_STATE_DIR" in ran.err
