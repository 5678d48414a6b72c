"""What a capture says of a physical stream besides its messages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from vstream.capture.records import CapturedStream
from vstream.capture.store import Capture
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.runner.read_back import read_back
from vstream.topology.bundle import RenderedStream

EXAMPLE = ROOT / "examples" / "consistency.yaml"


@pytest.mark.parametrize("routing", ["mapped", "accounts"])
def test_a_capture_says_what_is_mirrored_by_the_name_that_it_is_captured_by(routing: str, tmp_path: Path) -> None:
    """Without it, an audit takes what limits removed from a mirror for late."""
    text = EXAMPLE.read_text(encoding="utf-8").replace(
        'server_version: "2.10"', f'server_version: "2.12"\nrouting: {routing}'
    )
    nobody: Any = None

    def capture_stream(stream: RenderedStream) -> CapturedStream:
        return asyncio.run(read_back(nobody, stream, [], Capture(tmp_path), within=-1))

    streams = [
        capture_stream(stream)
        for stream in render_bundle(check_topology(text.encode(), EXAMPLE.name).require()).streams
    ]
    roles = {stream.name: stream.role for stream in streams}
    mirrors = [stream for stream in streams if stream.mirror is not None]
    assert {(mirror.role, roles[mirror.mirror or ""]) for mirror in mirrors} == {("read", "origin"), ("read", "order")}
    # All but those of the one virtual stream whose read streams source the write streams.
    assert {stream.virtual for stream in streams} - {mirror.virtual for mirror in mirrors} == {
        stream.virtual for stream in streams if stream.role == "read" and stream.mirror is None
    }
