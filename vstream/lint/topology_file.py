"""A topology among the files: what is wrong with it, and with what it renders to. Imported late, by `late`."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from vstream.errors import InvalidInputError
from vstream.lint.check_topology import check_topology
from vstream.lint.checked_files import CheckedFiles, LintContext
from vstream.lint.parse_files import DisplayPlace, Source, parse_sources
from vstream.lint.rules import check_workspace
from vstream.lint.suppress import find_yaml_comments
from vstream.render.pipeline import render_sample
from vstream.syntax import yaml
from vstream.syntax.document import Document
from vstream.topology.bundle import TLS_PATH, Bundle, placeholder_for
from vstream.topology.model import ServerVersion

_TLS_FILES = b'cert_file: "server.pem"\nkey_file: "server-key.pem"\nca_file: "ca.pem"\n'
"""What `tls.cfg` is to name, which its owner writes."""


def check_topology_and_bundle(
    source: Source, context: LintContext, server_version: ServerVersion | None
) -> CheckedFiles:
    """What is wrong with a topology, and with what it renders to."""
    topology_file = check_topology(source.content, source.name, context.overlays)
    document = yaml.parse(source.content, source.name)
    checked = CheckedFiles(
        findings=list(topology_file.findings),
        texts=dict(topology_file.overlay_texts),
        comments=list(find_yaml_comments(document)),
    )
    if topology_file.topology is None or any(finding.is_error for finding in checked.findings):
        return checked
    try:
        bundle = render_sample(topology_file.topology, context.templates)
    except InvalidInputError as error:
        checked.findings += error.findings
        return checked
    checked.bundles.append(bundle)
    checked.display_places |= _find_causes(bundle, document, source.name)
    # One after the other: those of thousands of streams do not fit into a small memory twice.
    files = ((f"{source.name}/{artifact.path}", artifact.text.encode()) for artifact in bundle.artifacts)
    sources = (Source(name=name, content=content, is_named=False) for name, content in files)
    rendered = parse_sources(sources, read=_read_placeholder)
    checked.texts |= rendered.texts
    checked.findings += rendered.findings
    checked.findings += check_workspace(
        replace(rendered.workspace(topology_file.topology, server_version), is_rendered=True)
    )
    return checked


def _find_causes(bundle: Bundle, document: Document, name: str) -> dict[str, DisplayPlace]:
    """By rendered file, the place in the topology that causes it: there its findings are shown."""
    causes = {}
    for artifact in bundle.artifacts:
        span = document.source.key_span(artifact.origin) if artifact.origin else document.source.value_span(())
        causes[f"{name}/{artifact.path}"] = DisplayPlace(span=span, message=f"in the rendered file `{artifact.path}`")
    return causes


def _read_placeholder(name: str) -> bytes:
    """
    What stands for an included file, whose servers have it from elsewhere: passwords, addresses of hubs, TLS files.

    The mappings and accounts, which are rendered, are read beside the servers, and checked once.
    """
    if posixpath.basename(name) == TLS_PATH:
        return _TLS_FILES
    return (placeholder_for(name) or "").encode()
