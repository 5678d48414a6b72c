"""`lint`: files in, findings out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from vstream.findings import Finding, Related, Severity
from vstream.lint import late, secrets, suppress
from vstream.lint.checked_files import CheckedFiles, Surroundings
from vstream.lint.gather import DisplayPlace, GatheredFiles, Source, gather_sources
from vstream.lint.rules import check_workspace
from vstream.lint.selection import Selection, known_codes
from vstream.lint.workspace import Workspace
from vstream.syntax.natsconf.nodes import Reference
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import ServerVersion, Topology

_COULD_NOT = "VS004"


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
        return all(finding.code != _COULD_NOT for finding in self.findings)


def lint(
    sources: Iterable[Source],
    surroundings: Surroundings,
    *,
    topology: Topology | None = None,
    server_version: ServerVersion | None = None,
    selection: Selection | None = None,
    running: Iterable[Source] = (),
) -> LintReport:
    """
    Check *sources*, and everything that the topologies among them render to.

    Rules run in three functions, each for its folders of rules: `check_topology`, `check_scenario` and `check_workspace`.

    *topology* is what the other files are checked against. *server_version* is the oldest server that has
    to understand them; without it, the topology says, or it is 2.10.
    *selection* says what is reported; by default everything but policy. *running* are the files that the servers
    run with now.
    """
    env = surroundings.env or {}
    named = gather_sources(sources, read=surroundings.read, env=surroundings.env)
    running_files = gather_sources(running, read=surroundings.read, env=surroundings.env)
    workspace = replace(named.workspace(topology, server_version), running=tuple(running_files.servers))
    checked = _check_gathered(named, running_files, workspace, env)
    for source in named.topologies:
        checked.add(late.check_topology_file(source, surroundings, server_version))
    for source in named.scenarios:
        checked.add(late.check_scenario_file(source, surroundings))
    placed = dict.fromkeys(_place_in_user_file(finding, checked.shown) for finding in checked.findings)
    suppressions = suppress.collect(checked.comments, checked.texts, named.streams, known_codes())
    unsuppressed = suppress.apply(_merge_places(placed), suppressions)
    unquoted = (named.unquoted | running_files.unquoted).difference(named.checked)
    reported = (selection or Selection()).apply(_mask_secrets(unsuppressed, named.references, unquoted, env))
    declared = (source.name for source in (*named.topologies, *named.scenarios))
    return LintReport(
        findings=tuple(sorted(reported, key=Finding.sort_key)),
        texts={file: text for file, text in checked.texts.items() if file not in unquoted},
        files=tuple(sorted({*named.checked, *declared})),
        bundles=tuple(checked.bundles),
    )


def _check_gathered(
    named: GatheredFiles, running_files: GatheredFiles, workspace: Workspace, env: Mapping[str, str]
) -> CheckedFiles:
    """What is wrong with the files *named*, except for topologies and scenarios. Servers run with *running_files* now."""
    # What a rule says about a value that nobody knows is a guess.
    unknown = secrets.find_undefined_variables(named.references, env)
    judged = (finding for finding in check_workspace(workspace) if finding.span not in unknown)
    return CheckedFiles(
        findings=[*named.findings, *running_files.findings, *judged],
        texts={**running_files.texts, **named.texts},
        comments=list(named.comments),
        shown=dict(named.shown),
    )


def _mask_secrets(
    findings: Iterable[Finding], references: Iterable[Reference], unquoted: Collection[str], env: Mapping[str, str]
) -> Iterator[Finding]:
    """*findings* without secrets, which quote neither files that are *unquoted* nor variables that these define."""
    used = {
        reference.span for reference in references if reference.definition and reference.definition.file in unquoted
    }
    for finding in findings:
        span = finding.span
        yield secrets.mask(finding, env, quotes=span is None or not (span in used or span.file in unquoted))


def _merge_places(findings: Iterable[Finding]) -> Iterator[Finding]:
    """*findings* with one for each cause: what nine rendered servers have from one line of a topology is said once."""
    merged: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        key = (finding.code, finding.severity, finding.where, finding.message, finding.hint)
        earlier = merged.get(key)
        related = finding.related if earlier is None else tuple(dict.fromkeys((*earlier.related, *finding.related)))
        merged[key] = replace(finding if earlier is None else earlier, related=related)
    yield from merged.values()


def _place_in_user_file(finding: Finding, shown: Mapping[str, DisplayPlace]) -> Finding:
    """*finding* at a place in a file that the user has: what is not in one stays as a related place."""
    span = finding.span
    if span is None or not shown:
        return finding
    related = tuple(related_place for related_place in finding.related if related_place.span.file not in shown)
    if span.file not in shown:
        return replace(finding, related=related)
    place = shown[span.file]
    origin = Related(span=span, message=place.message)
    return replace(finding, where=place.span, related=(origin, *related), fix=())
