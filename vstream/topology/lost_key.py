"""Write `lost` into a region of a topology file, or take it out, and leave everything else in the file as it is."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from vstream.syntax import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.diagnostics import Span
    from vstream.syntax.document import Document
    from vstream.syntax.json_types import Json

KEY = "lost"


def add_lost_key(text: str, region: str, homes: Mapping[str, str]) -> str | None:
    """The topology *text* in which *region* is lost; None if it has to be written by hand, such as behind an alias."""
    document = _parse(text)
    at, path = document.source, ("regions", region)
    if path not in at.values or not isinstance(document.data, dict):
        return None
    start = _offset(text, at.values[path].line, at.values[path].column)
    value = dict(sorted(homes.items()))
    entry = f"{KEY}: {{{', '.join(f'{stream}: {home}' for stream, home in value.items())}}}"
    if text[start : start + 1] == "{":
        following = text[start + 1 :].lstrip()[:1]
        if following == '"':
            entry = f"{json.dumps(KEY)}: {json.dumps(value)}"
        edited = text[: start + 1] + entry + ("" if following == "}" else ", ") + text[start + 1 :]
    else:
        indent = " " * (at.values[path].column - 1)
        line = start - len(indent)
        edited = f"{text[:line]}{indent}{entry}\n{text[line:]}"
    return edited if _parse(edited).data == _with(document.data, region, value) else None


def remove_lost_key(text: str, region: str) -> str | None:
    """The topology *text* in which *region* is not lost; None if that has to be written by hand."""
    document = _parse(text)
    path = ("regions", region, KEY)
    if path not in document.source.keys or not isinstance(document.data, dict):
        return None
    key, value = document.source.keys[path], document.source.values[path]
    start, end = _offset(text, key.line, key.column), _end(text, value)
    before, after = text[:start], text[end:]
    if re.search(r"(^|\n)[ \t]*$", before) and re.match(r"[ \t]*(#[^\n]*)?(\r?\n|$)", after):
        edited = before.rstrip(" \t") + re.sub(r"^[ \t]*(#[^\n]*)?\r?\n?", "", after, count=1)
    elif comma := re.match(r"\s*,[ \t]*", after):
        edited = before + after[comma.end() :]
    else:
        edited = re.sub(r",\s*$", "", before) + after
    return edited if _parse(edited).data == _with(document.data, region, None) else None


def _parse(text: str) -> Document:
    return yaml.parse(text.encode(), "topology")


def _with(data: dict[str, Json], region: str, homes: dict[str, str] | None) -> Json:
    """What the document says with *homes* as the region's `lost`, or without it."""
    regions = data["regions"]
    assert isinstance(regions, dict)
    settings = regions[region]
    assert isinstance(settings, dict)
    rest = {key: value for key, value in settings.items() if key != KEY}
    return {**data, "regions": {**regions, region: rest if homes is None else {**rest, KEY: {**homes}}}}


def _offset(text: str, line: int, column: int) -> int:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + column - 1


def _end(text: str, span: Span) -> int:
    return _offset(text, span.end_line, span.end_column)
