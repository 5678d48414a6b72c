"""A topology as YAML that a person would write: short maps on one line, and comments beside their keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_PLAIN = re.compile(
    r"[A-Za-z_](?:[A-Za-z0-9_.>*/:-]*[A-Za-z0-9_.>*/-])?|(?:[0-9]+(?:ns|us|ms|s|m|h|d))+|[0-9]+(?:[KMGT]i?)?B"
)
"""Strings that never need quotes."""
_RESERVED_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
_MAX_WIDTH = 110
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_MAX_BYTE, _MAX_OF_FIRST_PLANE = 0xFF, 0xFFFF


def format_yaml(data: Mapping[str, Any], head: Iterable[str], beside: Mapping[str, str], tail: Iterable[str]) -> str:
    """
    The YAML of *data*, with comments: those of *head* above it, those of *tail* below.

    *beside* are comments behind the line of a key, by its path: `regions.east`.
    """
    lines = [*map(_write_comment, head)]
    for key, value in data.items():
        if isinstance(value, dict) and value and key in {"regions", "connect", "streams", "kv", "objects"}:
            lines.extend(["", f"{key}:"])
            for name, inner in value.items():
                lines.extend(_block(name, inner, 1, beside, key))
        else:
            lines.extend(_block(key, value, 0, beside, ""))
    below = [*map(_write_comment, tail)]
    return "\n".join([*lines, *(["", *below] if below else [])]) + "\n"


def _write_comment(line: str) -> str:
    # What servers say must not end the comment.
    return f"# {''.join(character if character.isprintable() else ' ' for character in line)}".rstrip()


def _block(key: str, value: Any, depth: int, beside: Mapping[str, str], above: str) -> Iterator[str]:
    """One key on a line, or on several if it is a map that is too long for one."""
    path = f"{above}.{key}" if above else key
    indent = "  " * depth
    line = f"{indent}{flow_value(key)}: {flow_value(value)}"
    comment = f"   {_write_comment(beside[path])}" if path in beside else ""
    is_stream = above == "streams"
    has_comment = any(commented.startswith(f"{path}.") for commented in beside)
    if isinstance(value, dict) and value and (is_stream or len(line) > _MAX_WIDTH or has_comment):
        yield f"{indent}{flow_value(key)}:{comment}"
        for name, inner in value.items():
            yield from _block(name, inner, depth + 1, beside, path)
    else:
        yield line + comment


def flow_value(value: Any) -> str:
    """*value* on one line."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict():
            return "{" + ", ".join(f"{flow_value(key)}: {flow_value(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(flow_value, value)) + "]"
        case str():
            return value if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED_WORDS else _quote(value)
        case _:
            return str(value)


def _quote(value: str) -> str:
    return f'"{"".join(map(_escape, value))}"'


def _escape(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    return character if character.isprintable() else _write_code(character)


def _write_code(character: str) -> str:
    number = ord(character)
    if number <= _MAX_BYTE:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= _MAX_OF_FIRST_PLANE else f"\\U{number:08x}"
