"""What is rendered is what a real server accepts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import CERTIFICATES, TESTS
from tests.support.topologies import begin_topology
from vstream.lab import binaries
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.bundle import (
    HUB_PASSWORDS_PATH,
    PASSWORDS_PATH,
    SYSTEM_PASSWORD_PATH,
    leaf_path,
    passwords_path,
    placeholder_for,
)
from vstream.topology.profiles import PROFILES
from vstream.topology.profiles.profile import Profile

GOLDEN = TESTS / "golden"
CONFIGURATIONS = sorted(GOLDEN.glob("*/servers/*.conf"))


OLDEST = {(2, 10): "2.10.26", (2, 11): "2.11.11", (2, 12): "2.12.8"}
"""A server of each version that a profile may begin with."""


def put_beside(bundle: Path) -> None:
    """The passwords, which are nowhere in what is rendered, and certificates where servers have them."""
    regions = ("west", "central", "east", "south-2")
    of_regions = [path_of(region) for path_of in (leaf_path, passwords_path) for region in regions]
    for name in (PASSWORDS_PATH, HUB_PASSWORDS_PATH, SYSTEM_PASSWORD_PATH, *of_regions):
        (bundle / name).write_text(str(placeholder_for(name)))
    for conf in (bundle / "servers").glob("*.conf"):
        text = conf.read_text().replace("/etc/nats/server-key.pem", str(CERTIFICATES / "server.key"))
        conf.write_text(text.replace("/etc/nats/", f"{CERTIFICATES}/"))


def try_out(conf: Path, version: str | None = None) -> str:
    """What a server of *version* says of its configuration *conf*."""
    command = [str(binaries.find_or_fetch(version)), "-t", "-c", str(conf)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.server
@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.relative_to(GOLDEN).as_posix())
def test_every_rendered_server_configuration_is_accepted_with_its_mappings(path: Path, tmp_path: Path) -> None:
    bundle = shutil.copytree(path.parents[1], tmp_path / "bundle")
    put_beside(bundle)
    answer = try_out(bundle / "servers" / path.name)
    assert "is valid" in answer, answer


@pytest.mark.server
@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.routing.value)
def test_the_oldest_server_that_a_profile_allows_accepts_what_it_renders(profile: Profile, tmp_path: Path) -> None:
    oldest = profile.since or min(OLDEST)
    text = begin_topology("acme", f"{oldest[0]}.{oldest[1]}", west=1, central=1, east=1)
    text += f"routing: {profile.routing.value}\nstreams: {{foo: {{subjects: [foo.>], write: {{max_age: 1h}}}}}}\n"
    for artifact in render_bundle(check_topology(text.encode(), "acme.yaml").require()).artifacts:
        (tmp_path / artifact.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / artifact.path).write_text(artifact.text)
    put_beside(tmp_path)
    refusals = [
        answer
        for conf in (tmp_path / "servers").glob("*.conf")
        if "is valid" not in (answer := try_out(conf, OLDEST[oldest]))
    ]
    assert refusals == [], "say with `since` which server takes it"


def test_there_are_configurations_to_check() -> None:
    assert len(CONFIGURATIONS) > 20
