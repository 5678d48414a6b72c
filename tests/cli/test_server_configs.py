"""Configuration files of servers, read to be compared with what servers have loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import vstream
from vstream.cli import server_configs
from vstream.errors import VstreamError
from vstream.lint.check_topology import check_topology
from vstream.servers.find_servers import Servers

TEXT = 'version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 2}}\nstreams: {}\n'
WHERE = Servers(endpoints={}, lab=None, description="")


def test_a_file_and_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "mappings.cfg").write_text("mappings {}\n")
    file = tmp_path / "west-1.conf"
    file.write_text('port: 4222 # the usual\ninclude "/mappings.cfg"\n')
    first = server_configs.read_config(file)
    assert (first.problem, first.path) == (None, str(file))
    file.write_text('include "mappings.cfg"\nport = 4222\n')
    assert server_configs.read_config(file).digest == first.digest
    (tmp_path / "mappings.cfg").write_text("mappings {a: b}\n")
    assert server_configs.read_config(file).digest not in {None, first.digest}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"user: $NAME\n", "west-1.conf:1:7: "),
        (b'include "absent.cfg"\n', "west-1.conf:1:"),
        (b"port: [\n", "west-1.conf:"),
        (b"name: \xff\n", "cannot be read"),
    ],
)
def test_what_cannot_be_compared_has_a_reason_and_a_place(content: bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "west-1.conf"
    file.write_bytes(content)
    config = server_configs.read_config(file)
    assert config.digest is None
    assert config.problem is not None
    assert problem in config.problem


def test_server_configurations_are_found_in_a_bundle_or_a_plain_directory(tmp_path: Path) -> None:
    topology = check_topology(TEXT.encode(), "acme.yaml").require()
    assert server_configs.read_configs(topology, WHERE, None) == {}
    with pytest.raises(VstreamError, match="holds no configuration of a server of `acme`"):
        server_configs.read_configs(topology, WHERE, tmp_path)
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "west-1.conf").write_text("port: 4222\n")
    configs = server_configs.read_configs(topology, WHERE, tmp_path)
    assert configs["west-1"].digest is not None
    assert configs["west-2"].problem == f"{tmp_path} holds neither west-2.conf nor servers/west-2.conf"


def test_configs_of_a_missing_directory_is_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(TEXT)
    for command in (["doctor"], ["plan", "--drift"]):
        ran = vstream(*command, file, "--configs", tmp_path / "absent")
        assert ran.code == 2
        assert "--configs" in ran.err
