"""JSON with positions, held against Python's own reader."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vstream.findings import Span
from vstream.syntax import json as jsontext

TEXT = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_what_json_writes_is_read_back(value: object, indent: int | str | None, ascii_only: bool) -> None:
    document = jsontext.parse(json.dumps(value, indent=indent, ensure_ascii=ascii_only), "f.json")
    assert document.findings == ()
    assert document.data == value


@given(st.text(alphabet='{}[]",:\\u12e.- \n\ttruefalsn', max_size=14))
def test_json_accepts_what_python_accepts(text: str) -> None:
    def refuse(_constant: str) -> object:
        raise ValueError

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        expected = False
    else:
        expected = True
    codes = [finding.code for finding in jsontext.parse(text, "f.json").findings]
    assert expected == (not [code for code in codes if code != "VS002"])


@given(VALUES, st.sampled_from([None, 2]), st.booleans())
def test_python_and_the_reader_of_places_say_the_same(value: object, indent: int | None, is_too_large: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    text = f"[{text}, {2**64}]" if is_too_large else text
    document = jsontext.parse(text, "f.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_read_plain", lambda _text: None)
        read = jsontext.parse(text, "f.json")
    assert (document.data, document.findings) == (read.data, read.findings)
    assert dict(document.source.values) == dict(read.source.values)
    assert dict(document.source.keys) == dict(read.source.keys)


def test_places_are_read_once_somebody_asks() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(jsontext._JsonReader, "document")
        document = jsontext.parse('{"a": [1]}', "f.json")
    assert document.source.value_span(("a", 0)) == Span("f.json", 1, 8, 1, 9)


def test_keys_and_values_have_places() -> None:
    source = jsontext.parse('{\n  "a": [1, {"b": "x"}]\n}', "f.json").source
    assert source.key_span(("a",)) == Span("f.json", 2, 3, 2, 6)
    assert source.value_span(("a",)) == Span("f.json", 2, 8, 2, 23)
    assert source.value_span(("a", 1, "b")) == Span("f.json", 2, 18, 2, 21)
    assert source.value_span(("a", 1, "missing")) == source.value_span(("a", 1))


def test_of_a_key_that_is_written_twice_the_last_counts() -> None:
    document = jsontext.parse('{"a": 1, "a": 2}', "f.json")
    assert document.data == {"a": 2}
    assert [finding.code for finding in document.findings] == ["VS002"]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ('{"a": 1,}', 8, "a comma before `}`"),
        ("{'a': 1}", 2, "a key in double quotes is expected, not `'`"),
        ('{"a" 1}', 6, "`:` is expected after the key, not `1`"),
        ('["a" "b"]', 6, '`,` or `]` is expected, not `"`'),
        ('["a', 2, "the string is not closed"),
        ('["a\\q"]', 4, "this escape does not exist in JSON"),
        ('["a\x01"]', 4, "the control character U+0001 in a string"),
        ("[1] 2", 5, "something follows the JSON value"),
        ("", 1, "a value is expected, not the end of the file"),
        ("[nil]", 2, "a value is expected, not `n`"),
    ],
)
def test_what_is_wrong_is_said_where_it_is(text: str, column: int, message: str) -> None:
    (finding,) = jsontext.parse(text, "f.json").findings
    assert (finding.code, finding.span, finding.message) == ("VS001", Span.point("f.json", 1, column), message)


def test_numbers_that_do_not_fit_are_reported() -> None:
    document = jsontext.parse("[18446744073709551615, 18446744073709551616, -1e400]", "f.json")
    assert document.data == [2**64 - 1, None, float("-inf")]
    assert [finding.code for finding in document.findings] == ["VS001"]


@pytest.mark.parametrize("text", ["[" * 10_000, '{"a":' * 10_000, "[" + "0," * 1000 + "0]"])
def test_nesting_and_values_are_bounded(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsontext, "MAX_VALUES", 1000)
    assert [finding.code for finding in jsontext.parse(text, "f.json").findings] == ["VS003"]


def test_half_a_surrogate_is_replaced() -> None:
    assert jsontext.parse('["\\ud800", "\\ud834\\udd1e"]', "f.json").data == ["\ufffd", "𝄞"]
