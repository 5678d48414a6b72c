"""`vstream map` on topologies: the rules are those of what servers load, whatever that is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import vstream

TOPOLOGY = """\
version: 1
name: acme
server_version: "2.12"
roots: [v.>]
regions: {west: {servers: 3}, east: {servers: 3}}
streams: {one: {subjects: [v.one.>], write: {max_age: 1h}}}
"""


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ("routing: accounts", "_vs.at.west.v.one.x"),
        ("routing: accounts\nsecurity: {mode: operator}", "_vs.at.west.v.one.x"),
        ("routing: domains", "_vs.w.v.one.x"),
    ],
)
def test_a_publish_is_mapped_as_the_profile_says(tmp_path: Path, over: str, expected: str) -> None:
    file = tmp_path / "acme.yaml"
    file.write_text(f"{TOPOLOGY}{over}\n")
    ran = vstream("map", "v.one.x", file, "--region", "west")
    assert (ran.code, expected in ran.out) == (0, True), ran.out + ran.err


def test_a_region_that_does_not_exist_is_wrong_usage(tmp_path: Path) -> None:
    file = tmp_path / "acme.yaml"
    file.write_text(TOPOLOGY)
    ran = vstream("map", "v.one.x", file, "--region", "wset")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: no cluster is called `wset`; there are west, east\n"
