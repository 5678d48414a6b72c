"""What tests of the NATS configuration language ask of a text."""

from __future__ import annotations

from vstream.findings import Finding, Span
from vstream.syntax.natsconf.nodes import ConfDocument, to_python
from vstream.syntax.natsconf.parser import parse

FILE = "n.conf"


def read_values(text: str, **env: str) -> object:
    """The plain values of *text*, which has no errors."""
    document = parse(text, FILE, env=env)
    assert errors(document) == []
    return to_python(document.root)


def errors(document: ConfDocument) -> list[Finding]:
    return [finding for finding in document.findings if finding.is_error]


def only(document: ConfDocument) -> Finding:
    (finding,) = document.findings
    return finding


def at(line: int, column: int, end_column: int, *, end_line: int | None = None, file: str = FILE) -> Span:
    return Span(file, line, column, end_line or line, end_column)
