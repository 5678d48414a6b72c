"""Variables and included files of the NATS configuration language, and how deep all of it may go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.natsconf import FILE, at, errors, only, read_values
from vstream.syntax.natsconf.nodes import ConfArray, ConfDocument, ConfMap, ConfScalar, ScalarKind, to_python
from vstream.syntax.natsconf.parser import parse

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x: 5, a: $x", 5),
        ("x: 5, m { x: 6, n [ $x ] }, a: $m", {"x": 6, "n": [6]}),
        ("x: [1, {b: 2} ], a: $x", [1, {"b": 2}]),
        ("x: 1, y: $x, x: 2, a: $y", 1),
        ("a: $NUMBER", 12_000),
        ("a: $BOOL", True),
        ("a: $WORDS", ["a", {"b": "hello"}]),
        ("a: $EMPTY", ""),
        ("a: $HASH", "$2a$11$abc"),
        ("NUMBER: 7, a: $NUMBER", 7),
        ("a: b$NUMBER", "b$NUMBER"),
        ('a: "$NUMBER"', "$NUMBER"),
    ],
)
def test_a_variable_is_looked_up_around_it_and_then_in_the_environment(text: str, value: object) -> None:
    env = {
        "NUMBER": "12k",
        "BOOL": "yes",
        "WORDS": "[a, {b: $WORD}]",
        "WORD": "hello",
        "EMPTY": "",
        "HASH": "$2a$11$abc",
    }
    values = read_values(text, **env)
    assert isinstance(values, dict)
    assert values["a"] == value


def test_a_reference_keeps_its_place_and_knows_its_definition() -> None:
    document = parse("x: 5\na: [ $x ]\nb: $HOME", FILE, env={"HOME": "/root"})
    array = document.root.get("a")
    assert isinstance(array, ConfArray)
    assert array.items[0] == ConfScalar(5, ScalarKind.INTEGER, "$x", at(2, 6, 8))
    assert [(reference.name, reference.span, reference.definition) for reference in document.references] == [
        ("x", at(2, 6, 8), at(1, 1, 2)),
        ("HOME", at(3, 4, 9), None),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: $nothing", "the variable `nothing` is not defined"),
        ("a: $x, x: 1", "the variable `x` is not defined"),
        ("m { x: 1 }, a: $x", "the variable `x` is not defined"),
        ("a: $2b$11$abc", "the variable `2b$11$abc` is not defined"),
        ("a: $", "the variable `` is not defined"),
        ("a: $LOOP", "the value of `LOOP` in the environment cannot be read: the value of `POOL` in the environment cannot be read: the variable `LOOP` refers to itself: `LOOP` → `POOL` → `LOOP`"),
        ("a: $BAD", "the value of `BAD` in the environment cannot be read: `b` cannot follow a value here"),
        ("a: $NONE", "the value of `NONE` in the environment is none"),
        ("a: $V0", None),
    ],
)  # fmt: skip
def test_a_variable_without_a_value_is_vs012_and_reading_goes_on(text: str, message: str | None) -> None:
    env = {"LOOP": "$POOL", "POOL": "$LOOP", "BAD": "a b", "NONE": "1kbb"} | {f"V{n}": f"$V{n + 1}" for n in range(500)}
    document = parse(f"{text}\nafter: 1", FILE, env=env)
    error = only(document)
    assert error.code == "VS012"
    assert message is None or error.message == message
    assert error.span is not None
    assert error.span.line == 1
    node = document.root.get("a")
    assert isinstance(node, ConfScalar)
    assert node.kind is ScalarKind.UNRESOLVED
    assert document.root.get("after") is not None


def test_the_environment_is_empty_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSTREAM_NATSCONF", "1")
    assert only(parse("a: $VSTREAM_NATSCONF", FILE)).code == "VS012"


def files(known: Mapping[str, str], text: str, **env: str) -> ConfDocument:
    def include(path: str, including: str) -> tuple[str, str]:
        if path == "broken":
            raise ValueError(f"{including} asked")
        if path not in known:
            raise FileNotFoundError(2, "No such file or directory")
        return path, known[path]

    return parse(text, FILE, include=include, env=env)


def test_included_entries_stand_where_the_directive_stood_with_their_own_places() -> None:
    document = files(
        {"a.cfg": "# c\nx: 1\nINCLUDE b.cfg", "b.cfg": "y [2 ]"}, "x: 0\nm { include 'a.cfg'; z: $y }\nx: 3"
    )
    assert document.findings == ()
    assert to_python(document.root) == {"x": 3, "m": {"x": 1, "y": [2], "z": [2]}}
    inner = document.root.get("m")
    assert isinstance(inner, ConfMap)
    assert [entry.key_span for entry in inner.entries] == [
        at(2, 1, 2, file="a.cfg"),
        at(1, 1, 2, file="b.cfg"),
        at(2, 22, 23),
    ]
    assert [comment.span.file for comment in document.comments] == ["a.cfg"]


def test_only_the_bare_word_before_a_space_is_a_directive() -> None:
    assert read_values("include: 1, 'Include' 2") == {"include": 1, "Include": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("include gone.cfg", "cannot include `gone.cfg`: No such file or directory"),
        ("include broken", "cannot include `broken`: n.conf asked"),
        ("include 'self.cfg'", "cannot include `self.cfg`: it includes itself: `n.conf` → `self.cfg` → `self.cfg`"),
        ("include $DIR", "cannot include `$DIR`: No such file or directory"),
        ("include c0", "cannot include `c31`: include directives are nested deeper than 32 levels"),
    ],
)
def test_a_file_that_cannot_be_included_is_vs011_and_reading_goes_on(text: str, message: str) -> None:
    chain = {f"c{n}": f"include c{n + 1}" for n in range(500)}
    document = files({"self.cfg": "include self.cfg"} | chain, f"{text}\nafter: 1")
    error = only(document)
    assert (error.code, error.message) == ("VS011", message)
    assert error.hint
    assert document.root.get("after") is not None


def test_includes_without_end_are_cut_off() -> None:
    doubling = {f"d{n}": f"include d{n + 1}\ninclude d{n + 1}" for n in range(30)} | {"d30": ""}
    assert {error.code for error in files(doubling, "include d0").findings} == {"VS011"}


def test_without_a_way_to_include_a_directive_is_an_error() -> None:
    assert only(parse("include x", FILE)).message == "cannot include `x`: include directives are not followed here"


def test_a_syntax_error_in_an_included_file_is_reported_there() -> None:
    error = only(files({"a.cfg": "\nx: [1"}, "include a.cfg"))
    assert (error.code, error.span) == ("VS010", at(2, 4, 5, file="a.cfg"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a " + "[" * 201, "VS010"),
        ("a " + "{b " * 201, "VS010"),
        ("{" * 201, "VS010"),
        ("a " + "[" * 150 + "\n]" * 150 + "\nb " + "[" * 60 + "$a" + "]" * 60, "VS012"),
        ("m { include deep }", "VS011"),
    ],
)
def test_nesting_deeper_than_the_limit_is_an_error(text: str, code: str) -> None:
    document = files({"deep": "a " + "[" * 200 + "\n]" * 200}, text)
    assert (errors(document)[0].code, "200 levels" in errors(document)[0].message) == (code, True)


def test_two_hundred_levels_of_nesting_are_read() -> None:
    document = parse("a " + "[" * 200 + "\n]" * 200, FILE)
    assert document.findings == ()
    assert str(to_python(document.root)).count("[") == 200
