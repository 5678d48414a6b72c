"""`lost` and `drained` in a topology file: written and taken out, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.lost_region import document
from vstream.cli.region_steps import load_edit
from vstream.errors import RefusedError
from vstream.plan.topology_edit import DRAINED, LOST, add_region_key, remove_region_key
from vstream.syntax import yaml

FLOW = "regions: {west: {servers: 3}, east: {servers: 3}}   # two\nstreams: {}\n"
BLOCK = """\
# ours
regions:
  east: {servers: 3}
  west:   # the old one
    # machines
    servers: 3
    tags: [a]
streams: {}
"""
DOCUMENT = json.dumps({"regions": {"west": {"servers": 1}}}, indent=1)


@pytest.mark.parametrize("text", [FLOW, BLOCK, DOCUMENT])
@pytest.mark.parametrize("homes", [{}, {"prices": "east", "a": "east"}])
def test_what_is_added_says_it_and_taking_it_out_gives_the_file_of_before(text: str, homes: dict[str, str]) -> None:
    added = add_region_key(text, "west", LOST, homes)
    assert added is not None
    data = yaml.parse(added.encode(), "t").data
    assert isinstance(data, dict)
    assert data["regions"]["west"]["lost"] == homes
    assert remove_region_key(added, "west", LOST) == text


@pytest.mark.parametrize("text", [FLOW, BLOCK, DOCUMENT])
def test_a_region_that_is_drained_names_another(text: str) -> None:
    added = add_region_key(text, "west", DRAINED, "east")
    assert added is not None
    data = yaml.parse(added.encode(), "t").data
    assert isinstance(data, dict)
    assert data["regions"]["west"]["drained"] == "east"
    assert remove_region_key(added, "west", DRAINED) == text


def test_json_stays_json() -> None:
    added = add_region_key(DOCUMENT, "west", LOST, {"prices": "east"})
    assert json.loads(added or "")["regions"]["west"] == {"lost": {"prices": "east"}, "servers": 1}


def test_a_key_somebody_wrote_last_in_its_region_is_taken_out_too() -> None:
    assert (
        remove_region_key("regions: {west: {servers: 3, lost: {}}}\n", "west", LOST)
        == "regions: {west: {servers: 3}}\n"
    )


def test_what_is_shared_by_an_alias_is_left_to_its_author() -> None:
    text = "regions:\n  east: &three {servers: 3}\n  west: *three\n"
    assert add_region_key(text, "west", LOST, {}) is None
    assert add_region_key(FLOW, "north", LOST, {}) is None
    assert remove_region_key(FLOW, "west", LOST) is None


def test_what_somebody_else_has_written_meanwhile_stays(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_bytes(b'version: 1\r\nname: a\r\nserver_version: "2.12"\r\n' + FLOW.replace("\n", "\r\n").encode())
    first, second = load_edit(file).give_up("west", {}), load_edit(file).drain("east")
    first.save()
    written = file.read_bytes()
    assert b"lost: {}" in written
    with pytest.raises(RefusedError, match="has changed"):
        second.save()
    assert file.read_bytes() == written


def test_an_edit_is_a_change_until_the_file_says_it(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(document("small", 1))
    before = load_edit(file)
    drained = before.drain("east")
    assert (before.is_changed, before.undo_drain("east").is_changed, drained.is_changed) == (False, False, True)
    drained.save()
    again = load_edit(file)
    for written in (again.drain("east"), drained.as_written().drain("east")):
        assert not written.is_changed
    assert again.undo_drain("east").is_changed
