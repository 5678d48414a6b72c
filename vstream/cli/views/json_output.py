"""Results as JSON for other programs: each with the name and version of its schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

import typer

from vstream.cli.lazy_group import load_late
from vstream.cli.views.cleaning import escape_surrogate
from vstream.findings import mask_secrets

_UNPRINTABLE = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""What JSON leaves as it is, and a terminal does not show as it is."""
_FIRST_SURROGATE, _LAST_SURROGATE = "\ud800", "\udfff"


class JsonLayout(Enum):
    """How a result is divided into lines."""

    INDENTED = "indented"
    ROWS = "rows"
    """A line for each item of a list: Python indents ten times slower than it writes."""
    LINE = "line"
    """For results that come one after another."""


def print_json(name: str, result: Mapping[str, Any], *, layout: JsonLayout = JsonLayout.INDENTED) -> None:
    """Print *result* as the output *name* of `vstream.outputs`, with secrets masked."""
    typer.echo(mask_secrets(format_json(name, result, layout=layout)))


def format_json(name: str, result: Mapping[str, Any], *, layout: JsonLayout = JsonLayout.INDENTED) -> str:
    """*result* as the output *name* of `vstream.outputs`, without characters that a terminal would obey."""
    schema = load_late("vstream.outputs").schema_id(name)  # Lines for people need no types of all outputs.
    return dump_json({"schema": schema, **result}, layout=layout)


def dump_json(document: Any, *, layout: JsonLayout = JsonLayout.INDENTED) -> str:
    """*document*, whose form another program prescribes, without characters that a terminal would obey."""
    match layout:
        case JsonLayout.INDENTED:
            text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        case JsonLayout.ROWS:
            members = (f"{_dump(key)}: {_format_rows(value)}" for key, value in document.items())
            text = "{\n  " + ",\n  ".join(members) + "\n}"
        case JsonLayout.LINE:
            text = _dump(document)
    return _UNPRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    """A character as JSON can write it; a byte that is no text, which JSON has nothing for, in hexadecimal."""
    character = match[0]
    if _FIRST_SURROGATE <= character <= _LAST_SURROGATE:
        return escape_surrogate(character).replace("\\", "\\\\")
    return f"\\u{ord(character):04x}"


def _format_rows(value: object) -> str:
    if not isinstance(value, list) or not value:
        return _dump(value)
    return "[\n    " + ",\n    ".join(map(_dump, value)) + "\n  ]"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
