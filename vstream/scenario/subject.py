"""Subjects of publishers: `foo.load.{region}.{key}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from vstream.subjects.algebra import FULL_WILDCARD, PARTIAL_WILDCARD

PLACEHOLDERS: Final = ("region", "key", "n")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def default_subject(pattern: str) -> str:
    """A subject of the stream's own *pattern* with a key in it, which nobody else uses."""
    tokens = pattern.split(".")
    if tokens[-1] == FULL_WILDCARD:
        tokens[-1] = "load.{region}.{key}"
    elif PARTIAL_WILDCARD in tokens:
        last = len(tokens) - 1 - tokens[::-1].index(PARTIAL_WILDCARD)
        tokens[last] = "load-{region}-{key}"
    return ".".join("load" if token == PARTIAL_WILDCARD else token for token in tokens)


def placeholders(template: str) -> list[str]:
    """The names of the placeholders in *template*, in their order."""
    return _PLACEHOLDER.findall(template)


def fill(template: str, values: Mapping[str, str | int]) -> str:
    """*template* with its placeholders replaced; those without a value stay."""
    return _PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), template)
