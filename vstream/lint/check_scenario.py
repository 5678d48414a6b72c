"""A scenario file's bytes → a scenario that the rules have looked at, its topology included."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace

from vstream.errors import InvalidInputError
from vstream.findings import Finding, Severity
from vstream.lint import rule
from vstream.lint.check_topology import check_document, check_topology
from vstream.lint.checked_files import CheckedFiles, LintContext
from vstream.lint.parse_files import Read, Source
from vstream.lint.rules.scenarios import RULES
from vstream.lint.rules.scenarios.context import ScenarioSubject
from vstream.lint.suppress import find_yaml_comments
from vstream.scenario.decode import join_path, resolve
from vstream.scenario.document import LANGUAGE, STARTER, ScenarioDocument
from vstream.scenario.model import Scenario
from vstream.syntax import yaml
from vstream.syntax.document import object_or_empty
from vstream.syntax.schema import DecodedDocument, decode_document
from vstream.syntax.yaml import Document, SourceMap
from vstream.topology.model import Topology
from vstream.value_class import value_class


@value_class
class CheckedScenario:
    """A scenario file that was read: *scenario* is None if errors leave none."""

    scenario: Scenario | None
    findings: tuple[Finding, ...]
    texts: Mapping[str, str]
    """The text of each file that findings may be about."""

    def require(self) -> Scenario:
        """The scenario. Raises InvalidInputError with everything that is wrong with the file, or with its topology."""
        if self.scenario is None or any(finding.is_error for finding in self.findings):
            raise InvalidInputError(self.findings)
        return self.scenario


@value_class
class _ScenarioTopology:
    """The topology of a scenario: *text* is that of a file of its own, and what is wrong with it."""

    topology: Topology | None = None
    text: str = ""
    findings: tuple[Finding, ...] = ()
    file: str | None = None


def check_scenario(
    content: bytes, file: str, read: Read, is_directory: Callable[[str], bool] = lambda _: True
) -> CheckedScenario:
    """
    Parse and check a scenario, and the topology that it names or holds.

    *read* gives the content of the topology file, by its name relative to where *file* is, and
    *is_directory* tells whether there is such a directory. Never raises: everything that is wrong is in the findings, file by file in their order.
    """
    document = yaml.parse(content, file)
    if not document.is_readable:
        problems = tuple(_add_starter_hint(problem) for problem in document.findings)
        return CheckedScenario(scenario=None, findings=problems, texts={file: document.text})
    decoded = decode_document(document, LANGUAGE)
    named = _check_topology(document, read)
    problems = _run_rules(decoded, named.topology, document.source)
    scenario = None
    if decoded.is_whole and not any(problem.is_error for problem in problems):
        scenario = _resolve(decoded.model, named, document)
    everything = (
        *decoded.findings,
        *problems,
        *named.findings,
        *_check_templates(scenario, document, is_directory),
    )
    texts = {file: document.text}
    if named.file and named.file.lower().endswith((".yaml", ".yml")):  # lines of another file may be secrets
        texts[named.file] = named.text
    return CheckedScenario(
        scenario=scenario,
        findings=tuple(sorted(everything, key=Finding.sort_key)),
        texts=texts,
    )


def check_scenario_file(source: Source, context: LintContext) -> CheckedFiles:
    """What is wrong with a scenario among other files, and with its topology. Imported late, by `late`."""
    checked = check_scenario(source.content, source.name, context.read, context.is_directory)
    document = yaml.parse(source.content, source.name)
    return CheckedFiles([*checked.findings], {**checked.texts}, [*find_yaml_comments(document)])


def _add_starter_hint(finding: Finding) -> Finding:
    return replace(finding, hint=STARTER) if finding.message == "the file is empty" else finding


def _run_rules(
    decoded: DecodedDocument[ScenarioDocument], topology: Topology | None, source: SourceMap
) -> tuple[Finding, ...]:
    if decoded.model is None:
        return ()
    subject = ScenarioSubject(document=decoded.model, topology=topology)
    return rule.run_rules(RULES, subject, source, unsure=decoded.removed)


def _resolve(model: ScenarioDocument | None, named: _ScenarioTopology, document: Document) -> Scenario | None:
    """The scenario that *model* means, None without a topology."""
    if model is None or named.topology is None:
        return None
    return resolve(
        model,
        document.source,
        named.topology,
        text=document.text,
        topology_text=named.text,
        directory=posixpath.dirname(document.source.file),
    )


def _check_topology(document: Document, read: Read) -> _ScenarioTopology:
    written = object_or_empty(document.data).get("topology")
    if isinstance(written, dict):
        inside = _sub_document(document, "topology")
        checked = check_document(inside)
        # JSON is YAML: the text stands for itself, without what the scenario has around it.
        text = json.dumps(written, indent=2, ensure_ascii=False) + "\n"
        return _ScenarioTopology(topology=checked.topology, text=text, findings=checked.findings)
    if not isinstance(written, str) or not written:
        return _ScenarioTopology()
    file = join_path(posixpath.dirname(document.source.file), written)
    try:
        content = read(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return _ScenarioTopology(
            findings=(
                Finding(
                    code="VS004",
                    severity=Severity.ERROR,
                    message=f"the topology `{file}` cannot be read: {reason}",
                    where=document.source.value_span(("topology",)),
                    hint="the path is relative to the scenario's file",
                ),
            )
        )
    checked = check_topology(content, file)
    return _ScenarioTopology(topology=checked.topology, text=checked.text, findings=checked.findings, file=file)


def _check_templates(
    scenario: Scenario | None, document: Document, is_directory: Callable[[str], bool]
) -> tuple[Finding, ...]:
    """Without its directory, a scenario would run on the built-in templates, and nobody would know."""
    directory = None if scenario is None else scenario.lab.templates
    if directory is None or is_directory(directory):
        return ()
    return (
        Finding(
            code="VS004",
            severity=Severity.ERROR,
            message=f"directory `{directory}` does not exist, or is outside of the repository of the scenario",
            where=document.source.value_span(("lab", "templates")),
            hint="the path is relative to the scenario's file",
        ),
    )


def _sub_document(document: Document, key: str) -> Document:
    """What stands under *key*, as a document of its own at the same place."""
    source = document.source
    values = {path[1:]: span for path, span in source.values.items() if path[:1] == (key,)}
    keys = {path[1:]: span for path, span in source.keys.items() if path[:1] == (key,)}
    data = object_or_empty(document.data).get(key)
    return Document(data=data, source=SourceMap(source.file, values, keys), text=document.text, findings=())
