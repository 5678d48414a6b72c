"""What differs between environments is in a file of its own, which every command lays over the topology."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import vstream, walk_commands
from vstream.cli.lazy_group import TOPOLOGY_VARIABLE, set_overlays
from vstream.cli.options import FollowedTopology
from vstream.errors import LabError
from vstream.syntax import yaml
from vstream.syntax.yaml.overlay import lay_over
from vstream.topology.model import Topology

BASE = """\
version: 1
name: acme
server_version: "2.12"
regions:
  west: {servers: 3}
  central: {servers: 3}
  east: {servers: 3}
streams:
  orders: {subjects: [orders.>], write: {max_age: 24h}}
  debug: {subjects: [debug.>], write: {max_age: 1h}}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "prod.yaml").write_text("streams:\n  orders: {write: {max_age: 48h}}\n  debug: null\n")
    return tmp_path


def merge(base: str, overlay: str) -> Any:
    return lay_over(yaml.parse(base.encode(), "base.yaml"), yaml.parse(overlay.encode(), "prod.yaml")).data


@pytest.mark.parametrize(
    ("base", "overlay", "result"),
    [  # those of RFC 7396, appendix A, that YAML maps can say; a key that is not there cannot be removed here
        ('{"a": "b"}', '{"a": "c"}', {"a": "c"}),
        ('{"a": "b"}', '{"b": "c"}', {"a": "b", "b": "c"}),
        ('{"a": "b"}', '{"a": null}', {}),
        ('{"a": "b", "b": "c"}', '{"a": null}', {"b": "c"}),
        ('{"a": ["b"]}', '{"a": "c"}', {"a": "c"}),
        ('{"a": "c"}', '{"a": ["b"]}', {"a": ["b"]}),
        ('{"a": {"b": "c"}}', '{"a": {"b": "d"}}', {"a": {"b": "d"}}),
        ('{"a": [{"b": "c"}]}', '{"a": [1]}', {"a": [1]}),
        ('{"a": "foo"}', '"bar"', "bar"),
        ('{"e": null}', '{"a": 1}', {"e": None, "a": 1}),
    ],
)
def test_a_merge_is_a_json_merge_patch(base: str, overlay: str, result: Any) -> None:
    assert merge(base, overlay) == result


def test_a_later_overlay_is_laid_over_an_earlier_one(files: Path) -> None:
    (files / "last.yaml").write_text("streams: {orders: {write: {max_age: 72h}}}\n")
    overlays = ("--overlay", files / "prod.yaml", "--overlay", files / "last.yaml")
    ran = vstream("render", files / "base.yaml", *overlays, "-o", files / "out")
    assert ran.code == 0, ran.err
    written = {file.name: json.loads(file.read_text()) for file in (files / "out" / "streams" / "west").iterdir()}
    assert set(written) == {"orders-write-west.json", "orders-read-west.json"}
    assert written["orders-write-west.json"]["max_age"] == 72 * 3600 * 10**9


@pytest.mark.parametrize(
    ("overlay", "place", "text"),
    [
        ("streams:\n  orders: {write: {storage: tape}}\n", "prod.yaml:2:29", "VS005"),
        ("streams:\n  orders: {colour: red}\n", "prod.yaml:2:12", "VS006"),
        ("streams:\n  debugg: null\n", "prod.yaml:2:3", "removes a key that base.yaml does not have"),
        ("streams: {orders: {write: {max_age: null}}}\nregions: {west: {servers: 0}}\n", "prod.yaml:2:27", "VS005"),
        ("a: [\n", "prod.yaml:2:1", "VS001"),
        ("regions: {north: {servers: 3, tags: [a]}}\n", "prod.yaml:1:37", "VS110"),
        ("# What is missing then is missing because of this line.\nname: null\n", "prod.yaml:2:1", "`name` is missing"),
        ("regions: {west: null, central: null, east: null}\n", "prod.yaml:1:11", "`regions` is empty"),
        ("streams: [orders]\n", "prod.yaml:1:10", "must be a map"),
        ("just words\n", "prod.yaml:1:1", "must be a map"),
        ("streams: {orders: {consistency: homed, home: north}}\n", "prod.yaml:1:46", "VS101"),
        ("connect: {nowhere: {urls: [nats://x]}}\n", "prod.yaml:1:11", "VS101"),
    ],
)
def test_an_error_says_which_file_it_is_in(files: Path, overlay: str, place: str, text: str) -> None:
    (files / "prod.yaml").write_text(overlay)
    ran = vstream("validate", "base.yaml", "--overlay", "prod.yaml", cwd=files)
    assert ran.code == 1
    assert place in ran.out
    assert text in ran.out


def test_an_error_of_the_topology_below_stays_where_it_is(files: Path) -> None:
    (files / "base.yaml").write_text(BASE.replace("servers: 3}\n  central", "servers: none}\n  central"))
    ran = vstream("validate", "base.yaml", "--overlay", "prod.yaml", cwd=files)
    assert (ran.code, "base.yaml:5:19" in ran.out) == (1, True), ran.out


def test_a_variable_names_the_overlay_too(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSTREAM_OVERLAY", str(files / "prod.yaml"))
    ran = vstream("validate", files / "base.yaml")
    assert (ran.code, "6 physical streams" in ran.err) == (0, True), ran.err


def test_a_saved_plan_takes_no_overlay(files: Path) -> None:
    (files / "plan.json").write_text("{}")
    ran = vstream("apply", files / "plan.json", "--overlay", files / "prod.yaml")
    assert (ran.code, "drop --lab" in ran.err) == (2, True), ran.err
    # A variable is nothing that anybody typed.
    assert "VSTREAM_OVERLAY" in ran.err


def test_a_variable_names_the_topology_and_the_lab_of_every_command_on_servers() -> None:
    """Of whatever option or argument names one; but for `init`, which writes a topology, and `map`, whose files are its default."""
    topologies, labs = set(), set()
    for path, command in walk_commands():
        variables = {parameter.envvar for parameter in command.params}
        options = {option for parameter in command.params for option in parameter.opts}
        if "--lab" in options and "VSTREAM_LAB" not in variables:
            labs.add(path)
        if options & {"--lab", "--topology", "topology"} and TOPOLOGY_VARIABLE not in variables:
            topologies.add(path)
    assert labs == {"init"}
    assert {path for path in topologies if not path.startswith("lab ")} == {
        "init",
        "map",
        "chaos resume",
        "chaos status",
        "chaos heal",
    }


def test_lint_checks_against_the_topology_of_the_variable_with_its_overlay(files: Path) -> None:
    (files / "mappings.cfg").write_text('mappings = {"a": {destination: "b", cluster: "north"}}\n')
    variables = {TOPOLOGY_VARIABLE: "base.yaml"}
    ran = vstream("lint", "mappings.cfg", cwd=files, variables=variables)
    assert (ran.code, "`north`" in ran.out) == (1, True), ran.out + ran.err
    (files / "prod.yaml").write_text("regions: {north: {servers: 3}}\n")
    ran = vstream("lint", "mappings.cfg", "--overlay", "prod.yaml", cwd=files, variables=variables)
    assert "`north`" not in ran.out
    refused = vstream("lint", "base.yaml", "--overlay", "prod.yaml", "--fix", cwd=files)
    assert (refused.code, "cannot be combined with `--overlay`" in refused.err) == (2, True), refused.err


def test_every_command_that_reads_a_topology_takes_overlays() -> None:
    """`map` does too, whose files may be a topology."""
    takers = 0
    for path, command in walk_commands():
        parameters = command.get_params(command.context_class(command))
        reads_topology = any(parameter.envvar == TOPOLOGY_VARIABLE for parameter in parameters)
        assert any(parameter.name == "overlay" for parameter in parameters) == (reads_topology or path == "map"), path
        takers += reads_topology
    assert takers > 20


@pytest.fixture
def overlay(files: Path) -> Iterator[Path]:
    set_overlays([files / "prod.yaml"])
    yield files / "prod.yaml"
    set_overlays(None)


def follow(file: Path) -> tuple[FollowedTopology[list[str]], list[str]]:
    """What goes on with the names of the streams in *file*, and what it says."""
    notes: list[str] = []
    followed = FollowedTopology(file, lambda topology: [stream.name for stream in topology.streams])
    followed.tell = notes.append
    return followed, notes


def test_what_runs_on_goes_on_with_files_that_have_changed(files: Path, overlay: Path) -> None:
    followed, notes = follow(files / "base.yaml")
    assert [followed.latest(), followed.latest(), notes] == [["orders"], ["orders"], []]
    (files / "base.yaml").write_text(BASE + "  more: {subjects: [more.>], write: {max_age: 1h}}\n")
    assert [followed.latest(), followed.latest()] == [["orders", "more"]] * 2
    overlay.write_text("{}\n")
    assert followed.latest() == ["orders", "debug", "more"]
    assert notes == [f"{files / 'base.yaml'} has changed: going on with what it says now"] * 2


def test_what_runs_on_keeps_its_topology_where_the_files_cannot_be_used(files: Path) -> None:
    file = files / "base.yaml"
    followed, notes = follow(file)
    for broken in ("regions: {}\n", None):
        notes.clear()
        if broken is None:
            file.unlink()
        else:
            file.write_text(broken)
        assert [followed.latest(), followed.latest()] == [["orders", "debug"]] * 2
        [note] = notes
        assert note.startswith("going on with the topology as it was: ")
    file.write_text(BASE.replace("debug", "trace"))
    assert followed.latest() == ["orders", "trace"]
    assert len(notes) == 2


def test_what_runs_on_takes_a_topology_as_soon_as_its_servers_are_those(files: Path) -> None:
    file, is_ready = files / "base.yaml", True

    def make(topology: Topology) -> int:
        if not is_ready:
            raise LabError("the lab runs other servers")
        return len(topology.regions)

    followed = FollowedTopology(file, make)
    notes: list[str] = []
    followed.tell = notes.append
    is_ready = False
    file.write_text(BASE.replace("  east: {servers: 3}\n", ""))
    assert [followed.latest(), followed.latest()] == [3, 3]
    is_ready = True
    assert followed.latest() == 2
    assert [note.partition(":")[0] for note in notes] == ["going on with the topology as it was", f"{file} has changed"]


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, BASE.encode())
    os.close(writing)
    followed, notes = follow(Path(f"/dev/fd/{reading}"))
    os.close(reading)
    assert followed.latest() == ["orders", "debug"]
    assert not notes
