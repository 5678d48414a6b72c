"""Write a key such as `lost` into a region of a topology file, or take it out, and leave everything else in the file as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from vstream.syntax import yaml
from vstream.syntax.document import Document
from vstream.syntax.json_types import Json

LOST = "lost"
DRAINED = "drained"


def add_region_key(text: str, region: str, key: str, value: str | Mapping[str, str]) -> str | None:
    """The topology *text* with *key* in *region*; None if it must be written by hand, for example behind an alias."""
    document = _parse(text)
    at, path = document.source, ("regions", region)
    if path not in at.values or not isinstance(document.data, dict):
        return None
    start = _offset(text, at.values[path].line, at.values[path].column)
    entry = f"{key}: {_spell(value)}"
    if text[start : start + 1] == "{":
        following = text[start + 1 :].lstrip()[:1]
        if following == '"':
            entry = f"{json.dumps(key)}: {json.dumps(value if isinstance(value, str) else dict(sorted(value.items())))}"
        edited = text[: start + 1] + entry + ("" if following == "}" else ", ") + text[start + 1 :]
    else:
        indent = " " * (at.values[path].column - 1)
        line = start - len(indent)
        edited = f"{text[:line]}{indent}{entry}\n{text[line:]}"
    return edited if _parse(edited).data == _with(document.data, region, key, value) else None


def _spell(value: str | Mapping[str, str]) -> str:
    if isinstance(value, str):
        return value
    return f"{{{', '.join(f'{stream}: {home}' for stream, home in sorted(value.items()))}}}"


def remove_region_key(text: str, region: str, key: str) -> str | None:
    """The topology *text* without *key* in *region*; None if that has to be written by hand."""
    document = _parse(text)
    path = ("regions", region, key)
    if path not in document.source.keys or not isinstance(document.data, dict):
        return None
    key_span, value_span = document.source.keys[path], document.source.values[path]
    start = _offset(text, key_span.line, key_span.column)
    end = _offset(text, value_span.end_line, value_span.end_column)
    before, after = text[:start], text[end:]
    if re.search(r"(^|\n)[ \t]*$", before) and re.match(r"[ \t]*(#[^\n]*)?(\r?\n|$)", after):
        edited = before.rstrip(" \t") + re.sub(r"^[ \t]*(#[^\n]*)?\r?\n?", "", after, count=1)
    elif comma := re.match(r"\s*,[ \t]*", after):
        edited = before + after[comma.end() :]
    else:
        edited = re.sub(r",\s*$", "", before) + after
    return edited if _parse(edited).data == _with(document.data, region, key, None) else None


def _parse(text: str) -> Document:
    return yaml.parse(text.encode(), "topology")


def _with(data: dict[str, Json], region: str, key: str, value: str | Mapping[str, str] | None) -> Json:
    """What the document says with *value* as the region's *key*, or without it."""
    regions = data["regions"]
    assert isinstance(regions, dict)
    settings = regions[region]
    assert isinstance(settings, dict)
    rest = {name: setting for name, setting in settings.items() if name != key}
    if value is not None:
        rest[key] = value if isinstance(value, str) else {**value}
    return {**data, "regions": {**regions, region: rest}}


def _offset(text: str, line: int, column: int) -> int:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + column - 1
