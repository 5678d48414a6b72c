"""`lint`: files in, findings out."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from vstream.diagnostics import Finding, Related, Severity, Span
from vstream.errors import InvalidInputError
from vstream.lint import registry, secrets, suppress
from vstream.lint.read import Gathered, Read, Shown, Source, gather
from vstream.lint.rules import rules_for
from vstream.lint.selection import Selection, known_codes
from vstream.lint.workspace import Workspace
from vstream.syntax.document import Document
from vstream.syntax.natsconf.nodes import Comment
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.lint.load_scenario import LoadedScenario
    from vstream.lint.load_topology import LoadedTopology
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import ServerVersion, Topology

_COULD_NOT = "VS004"
_TLS_FILES = b'cert_file: "server.pem"\nkey_file: "server-key.pem"\nca_file: "ca.pem"\n'
"""What `tls.cfg` is to name, which its owner writes."""


Load: TypeAlias = "Callable[[bytes, str], LoadedTopology]"
LoadScenario: TypeAlias = "Callable[[bytes, str], LoadedScenario]"
Render: TypeAlias = "Callable[[Topology], Bundle]"


@value_class
class Surroundings:
    """What lies outside of the files that were given: other files, the environment, how topologies are read."""

    read: Read
    env: Mapping[str, str] | None
    """The variables of the server's environment; None if nobody said which there are."""
    load: Load
    load_scenario: LoadScenario
    render: Render


@value_class
class LintReport:
    """Everything that was found, sorted; *texts* are those of the files, for what is shown of them."""

    diagnostics: tuple[Finding, ...]
    texts: Mapping[str, str]
    files: tuple[str, ...]
    """Those that were checked, sorted: neither what they include nor files of other programs."""

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

    *topology* is what the other files are checked against. *server_version* is the oldest server that has
    to understand them; without it, the topology says, or it is 2.10.
    *selection* says what is reported; by default everything but policy. *running* are the files that the servers
    run with now.
    """
    gathered = gather(sources, read=surroundings.read, env=surroundings.env)
    unknown = secrets.unknown_places(gathered.references, surroundings.env or {})
    now_loaded = gather(running, read=surroundings.read, env=surroundings.env)
    judged = _judge(replace(gathered.workspace(topology, server_version), running=tuple(now_loaded.servers)))
    # What a rule says about a value that nobody knows is a guess.
    findings = [
        *gathered.diagnostics,
        *now_loaded.diagnostics,
        *(finding for finding in judged if finding.span not in unknown),
    ]
    shown = dict(gathered.shown)
    texts = {**now_loaded.texts, **gathered.texts}
    comments = list(gathered.comments)
    for source in gathered.topologies:
        linted = _LintedTopology(source, surroundings, server_version)
        findings += linted.diagnostics
        shown |= linted.shown
        texts |= linted.texts
        comments += linted.comments
    for source in gathered.scenarios:
        scenario = surroundings.load_scenario(source.content, source.name)
        findings += scenario.diagnostics
        texts |= scenario.texts
        comments += _comments(_parse_yaml(source), source.name)
    placed = {_place_in_user_file(finding, shown): None for finding in findings}
    suppressions = suppress.collect(comments, texts, gathered.streams, known_codes())
    unsuppressed = suppress.apply(_merge_places(placed), suppressions)
    unquoted = (gathered.unquoted | now_loaded.unquoted).difference(gathered.checked)
    used = {place.span for place in gathered.references if place.definition and place.definition.file in unquoted}

    def quotes(span: Span | None) -> bool:
        return span is None or not (span in used or span.file in unquoted)

    masked = (secrets.mask(finding, surroundings.env or {}, quotes=quotes(finding.span)) for finding in unsuppressed)
    reported = (selection or Selection()).apply(masked)
    declared = (source.name for source in (*gathered.topologies, *gathered.scenarios))
    return LintReport(
        diagnostics=tuple(sorted(reported, key=Finding.sort_key)),
        texts={file: text for file, text in texts.items() if file not in unquoted},
        files=tuple(sorted({*gathered.checked, *declared})),
    )


def _parse_yaml(source: Source) -> Document:
    # Imported here: most runs have no YAML, and its parser takes as long to import as a small file to check.
    document: Document = import_module("vstream.syntax.yaml").parse(source.content, source.name)
    return document


def _comments(document: Document, file: str) -> list[Comment]:
    """The comments of a YAML file that may suppress something."""
    places = document.source
    spans = {*places.values.values(), *places.keys.values()}
    leaves = [span for span in spans if span != places.value(()) and span.line == span.end_line]
    return list(suppress.yaml_comments(document.text, file, Comment, leaves))


def _judge(workspace: Workspace) -> tuple[Finding, ...]:
    return registry.run_rules(rules_for(workspace), workspace)


class _LintedTopology:
    """A topology: what is wrong with it, and with what it renders to."""

    def __init__(self, source: Source, surroundings: Surroundings, server_version: ServerVersion | None) -> None:
        self.shown: dict[str, Shown] = {}
        self.texts: dict[str, str] = {}
        loaded = surroundings.load(source.content, source.name)
        self.texts |= loaded.overlay_texts
        self.diagnostics = list(loaded.diagnostics)
        self._document = _parse_yaml(source)
        self.comments = _comments(self._document, source.name)
        if loaded.topology is not None and not any(finding.is_error for finding in self.diagnostics):
            try:
                bundle = surroundings.render(loaded.topology)
            except InvalidInputError as error:
                self.diagnostics += error.diagnostics
            else:
                self.diagnostics += self._judge_bundle(source.name, bundle, loaded.topology, server_version)

    def _judge_bundle(
        self, name: str, bundle: Bundle, topology: Topology, server_version: ServerVersion | None
    ) -> Iterator[Finding]:
        """What is wrong with the bundle, shown at the place in the topology that causes it."""

        def write() -> Iterator[Source]:
            """One after the other: those of thousands of streams do not fit into a small memory twice."""
            for artifact in bundle.artifacts:
                file, origin = f"{name}/{artifact.path}", artifact.origin
                span = self._document.source.key(origin) if origin else self._document.source.value(())
                self.shown[file] = Shown(span=span, message=f"in the rendered file `{artifact.path}`")
                yield Source(name=file, content=artifact.text.encode(), is_named=False)

        gathered: Gathered = gather(write(), read=_read_placeholder)
        self.texts |= gathered.texts
        yield from gathered.diagnostics
        yield from _judge(replace(gathered.workspace(topology, server_version), is_rendered=True))


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


def _place_in_user_file(diagnostic: Finding, shown: Mapping[str, Shown]) -> Finding:
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
