"""`vstream failover` on a lab, killed again and again. By day, tests/plan/transitions/test_promote_home.py walks its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.lost_region import dies_for_good, document

pytestmark = [pytest.mark.lab, pytest.mark.night, pytest.mark.usefixtures("state")]

AVAILABLE = 0.999


@pytest.mark.parametrize("version", ["2.15.1", "2.12.8"])
async def test_a_region_that_died_is_given_up_by_a_command_that_is_killed(version: str, tmp_path: Path) -> None:
    file = tmp_path / "lost.yaml"
    file.write_text(document("lost", 3))
    up = vstream("lab", "up", file, "--server-version", version)
    assert up.code == 0, up.err
    assert vstream("apply", file, "--yes").code == 0
    result = await dies_for_good(file, "lost", 200, delays=(4, 6, 8, 11, 14))
    assert (result.lost, result.doubled) == (0, 0), result
    assert result.killed, result
    assert result.availability >= AVAILABLE, result
    assert vstream("lab", "down", "lost", "--purge").code == 0
