"""
`lint`: files in, findings out.

1. `parse_files` says what kind each file is (by `detect`) and parses it, with what it includes.
2. Those of servers, accounts and streams make one `Workspace`, and all rules about them look at that. A topology and a
   scenario have rules of their own; what a topology renders to makes a workspace of its own.
3. What was found in rendered files and in tokens is placed where the user can correct it.
4. `suppress` removes what comments silence, `secrets` hides secrets, and a `Selection` says what is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from vstream.findings import Finding, Severity
from vstream.lint import late, secrets, suppress
from vstream.lint.checked_files import CheckedFiles, LintContext
from vstream.lint.parse_files import ParsedFiles, Source, parse_sources
from vstream.lint.rules import check_workspace
from vstream.lint.selection import Selection
from vstream.lint.workspace import Workspace
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import ServerVersion, Topology


@value_class
class LintReport:
    """Everything that was found, sorted; *texts* are those of the files, for what is shown of them."""

    findings: tuple[Finding, ...]
    texts: Mapping[str, str]
    files: tuple[str, ...]
    """Those that were checked, sorted: neither what they include nor files of other programs."""
    bundles: tuple[Bundle, ...] = ()
    """What the topologies among them render to."""

    def has_any(self, least: Severity) -> bool:
        """Whether there is a finding that weighs *least* or more."""
        weights = list(Severity)
        return any(weights.index(finding.severity) <= weights.index(least) for finding in self.findings)

    @property
    def is_complete(self) -> bool:
        """Whether everything could be read."""
        return all(finding.code != "VS004" for finding in self.findings)


def lint(
    sources: Iterable[Source],
    context: LintContext,
    *,
    topology: Topology | None = None,
    server_version: ServerVersion | None = None,
    selection: Selection | None = None,
    running: Iterable[Source] = (),
) -> LintReport:
    """
    Check *sources*, and everything that the topologies among them render to.

    *topology* is what the other files are checked against. *server_version* is the oldest server that has
    to understand them; without it, the topology says, or it is 2.10.
    *selection* says what is reported; by default everything but policy. *running* are the files that the servers
    run with now.
    """
    env = context.env or {}
    # 1. What each file is, parsed.
    parsed = parse_sources(sources, read=context.read, env=context.env)
    parsed_running = parse_sources(running, read=context.read, env=context.env)
    # 2. What rules find.
    workspace = replace(parsed.workspace(topology, server_version), running=tuple(parsed_running.servers))
    checked = CheckedFiles(
        findings=[*parsed.findings, *parsed_running.findings, *_check_workspace(workspace, parsed, env)],
        texts={**parsed_running.texts, **parsed.texts},
        comments=list(parsed.comments),
        display_places=dict(parsed.display_places),
    )
    for source in parsed.topologies:
        checked.add(late.check_topology_and_bundle(source, context, server_version))
    for source in parsed.scenarios:
        checked.add(late.check_scenario_file(source, context))
    # 3. Where the user can correct it.
    placed = checked.place_findings()
    # 4. What is said of it.
    unsuppressed = suppress.remove_suppressed(placed, checked.comments, checked.texts, parsed.streams)
    unquoted = (parsed.unquoted | parsed_running.unquoted).difference(parsed.checked)
    masked = secrets.mask_findings(unsuppressed, parsed.references, unquoted, env)
    reported = (selection or Selection()).apply(masked)
    return LintReport(
        findings=tuple(sorted(reported, key=Finding.sort_key)),
        texts={file: text for file, text in checked.texts.items() if file not in unquoted},
        files=tuple(sorted(set(parsed.checked))),
        bundles=tuple(checked.bundles),
    )


def _check_workspace(workspace: Workspace, parsed: ParsedFiles, env: Mapping[str, str]) -> Iterator[Finding]:
    """What rules find in *workspace*. What they say about a value that nobody knows is a guess, and left out."""
    unknown = secrets.find_undefined_variables(parsed.references, env)
    for finding in check_workspace(workspace):
        if finding.span not in unknown:
            yield finding
