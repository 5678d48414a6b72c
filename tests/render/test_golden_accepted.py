"""What is rendered is what a real server accepts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import CERTIFICATES, TESTS
from vstream.lab import binaries
from vstream.topology.bundle import (
    HUB_PASSWORDS_PATH,
    PASSWORDS_PATH,
    SYSTEM_PASSWORD_PATH,
    leaf_path,
    passwords_path,
    placeholder_for,
)

GOLDEN = TESTS / "golden"
CONFIGURATIONS = sorted(GOLDEN.glob("*/servers/*.conf"))


@pytest.mark.server
@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.relative_to(GOLDEN).as_posix())
def test_every_rendered_server_configuration_is_accepted_with_its_mappings(path: Path, tmp_path: Path) -> None:
    # Beside what is rendered there are the passwords, which are nowhere in it.
    bundle = shutil.copytree(path.parents[1], tmp_path / "bundle")
    of_regions = [path_of(region) for path_of in (leaf_path, passwords_path) for region in ("west", "east", "south-2")]
    for name in (PASSWORDS_PATH, HUB_PASSWORDS_PATH, SYSTEM_PASSWORD_PATH, *of_regions):
        (bundle / name).write_text(str(placeholder_for(name)))
    # Certificates that `security.transport` names lie on the servers.
    conf = bundle / "servers" / path.name
    text = conf.read_text().replace("/etc/nats/server-key.pem", str(CERTIFICATES / "server.key"))
    conf.write_text(text.replace("/etc/nats/", f"{CERTIFICATES}/"))
    command = [str(binaries.find_or_fetch()), "-t", "-c", str(conf)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "is valid" in result.stderr


def test_there_are_configurations_to_check() -> None:
    assert len(CONFIGURATIONS) > 20
