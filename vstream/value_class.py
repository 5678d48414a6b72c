"""`@value_class`: what nearly every class of vstream is, said once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value_class(cls: type[_Class]) -> type[_Class]:
    """
    Make a dataclass of *cls* whose instances are values: they never change, and are equal if their fields are.

    They take keyword arguments, and have no attributes but their fields. `dataclasses.replace`, `asdict` and `fields`
    work as with any dataclass.
    """
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)
