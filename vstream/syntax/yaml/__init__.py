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

from vstream.diagnostics import Finding
from vstream.syntax.document import Document, Path, SourceMap
from vstream.syntax.yaml.compose import MAX_DEPTH, MAX_NODES, compose
from vstream.syntax.yaml.convert import convert
from vstream.syntax.yaml.text import MAX_BYTES, decode

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Document", "Path", "SourceMap", "parse"]


def parse(content: bytes, file: str) -> Document:
    """
    Parse one YAML document. Never raises: what is wrong becomes VS001 to VS004.

    Where the document cannot be read at all, data is None.
    """
    text = decode(content, file)
    if isinstance(text, Finding):
        return Document(data=None, source=SourceMap(file, {}, {}), text="", diagnostics=(text,))
    root, problems = compose(text, file)
    if root is None:
        return Document(data=None, source=SourceMap(file, {}, {}), text=text, diagnostics=tuple(problems))
    converted = convert(root)
    findings = sorted((*problems, *converted.diagnostics), key=Finding.sort_key)
    source = SourceMap(file, converted.values, converted.keys)
    return Document(data=converted.data, source=source, text=text, diagnostics=tuple(findings))
