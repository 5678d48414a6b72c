"""The NATS configuration language: values, places, variables, includes, and what is said about mistakes."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.call_counts import count_calls
from tests.support.natsconf import FILE, at, errors, only, read_values
from tests.support.night import repetitions
from vstream.findings import Severity
from vstream.syntax.natsconf.nodes import ConfArray, ConfMap, ConfNode, ConfScalar, ScalarKind, to_python
from vstream.syntax.natsconf.parser import parse

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("word", "word", ScalarKind.STRING),
        ("nats://a:4222", "nats://a:4222", ScalarKind.STRING),
        ("100%", "100%", ScalarKind.STRING),
        ("10s", "10s", ScalarKind.STRING),
        ("#no-comment", "#no-comment", ScalarKind.STRING),
        ("127.0.0.1:4222", "127.0.0.1:4222", ScalarKind.STRING),
        ("a\\tb\\x41", "a\tbA", ScalarKind.STRING),
        ('"a \\"b\\" \\\\ \\n"', 'a "b" \\ \n', ScalarKind.STRING),
        ('"\\xc3\\xa9"', "é", ScalarKind.STRING),
        ('"\\xff"', "\ufffd", ScalarKind.STRING),
        ("'as\\n it is'", "as\\n it is", ScalarKind.STRING),
        ('"two\nlines"', "two\nlines", ScalarKind.STRING),
        ("(\n  a } b\n)", "\n  a } b\n)", ScalarKind.STRING),
        ("(\n  a (b)\n)\n", "\n  a (b)\n", ScalarKind.STRING),
        ("$2a$11$UI3tHVe", "$2a$11$UI3tHVe", ScalarKind.STRING),
        ("", "", ScalarKind.STRING),
        ("true", True, ScalarKind.BOOLEAN),
        ("YES", True, ScalarKind.BOOLEAN),
        ("off", False, ScalarKind.BOOLEAN),
        ('"true"', "true", ScalarKind.STRING),
        ("-12", -12, ScalarKind.INTEGER),
        ("007", 7, ScalarKind.INTEGER),
        ("2k", 2_000, ScalarKind.INTEGER),
        ("2KB", 2_048, ScalarKind.INTEGER),
        ("2ki", 2_048, ScalarKind.INTEGER),
        ("2KiB", 2_048, ScalarKind.INTEGER),
        ("1m", 1000**2, ScalarKind.INTEGER),
        ("1G", 1000**3, ScalarKind.INTEGER),
        ("1GiB", 1024**3, ScalarKind.INTEGER),
        ("-1tb", -(1024**4), ScalarKind.INTEGER),
        ("1p", 1000**5, ScalarKind.INTEGER),
        ("1eb", 1024**6, ScalarKind.INTEGER),
        ("9223372036854775807", 2**63 - 1, ScalarKind.INTEGER),
        ("1.50", 1.5, ScalarKind.FLOAT),
        ("-0.25", -0.25, ScalarKind.FLOAT),
        ("2024-02-29T23:59:59Z", datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC), ScalarKind.DATETIME),
        ("0000-02-29T00:00:00Z", "0000-02-29T00:00:00Z", ScalarKind.DATETIME),
    ],
)
def test_a_value_is_what_the_server_takes_it_for(text: str, value: object, kind: ScalarKind) -> None:
    document = parse(f"key = {text}", FILE)
    assert document.findings == ()
    node = document.root.get("key")
    assert isinstance(node, ConfScalar)
    assert (node.value, type(node.value), node.kind, node.raw) == (value, type(value), kind, text.rstrip("\n"))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("a = 1\nb: 2\nc 3", {"a": 1, "b": 2, "c": 3}),
        ("a = 1; b = 2, c = 3", {"a": 1, "b": 2, "c": 3}),
        ("{ a: 1, b: 2 }", {"a": 1, "b": 2}),
        ('{"a": {"b": [true, null]}}', {"a": {"b": [True, "null"]}}),
        ("a { b { c: 1 } }", {"a": {"b": {"c": 1}}}),
        ("a\n{ b\n=\n1 }", {"a": {"b": 1}}),
        ("a [1, two\n'three' , {b: 4}, [5 ]\n]", {"a": [1, "two", "three", {"b": 4}, [5]]}),
        ("a []\nb {}", {"a": [], "b": {}}),
        ("'a b' 1\n\"c=d\" 2", {"a b": 1, "c=d": 2}),
        ("a: 1 # one\n// two\nb: 2 // three\n", {"a": 1, "b": 2}),
        ("a: [ # one\n 1 // two\n]", {"a": [1]}),
        ("a: {b: 1}\r\nc: 2\r\n", {"a": {"b": 1}, "c": 2}),
        ("a: 1\n}", {"a": 1}),
        ("a.>: 1\n$JS.API.>: 2", {"a.>": 1, "$JS.API.>": 2}),
        ("größe: ß", {"größe": "ß"}),
        ("a: 1\0b: 2", {"a": 1, "b": 2}),
        ("m { a 1kbb, b 2 }", {"a": {"b": 2}}),
        ("x { a }", {"a": {}}),
        ("a: 1, A: 2, a: 3", {"a": 3, "A": 2}),
    ],
)
def test_a_file_says_what_the_server_reads(text: str, values: object) -> None:
    assert read_values(text) == values


def test_entries_keep_their_order_their_duplicates_and_their_places() -> None:
    root = parse('a: 1\n"b c" {\n  d = [2, "é€" ]\n}\nA: 3\na: 4\n', FILE).root
    assert [(entry.key, entry.key_span, entry.span) for entry in root.entries] == [
        ("a", at(1, 1, 2), at(1, 1, 5)),
        ("b c", at(2, 1, 6), at(2, 1, 2, end_line=4)),
        ("A", at(5, 1, 2), at(5, 1, 5)),
        ("a", at(6, 1, 2), at(6, 1, 5)),
    ]
    assert root.span == at(1, 1, 1, end_line=7)
    inner = root.get("b c")
    assert isinstance(inner, ConfMap)
    array = inner.get("d")
    assert isinstance(array, ConfArray)
    assert inner.span == at(2, 7, 2, end_line=4)
    assert array.span == at(3, 7, 17)
    assert [item.span for item in array.items] == [at(3, 8, 9), at(3, 11, 15)]


def test_a_map_answers_as_the_server_would() -> None:
    root = parse("Port: 1\nport: 2\nhost: a\nport: 3", FILE).root
    assert [(key, to_python(node)) for key, node in root.items()] == [("Port", 1), ("port", 3), ("host", "a")]
    assert [entry.span.line for entry in root.effective_entries()] == [1, 4, 3]
    assert root.get("Port") is root.entries[0].value
    assert root.get_folded("PORT") is root.entries[3].value
    assert (root.get("nothing"), root.get_folded("nothing")) == (None, None)


def test_dates_become_text_in_plain_values() -> None:
    assert read_values("a 0999-01-02T03:04:05Z") == {"a": "0999-01-02T03:04:05Z"}


def test_comments_are_kept_with_their_places() -> None:
    document = parse("# one\na: 1 // two\nb {\n #\n}", FILE)
    assert [(comment.text, comment.span) for comment in document.comments] == [
        (" one", at(1, 1, 6)),
        (" two", at(2, 6, 12)),
        ("", at(4, 2, 3)),
    ]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: [1]\n", 1, 4, "this array is never closed"),
        ("a: [1 2]", 1, 7, "`2` cannot follow a value here"),
        ("a: [1;2]", 1, 6, "`;` cannot follow a value here"),
        ("a: [,]", 1, 5, "a value is expected, not `,`"),
        ("a {\n b: 1\n", 1, 3, "this map is never closed"),
        ("a {\n b", 1, 3, "this map is never closed"),
        ("{ a: 1", 1, 1, "this brace is never closed"),
        ("a: 1\nb: 2 c: 3", 2, 6, "`c` cannot follow a value here"),
        ("a: 'x' 'y'", 1, 8, "`'` cannot follow a value here"),
        ("a", 1, 1, "the key `a` has no value"),
        ("a {b: , c: 1}", 1, 4, "the key `b` has no value"),
        ("= 1", 1, 1, "a key is expected, not `=`"),
        ("a: 1\n\n/ b: 1", 3, 1, "a key is expected, not `/`"),
        ("\0", 1, 1, "a key is expected, not a NUL byte"),
        ("a {]}", 1, 4, "a key is expected, not `]`"),
        ('a: 1\n  "b: 2', 2, 3, "this key is never closed"),
        ('a: "x\n', 1, 4, "this string is never closed"),
        ("a: '", 1, 4, "this string is never closed"),
        ("a: (\nx)\n", 1, 4, "this block is never closed"),
        ("a: (\r\nx\r\n)\r\nb: 1", 1, 4, "this block is never closed"),
        ('a: "x\\y"', 1, 6, "`\\` followed by `y` is not an escape"),
        ('a: "\\x4g"', 1, 5, "`\\` followed by `x` is not an escape"),
        ("a: b\\", 1, 5, "`\\` followed by the end of the file is not an escape"),
        ("a:\n  b", 1, 3, "a value is missing before the end of the line"),
        ("a: .5", 1, 4, "a number begins with a digit, not with `.`"),
        ("a: 5.", 1, 4, "a digit is expected after `.`, not the end of the file"),
        ("a: -b", 1, 4, "a digit is expected after `-`, not `b`"),
        ("a: 10-20", 1, 4, "a number followed by `-` must be a date in UTC"),
        ("a: 2024-02-30T00:00:00Z", 1, 4, "`2024-02-30T00:00:00Z` is not a date that exists"),
        ("a: 9223372036854775808", 1, 4, "`9223372036854775808` does not fit into 64 bits"),
        ("a: \u0663", 1, 4, "`\u0663` is not a number in the digits 0 to 9"),
        ("a: 1.\u0663", 1, 4, "`1.\u0663` is not a number in the digits 0 to 9"),
        (f"a: {'9' * 400}.0", 1, 4, f"`{'9' * 400}.0` does not fit into a float"),
        ("include\n", 1, 8, "the path of a file is expected after `include`, not the end of the line"),
        ("include [x]", 1, 9, "the path of a file is expected after `include`, not `[`"),
        ('include "x', 1, 9, "this path is never closed"),
    ],
)
def test_a_syntax_error_names_the_place_and_the_way_out(text: str, line: int, column: int, message: str) -> None:
    (error,) = errors(parse(text, FILE))
    assert error.span is not None
    assert (error.code, error.message, error.span.line, error.span.column) == ("VS010", message, line, column)
    assert error.hint


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("a: [2]\n]", 5, "the server takes `2]` for one text, and the array goes on"),
        ("a: 1m30s", 4, "nats-server before 2.15.1 refuses `1m30s` without quotes"),
        ("x { a }", 5, "the key `a` has no value: the server gives it the map it stands in"),
        ("a: 1 }", 6, "this brace closes nothing"),
        ("}", 1, "this brace closes nothing"),
        ("{ a: 1\n", 1, "this brace is never closed"),
        ("a: 1kbb", 4, "`kbb` is not a unit of size: the server drops the value"),
        ("a: 20e", 4, "`20e` does not fit into 64 bits: the server takes it for 1553255926290448384"),
        ('a: [ "', 6, "this string is never closed, and the server ignores it"),
        ('a: 1, "', 7, "this key is never closed, and the server ignores it"),
        (
            "\ufeffa: 1",
            1,
            "the file begins with a byte order mark, which the server takes for a part of the first key",
        ),
    ],
)
def test_what_the_server_accepts_by_accident_is_a_warning(text: str, column: int, message: str) -> None:
    warning = only(parse(text, FILE))
    assert (warning.severity, warning.code, warning.message) == (Severity.WARNING, "VS010", message)
    assert warning.span is not None
    assert warning.span.column == column
    assert warning.hint


def test_an_error_leaves_what_came_before_it() -> None:
    document = parse("a { b: 1, c { d: [ x, y\n e f ] } }", FILE)
    assert to_python(document.root) == {"a": {"b": 1, "c": {"d": ["x", "y", "e"]}}}
    assert len(errors(document)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "a: [‹1, ›]",
        "‹a: 1\n›",
        "x: 1\n‹a: $x\n›",
        "‹#›",
        "‹# c\n›",
        "‹ \n›",
        "/‹ /›",
        'a "‹x\\n›',
        "a ‹\\n›",
        '‹a "›',
        "a (‹\n) ›",
        "‹9›",
        "a ‹9›",
        "a [‹9.›",
        "a: 1 ‹} ›",
    ],
)
def test_work_grows_with_the_length_of_a_hostile_text_and_no_faster(text: str) -> None:
    """What is between ‹ and › is repeated."""
    head, repeated, tail = re.split("[‹›]", text)

    def parsing(times: int) -> int:
        return count_calls(lambda: parse(head + repeated * times + tail, FILE))

    parsing(1)  # what is done once for all texts
    assert parsing(1_000) <= 11 * parsing(100)
    # A pattern that goes back and forth is one call. Seconds of this process: less than one, and hours if it were so.
    began = time.process_time()
    parse(head + repeated * (100_000 // len(repeated)) + tail, FILE)
    assert time.process_time() - began < 30


FRAGMENTS = (
    *"{}[]()\"'\\=:;,/#.-$ \t\n\r\0ab1k]\u00e9\u00a0\u2028\ufeff\ud800\u0663",
    *("//", "\n)\n", "include ", "true", "1.5", "$a", "$E", "2024-02-30T00:00:00Z", "\\x41", '"s"', "a {", "a [", "k: 1\n", "7E", "1kbb"),
)  # fmt: skip


def nodes(node: ConfNode) -> Iterator[ConfNode]:
    yield node
    children = [entry.value for entry in node.entries] if isinstance(node, ConfMap) else getattr(node, "items", ())
    for child in children:
        yield from nodes(child)


@settings(derandomize=True, database=None, deadline=None, max_examples=repetitions(100, night=4000))
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join))
def test_no_text_raises_and_every_place_is_where_it_says(text: str) -> None:
    document = parse(text, FILE, include=lambda path, _: (path, text), env={"E": text.replace("\0", "")})
    lines = {FILE: text.split("\n")}
    spans = [finding.span for finding in document.findings] + [comment.span for comment in document.comments]
    for node in nodes(document.root):
        spans.append(node.span)
        if isinstance(node, ConfScalar) and node.span.file == FILE and node.span.line == node.span.end_line:
            written = lines[FILE][node.span.line - 1][node.span.column - 1 : node.span.end_column - 1]
            assert written == node.raw
    for span in spans:
        assert span is not None
        assert (1, 1) <= (span.line, span.column) <= (span.end_line, span.end_column)
        assert span.file != FILE or span.end_line <= len(lines[FILE])
