"""JSON values: their type, and what is an object among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


def read_object(value: Json) -> Mapping[str, Json]:
    """*value* if it is an object, an empty one if it is anything else."""
    return value if isinstance(value, dict) else {}
