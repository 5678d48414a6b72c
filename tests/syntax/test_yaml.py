"""YAML with positions: what is meant, where it stands, and that nothing hangs, explodes or raises."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import shapes
from tests.support.topologies import concise
from vstream.findings import Span
from vstream.syntax import yaml
from vstream.syntax.yaml import parse

PIECES = [
    b"a", b"b", b": ", b"\n", b"  ", b"- ", b"[", b"]", b"{", b"}", b"&x ", b"*x", b"<<: *x", b"'", b'"', b"|", b">", b"!!str ",
    b"!t ", b"%", b"#", b"? ", b",", b"\t", b"\r\n", b"\xef\xbb\xbf", b"---\n", b"...\n", b"\xc2\x85", b"\xe2\x80\xa8", b"\xff",
    b"\x00", b"1", b"0x1", b"1e999", b"~",
]  # fmt: skip


def read(content: bytes | str) -> yaml.Document:
    return parse(content.encode() if isinstance(content, str) else content, "t.yaml")


def problems(content: bytes | str) -> str:
    return concise(read(content).findings)


def test_every_key_and_value_knows_where_it_was_written() -> None:
    source = read("name: acme\nregions:\n  west: {servers: [a, 'b']}\n").source
    assert source.value_span(("name",)) == Span("t.yaml", 1, 7, 1, 11)
    assert source.key_span(("name",)) == Span("t.yaml", 1, 1, 1, 5)
    assert source.value_span(("regions", "west", "servers", 1)) == Span("t.yaml", 3, 23, 3, 26)
    assert source.key_span(("regions", "west")) == Span("t.yaml", 3, 3, 3, 7)
    assert source.value_span(("regions",)) == Span("t.yaml", 3, 3, 3, 28)


def test_what_was_not_written_is_where_its_nearest_ancestor_is() -> None:
    source = read("a:\n  b: 1\n").source
    assert source.value_span(("a", "c", 5)) == source.value_span(("a",))
    assert source.key_span(("a", "c")) == source.value_span(("a",))
    assert source.value_span(("zz",)) == source.value_span(())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("on", "on"), ("Yes", "Yes"), ("12:30", "12:30"), ("1_000", "1_000"), ("0x10", 16), ("0o17", 15),
        ("017", 17), ("2.10", 2.1), ("1e3", 1000.0), ("1e30", 1e30), (".5", 0.5), ("-5", -5), ("+5", 5), ("true", True), ("FALSE", False), ("~", None),
        ("", None), ("null", None), (".inf", ".inf"), (".nan", ".nan"), ("2026-01-01", "2026-01-01"), ("'5'", "5"), ('"true"', "true"),
        ("!!str 2.10", "2.10"), ("! 12", "12"), ("=", "="), ("0b1", "0b1"),
    ],
)  # fmt: skip
def test_plain_words_mean_what_the_core_schema_of_yaml_1_2_says(text: str, value: object) -> None:
    document = read(f"a: {text}\n")
    assert document.findings == ()
    assert isinstance(document.data, dict)
    assert document.data["a"] == value
    assert type(document.data["a"]) is type(value)


@given(st.recursive(st.text() | st.integers(-5, 5) | st.none() | st.booleans(), st.lists, max_leaves=5))
def test_json_is_read_as_what_it_says(value: object) -> None:
    assert read(shapes.as_file([value])).data == [value]


def test_every_key_is_text() -> None:
    assert read("1: a\nno: b\n~: c\n2.10: d\n").data == {"1": "a", "no": "b", "~": "c", "2.10": "d"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "3:1: error VS002: `a` is written twice, first on line 1\n    hint: remove one of the two\n"),
        ("x: {a: 1, a: 2}\n", "1:11: error VS002: `a` is written twice, first on line 1\n    hint: remove one of the two\n"),
        ("x:\n- y:\n    a: 1\n    'a': 2\n", "4:5: error VS002: `a` is written twice, first on line 3\n    hint: remove one of the two\n"),
        ("<<: {a: 1}\n<<: {b: 1}\n",
         "2:1: error VS002: `<<` is written twice, first on line 1\n    hint: merge several maps with `<<: [*one, *two]`\n"),
    ],
)  # fmt: skip
def test_a_key_that_is_written_twice_is_shown_with_its_first_place(text: str, expected: str) -> None:
    assert problems(text) == expected


def test_of_a_key_written_twice_the_first_counts_and_the_rest_is_readable() -> None:
    document = read("a: 1\na: 2\nb: 3\n")
    assert document.data == {"a": 1, "b": 3}
    assert document.is_readable


def test_merged_keys_give_way_to_own_ones_wherever_they_stand() -> None:
    document = read(
        "a: &a {x: 1, y: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b, z: 3}\nd: {x: 9, <<: [*a, *b]}\ne: {<<: [*a, *b]}\n"
    )
    assert document.findings == ()
    assert document.data == {
        "a": {"x": 1, "y": 1},
        "b": {"x": 2, "y": 1},
        "c": {"z": 3, "x": 2, "y": 1},
        "d": {"x": 9, "y": 1},
        "e": {"x": 1, "y": 1},
    }
    assert document.source.key_span(("c", "x")).line == 2


def test_a_quoted_merge_key_is_a_key() -> None:
    assert read("'<<': 1\n").data == {"<<": 1}


def test_an_anchor_may_be_used_again_for_something_else() -> None:
    assert read("a: &x 1\nb: *x\nc: &x 2\nd: *x\n").data == {"a": 1, "b": 1, "c": 2, "d": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: error VS001: the file is empty\n    hint: `vstream init` writes a commented starter\n"),
        ("# nothing\n\n# here\n", "1:1: error VS001: the file is empty\n    hint: `vstream init` writes a commented starter\n"),
        ("a:\n\tb: 1\n", "2:1: error VS001: a tab cannot indent YAML\n    hint: use spaces\n"),
        ("a: 1\n---\nb: 2\n", "2:1: error VS001: a second document starts here\n    hint: keep one document per file\n"),
        ("a: *fooo\nb: &foo 1\n",
         "1:4: error VS001: no anchor `&fooo` stands above this alias\n    hint: define the anchor (`&name`) above the alias (`*name`)\n"),
        ("b: &foo 1\na: *fooo\n", "2:4: error VS001: no anchor `&fooo` stands above this alias\n    hint: did you mean `*foo`?\n"),
        ("&a [1, *a]\n", "1:1: error VS003: an alias that contains itself\n    hint: remove the alias\n"),
        ("a: &a\n  <<: *a\n", "1:4: error VS003: an alias that contains itself\n    hint: remove the alias\n"),
        ("a: &a {b: &b {<<: *a}}\n", "1:4: error VS003: an alias that contains itself\n    hint: remove the alias\n"),
        ("? [a]\n: 1\n", "1:3: error VS001: a key must be a word, not a list or a map\n    hint: put the key in quotes\n"),
        ("a: !!python/object/apply:os.system [ls]\n",
         "1:4: error VS001: the tag `!!python/object/apply:os.system` has no meaning here\n    hint: remove the tag\n"),
        ("a: !!binary aGk=\nb: !x {}\n", ("1:4: error VS001: the tag `!!binary` has no meaning here\n    hint: remove the tag\n"
         "2:4: error VS001: the tag `!x` has no meaning here\n    hint: remove the tag\n")),
        ("a: @b\n", "1:4: error VS001: a value cannot begin with '@'\n    hint: put the value in quotes\n"),
        ("a: b: c\n", ("1:5: error VS001: mapping values are not allowed in this context\n"
         "    hint: a value that contains `: ` needs quotes; a key needs the indentation of its neighbours\n")),
        ("a: [1,\nb: 2\n", ("1:4: error VS001: expected ',' or ']': the bracket of line 1 is not closed\n"
         "    hint: check the indentation and the quotes on this line and the one before\n")),
        ("a: 'x\n", ("1:4: error VS001: the quote is not closed\n"
         "    hint: check the indentation and the quotes on this line and the one before\n")),
        ("a: 1\n b: 2\nc:\n  - 1\n  d: 2\n", ("2:3: error VS001: mapping values are not allowed in this context\n"
         "    hint: a value that contains `: ` needs quotes; a key needs the indentation of its neighbours\n")),
        ("a: {b: 1}\n b: 2\n", ("2:2: error VS001: expected a key here\n"
         "    hint: check the indentation and the quotes on this line and the one before\n")),
        ('"""Not YAML."""\n', ("1:3: error VS001: expected the end of the file here\n"
         "    hint: check the indentation and the quotes on this line and the one before\n")),
        ("a:\n  - 1\n  d: 2\n", ("3:3: error VS001: expected an item that begins with `- ` here\n"
         "    hint: check the indentation and the quotes on this line and the one before\n")),
        ("a: {<<: 5}\n", "1:9: error VS001: `<<` merges maps only\n    hint: give it an alias of a map: `<<: *name`\n"),
        ("a: 1e999\n", "1:4: error VS001: the number `1e999` does not fit into 64 bits\n    hint: put it in quotes if it is text\n"),
        ("a: 18446744073709551616\n",
         "1:4: error VS001: the number `18446744073709551616` does not fit into 64 bits\n    hint: put it in quotes if it is text\n"),
    ],
)  # fmt: skip
def test_what_is_wrong_as_yaml_is_said_in_one_place_with_the_way_out(text: str, expected: str) -> None:
    assert problems(text) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: \xc3\xa4\xff\n", "1:5: error VS004: not UTF-8 text: byte 0xff\n    hint: save the file as UTF-8\n"),
        (b"\xef\xbb\xbfa\r\nb\xff", "2:2: error VS004: not UTF-8 text: byte 0xff\n    hint: save the file as UTF-8\n"),
        ("a: 1\n".encode("utf-16"), "1:1: error VS004: the file is UTF-16 text\n    hint: save the file as UTF-8\n"),
        (b"a: 1\nb: \x00\n", "2:4: error VS004: the character U+0000 cannot stand in YAML\n    hint: remove it; is this a text file?\n"),
        (b"a: \xc2\x85\x1b", "2:1: error VS004: the character U+001B cannot stand in YAML\n    hint: remove it; is this a text file?\n"),
        (b" " * (yaml.MAX_BYTES + 1),
         ("1:1: error VS004: the file has 33,554,433 bytes, more than the 33,554,432 that a topology may have\n"
         "    hint: is this the right file?\n")),
    ],
    ids=["latin", "latin-after-bom-and-crlf", "utf-16", "nul", "escape", "huge"],
)  # fmt: skip
def test_what_is_no_text_is_refused_where_it_stops_to_be_one(content: bytes, expected: str) -> None:
    assert problems(content) == expected


def test_byte_order_mark_and_windows_line_ends_change_nothing() -> None:
    plain, windows = read("a: 1\nb: [x]\n"), read(b"\xef\xbb\xbfa: 1\r\nb: [x]\r\n")
    assert plain.data == windows.data
    assert plain.source == windows.source


def alias_bomb(depth: int) -> bytes:
    rows = [b"- &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [b"- &a%d [%s]" % (n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, depth)]
    return b"\n".join(rows)


def merge_bomb(depth: int) -> bytes:
    rows = [b"a0: &a0 {x: 1}"]
    rows += [b"a%d: &a%d {<<: [%s]}" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, depth)]
    return b"\n".join(rows)


def merge_chain(length: int) -> bytes:
    """Each map merges the one before and adds a key, so that the sum of all grows as the square."""
    return b"a0: &a0 {x: 1}\n" + b"".join(
        b"a%d: &a%d {<<: *a%d, x%d: 1}\n" % (n, n, n - 1, n) for n in range(1, length)
    )


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (alias_bomb(12), "VS003"),
        (merge_bomb(100), None),
        (merge_chain(10_000), "VS003"),
        (b"? [" + merge_chain(5_000).replace(b"\n", b", ").replace(b"a", b"k") + b"x]\n: *k4999", "VS001"),
        (b"[" * 200_000, "VS003"),
        (b"- " * 200_000, "VS003"),
        (b"{a: " * 200_000, "VS003"),
        (b"&x [" * 61, "VS003"),
        (b"- a\n" * 1_000_000, "VS003"),
        (b"a: " + b"9" * 5_000_000, "VS001"),
        (b"a: 0x" + b"f" * 5_000_000, "VS001"),
        (b"a: '" + b"x" * 5_000_000 + b"'", None),
        (b"# " * 5_000_000, "VS001"),
    ],
    ids=[
        "aliases", "merges", "merge-chain", "merge-in-key", "lists", "block-lists", "maps", "anchors", "many-values", "digits",
        "hex", "long-text", "comment",
    ],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_a_file_that_is_made_to_hurt_ends_soon(content: bytes, code: str | None) -> None:
    codes = {finding.code for finding in read(content).findings}
    assert code in codes if code else codes == set()


def test_aliases_may_nest_but_not_without_end() -> None:
    rows = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 100))
    assert problems(rows).startswith("1:5: error VS003: aliases nest more than 60 levels deep\n")


def assert_sound(content: bytes) -> None:
    """Nothing is raised, and every place lies within the file."""
    document = read(content)
    lines = re.split(r"\r\n|[\n\r\x85\u2028\u2029]", document.text)
    for span in (
        *(finding.span for finding in document.findings),
        *document.source.values.values(),
        *document.source.keys.values(),
    ):
        assert span is not None
        if document.text:
            assert 1 <= span.line <= span.end_line <= len(lines)
            assert 1 <= span.column <= len(lines[span.line - 1]) + 1
            assert span.end_column <= len(lines[span.end_line - 1]) + 2
            assert (span.line, span.column) <= (span.end_line, span.end_column)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_within_the_file(content: bytes) -> None:
    assert_sound(content)


@given(st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join))
def test_anything_that_looks_like_yaml_is_read_or_refused_within_the_file(content: bytes) -> None:
    assert_sound(content)
