"""The beginning of the straight line: a topology file's bytes → a checked topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from vstream.diagnostics import Finding
from vstream.errors import InvalidInputError
from vstream.lint import registry
from vstream.lint.rules.topology import RULES
from vstream.lint.rules.topology.context import TopologySubject
from vstream.syntax import yaml
from vstream.syntax.schema import readable_part, validate
from vstream.syntax.yaml import Document
from vstream.syntax.yaml.overlay import lay_over
from vstream.topology import buckets, decode
from vstream.topology.model import Topology
from vstream.topology.schema_errors import LANGUAGE
from vstream.value_class import value_class


@value_class
class ParsedTopology:
    """A topology file that was read: the topology is None if the file's errors leave none."""

    text: str
    topology: Topology | None
    diagnostics: tuple[Finding, ...]
    overlay_texts: Mapping[str, str] = field(default_factory=dict)
    """The files that were laid over it, by name."""

    def require(self) -> Topology:
        """The topology. Raises InvalidInputError with everything that is wrong with the file."""
        if self.topology is None or any(diagnostic.is_error for diagnostic in self.diagnostics):
            raise InvalidInputError(self.diagnostics)
        return self.topology


def parse_topology(content: bytes, file: str, overlays: Mapping[str, bytes] | None = None) -> ParsedTopology:
    """
    Parse, decode and check. Never raises: everything that is wrong is in the diagnostics, in the file's order.

    *overlays* are laid over the file one after the other, by name. The text of the result is JSON then.
    """
    document = yaml.parse(content, file)
    texts = {}
    for name, overlay_content in (overlays or {}).items():
        overlay = yaml.parse(overlay_content, name)
        texts[name] = overlay.text
        document = lay_over(document, overlay)
    return replace(check_document(document), overlay_texts=texts)


def check_document(document: Document) -> ParsedTopology:
    """Decode and check a document that is a topology, or was written as a part of another one."""
    topology, findings = _decode_and_check(document) if document.is_readable else (None, ())
    ordered = tuple(sorted((*document.diagnostics, *findings), key=Finding.sort_key))
    return ParsedTopology(text=document.text, topology=topology, diagnostics=ordered)


def _decode_and_check(document: Document) -> tuple[Topology | None, tuple[Finding, ...]]:
    shaped, diagnostics = validate(document, LANGUAGE)
    if shaped is None:
        return None, (*diagnostics, *_check_readable_part(document))
    whole = decode.with_new_homes(buckets.expand_buckets(shaped))
    topology = decode.resolve_document(whole)
    subject = TopologySubject(document=whole, topology=topology, written=shaped.streams)
    return topology, registry.run_rules(RULES, subject, document.source, written_at=buckets.locate_in_document(shaped))


def _check_readable_part(document: Document) -> tuple[Finding, ...]:
    """What the rules find in a document with wrong values, apart from these."""
    part = readable_part(document, LANGUAGE)
    if part is None:
        return ()
    shaped, unsure = part
    whole = decode.with_new_homes(buckets.expand_buckets(shaped))
    subject = TopologySubject(document=whole, topology=decode.resolve_document(whole), written=shaped.streams)
    return registry.run_rules(
        RULES, subject, document.source, unsure=unsure, written_at=buckets.locate_in_document(shaped)
    )
