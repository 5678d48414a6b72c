"""What `vstream lab` refuses before it does anything."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import vstream


def test_links_by_namespaces_are_refused_with_what_to_use_instead(tmp_path: Path) -> None:
    ran = vstream("lab", "up", str(tmp_path / "missing.yaml"), "--links", "netns")
    assert ran.code == 2
    assert "`netns` was removed: `proxy`, the default, does what it did" in " ".join(ran.err.replace("│", " ").split())
