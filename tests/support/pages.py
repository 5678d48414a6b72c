"""
Pages of the documentation, run as their reader would: each command is typed, and what it prints is compared.

A page's blocks say what they are. ```` ```yaml title="acme.yaml" ```` is a file that the reader writes. ```` ```console ````
has commands, each after `$ `, and below each what it prints. A line `...` there stands for any lines. ```` ```sh ```` has a
comment before it that says where it is run: `<!-- run in a clone -->`, with an empty home; `<!-- run on a lab -->` where a lab
of the page's topology stands for the reader's own servers (`until Ctrl-C` for what runs on); `<!-- run on stand-ins -->` for
hosts and clusters, see stand_in_hosts.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import environment, run_unchecked
from tests.support.paths import ROOT
from tests.support.stand_in_hosts import write_programs
from vstream.cli.exit_codes import INTERRUPTED

ON_LAB = ("run on a lab", "run on a lab until Ctrl-C")
IN_CLONE = "run in a clone"
ON_STAND_INS = "run on stand-ins"
_BLOCK = re.compile(
    r'^(?:<!-- (?P<place>run [^\n]*) -->\n)?```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
_PORT = re.compile(r"\b140(\d\d)\b")
"""Of a lab on a machine where nothing else runs, as pages have it."""


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    title: str | None
    text: str
    place: str | None
    """Where it is run: one of the comments above."""


@dataclass(frozen=True, slots=True)
class Command:
    line: str
    shown: str
    """What the page says that it prints."""


def read_blocks(page: Path) -> list[Block]:
    return [
        Block(match["language"], match["title"], match["text"], match["place"])
        for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def read_commands(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line = re.match(r"(?:[^\n]*\\\n)*[^\n]*", part)
        assert line is not None
        yield Command(line[0], part[line.end() :].strip("\n"))


def normalise(text: str) -> list[str]:
    """Lines as they are the same each time: no numbers, no frames of tables, no blank lines; any leader, any unit of time."""
    text = re.sub(r"\b(?=[a-f]*\d)[0-9a-f]{4,}\b", "0", text)
    text = re.sub(r"\d[\d.,:]*", "0", text)
    text = re.sub(r"\b0 (?:ns|µs|ms|s|min)\b", "0 s", text)
    text = re.sub(r"\b0 problem\b", "0 problems", text)
    text = re.sub(r"meta leader [\w-]+", "meta leader of some region", text)
    lines = (re.sub(r"[\s─━]+", " ", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def matches(shown: str, printed: str) -> bool:
    """Whether the page shows what was printed, but for numbers, and lines that it leaves out as `...`."""
    parts = [r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in normalise(shown)]
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in normalise(printed))) is not None


class Reader:
    """Somebody with an empty directory who does what pages say, one after the other."""

    def __init__(self, directory: Path, *, is_updating: bool = False) -> None:
        self.directory = directory / "work"
        self.directory.mkdir()
        self.variables = {"VSTREAM_STATE_DIR": str(directory / "state"), "PATH": _path_with_vstream()}
        self._is_updating = is_updating
        self._read_up_to = 0
        self._has_installed = False

    def follow(self, page: Path) -> None:
        self._read_up_to = 0
        for block in read_blocks(page):
            if block.title is not None:
                file = self.directory / block.title
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text, encoding="utf-8")
            elif block.language == "console":
                for command in read_commands(block):
                    self._try(page, command)

    def follow_on_lab(self, page: Path, lab: str) -> None:
        """Do what *page* says of its reader's own servers, for which *lab* stands."""
        self.variables["VSTREAM_LAB"] = lab
        for block in read_blocks(page):
            lines = block.text.replace("\\\n", "").splitlines() if block.place in ON_LAB else []
            for line in lines:
                if block.place == "run on a lab until Ctrl-C":
                    self._serve(line)
                else:
                    self.type(_on_lab(line, lab))

    def follow_on_stand_ins(self, page: Path) -> None:
        """Do what *page* says of hosts and clusters, for which directories and programs stand."""
        programs = write_programs(self.directory.parent)
        self.variables["PATH"] = f"{programs}{os.pathsep}{self.variables['PATH']}"
        for block in read_blocks(page):
            if block.place == ON_STAND_INS:
                self.type(f"set -e\n{block.text}")

    def install(self, page: Path) -> None:
        """Install what *page* says, in a clone and with an empty home. From then on that is what commands run."""
        clone, home = self.directory.parent / "clone", self.directory.parent / "home"
        if not self._has_installed:
            home.mkdir()
            subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
            path = [part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != Path(sys.executable).parent]
            self.variables |= {"HOME": str(home), "PATH": os.pathsep.join([f"{clone}/.venv/bin", *path])}
            self._has_installed = True
        for block in read_blocks(page):
            if block.place == IN_CLONE:
                self.type(f"set -e\ncd {clone}\n{block.text}\ntrue")
        assert (home / ".bashrc").read_text().strip(), "completion is not installed"

    def type(self, line: str) -> None:
        code, printed = self.run(line)
        assert code == 0, f"{line}\nexit code {code}\n{printed}"

    def _serve(self, line: str) -> None:
        """Type a command that serves metrics, look at them, and end it as its reader would."""
        address = line.rsplit(maxsplit=1)[-1]
        process = subprocess.Popen(shlex.split(line), cwd=self.directory, env=environment(self.variables))
        try:
            deadline = time.monotonic() + 60
            while not (metrics := _read_url(f"http://{address}/metrics")):
                assert process.poll() is None, f"{line}: exit code {process.returncode}"
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert "vstream_" in metrics
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == INTERRUPTED

    def _try(self, page: Path, command: Command) -> None:
        code, printed = self.run(self._with_ports(command.line))
        assert code == 0, f"{page.name}: {command.line}\nexit code {code}\n{printed}"
        shown = command.shown
        if not matches(shown, printed):
            if not self._is_updating:
                pytest.fail(f"{page.name}: $ {command.line}\n--- the page\n{shown}\n--- printed\n{printed}")
            shown = "\n".join(line.rstrip() for line in printed.splitlines() if line.strip())
        if self._is_updating:
            self._update(page, command, shown)

    def _update(self, page: Path, command: Command, shown: str) -> None:
        """Let the page show what was printed, where a command like it comes next."""
        text = page.read_text(encoding="utf-8")
        before = f"$ {command.line}\n" + (f"{command.shown}\n" if command.shown else "")
        after = f"$ {command.line}\n" + (f"{shown}\n" if shown else "")
        start = text.index(before, self._read_up_to)
        self._read_up_to = start + len(after)
        page.write_text(text[:start] + after + text[start + len(before) :], encoding="utf-8")

    def run(self, line: str) -> tuple[int, str]:
        """The exit code of a command, and what it printed. vstream alone needs no shell, and no start of Python."""
        if not self._has_installed and line.startswith("vstream ") and not re.search(r"[|<>&;$*\\]", line):
            printed = self.directory.parent / "printed"
            printed.write_text("", encoding="utf-8")
            arguments = shlex.split(line)[1:]
            ran = run_unchecked(
                *arguments, cwd=self.directory, variables=self.variables, stdout=printed, is_merged=True
            )
            return ran.code, printed.read_text(encoding="utf-8")
        process = subprocess.run(
            ["bash", "-c", line],
            cwd=self.directory,
            env=environment(self.variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=500,
        )
        return process.returncode, process.stdout

    def _with_ports(self, line: str) -> str:
        """*line* with the ports of this lab: another one may have those that the page shows."""
        if _PORT.search(line) is None:
            return line
        first = self._first_port()
        return _PORT.sub(lambda match: str(first + int(match[1])), line)

    def _first_port(self) -> int:
        _, printed = self.run("vstream lab status --format json")
        (running,) = json.loads(printed)["labs"]
        return min(int(server["url"].rpartition(":")[2]) for server in running["servers"])


def _on_lab(line: str, lab: str) -> str:
    """The command of *line* with *lab* for the addresses of servers, and with the answer that its reader would give."""
    command = re.sub(r" --(?:context|monitor) \S+", "", line.partition("#")[0]).strip()
    if command != line.partition("#")[0].strip():
        command = f"{command} --lab {lab}"
    return f"{command} --yes" if command.startswith("vstream apply") else command


def _read_url(url: str) -> str:
    """What is served there; empty while nothing is."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _path_with_vstream() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
