"""`lint`: files in, findings out."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING

from vstream.diagnostics import Finding, Related, Severity
from vstream.errors import InvalidInputError
from vstream.lint import registry, secrets, suppress
from vstream.lint.gather import DisplayPlace, GatheredFiles, Read, Source, gather_sources
from vstream.lint.rules import rules_for
from vstream.lint.selection import Selection, known_codes
from vstream.lint.workspace import Workspace
from vstream.syntax.document import Document
from vstream.syntax.natsconf.nodes import Comment, Reference
from vstream.value_class import value_class

if TYPE_CHECKING:
    from pathlib import Path

    from vstream.lint.check_scenario import CheckedScenario
    from vstream.lint.check_topology import CheckedTopology
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import ServerVersion, Topology

_COULD_NOT = "VS004"
_TLS_FILES = b'cert_file: "server.pem"\nkey_file: "server-key.pem"\nca_file: "ca.pem"\n'
"""What `tls.cfg` is to name, which its owner writes."""


@value_class
class Surroundings:
    """What lies outside of the files that were given: other files, the environment, what topologies are rendered with."""

    read: Read
    env: Mapping[str, str] | None
    """The variables of the server's environment; None if nobody said which there are."""
    overlays: Mapping[str, bytes] = field(default_factory=dict)
    """Files that are laid over each topology, by name."""
    templates: Path | None = None
    """Those that win over the built-in ones."""
    is_directory: Callable[[str], bool] = lambda _: True
    """Whether a directory that a scenario names is there."""


@value_class
class LintReport:
    """Everything that was found, sorted; *texts* are those of the files, for what is shown of them."""

    diagnostics: tuple[Finding, ...]
    texts: Mapping[str, str]
    files: tuple[str, ...]
    """Those that were checked, sorted: neither what they include nor files of other programs."""
    bundles: tuple[Bundle, ...] = ()
    """What the topologies among them render to."""

    def has_any(self, least: Severity) -> bool:
        """Whether there is a finding that weighs *least* or more."""
        weights = list(Severity)
        return any(weights.index(finding.severity) <= weights.index(least) for finding in self.diagnostics)

    @property
    def is_complete(self) -> bool:
        """Whether everything could be read."""
        return all(finding.code != _COULD_NOT for finding in self.diagnostics)


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

    Rules run in three functions, each for its folders of rules: `check_topology`, `check_scenario`, and `_check_workspace` here.

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
        checked.add(_check_topology(source, surroundings, server_version))
    for source in named.scenarios:
        checked.add(_check_scenario(source, surroundings))
    placed = dict.fromkeys(_place_in_user_file(finding, checked.shown) for finding in checked.findings)
    suppressions = suppress.collect(checked.comments, checked.texts, named.streams, known_codes())
    unsuppressed = suppress.apply(_merge_places(placed), suppressions)
    unquoted = (named.unquoted | running_files.unquoted).difference(named.checked)
    reported = (selection or Selection()).apply(_mask_secrets(unsuppressed, named.references, unquoted, env))
    declared = (source.name for source in (*named.topologies, *named.scenarios))
    return LintReport(
        diagnostics=tuple(sorted(reported, key=Finding.sort_key)),
        texts={file: text for file, text in checked.texts.items() if file not in unquoted},
        files=tuple(sorted({*named.checked, *declared})),
        bundles=tuple(checked.bundles),
    )


@dataclass(slots=True)
class _CheckedFiles:
    """What is wrong with some files, and what it takes to place and suppress that: their texts and comments."""

    findings: list[Finding]
    texts: dict[str, str]
    comments: list[Comment]
    shown: dict[str, DisplayPlace] = field(default_factory=dict)
    bundles: list[Bundle] = field(default_factory=list)

    def add(self, other: _CheckedFiles) -> None:
        self.findings += other.findings
        self.texts |= other.texts
        self.comments += other.comments
        self.shown |= other.shown
        self.bundles += other.bundles


def _check_gathered(
    named: GatheredFiles, running_files: GatheredFiles, workspace: Workspace, env: Mapping[str, str]
) -> _CheckedFiles:
    """What is wrong with the files *named*, except for topologies and scenarios. Servers run with *running_files* now."""
    # What a rule says about a value that nobody knows is a guess.
    unknown = secrets.find_undefined_variables(named.references, env)
    judged = (finding for finding in _check_workspace(workspace) if finding.span not in unknown)
    return _CheckedFiles(
        findings=[*named.diagnostics, *running_files.diagnostics, *judged],
        texts={**running_files.texts, **named.texts},
        comments=list(named.comments),
        shown=dict(named.shown),
    )


def _check_topology(source: Source, surroundings: Surroundings, server_version: ServerVersion | None) -> _CheckedFiles:
    """What is wrong with a topology, and with what it renders to."""
    # Imported here, as what reads YAML and scenarios is: most runs have no topology.
    parser = import_module("vstream.lint.check_topology")
    loaded: CheckedTopology = parser.check_topology(source.content, source.name, surroundings.overlays)
    document = _parse_yaml(source)
    checked = _CheckedFiles(
        findings=list(loaded.diagnostics),
        texts=dict(loaded.overlay_texts),
        comments=_list_comments(document, source.name),
    )
    if loaded.topology is None or any(finding.is_error for finding in checked.findings):
        return checked
    try:
        bundle = import_module("vstream.render.pipeline").render_sample(loaded.topology, surroundings.templates)
    except InvalidInputError as error:
        checked.findings += error.diagnostics
        return checked
    checked.bundles.append(bundle)
    checked.shown |= _find_causes(bundle, document, source.name)
    # One after the other: those of thousands of streams do not fit into a small memory twice.
    files = ((f"{source.name}/{artifact.path}", artifact.text.encode()) for artifact in bundle.artifacts)
    sources = (Source(name=name, content=content, is_named=False) for name, content in files)
    rendered = gather_sources(sources, read=_read_placeholder)
    checked.texts |= rendered.texts
    checked.findings += rendered.diagnostics
    checked.findings += _check_workspace(replace(rendered.workspace(loaded.topology, server_version), is_rendered=True))
    return checked


def _find_causes(bundle: Bundle, document: Document, name: str) -> dict[str, DisplayPlace]:
    """By rendered file, the place in the topology that causes it: there its findings are shown."""
    causes = {}
    for artifact in bundle.artifacts:
        span = document.source.key_span(artifact.origin) if artifact.origin else document.source.value_span(())
        causes[f"{name}/{artifact.path}"] = DisplayPlace(span=span, message=f"in the rendered file `{artifact.path}`")
    return causes


def _check_scenario(source: Source, surroundings: Surroundings) -> _CheckedFiles:
    check_scenario = import_module("vstream.lint.check_scenario").check_scenario
    scenario: CheckedScenario = check_scenario(
        source.content, source.name, surroundings.read, surroundings.is_directory
    )
    document = _parse_yaml(source)
    return _CheckedFiles([*scenario.diagnostics], {**scenario.texts}, _list_comments(document, source.name))


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


def _parse_yaml(source: Source) -> Document:
    # Imported here: most runs have no YAML, and its parser takes as long to import as a small file to check.
    document: Document = import_module("vstream.syntax.yaml").parse(source.content, source.name)
    return document


def _list_comments(document: Document, file: str) -> list[Comment]:
    """The comments of a YAML file that may suppress something."""
    places = document.source
    spans = {*places.values.values(), *places.keys.values()}
    leaves = [span for span in spans if span != places.value_span(()) and span.line == span.end_line]
    return list(suppress.find_yaml_comments(document.text, file, Comment, leaves))


def _check_workspace(workspace: Workspace) -> tuple[Finding, ...]:
    return registry.run_rules(rules_for(workspace), workspace)


def _read_placeholder(name: str) -> bytes:
    """
    What stands for an included file, whose servers have it from elsewhere: passwords, addresses of hubs, TLS files.

    The mappings and accounts, which are rendered, are read beside the servers, and checked once.
    """
    bundle = import_module("vstream.topology.bundle")
    if posixpath.basename(name) == bundle.TLS_PATH:
        return _TLS_FILES
    placeholder: str | None = bundle.placeholder_for(name)
    return (placeholder or "").encode()


def _merge_places(findings: Iterable[Finding]) -> Iterator[Finding]:
    """*findings* with one for each cause: what nine rendered servers have from one line of a topology is said once."""
    merged: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        key = (finding.code, finding.severity, finding.where, finding.message, finding.hint)
        earlier = merged.get(key)
        related = finding.related if earlier is None else tuple(dict.fromkeys((*earlier.related, *finding.related)))
        merged[key] = replace(finding if earlier is None else earlier, related=related)
    yield from merged.values()


def _place_in_user_file(diagnostic: Finding, shown: Mapping[str, DisplayPlace]) -> Finding:
    """*diagnostic* at a place in a file that the user has: what is not in one stays as a related place."""
    span = diagnostic.span
    if span is None or not shown:
        return diagnostic
    related = tuple(related_place for related_place in diagnostic.related if related_place.span.file not in shown)
    if span.file not in shown:
        return replace(diagnostic, related=related)
    place = shown[span.file]
    origin = Related(span=span, message=place.message)
    return replace(diagnostic, where=place.span, related=(origin, *related), fix=())
