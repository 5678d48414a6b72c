"""Workspaces for tests of lint rules, made of texts, and what rules say about them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.paths import TESTS
from vstream.findings import Finding
from vstream.lint.check_topology import check_topology
from vstream.lint.parse_files import Source, parse_sources
from vstream.lint.rule import Rule, run_rules
from vstream.lint.rules import servers, streams
from vstream.topology.bundle import placeholder_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vstream.lint.workspace import Workspace
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import ServerVersion

FIXTURES = TESTS / "rules"
RULES = (*streams.RULES, *servers.RULES)
"""The rules that look at streams and at servers."""


def list_files(bundle: Bundle) -> dict[str, str]:
    """The files of *bundle* that rules look at: not the contexts of `nats`, nor consumers."""
    unrelated = ("contexts/", "consumers/")
    return {artifact.path: artifact.text for artifact in bundle.artifacts if not artifact.path.startswith(unrelated)}


def workspace(files: Mapping[str, str], *, server_version: ServerVersion | None = None) -> Workspace:
    """
    What `vstream lint` makes of *files*; a topology among them is the topology. Everything in them can be read.

    A file whose first words are `# running` is what a server runs with now.
    """

    def read(name: str) -> bytes:
        if name not in files and placeholder_for(name) is None:
            raise FileNotFoundError(name)
        return (files.get(name) or placeholder_for(name) or "").encode()

    sources = [Source(name=name, content=text.encode()) for name, text in sorted(files.items())]
    running = [source for source in sources if source.content.startswith(b"# running")]
    parsed = parse_sources([source for source in sources if source not in running], read=read)
    assert [finding.message for finding in parsed.findings] == []
    topology = None
    for source in parsed.topologies:
        loaded = check_topology(source.content, source.name)
        assert [(finding.code, finding.message) for finding in loaded.findings] == []
        topology = loaded.topology
    before = parse_sources(running, read=read)
    return replace(parsed.workspace(topology, server_version), running=tuple(before.servers))


def findings(files: Mapping[str, str], *, server_version: ServerVersion | None = None) -> tuple[Finding, ...]:
    """What all rules about streams and servers say about *files*."""
    return run_rules(RULES, workspace(files, server_version=server_version))


def codes(files: Mapping[str, str], *, server_version: ServerVersion | None = None) -> set[str]:
    """The codes of `findings`."""
    return {finding.code for finding in findings(files, server_version=server_version)}


def examples(rule: Rule[Any]) -> tuple[dict[str, str], dict[str, str]]:
    """The files of the bad and of the good example in a rule's manual page: each block is one."""
    parts = re.split(r"^ *## (?:Example|Use instead)$", rule.manual, flags=re.MULTILINE)
    examples = [blocks for blocks in map(_blocks, parts[1:]) if blocks]
    assert len(examples) == 2, f"write a wrong and a right example into examples/rules/{rule.code}.md"
    return examples[0], examples[1]


def _blocks(text: str) -> dict[str, str]:
    blocks = re.findall(r"^ *```([a-z]+)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    return {f"{number}.{language}": _dedent(block) for number, (language, block) in enumerate(blocks)}


def _dedent(block: str) -> str:
    lines = block.splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return "".join(f"{line[margin:]}\n" for line in lines)


def fixtures(codes: Iterable[str], suffix: str) -> tuple[list[Path], list[Path]]:
    """The bad and the good fixtures of *codes*: files that end in *suffix*, or directories."""
    files = [
        path for code in codes for path in sorted((FIXTURES / code).glob("*")) if path.suffix == suffix or path.is_dir()
    ]
    bad = [path for path in files if path.name.startswith("bad")]
    return bad, [path for path in files if path.name.startswith("good")]


def fixture_name(path: Path) -> str:
    """How a fixture is called in the list of tests."""
    return f"{path.parent.name}-{path.stem}"


def require_hints(findings: Iterable[Finding]) -> None:
    """Fail where a finding leaves the reader alone."""
    assert [finding.message for finding in findings if not finding.hint] == [], "say in a `hint` what to do"


def files_of(path: Path) -> dict[str, str]:
    """The texts of a fixture: one file, or all files of a directory, by their names in it."""
    if path.is_file():
        return {path.name: path.read_text()}
    return {file.relative_to(path).as_posix(): file.read_text() for file in sorted(path.rglob("*")) if file.is_file()}


def concise(findings: Iterable[Finding]) -> str:
    """Everything of findings but the snippet: one line each, with other places and the hint below."""
    lines = []
    for finding in findings:
        assert finding.span is not None
        place = f"{finding.span.file}:{finding.span.line}:{finding.span.column}"
        lines.append(
            f"{place}: {finding.severity.value} {finding.code}: {finding.message}{' (can be fixed)' if finding.fix else ''}"
        )
        lines.extend(
            f"    see {place.span.file}:{place.span.line}:{place.span.column}: {place.message}"
            for place in finding.related
        )
        if finding.hint:
            lines.append(f"    hint: {finding.hint}")
    return "".join(f"{line}\n" for line in lines)


def apply_all_fixes(text: str, findings: Iterable[Finding]) -> str:
    """*text* with every fix made."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    edits = sorted(
        {edit.span: edit for finding in findings for edit in finding.fix}.values(), key=lambda edit: edit.span
    )
    for edit in reversed(edits):
        begin = starts[edit.span.line - 1] + edit.span.column - 1
        end = starts[edit.span.end_line - 1] + edit.span.end_column - 1
        text = text[:begin] + edit.text + text[end:]
    return text
