"""A topology file's bytes → a topology that the rules have looked at: what every command asks for that needs one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from vstream.errors import InvalidInputError
from vstream.findings import Finding
from vstream.lint import rule
from vstream.lint.rules.topology import RULES
from vstream.lint.rules.topology.context import TopologySubject
from vstream.syntax.yaml import Document
from vstream.topology.buckets import locate_in_document
from vstream.topology.model import Topology
from vstream.topology.parse import ParsedTopology, ReadableTopology, parse_document, parse_topology
from vstream.value_class import value_class


@value_class
class CheckedTopology:
    """A topology file that was checked: the topology is None if the file's errors leave none."""

    text: str
    topology: Topology | None
    findings: tuple[Finding, ...]
    overlay_texts: Mapping[str, str] = field(default_factory=dict)
    """The files that were laid over it, by name."""

    def require(self) -> Topology:
        """The topology. Raises InvalidInputError with everything that is wrong with the file."""
        if self.topology is None or any(finding.is_error for finding in self.findings):
            raise InvalidInputError(self.findings)
        return self.topology


def check_topology(content: bytes, file: str, overlays: Mapping[str, bytes] | None = None) -> CheckedTopology:
    """
    Parse and check, with *overlays* laid over the file one after the other, by name.

    Never raises: everything that is wrong is in the findings, in the file's order.
    """
    return _check(parse_topology(content, file, overlays))


def check_document(document: Document) -> CheckedTopology:
    """Check a document that is a topology, or was written as a part of another one."""
    return _check(parse_document(document))


def _check(parsed: ParsedTopology) -> CheckedTopology:
    readable = parsed.readable
    problems = () if readable is None else _run_rules(readable)
    return CheckedTopology(
        text=parsed.text,
        topology=readable.topology if readable and parsed.is_whole else None,
        findings=tuple(sorted((*parsed.findings, *problems), key=Finding.sort_key)),
        overlay_texts=parsed.overlay_texts,
    )


def _run_rules(readable: ReadableTopology) -> tuple[Finding, ...]:
    written = readable.written
    subject = TopologySubject(
        document=readable.document, topology=readable.topology, written=written.streams, removed=readable.removed
    )
    return rule.run_rules(
        RULES, subject, readable.source, unsure=readable.removed, written_at=locate_in_document(written)
    )
