"""The reference of the topology language is true and complete."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import ROOT
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.document import (
    ConnectDocument,
    ConsumerDocument,
    JetStreamDocument,
    KeyValueDocument,
    LinkDocument,
    ObjectStoreDocument,
    PortsDocument,
    RegionDocument,
    StreamDocument,
    StretchDocument,
    TopologyDocument,
)

TEXT = (ROOT / "docs" / "topology.md").read_text(encoding="utf-8")
BLOCKS = [
    block
    for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    if re.search(r"^version: 1$", block, re.MULTILINE)
]


def test_the_example_of_the_consistency_models_is_valid_and_renders() -> None:
    text = (ROOT / "docs" / "consistency.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    loaded = check_topology(block.encode(), "docs/consistency.md")
    assert loaded.findings == ()
    assert len(render_bundle(loaded.require()).streams) == 6 + 7 + 4 + 3


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_example_is_valid_and_renders(block: str) -> None:
    loaded = check_topology(block.encode(), "docs/topology.md")
    assert loaded.findings == ()
    assert render_bundle(loaded.require()).artifacts


def test_every_block_is_a_whole_topology() -> None:
    assert len(BLOCKS) == TEXT.count("```yaml")


@pytest.mark.parametrize(
    "model",
    [
        TopologyDocument,
        RegionDocument,
        JetStreamDocument,
        PortsDocument,
        ConnectDocument,
        StreamDocument,
        ConsumerDocument,
        StretchDocument,
        LinkDocument,
        KeyValueDocument,
        ObjectStoreDocument,
    ],
)
def test_the_topology_reference_names_every_key(model: type[TopologyDocument]) -> None:
    missing = {key for key in model.model_fields if not re.search(rf"`[^`]*\b{key}\b[^`]*`", TEXT)}
    assert missing == set()


def test_the_example_of_buckets_is_valid_and_renders() -> None:
    text = (ROOT / "docs" / "buckets.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    loaded = check_topology(block.encode(), "docs/buckets.md")
    assert loaded.findings == ()
    assert render_bundle(loaded.require()).artifacts
