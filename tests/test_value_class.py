"""Value classes: what dataclasses do, without code that is compiled for each class."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any

import pytest

from vstream.value_class import value_class


@value_class
class Parent:
    name: str
    seen: list[int] = field(default_factory=list, compare=False)
    secret: str | None = field(default=None, repr=False)


@value_class
class Child(Parent):
    age: int = 0


@value_class
class Nothing:
    pass


def test_values_are_equal_if_their_compared_fields_are() -> None:
    assert Parent(name="a", seen=[1]) == Parent(name="a", seen=[2])
    assert Parent(name="a") != Parent(name="a", secret="s")
    assert Parent(name="a") != Child(name="a")
    assert len({Child(name="a", seen=[1]), Child(name="a"), Child(name="b"), Nothing(), Nothing()}) == 3
    assert Parent(name="a").seen is not Parent(name="a").seen


def test_values_do_not_change_and_have_no_other_attributes() -> None:
    value: Any = Child(name="a")
    for name in ("age", "more"):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, 1)
    with pytest.raises(FrozenInstanceError):
        del value.age
    assert value == Child(name="a", age=0)


@pytest.mark.parametrize("given", [{}, {"name": "a", "nam": "b"}, {"age": 1}])
def test_a_field_that_is_missing_or_unknown_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="Child takes name, seen, secret, age"):
        Child(**given)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)), replace])
def test_copies_are_equal(copied: Any) -> None:
    value = Child(name="a", seen=[1], secret="s", age=2)
    assert copied(value) == value
    assert copied(value).seen == [1]
    assert copied(Nothing()) == Nothing()


def test_they_are_dataclasses_that_nothing_was_compiled_for() -> None:
    assert [each.name for each in fields(Child)] == ["name", "seen", "secret", "age"]
    assert asdict(Child(name="a")) == {"name": "a", "seen": [], "secret": None, "age": 0}
    assert repr(Child(name="a", secret="s")) == "Child(name='a', seen=[], age=0)"
    # Since 3.13 `dataclass` adds `__replace__`, which is the same function in every class.
    methods = [method for name, method in vars(Child).items() if hasattr(method, "__code__") and name != "__replace__"]
    assert {method.__code__.co_filename for method in methods} == {value_class.__code__.co_filename}
