"""Rendered bundles, byte for byte. `--update-golden` rewrites them; review the difference."""

from __future__ import annotations

import pytest

from tests.support.golden import Golden
from tests.support.paths import ROOT
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle, render_streams

GOLDEN = ROOT / "tests" / "golden"
TOPOLOGIES = {path.stem: path for path in sorted([*(ROOT / "examples").glob("*.yaml"), *GOLDEN.glob("*.yaml")])}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_topology_renders_to_exactly_these_files(name: str, golden: Golden) -> None:
    loaded = check_topology(TOPOLOGIES[name].read_bytes(), f"{name}.yaml")
    assert loaded.findings == ()
    rendered = render_bundle(loaded.require())
    assert tuple(render_streams(loaded.require())) == rendered.streams
    golden.check_directory(GOLDEN / name, {artifact.path: artifact.text for artifact in rendered.artifacts})


def test_every_golden_directory_belongs_to_a_topology() -> None:
    unrelated = {"scenarios", "claims"}
    assert {path.name for path in GOLDEN.iterdir() if path.is_dir()} - unrelated == set(TOPOLOGIES)
