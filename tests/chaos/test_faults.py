"""Every declared fault has all that follows from a declaration: what does it, a command, a step, and a row in the docs."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from scripts.docs import with_tables
from tests.support.lab_bundle import stopped_lab, topology
from tests.support.paths import ROOT
from vstream.chaos import faults
from vstream.chaos.faults import base
from vstream.chaos.faults.base import LabFault
from vstream.chaos.journal import Journal, OpenFault, decode, encode
from vstream.cli.chaos.commands import app
from vstream.errors import VstreamError
from vstream.lab.links.state import Cut, LinkState
from vstream.scenario import fault_types
from vstream.scenario.actions import ACTIONS
from vstream.scenario.document import StepDocument, json_schema, yaml_key
from vstream.scenario.fault_types import FAULT_OPTIONS, FAULTS, FaultSpec, FaultType, OptionType, OptionValue, Target

SAMPLES: dict[OptionType, OptionValue] = {
    OptionType.DURATION: 5 * 10**9,
    OptionType.LINK_TIME: 140 * 10**6,
    OptionType.RATE: 200 * 10**6,
    OptionType.SHARE: 0.05,
    OptionType.CUT: "drop",
    OptionType.TEXT: "west",
    OptionType.VERSION: "2.15.1",
    OptionType.FLAG: True,
}
FIELD_SAMPLES: dict[str, Any] = {
    "bool": True,
    "float": 5.0,
    "int": 5,
    "str": "west",
    "tuple[str, ...]": ("west-1", "east-1"),
    "Mapping[Direction, LinkState]": {("west", "east"): LinkState(delay=0.07, cut=Cut.DROP)},
}
"""By type of a field of a LabFault: a value that is no default."""
NOT_JOURNALLED = {("restart", "is_lame_duck"): "only the start depends on it"}
TARGETS = {Target.SIDES: ("r0", "r1,r2"), Target.LINK: ("r0", "r1"), Target.STREAM: ("foo",)}
"""In the lab of `stopped_lab`. Other targets are a region."""
EACH = pytest.mark.parametrize("declared", FAULTS.values(), ids=list(FAULTS))
COMMANDS = {command.name: command for command in app.registered_commands}


def usage_of(*arguments: str) -> str:
    """What a command says of its own arguments: nothing where they are right."""
    command = typer.main.get_command(app)
    with command.make_context("chaos", list(arguments), resilient_parsing=True):
        pass
    result = CliRunner().invoke(app, [*arguments, "--topology", "missing.yaml"])
    return result.output if result.exit_code == 2 else ""


def test_every_fault_and_nothing_else_can_be_done() -> None:
    declared = {value.name for value in vars(fault_types).values() if isinstance(value, FaultType)}
    assert declared == set(FAULTS), "declare it above FAULTS"
    assert {declared.name for declared in faults.RESOLVERS} == set(FAULTS), (
        "declare it, and enter it in RESOLVERS of a module in vstream/chaos/faults"
    )


@EACH
def test_every_fault_has_a_command_whose_examples_are_right(declared: FaultType) -> None:
    assert declared.name in COMMANDS, f"`vstream chaos {declared.name}` is missing"
    assert declared.examples, "give it an example"
    for example in declared.examples:
        assert shlex.split(example)[0] == declared.name
        assert usage_of(*shlex.split(example)) == "", example


@EACH
def test_every_fault_is_a_step_of_scenarios_with_its_options(declared: FaultType) -> None:
    assert ACTIONS[declared.field].fault is declared
    properties = json_schema()["$defs"]["StepDocument"]["properties"]
    for field in (declared.field, *(option.name for option in declared.options)):
        assert field in StepDocument.model_fields
        assert properties[yaml_key(field)]["description"]


@EACH
def test_every_fault_is_written_as_its_command_takes_it(declared: FaultType) -> None:
    targets = {"sides": ("west", "central,east"), "link": ("west", "east"), "nothing": ()}
    spec = FaultSpec(
        type=declared,
        targets=targets.get(declared.target.name.lower(), ("west",)),
        options={option.name: SAMPLES[option.type] for option in declared.options},
    )
    assert usage_of(*spec.command.split(" ")) == ""


@pytest.mark.parametrize("page", ["chaos.md", "scenarios.md"])
def test_the_tables_in_the_docs_are_those_of_the_declarations(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert [name for name in FAULTS if f"| `{name}" not in text] == [], "run scripts/docs"
    assert with_tables(text) == text, "run scripts/docs"


def test_options_that_share_a_name_are_one() -> None:
    assert all(FAULT_OPTIONS[option.name] is option for declared in FAULTS.values() for option in declared.options)


def test_every_fault_that_can_be_open_can_be_read_from_the_journal() -> None:
    """One that is not listed is injected, and no command can heal it."""
    unlisted = set()
    for member in [member for module in faults._MODULES for member in vars(module).values()]:
        if isinstance(member, type) and issubclass(member, LabFault) and not inspect.isabstract(member):
            unlisted |= {member} - set(faults.LAB_FAULTS.values())
    assert unlisted == set(), "give it a `kind` of its own"


@pytest.mark.parametrize("kind", list(faults.LAB_FAULTS))
def test_every_fault_that_can_be_open_says_whether_its_servers_stay_down(kind: str) -> None:
    """Else a heal of another fault starts them, or leaves them down."""
    assert hasattr(faults.LAB_FAULTS[kind], "keeps_down"), "say it with `keeps_down`"


@pytest.mark.parametrize("kind", list(faults.LAB_FAULTS))
def test_every_fault_of_servers_says_whether_they_count_as_lost(kind: str) -> None:
    """Else the next fault may take a quorum, or is refused although nothing is lost."""
    fault_class = faults.LAB_FAULTS[kind]
    if issubclass(fault_class, base.ServerFault):
        assert hasattr(fault_class, "loses_servers"), "say it with `loses_servers`"
        assert fault_class.loses_servers or not fault_class.keeps_down, "servers that stay down are lost"


@pytest.mark.parametrize("kind", list(faults.LAB_FAULTS))
def test_every_fault_that_can_be_open_says_how_it_is_undone(kind: str) -> None:
    """Else a heal says `healed`, and nothing was undone."""
    missing: frozenset[str] = getattr(faults.LAB_FAULTS[kind], "__abstractmethods__", frozenset())
    assert missing == frozenset(), "write these methods"


class NotedOptions(Mapping[str, OptionValue]):
    """Options that note which of them were read."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        self._options = options
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> OptionValue:
        self.read.add(name)
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)


@EACH
async def test_what_does_a_fault_reads_each_of_its_options(declared: FaultType, tmp_path: Path) -> None:
    """Else a step with it means nothing."""
    options = NotedOptions({option.name: SAMPLES[option.type] for option in declared.options})
    targets = () if declared.may_lack_target else TARGETS.get(declared.target, ("r0",))
    spec = FaultSpec(type=declared, targets=targets, options=options)
    with suppress(VstreamError):  # no server of the lab runs
        await faults.resolve(spec, stopped_lab(tmp_path), topology(3, 1), needs_successor=False)
    unread = set(options) - options.read
    assert unread == set(), "read it from `request.spec.options` in its resolver, before servers are asked anything"


@EACH
def test_every_fault_is_injected_by_a_test_on_servers(declared: FaultType) -> None:
    files = [*(ROOT / "tests").rglob("*live*.py"), *(ROOT / "tests" / "support").glob("*.py")]
    files += (ROOT / "scenarios").glob("*.yaml")
    # Of a command that must succeed, or as a step: a refusal or a word in a sentence injects nothing.
    commands = r"(?:require_success|background|kill_once_it_says|to_thread|broken\.chaos)\(.*"
    injected = re.compile(rf'{commands}"{declared.name}[" ]|^[^#`"]*(?<![\w-]){declared.name}: ', re.MULTILINE)
    is_tried = any(injected.search(file.read_text(encoding="utf-8")) for file in files)
    assert is_tried, f"inject `{declared.name}` in a live test"


@pytest.mark.parametrize("kind", list(faults.LAB_FAULTS))
def test_what_can_be_open_is_read_back_from_the_journal(kind: str) -> None:
    """After a crash the journal is all that is known: a fault that cannot be read from it cannot be healed."""
    fault_class = faults.LAB_FAULTS[kind]
    types = {each.name: str(each.type) for each in fields(fault_class)}  # type: ignore[arg-type]  # a value class
    assert set(types.values()) - FIELD_SAMPLES.keys() == set(), "add a sample of this type to FIELD_SAMPLES"
    fault = fault_class(**{name: FIELD_SAMPLES[type_name] for name, type_name in types.items()})
    opened = OpenFault(id="f1", command=kind, fault=fault, since=datetime.now(UTC))
    advice = "store it in `journal_entry`, and read it in `from_journal`"
    try:
        (opened_again,) = decode(encode(Journal(number=1, faults=(opened,)))).faults
    except (KeyError, TypeError, ValueError) as error:
        pytest.fail(f"`{kind}` is not read back: {error!r}: {advice}")
    changed = [name for name in types if getattr(opened_again.fault, name) != getattr(fault, name)]
    assert [name for name in changed if (kind, name) not in NOT_JOURNALLED] == [], advice
    assert replace(opened_again, fault=fault) == opened
    assert fault.target_text, "say with `target_text` what it is injected into"
    assert bool(fault.affected_servers) != bool(fault.cuts), (
        "say with `affected_servers` or `cuts` what it is injected into"
    )
