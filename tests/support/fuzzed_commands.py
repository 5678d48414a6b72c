"""Commands whose servers give one wrong answer: what each made of it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import nats
import pytest
from jsonschema import ValidationError

from tests.support.changed_answers import DAMAGES
from tests.support.command import Ran, check_output, read_json_documents, run_unchecked, vstream
from tests.support.fuzzing_proxy import Change, FuzzingProxy
from tests.support.labs import end_all_in
from vstream.lab.endpoints import find_system_endpoint, list_endpoints
from vstream.topology.model import Endpoint

LAB = "fuzzed"
_REGIONS = ("west", "central", "east")
_PASSWORD = "VSTREAM_FUZZED_SYSTEM"
"""The variable with the system account's password."""
_TOPOLOGY, _NEW, _BACKUP, _SERVERS = "TOPOLOGY", "NEW", "BACKUP", "SERVERS"
"""
Words of a command that stand for something else: a topology file, of which there are two in turn where the command changes
something; a path where nothing is; a finished backup; options with all addresses.
"""
SMALL = f"""\
version: 1
name: {LAB}
server_version: "2.12"
regions: {{west: {{servers: 1}}, central: {{servers: 1}}, east: {{servers: 1}}}}
defaults: {{write: {{max_age: 1h}}}}
streams:
  foo: {{subjects: [foo.>], canary: foo._canary.*, consumers: {{billing: {{ack_wait: 1m}}}}}}
"""
WITH_STRETCH = f"""\
{SMALL}
  ledger: {{subjects: [ledger.>], consistency: ordered}}
  stock: {{subjects: [stock.>], consistency: stretch}}
stretch: {{members: all}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzedCommand:
    arguments: tuple[str, ...]
    limit: float
    """Seconds after which it hangs: its deadline, and what starting and ending take on a busy machine."""
    has_json: bool = True
    is_changing: bool = False
    memory: int = 500_000
    """Kilobytes that it, or a process that it starts, may have."""


FIRST: Mapping[str, FuzzedCommand] = {
    "plan": FuzzedCommand(arguments=("plan", _TOPOLOGY), limit=60),
    "apply": FuzzedCommand(
        arguments=("apply", _TOPOLOGY, "--yes", "--gate-timeout", "5"), limit=90, has_json=False, is_changing=True
    ),
    "status": FuzzedCommand(arguments=("status", _TOPOLOGY, "--timeout", "2"), limit=15),
    "doctor": FuzzedCommand(arguments=("doctor", _TOPOLOGY, "--timeout", "3"), limit=20),
    "plan --drift": FuzzedCommand(arguments=("plan", "--drift", _TOPOLOGY, "--timeout", "2"), limit=60),
    "probe": FuzzedCommand(arguments=("probe", _TOPOLOGY, "--timeout", "2"), limit=30),
    "probe --forms": FuzzedCommand(arguments=("probe", "--forms", _TOPOLOGY, "--timeout", "4"), limit=60),
    "export": FuzzedCommand(arguments=("export", _TOPOLOGY, "--once", "--timeout", "2"), limit=15, has_json=False),
}
WORST_DAY: Mapping[str, FuzzedCommand] = {
    "drain a region": FuzzedCommand(arguments=("region", "drain", "west", _TOPOLOGY), limit=60),
    "drain a server": FuzzedCommand(arguments=("region", "drain", "west-1", _TOPOLOGY), limit=60),
    "failover": FuzzedCommand(arguments=("region", "failover", "west", _TOPOLOGY), limit=60),
    "rescue": FuzzedCommand(arguments=("repair", "meta", _TOPOLOGY), limit=60),
    "backup": FuzzedCommand(arguments=("backup", "take", _NEW, _TOPOLOGY), limit=180),
    "restore": FuzzedCommand(arguments=("backup", "restore", _BACKUP, _TOPOLOGY), limit=60),
    "consumer sync": FuzzedCommand(arguments=("consumer", "sync", "--topology", _TOPOLOGY), limit=90),
    "consumer failover": FuzzedCommand(
        arguments=("consumer", "failover", "foo", "billing", "--to", "east", "--from", "west", "--topology", _TOPOLOGY),
        limit=90,
    ),
    "map --trace": FuzzedCommand(arguments=("map", "foo.a", _TOPOLOGY, "--trace", "--timeout", "2"), limit=30),
    "doctor --bundle": FuzzedCommand(
        arguments=("doctor", _TOPOLOGY, "--bundle", _NEW, "--timeout", "2"), limit=90, has_json=False
    ),
    "resync": FuzzedCommand(arguments=("repair", "sources", _TOPOLOGY, "--timeout", "3"), limit=60),
    "init": FuzzedCommand(arguments=("init", _NEW, _SERVERS), limit=60),
}
COMMANDS: Mapping[str, FuzzedCommand] = {**FIRST, **WORST_DAY}
AUDIT = FuzzedCommand(arguments=("audit", _TOPOLOGY), limit=400, memory=1_500_000)
"""Apart, because each run of it starts Spark, whose Java has 600 MB where nothing is wrong."""


TRACEBACK, HANG, MEMORY, OTHER = "traceback", "hang", "memory", "other"
ENDINGS = ("0", "1", "3", TRACEBACK, HANG, MEMORY, OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    command: str
    change: Change
    changed: str
    """What was changed, empty if the answer never came."""
    code: int | None
    seconds: float
    memory: int
    problem: str | None

    @property
    def kind(self) -> str:
        """Its exit code, or how it failed: one of ENDINGS."""
        kinds = (kind for kind in (TRACEBACK, HANG, MEMORY) if (self.problem or "").startswith(kind))
        return str(self.code) if self.problem is None else next(kinds, OTHER)

    def __str__(self) -> str:
        asked = f"{self.command} {self.change.kind}#{self.change.ordinal} {self.change.damage} seed {self.change.seed}"
        lasting = " lasting" if self.change.is_lasting else ""
        return f"{asked}{lasting} [{self.changed}]: {self.code} {self.seconds:.1f} s {self.memory // 1000} MB {self.problem or 'ok'}"


class Bench:
    """Commands that reach the servers of a lab through a proxy of their own."""

    def __init__(self, proxy: FuzzingProxy, directory: Path, topology: str) -> None:
        self._proxy = proxy
        self._directory = directory
        self._answers: dict[str, dict[str, int]] = {}
        self._runs = 0
        self._connect = {region: self._lead_to(region, endpoint) for region, endpoint in list_endpoints(LAB).items()}
        self._files = []
        for age in ("1h", "2h"):
            file = directory / f"topology-{age}.yaml"
            connect = f"connect: {json.dumps(self._connect)}\n"
            file.write_text(topology.replace("max_age: 1h", f"max_age: {age}") + connect)
            self._files.append(file)

    def _lead_to(self, region: str, endpoint: Endpoint) -> dict[str, Any]:
        system = find_system_endpoint(LAB, region)
        os.environ[_PASSWORD] = str(system.password)
        return {
            "urls": [f"nats://127.0.0.1:{self._proxy.lead_to(_port(endpoint.urls[0]))}"],
            "monitor": [
                f"http://127.0.0.1:{self._proxy.lead_to(_port(url), is_http=True)}" for url in endpoint.monitor
            ],
            "system": {"user": system.user, "password_env": _PASSWORD},
        }

    @cached_property
    def _backup(self) -> Path:
        directory = self._directory / "backup"
        ran = vstream("backup", "take", directory, self._files[0])
        assert ran.code == 0, ran.err
        return directory

    def run(self, name: str, seed: int) -> Outcome:
        """Run the command *name* with one answer changed as *seed* says."""
        random = Random(f"{name} {seed}")
        answers = self._known_answers(name)
        kind = random.choice(sorted(answers))
        change = Change(
            kind=kind,
            ordinal=random.randint(1, answers[kind]),
            damage=random.choice(list(DAMAGES)),
            seed=seed,
            is_lasting=random.random() < 0.5,
        )
        return self._judge(name, change, is_json=random.random() < 0.4)

    def _known_answers(self, name: str) -> Mapping[str, int]:
        """How many answers of each kind the command gets where nothing is changed."""
        if name not in self._answers:
            session = self._proxy.start_session(None)
            repetitions = len(self._files) if _command(name).is_changing else 1
            for _ in range(repetitions):
                ran = self._run(name, is_json=False)
                assert not (problem := _find_problem(ran, is_json=False)), (problem, ran)
            self._answers[name] = {kind: max(1, count // repetitions) for kind, count in session.answers.items()}
        return self._answers[name]

    def _judge(self, name: str, change: Change, *, is_json: bool) -> Outcome:
        command = _command(name)
        is_json = is_json and command.has_json
        session = self._proxy.start_session(change)
        began = time.monotonic()
        try:
            ran = self._run(name, is_json=is_json)
            code, memory, problem = ran.code, ran.memory, _find_problem(ran, is_json=is_json)
        except TimeoutError:
            busy = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
            code, memory, problem = None, 0, f"{HANG}: longer than {command.limit:g} s, {busy}"
        if memory > command.memory and problem is None:
            problem = f"{MEMORY}: {memory:,} kB"
        return Outcome(
            command=name,
            change=change,
            changed=session.changed[0] if session.changed else "",
            code=code,
            seconds=time.monotonic() - began,
            memory=memory,
            problem=problem,
        )

    def _run(self, name: str, *, is_json: bool) -> Ran:
        command = _command(name)
        self._runs += 1
        new = self._directory / f"new-{self._runs}"
        arguments = list[str | Path]()
        for word in command.arguments:
            arguments += self._spell(word, command, new)
        try:
            output = ("--format", "json") if is_json else ()
            return run_unchecked(*arguments, *output, timeout=command.limit)
        finally:
            shutil.rmtree(new, ignore_errors=True)
            new.unlink(missing_ok=True)

    def _spell(self, word: str, command: FuzzedCommand, new: Path) -> list[str | Path]:
        """What *word* of *command* stands for; *new* is a path where nothing is."""
        file = self._files[self._runs % len(self._files) if command.is_changing else 0]
        servers = list[str | Path]()
        for place in self._connect.values():
            servers += [f"--server={place['urls'][0]}", *(f"--monitor={url}" for url in place["monitor"])]
        if word == _BACKUP:
            return [self._backup]
        spelled: dict[str, list[str | Path]] = {_TOPOLOGY: [file], _NEW: [new], _SERVERS: servers}
        return spelled.get(word, [word])


def _command(name: str) -> FuzzedCommand:
    return AUDIT if name == "audit" else COMMANDS[name]


_STRANGE = re.compile(r"[^\n\t -~\xa0-\uffff\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
_WORKFLOW_COMMAND = re.compile(r"^\s*::", re.MULTILINE)


def _find_problem(ran: Ran, *, is_json: bool) -> str | None:
    """What is wrong with how a command ended, whatever its servers said."""
    texts = (ran.out, ran.err)
    if any("Traceback" in text or "bug in vstream" in text for text in texts):
        return f"{TRACEBACK}: " + next((line for line in ran.err.splitlines() if "unexpected" in line), ran.err[-300:])
    if ran.code not in {0, 1, 3}:
        return f"exit code {ran.code}: {ran.err[-300:]}"
    if any(_STRANGE.search(text) for text in texts):
        return "control characters are printed: " + repr(ran.out + ran.err)[:2000]
    if any(_WORKFLOW_COMMAND.search(text) for text in texts):
        return "a line that is a command to GitHub"
    if ran.code == 3 and not ran.err.strip() and not ran.out.strip():
        return "3 without a word"
    return _find_json_problem(ran.out) if is_json and (ran.code != 3 or ran.out) else None


def _find_json_problem(text: str) -> str | None:
    try:
        for document in read_json_documents(text):
            check_output(document)
    except (ValueError, ValidationError, AssertionError) as error:
        return f"not the JSON of its schema: {error!s:.300}"
    return None


@contextmanager
def running_lab(directory: Path, topology: str) -> Iterator[None]:
    """A lab with the *topology* applied."""
    state = directory / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSTREAM_STATE_DIR", str(state))
        file = directory / "lab.yaml"
        file.write_text(topology)
        try:
            for arguments in (("lab", "up"), ("apply", "--yes")):
                ran = vstream(*arguments, file)
                assert ran.code == 0, ran.err
            asyncio.run(_publish())
            yield
        finally:
            vstream("lab", "down", LAB, "--purge")
            left = end_all_in(state)
    assert left == []


async def _publish() -> None:
    """Some messages from each region, and a consumer that has acknowledged some."""
    for region, endpoint in list_endpoints(LAB).items():
        client = await nats.connect(endpoint.urls[0])
        jetstream = client.jetstream(timeout=30)
        for number in range(5):
            await jetstream.publish(f"foo.{region}", b"x", headers={"Nats-Msg-Id": f"{region}-{number}"})
        consumer = await jetstream.pull_subscribe_bind("billing", stream=f"foo-read-{region}")
        for message in await consumer.fetch(4, timeout=30):
            await message.ack_sync()
        await client.close()


@contextmanager
def open_bench(directory: Path, topology: str) -> Iterator[Bench]:
    """A proxy to the lab, and the *topology* with its addresses, in *directory*."""
    with FuzzingProxy().running() as proxy:
        yield Bench(proxy, directory, topology)


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])
