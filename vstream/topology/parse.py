"""The beginning of the straight line: a topology file's bytes → the model, as far as the file can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from vstream.findings import Finding
from vstream.syntax import yaml
from vstream.syntax.schema import decode_document
from vstream.syntax.yaml import Document, Path, SourceMap
from vstream.syntax.yaml.overlay import lay_over
from vstream.topology import buckets, decode
from vstream.topology.document import TopologyDocument
from vstream.topology.model import Topology
from vstream.topology.schema_errors import LANGUAGE
from vstream.value_class import value_class


@value_class
class ReadableTopology:
    """What can be read of a topology file: all of it, or what is left without wrong values."""

    written: TopologyDocument
    document: TopologyDocument
    """What is *written*, with a stream for each bucket."""
    topology: Topology
    """What *document* resolves to."""
    source: SourceMap
    removed: tuple[Path, ...]
    """Where wrong values were taken out."""


@value_class
class ParsedTopology:
    """A topology file that was parsed. No rule has looked at it: `vstream.lint.check_topology` lets them."""

    text: str
    readable: ReadableTopology | None
    """None if what is wrong leaves nothing."""
    is_whole: bool
    """Whether *readable* is the whole file."""
    findings: tuple[Finding, ...]
    """What keeps the file, or values in it, from being read."""
    overlay_texts: Mapping[str, str] = field(default_factory=dict)
    """The files that were laid over it, by name."""


def parse_topology(content: bytes, file: str, overlays: Mapping[str, bytes] | None = None) -> ParsedTopology:
    """
    Parse and decode. Never raises: what cannot be read is in the findings.

    *overlays* are laid over the file one after the other, by name. The text of the result is JSON then.
    """
    document = yaml.parse(content, file)
    texts = {}
    for name, overlay_content in (overlays or {}).items():
        overlay = yaml.parse(overlay_content, name)
        texts[name] = overlay.text
        document = lay_over(document, overlay)
    return replace(parse_document(document), overlay_texts=texts)


def parse_document(document: Document) -> ParsedTopology:
    """Decode a document that is a topology, or was written as a part of another one."""
    decoded = decode_document(document, LANGUAGE)
    return ParsedTopology(
        text=document.text,
        readable=None if decoded.model is None else _resolve(decoded.model, document.source, decoded.removed),
        is_whole=decoded.is_whole,
        findings=decoded.findings,
    )


def _resolve(written: TopologyDocument, source: SourceMap, removed: tuple[Path, ...]) -> ReadableTopology:
    document = decode.with_new_homes(buckets.expand_buckets(written))
    topology = decode.resolve_document(document)
    return ReadableTopology(written=written, document=document, topology=topology, source=source, removed=removed)
