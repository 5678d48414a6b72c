"""`@value_class`: what nearly every class of vstream is, said once."""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value_class(cls: type[_Class]) -> type[_Class]:
    """
    Make a dataclass of *cls* whose instances are values: they never change, and are equal if their fields are.

    They take keyword arguments, and have no attributes but their fields. `dataclasses.replace`, `asdict` and `fields`
    work as with any dataclass. The methods that `dataclass` writes would be compiled for each class at every start.
    """
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    compared = [each.name for each in fields(made) if each.compare]
    read = attrgetter(*compared) if compared else type

    def is_equal(self: object, other: object) -> Any:
        return read(self) == read(other) if other.__class__ is self.__class__ else NotImplemented

    methods = {"init": _make_init(made), "eq": is_equal, "hash": lambda self: hash(read(self)), **_SHARED}
    for name, method in methods.items():
        if f"__{name}__" not in vars(cls):
            setattr(made, f"__{name}__", method)
    return made  # type: ignore[no-any-return]


def _make_init(made: Any) -> Any:
    setters = [(each.name, getattr(made, each.name).__set__) for each in fields(made)]
    defaults = {each.name: each.default for each in fields(made) if each.default is not MISSING}
    makers = [(each.name, each.default_factory) for each in fields(made) if each.default_factory is not MISSING]
    count = len(setters)

    def initialize(self: object, /, **values: Any) -> None:
        if len(values) != count:
            values = {**defaults, **values}
            for name, make in makers:
                if name not in values:
                    values[name] = make()
            if len(values) != count:
                raise TypeError(f"{made.__name__} takes {', '.join(dict(setters))}, not {', '.join(values)}")
        for name, set_field in setters:
            set_field(self, values[name])

    return initialize


def _describe(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__name__}({', '.join(shown)})"


def _refuse_change(_self: object, name: str, *_value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field '{name}'")


def _restore(self: object, state: tuple[None, dict[str, Any]]) -> None:
    for name, value in state[1].items():
        object.__setattr__(self, name, value)


_SHARED = {"repr": _describe, "setattr": _refuse_change, "delattr": _refuse_change, "setstate": _restore}
