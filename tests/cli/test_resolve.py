"""`vstream map --stream`: the physical names behind a virtual one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import vstream

DOCUMENT = {
    "version": 1,
    "name": "acme",
    "server_version": "2.12",
    "regions": {"west": {"servers": 3}, "east": {"servers": 3}},
    "streams": {
        "foo": {"subjects": ["foo.>"], "write": {"max_age": "1h"}},
        "home": {"subjects": ["home.>"], "consistency": "homed", "home": "east"},
    },
}


def test_the_physical_names_are_printed_for_people_scripts_and_shells(tmp_path: Path) -> None:
    file = tmp_path / "acme.yaml"
    file.write_text(json.dumps(DOCUMENT))
    shown = vstream("map", "--stream", "foo", file)
    assert shown.code == 0
    assert all(word in shown.out for word in ("foo-write-west", "_vs.foo.west.>", "foo-read-east"))
    assert vstream("map", "--stream", "home", file, "--format", "json").json()["regions"] == [
        {"region": "west", "published_into": "home", "subjects": ["home.>"], "read": "home-read-west"},
        {"region": "east", "published_into": "home", "subjects": ["home.>"], "read": "home"},
    ]
    assert vstream("map", "--stream", "foo", file, "--region", "west").out == "foo-read-west\n"


@pytest.mark.parametrize("routing", ["accounts", "domains"])
def test_clients_of_hidden_streams_read_by_the_virtual_name(tmp_path: Path, routing: str) -> None:
    file = tmp_path / "acme.yaml"
    file.write_text(json.dumps({**DOCUMENT, "routing": routing, "streams": {"foo": DOCUMENT["streams"]["foo"]}}))  # type: ignore[index]
    assert vstream("map", "--stream", "foo", file, "--region", "west").out == "foo\n"


def test_an_unknown_stream_or_region_is_wrong_usage(tmp_path: Path) -> None:
    file = tmp_path / "acme.yaml"
    file.write_text(json.dumps(DOCUMENT))
    unknown = vstream("map", "--stream", "bar", file)
    assert (unknown.code, unknown.out) == (2, "")
    assert "choose one of foo, home" in unknown.err
    elsewhere = vstream("map", "--stream", "foo", file, "--region", "north")
    assert elsewhere.code == 2
    assert "it is in west, east" in elsewhere.err
