"""What `vstream lab` refuses before it does anything, and what it shows on screens of any width."""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.support.command import vstream
from vstream.cli import lazy_group
from vstream.cli.lab_options import remember_topology
from vstream.cli.views import lab as lab_view
from vstream.lab import ports
from vstream.lab.links.control import Traffic
from vstream.lab.links.state import Backend, Cut, Links, LinkState
from vstream.lab.state import LabDirectory, LabRecord, lab_directory
from vstream.lab.status import LabStatus, ServerState, ServerStatus
from vstream.lint.check_topology import check_topology

TOPOLOGY = """\
version: 1
name: acme
server_version: "2.12"
regions: {west: {servers: 1}, east: {servers: 1}}
streams: {foo: {subjects: [foo.>], canary: foo._canary.*, write: {max_age: 1h}}}
"""


def test_links_by_namespaces_are_refused_with_what_to_use_instead(tmp_path: Path) -> None:
    ran = vstream("lab", "up", str(tmp_path / "missing.yaml"), "--links", "netns")
    assert ran.code == 2
    assert "`netns` was removed: `proxy`, the default, does what it did" in " ".join(ran.err.replace("│", " ").split())


def test_a_lab_that_does_not_exist_cannot_be_taken_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path))
    ran = vstream("lab", "down", "nope")
    assert ran.code == 3
    assert "there is no lab `nope`" in ran.err
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("command", ["down", "status", "links"])
def test_a_lab_is_named_by_an_argument_or_by_an_option(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("VSTREAM_LAB", "usual")
    ran = vstream("lab", command, "--lab", "nope")
    assert (ran.code, "there is no lab `nope`" in ran.err) == (3, True)
    ran = vstream("lab", command, "other", "--lab", "nope")
    assert (ran.code, "`other` is another lab: name one" in " ".join(ran.err.replace("│", " ").split())) == (2, True)


@pytest.mark.parametrize("command", ["status", "probe", "export", "audit", "apply", "chaos kill-region west"])
def test_a_lab_brings_its_topology(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless overlays lay over it: then no file alone is what the lab runs."""
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path))
    file = tmp_path / "acme.yaml"
    file.write_text(TOPOLOGY)
    nowhere = vstream(*command.split(), "--lab", "blue", cwd=tmp_path)
    assert (nowhere.code, "there is no lab `blue`" in nowhere.err) == (3, True)
    lab_directory("blue").path.mkdir(parents=True)
    lab_directory("blue").write(LabRecord(topology="acme", servers=(), programs={}))
    remember_topology("blue", file)
    ran = vstream(*command.split(), "--lab", "blue", cwd=tmp_path)
    assert ran.err.splitlines()[0] == f"topology: {file}, from which lab blue was started"
    assert "lab `blue` is not running" in ran.err
    monkeypatch.setattr(lazy_group, "_chosen", [file])
    remember_topology("blue", file)
    unknown = vstream(*command.split(), "--lab", "blue", cwd=tmp_path)
    assert (unknown.code, "name the file of the topology that lab `blue` runs" in unknown.err) == (3, True)
    unnamed = vstream(*command.split(), cwd=tmp_path)
    assert (unnamed.code, "where a command has it, `--lab NAME` takes the file of a lab" in unnamed.err) == (3, True)


def lab_of(*servers: tuple[str, ServerState]) -> LabStatus:
    directory = LabDirectory("acme", Path("/labs/acme"))
    text = "".join(f"  {name}: {{servers: 1}}\n" for name, _ in servers)
    topology = check_topology(
        f'version: 1\nname: acme\nserver_version: "2.12"\nregions:\n{text}'
        "streams: {foo: {subjects: [foo.>], canary: foo._canary.*, write: {max_age: 1h}}}\n".encode(),
        "acme.yaml",
    ).require()
    addresses = ports.allocate(topology.seats, 15000, directory)
    states = dict(servers)
    return LabStatus(
        name="acme",
        topology="acme",
        directory=directory.path,
        servers=tuple(
            ServerStatus(
                name=address.server.name,
                region=address.region,
                state=states[address.region],
                address=address,
                version="2.15.1",
                pid=1234567,
                uptime=timedelta(hours=30, minutes=7),
            )
            for address in addresses
        ),
        links=None,
    )


def render_table(table: Table, width: int) -> list[str]:
    screen = Console(width=width, file=StringIO(), record=True)
    screen.print(table)
    return screen.export_text().splitlines()


@pytest.mark.parametrize("width", [60, 100])
def test_nothing_of_a_lab_is_cut_off(width: int) -> None:
    status = lab_of(("west", ServerState.CRASHED), ("frankfurt", ServerState.RUNNING), ("east", ServerState.STOPPED))
    lines = render_table(lab_view.render_table(status, {"west-1": "killed by f12"}, width=width), width)
    assert not [line for line in lines if "…" in line]
    row = next(line for line in lines if "west-1" in line)
    assert "killed by f12" in row
    assert "crashed" not in row
    assert "30h07m" in row
    assert "15000" in row
    assert "frankfurt-1" in "\n".join(lines)


@pytest.mark.parametrize("width", [60, 100])
def test_nothing_of_links_is_cut_off(width: int) -> None:
    links = Links(
        backend=Backend.PROXY,
        servers={"west-1": "west", "frankfurt-1": "frankfurt"},
        base={("west", "frankfurt"): LinkState(delay=0.07, jitter=0.01, rate=200_000_000, loss=0.05)},
        overlays={"f12": {("frankfurt", "west"): LinkState(cut=Cut.DROP)}},
    )
    traffic = Traffic(connections={("west", "frankfurt"): 3}, refused=0)
    text = "\n".join(render_table(lab_view.render_link_table("acme", links, traffic), width))
    assert "…" not in text
    assert all(part in text for part in ("west → frankfurt", "frankfurt → west", "cut (drop)", "f12"))
    assert re.search(r"west → frankfurt.* 3 ", text)
