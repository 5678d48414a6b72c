"""
YAML with positions.

PyYAML's parser gives events; what they mean is decided here, by the YAML 1.2 core
schema (`no` is a word, `12:30` is not a number), and every key is text. The tree that
is built of them also shows what a loader hides: keys written twice, aliases that
explode. No tag ever constructs an object.

`parse` takes time and memory in proportion to the file, whatever it says: nesting,
values and what aliases multiply are bounded.
"""

from __future__ import annotations

import codecs
import re

from yaml.reader import Reader

from vstream.findings import Finding, Severity, Span
from vstream.syntax.document import Document, Path, SourceMap
from vstream.syntax.yaml.compose import MAX_DEPTH, MAX_NODES, compose
from vstream.syntax.yaml.convert import convert

MAX_BYTES = 32 * 1024 * 1024

_FORBIDDEN = Reader.NON_PRINTABLE


def decode(content: bytes, file: str) -> str | Finding:
    """The text of *content* without its byte order mark, or why it is none (VS004)."""
    if len(content) > MAX_BYTES:
        message = f"the file has {len(content):,} bytes, more than the {MAX_BYTES:,} that a topology may have"
        return _make_problem(file, "", message, "is this the right file?")
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _make_problem(file, "", "the file is UTF-16 text", "save the file as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Python counts from behind the byte order mark.
        start = error.start + len(content) - len(error.object)
        before = content[:start].decode("utf-8-sig", errors="replace")
        return _make_problem(file, before, f"not UTF-8 text: byte 0x{content[start]:02x}", "save the file as UTF-8")
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        message = f"the character U+{ord(forbidden[0]):04X} cannot stand in YAML"
        return _make_problem(file, text[: forbidden.start()], message, "remove it; is this a text file?")
    return text


def _make_problem(file: str, before: str, message: str, hint: str) -> Finding:
    """A finding at the character that follows *before*."""
    lines = re.split(r"\r\n|[\n\r\x85\u2028\u2029]", before)
    span = Span.point(file, len(lines), len(lines[-1]) + 1)
    return Finding(code="VS004", severity=Severity.ERROR, message=message, where=span, hint=hint)


__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Document", "Path", "SourceMap", "parse"]


def parse(content: bytes, file: str) -> Document:
    """
    Parse one YAML document. Never raises: what is wrong becomes VS001 to VS004.

    Where the document cannot be read at all, data is None.
    """
    text = decode(content, file)
    if isinstance(text, Finding):
        return Document(data=None, source=SourceMap(file, {}, {}), text="", findings=(text,))
    root, problems = compose(text, file)
    if root is None:
        return Document(data=None, source=SourceMap(file, {}, {}), text=text, findings=tuple(problems))
    converted = convert(root)
    findings = sorted((*problems, *converted.findings), key=Finding.sort_key)
    source = SourceMap(file, converted.values, converted.keys)
    return Document(data=converted.data, source=source, text=text, findings=tuple(findings))
