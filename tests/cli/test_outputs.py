"""JSON outputs: each command that prints JSON has a schema, and prints what it says."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.support.command import vstream, walk_commands
from tests.support.topologies import begin_topology
from vstream.cli.schema import make_output_schema
from vstream.cli.views.json_output import JsonLayout, format_json
from vstream.outputs import OUTPUTS

_TOPOLOGY = begin_topology("acme", west=1, east=1) + "streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}\n"
_NAMES = {
    "init": "import",
    "lint": "findings",
    "validate": "findings",
    "scenario validate": "findings",
    "scenario run": "scenario-verdict",
    "keys show": "keys",
    "region drain": "drain",
    "region failover": "failover",
    "region failback": "failback",
    "backup take": "backup",
    "backup restore": "restore",
    "repair messages": "repair",
    "repair sources": "resync",
    "repair meta": "rescue",
}
"""Commands whose output is not called as they are."""
_FAULTS = "chaos "
"""Commands of faults share an output, except for those that have their own."""


def test_every_command_with_formats_has_a_schema() -> None:
    lacking = []
    for path, command in walk_commands():
        if not any("--format" in parameter.opts for parameter in command.params):
            continue
        name = _NAMES.get(path, path.replace(" ", "-"))
        if name not in OUTPUTS and not (path.startswith(_FAULTS) and "chaos-fault" in OUTPUTS):
            lacking.append(path)
    assert lacking == [], "describe its output in vstream/outputs.py"


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_schema_is_one(name: str) -> None:
    schema = make_output_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"] == {"const": f"vstream.{name}/2"}
    assert "schema" in schema["required"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("findings", ["validate", "topology.yaml"]),
        ("findings", ["lint", "topology.yaml"]),
        ("lint-explain", ["lint", "--explain", "VS101"]),
        ("lint-explain", ["lint", "--explain", "list"]),
        ("graph", ["graph", "topology.yaml"]),
        ("render", ["render", "topology.yaml"]),
        ("map-stream", ["map", "--stream", "foo", "topology.yaml"]),
        ("size", ["size", "topology.yaml"]),
        ("size-simulation", ["size", "topology.yaml", "--simulate", "--isolate", "west=20s@1m"]),
        ("survive", ["survive", "topology.yaml"]),
        ("map", ["map", "foo.1", "topology.yaml"]),
        ("map-all", ["map", "--all", "topology.yaml"]),
        ("lab-status", ["lab", "status"]),
        ("lab-doctor", ["lab", "doctor"]),
        ("scenario-list", ["scenario", "list"]),
    ],
    ids=str,
)
def test_outputs_that_need_no_servers(
    name: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that need servers are checked wherever a test runs them: `vstream()` in tests/support/command.py does."""
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "topology.yaml").write_text(_TOPOLOGY)
    ran = vstream(*arguments, "--format", "json", cwd=tmp_path)
    assert ran.json()["schema"] == f"vstream.{name}/2", ran.err


def test_the_schema_of_an_output_is_printed() -> None:
    ran = vstream("schema", "--output", "status")
    assert ran.json() == make_output_schema("status")
    assert vstream("schema", "--output", "weather").code == 2


@pytest.mark.parametrize("layout", JsonLayout)
def test_json_holds_nothing_that_a_terminal_obeys(layout: JsonLayout) -> None:
    hostile = "a\x1b[31m\x9b31m\u202eb\u2028c\udcffé"
    text = format_json("lab-status", {"labs": [{"name": hostile}]}, layout=layout)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "é" in text
    # A byte that is no text is shown as one: JSON has no halves of characters that every reader takes.
    assert json.loads(text)["labs"] == [{"name": hostile.replace("\udcff", "\\xff")}]
