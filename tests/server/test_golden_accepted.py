"""What is rendered is what a real server accepts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vstream.lab import binaries

GOLDEN = Path(__file__).parent.parent / "golden"
CONFIGURATIONS = sorted(GOLDEN.glob("*/servers/*.conf"))


@pytest.mark.server
@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.relative_to(GOLDEN).as_posix())
def test_every_rendered_server_configuration_is_accepted_with_its_mappings(path: Path) -> None:
    command = [str(binaries.locate()), "-t", "-c", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "is valid" in result.stderr


def test_there_are_configurations_to_check() -> None:
    assert len(CONFIGURATIONS) > 20
