"""What a shell offers for values: from the topology, the labs and the manual, and nothing where they cannot be read."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.command import environment, vstream, walk_commands
from vstream.cli import completion
from vstream.cli.completion import complete

TOPOLOGY = """\
version: 1
name: acme
server_version: "2.12"
regions: {west: {servers: 1}, east: {servers: 1}}
streams: {foo: {subjects: [foo.>], write: {max_age: 1h}, consumers: {worker: {}}}, bar: {subjects: [bar.>], write: {max_age: 1h}}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    (tmp_path / "other.yaml").write_text(TOPOLOGY.replace("west", "north"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def offer(parameter: str, incomplete: str = "", command: str = "probe", **params: Any) -> list[str]:
    return complete(parameter, SimpleNamespace(info_name=command, params=params), incomplete)


def test_names_come_from_the_topology(here: Path) -> None:
    assert offer("region") == ["east", "west"]
    assert offer("region", "w", topology="topology.yaml") == ["west"]
    assert offer("stream") == ["bar", "foo"]
    assert offer("consumer", stream="foo") == ["worker"]
    assert offer("consumer", stream="bar") == []
    assert offer("targets", command="kill-server") == ["east-1", "west-1"]
    assert offer("targets", command="kill-region") == ["east", "west"]
    assert offer("to", command="failover") == offer("to", command="drain") == ["east", "west"]
    assert offer("to", command="upgrade") == []
    assert offer("target", command="drain") == ["east", "east-1", "west", "west-1"]
    assert offer("target", command="audit") == []


def test_a_dead_region_is_offered_where_it_is_taken_in_again(here: Path) -> None:
    text = TOPOLOGY.replace("east: {servers: 1}", "east: {lost: {}, servers: 1}, south: {servers: 1}")
    (here / "topology.yaml").write_text(text)
    assert offer("region", command="failback") == ["east", "south", "west"]
    assert offer("region") == ["south", "west"]


def test_codes_scenarios_and_commands_come_from_vstream() -> None:
    assert offer("select", "VS30")[:2] == ["VS301", "VS302"]
    assert offer("scenario", "split") == ["split-brain"]
    assert offer("commands", "plan") == ["plan", "plan --drift"]


def test_nothing_is_offered_where_nothing_can_be_read(here: Path) -> None:
    (here / "topology.yaml").write_text("regions: [")
    assert offer("region") == offer("lab") == offer("fault") == []
    (here / "topology.yaml").unlink()
    assert offer("stream") == []


def test_a_tab_dials_nobody_and_ends_at_what_never_does(here: Path) -> None:
    """The topology may be somebody else's: what it names is not asked, and a pipe or a device is given up."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        port.setblocking(False)
        address = f"127.0.0.1:{port.getsockname()[1]}"
        connect = f"connect: {{west: {{urls: ['nats://{address}'], monitor: ['http://{address}']}}}}\n"
        (here / "topology.yaml").write_text(TOPOLOGY + connect)
        assert offer("region") == ["east", "west"]
        assert offer("stream") == ["bar", "foo"]
        with pytest.raises(BlockingIOError):
            port.accept()
    (here / "endless.yaml").symlink_to("/dev/zero")
    assert offer("region", topology="endless.yaml") == []


def test_every_completed_parameter_is_one_of_a_command() -> None:
    names = {parameter.name for _, command in walk_commands() for parameter in command.params}
    assert set(completion._VALUE_LISTERS) <= names | {"lab"}


def test_what_names_a_region_or_a_stream_is_completed() -> None:
    """Besides streams that vstream has not made, which only servers know."""
    named = {
        parameter.name
        for _, command in walk_commands()
        for parameter in command.get_params(command.context_class(command))
        if parameter.metavar in {"REGION", "STREAM"} and parameter.name not in completion._VALUE_LISTERS
    }
    assert named == {"adopt"}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("probe --region w", ["west"]),
        ("probe other.yaml --region n", ["north"]),
        ("map a other.yaml --region n", ["north"]),
        ("probe --stream ", ["bar", "foo"]),
        ("status --lab ", ["blue"]),
        ("scenario run split", ["split-brain"]),
        ("lint --explain VD10", ["VD101", "VD102"]),
        ("render --target ", ["files", "systemd", "compose", "helm", "nack"]),
        ("region failover --also ", ["east", "west"]),
        ("sta", ["status"]),
    ],
)
def test_what_stands_before_decides_what_is_offered(here: Path, words: str, offered: list[str]) -> None:
    """What the function of a bash asks. A region is one of the topology that is named."""
    lab = here / "state" / "labs" / "blue" / "lab.json"
    lab.parent.mkdir(parents=True)
    lab.touch()
    asked = {
        "_VSTREAM_COMPLETE": "complete_bash",
        "COMP_WORDS": f"vstream {words}",
        "COMP_CWORD": str(words.count(" ") + 1),
    }
    assert vstream(variables=asked, cwd=here).out.split() == offered


def test_bash_completes_a_region_and_a_command(here: Path) -> None:
    """A real bash runs the function that `--install-completion` installs."""
    script = """
        eval "$(_VSTREAM_COMPLETE=source_bash vstream)"
        COMP_WORDS=(vstream map a other.yaml --region n); COMP_CWORD=5; _vstream_completion vstream; echo "${COMPREPLY[*]}"
        COMP_WORDS=(vstream sta); COMP_CWORD=1; _vstream_completion vstream; echo "${COMPREPLY[*]}"
    """
    assert run_in_shell("bash", script, here).split() == ["north", "status"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh_answers_the_first_tab(here: Path) -> None:
    """It loads the function from a file then, and runs what is in the file."""
    script = """
        vstream --show-completion zsh >_vstream
        fpath=($PWD); autoload -U _vstream; compdef() { }; _arguments() { print -r -- "$@" }
        words=(vstream probe --region w); CURRENT=4; _vstream
    """
    assert "west" in run_in_shell("zsh", script, here, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes_values_and_files(here: Path) -> None:
    """What `--show-completion` prints; files are fish's own, where there is no better word."""
    script = """
        vstream --show-completion fish | source
        complete -C 'vstream probe other.yaml --region n'
        complete -C 'vstream validate ot'
    """
    printed = run_in_shell("fish", script, here, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert [line.split("\t")[0] for line in printed.splitlines()] == ["north", "other.yaml"]


def run_in_shell(shell: str, script: str, here: Path, **variables: str) -> str:
    """What *script* prints in *shell*, which finds `vstream`."""
    path = here / "bin"
    path.mkdir()
    (path / "vstream").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vstream "$@"\n')
    (path / "vstream").chmod(0o755)
    variables = {**environment(), **variables}
    variables["PATH"] = f"{path}:{variables['PATH']}"
    ran = subprocess.run([shell, "-c", script], env=variables, capture_output=True, text=True, timeout=120, check=True)
    return ran.stdout
