"""Results as JSON for other programs: each with the name and version of its schema."""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import TYPE_CHECKING, Any

import typer

from vstream.outputs import schema_id

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNPRINTABLE = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""What JSON leaves as it is, and a terminal does not show as it is."""


class JsonLayout(Enum):
    """How a result is divided into lines."""

    INDENTED = "indented"
    ROWS = "rows"
    """A line for each item of a list: Python indents ten times slower than it writes."""
    LINE = "line"
    """For results that come one after another."""


def print_json(name: str, result: Mapping[str, Any], *, layout: JsonLayout = JsonLayout.INDENTED) -> None:
    """Print *result* as the output *name* of `vstream.outputs`."""
    typer.echo(format_json(name, result, layout=layout))


def format_json(name: str, result: Mapping[str, Any], *, layout: JsonLayout = JsonLayout.INDENTED) -> str:
    """*result* as the output *name* of `vstream.outputs`, without characters that a terminal would obey."""
    document = {"schema": schema_id(name), **result}
    match layout:
        case JsonLayout.INDENTED:
            text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        case JsonLayout.ROWS:
            members = (f"{_dump(key)}: {_format_rows(value)}" for key, value in document.items())
            text = "{\n  " + ",\n  ".join(members) + "\n}"
        case JsonLayout.LINE:
            text = _dump(document)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _format_rows(value: object) -> str:
    if not isinstance(value, list) or not value:
        return _dump(value)
    return "[\n    " + ",\n    ".join(map(_dump, value)) + "\n  ]"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
