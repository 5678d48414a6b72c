from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.night import repetitions
from vstream.subjects.algebra import is_literal, matches
from vstream.subjects.functions import ErrorKind, Function, TransformError
from vstream.subjects.transform import (
    Expansion,
    SubjectTransform,
    effective_source,
    numbered_wildcards,
    parse_mapping_transform,
)

laws = settings(derandomize=True, deadline=None, max_examples=repetitions(60, night=1500))


def apply_transform(source: str, destination: str, subject: str) -> str | None:
    transform = parse_mapping_transform(source, destination)
    assert isinstance(transform, SubjectTransform), transform
    return transform.apply(subject)


def read_refusal(source: str, destination: str) -> str:
    transform = parse_mapping_transform(source, destination)
    assert isinstance(transform, TransformError), transform
    return transform.server_message


@pytest.mark.parametrize(
    ("source", "destination", "subject", "expected"),
    [
        ("foo", "bar", "foo", "bar"),
        ("foo", "bar", "foo.x", None),
        ("foo.*.*", "bar.$2.$1", "foo.a.b", "bar.b.a"),
        ("foo.*.*", "bar.{{wildcard(2)}}", "foo.a.b", "bar.b"),
        ("foo.*", "bar.{{ Wildcard( 1 ) }}", "foo.a", "bar.a"),
        ("foo.*", "bar.$+1", "foo.a", "bar.a"),
        ("foo.>", "_vs.foo.>", "foo.a.b", "_vs.foo.a.b"),
        (">", "x.>", "a.b", "x.a.b"),
        (">", ">", "a.b", "a.b"),
        ("foo.*.>", "b.$1.>", "foo.a.c.d", "b.a.c.d"),
        ("*.foo.>", "b.>", "a.foo.c.d", "b.c.d"),
        ("foo.*", "bar.{{wildcard(1)}}-x", "foo.a", "bar.{{wildcard(1)}}-x"),
        ("foo.*", "bar.x-{{wildcard(1)}}", "foo.a", "bar.x-{{wildcard(1)}}"),
        ("foo.*", "bar.{{}}.$JS.$", "foo.a", "bar.{{}}.$JS.$"),
        ("foo.*", "bar.$99999999999999999999", "foo.a", "bar.$99999999999999999999"),
        ("foo.*", "bar.$0", "foo.a", "bar.foo"),
        ("foo.*", "bar.{{wildcard(-3)}}", "foo.a", "bar.foo"),
        ("*foo.*", "bar.$1", "anything.a", "bar.a"),
        ("*", "{{splitfromleft(1,2)}}", "abcde", "ab.cde"),
        ("*", "{{SplitFromLeft(1,5)}}", "abcde", "abcde"),
        ("*", "{{splitFromRight(1,2)}}", "abcde", "abc.de"),
        ("*", "{{splitFromRight(1,-2)}}", "abcde", "abcde"),
        ("*", "{{sliceFromLeft(1,2)}}", "abcde", "ab.cd.e"),
        ("*", "{{slicefromleft(1,2)}}", "abcd", "ab.cd"),
        ("*", "{{SliceFromRight(1,2)}}", "abcde", "a.bc.de"),
        ("*", "{{slicefromright(1,2)}}", "abcd", "ab.cd"),
        ("*", "{{slicefromright(1,9)}}", "abcd", "abcd"),
        ("*", "{{left(1,2)}}", "abcd", "ab"),
        ("*", "{{Right(1,2)}}", "abcd", "cd"),
        ("*", "{{Right(1,4)}}", "abcd", "abcd"),
        ("*", "{{split(1,-)}}", "a-b--c-", "a.b.c"),
        ("*", "{{split(1,-)}}", "-a", "a"),
        ("*", "{{split(1,-)}}", "--a", ".a"),
        ("*", "{{split(1, -)}}", "a-b", "a.b"),
        ("*", "{{split(1,)}}", "añb", "a.ñ.b"),
        ("*", "x.{{split(1,-)}}", "-", "x."),
        ("*", "{{partition(0,1)}}", "a", "0"),
        ("*", "{{random(0)}}.{{random(-1)}}.{{random(1)}}", "a", "0.0.0"),
        ("*.*", "{{random(5)}}.$1", "a.b", "*.a"),
        ("foo.$1.*", "foo.$1.$1", "foo.$1.x", "foo.x.x"),
    ],
)
def test_what_a_subject_becomes(source: str, destination: str, subject: str, expected: str | None) -> None:
    assert expected == apply_transform(source, destination, subject)


@pytest.mark.parametrize(
    ("key", "buckets", "expected"),
    [
        ("a", -1, str(0xE40C292C)),
        ("foobar", -1, str(0xBF9CF968)),
        ("foo", -1, str(0xA9F37ED7)),
        ("foo", 10, str(0xA9F37ED7 % 10)),
        ("foo", 1, "0"),
    ],
)
def test_partition_hashes_with_fnv_1a(key: str, buckets: int, expected: str) -> None:
    transform = SubjectTransform.parse(">", f"{{{{partition({buckets})}}}}.>")
    assert isinstance(transform, SubjectTransform)
    assert transform.expand(key.split(".")).subject.startswith(f"{expected}.")


def test_partition_joins_the_chosen_tokens_without_a_separator() -> None:
    assert apply_transform("*.*", "{{partition(1000,1,2)}}", "ab.c") == apply_transform(
        "*.*", "{{partition(1000,1,2)}}", "a.bc"
    )


def test_sizes_count_bytes() -> None:
    cut = apply_transform("*", "{{sliceFromLeft(1,1)}}", "é")
    assert cut == "\udcc3.\udca9"


def test_lone_surrogates_do_no_harm() -> None:
    assert apply_transform("*", "{{splitFromLeft(1,1)}}", "a\ud800") == "a.\ufffd"


REFUSED = {
    "invalid subject": [("foo", "bar.*"), ("foo.*", "bar.*"), ("foo.>", "bar"), ("foo", "bar.>"), ("foo..x", "bar")],
    "… invalid transform": [("foo", "bar..x"), ("foo", "bar.a b")],
    "… invalid transform in x": [("foo.>", "bar.>.x")],
    "… wildcard index out of range in $2: [2]": [("foo.*", "b.$2")],
    "… wildcard index out of range in {{wildcard(2)}}: [2]": [("foo.*", "b.{{wildcard(2)}}")],
    "… wildcard index out of range in {{wildcard(1)}}": [("foo", "b.{{wildcard(1)}}")],
    "… wildcard index out of range in {{Left(2,1)}}: [2]": [("foo.*", "b.{{Left(2,1)}}")],
    "… unknown function in {{nope(1)}}": [("foo.*", "b.{{nope(1)}}")],
    "… unknown function in {{WILDCARD(1)}}": [("foo.*", "b.{{WILDCARD(1)}}")],
    "… unknown function in {{split_from_left(1,1)}}": [("foo.*", "b.{{split_from_left(1,1)}}")],
}
"""Sources and destinations by how they are refused. `…` is what most of that begins with."""


@pytest.mark.parametrize(
    ("source", "destination", "wording"),
    [(*transform, wording) for wording, transforms in REFUSED.items() for transform in transforms],
)
def test_a_refused_transform_has_the_wording_of_the_server(source: str, destination: str, wording: str) -> None:
    assert wording.replace("…", "invalid mapping destination:") == read_refusal(source, destination)


TOO_FEW = "not enough arguments passed to the function"
TOO_MANY = "too many arguments passed to the function"
INVALID = "function argument is invalid or in the wrong format"


@pytest.mark.parametrize(
    ("call", "wording"),
    [
        ("{{wildcard()}}", TOO_FEW),
        ("{{wildcard( )}}", INVALID),
        ("{{wildcard(1,1)}}", TOO_MANY),
        ("{{wildcard(x)}}", INVALID),
        ("{{wildcard(1)}}{{wildcard(2)}}", INVALID),
        ("{{split(1)}}", TOO_FEW),
        ("{{split(1,,)}}", TOO_MANY),
        ("{{split(x,-)}}", INVALID),
        ("{{split(1,- )}}", INVALID),
        ("{{random(1,2)}}", TOO_FEW),
        ("{{random()}}", INVALID),
        ("{{partition()}}", INVALID),
        ("{{partition(2,x)}}", INVALID),
        ("{{partition(2147483648)}}", INVALID),
        ("{{sliceFromLeft(1,2147483648)}}", INVALID),
        ("{{sliceFromLeft(1)}}", TOO_FEW),
        ("{{sliceFromLeft(1,2,3)}}", TOO_MANY),
    ],
)
def test_the_servers_wording_about_arguments(call: str, wording: str) -> None:
    assert read_refusal("foo.*", f"b.{call}") == f"invalid mapping destination: {wording} in {call}"


def test_an_import_must_be_reversible() -> None:
    unused = SubjectTransform.parse("a.*.*", "b.$1", strict=True)
    assert isinstance(unused, TransformError)
    assert unused.kind is ErrorKind.UNUSED_WILDCARDS
    one_way = SubjectTransform.parse("a.*", "b.{{partition(3,1)}}", strict=True)
    assert isinstance(one_way, TransformError)
    assert one_way.kind is ErrorKind.NOT_REVERSIBLE
    assert isinstance(SubjectTransform.parse("a.*", "b.$1", strict=True), SubjectTransform)


def test_an_empty_destination_is_no_transform() -> None:
    transform = SubjectTransform.parse("a", "")
    assert isinstance(transform, TransformError)
    assert transform.kind is ErrorKind.EMPTY_DESTINATION


def test_an_empty_source_stands_for_everything() -> None:
    transform = SubjectTransform.parse("", "x.>")
    assert isinstance(transform, SubjectTransform)
    assert transform.apply("a.b") == "x.a.b"


@pytest.mark.parametrize(
    ("source", "destination", "version"),
    [
        ("a.*", "b.$1", (2, 9, 0)),
        ("a.*", "b.{{left(1,2)}}", (2, 15, 0)),
        ("a.*", "b.{{random(2)}}", (2, 12, 0)),
        ("a.*", "b.{{partition(2)}}", (2, 12, 0)),
        ("a.*", "b.{{partition(2,1)}}", (2, 9, 0)),
        ("a", "b.{{partition(2,1)}}", (2, 12, 0)),
        ("a", "b", (2, 9, 0)),
    ],
)
def test_the_oldest_server_that_accepts_it(source: str, destination: str, version: tuple[int, int, int]) -> None:
    transform = SubjectTransform.parse(source, destination)
    assert isinstance(transform, SubjectTransform)
    assert version == transform.since


def test_drawn_tokens_admit_every_number_below_the_bound() -> None:
    transform = SubjectTransform.parse("*", "x.{{split(1,-)}}.{{random(-11)}}")
    assert isinstance(transform, SubjectTransform)
    expansion = transform.expand(["a-b"])
    assert expansion == Expansion(subject="x.a.b.*", draws=((3, 11),))
    assert [n for n in range(-1, 13) if expansion.admits(f"x.a.b.{n}")] == list(range(11))
    assert not expansion.admits("x.a.b.01")
    assert not expansion.admits("x.a.b")
    assert not expansion.admits("x.a.c.1")


def test_a_token_that_begins_with_a_star_matches_any_token() -> None:
    assert effective_source("a.*b.>") == "a.*.>"
    assert effective_source("a.b*") == "a.b*"


tokens = st.sampled_from(("a", "bc", "$JS", "*", "d-e"))
sources = st.tuples(st.lists(tokens, min_size=1, max_size=4), st.sampled_from((".>", ""))).map(
    lambda drawn: ".".join(drawn[0]) + drawn[1]
)
subjects = st.lists(st.sampled_from(("a", "bc", "$JS", "d-e")), min_size=1, max_size=6).map(".".join)


@laws
@given(sources, subjects)
def test_markers_give_the_subject_back(source: str, subject: str) -> None:
    expected = subject if matches(subject, source) else None
    assert expected == apply_transform(source, numbered_wildcards(source), subject)


@laws
@given(sources, st.text("a$1{}(),*>. ", max_size=12))
def test_any_destination_is_a_transform_or_an_error(source: str, destination: str) -> None:
    transform = parse_mapping_transform(source, destination)
    if isinstance(transform, SubjectTransform):
        assert len(transform.steps) == destination.count(".") + 1
    else:
        assert transform.message


calls = st.sampled_from(("{{wildcard(1)}}", "{{partition(7,1)}}", "{{partition(5)}}", "{{random(3)}}", "$1", "x"))


@laws
@given(st.lists(calls, min_size=1, max_size=4).map(".".join), st.sampled_from(("a", "bc", "d-e")))
def test_whole_token_functions_keep_the_token_count(destination: str, token: str) -> None:
    mapped = apply_transform("*", destination, token)
    assert mapped is not None
    assert mapped.count(".") == destination.count(".")
    assert is_literal(mapped) or "random" in destination


def test_every_function_has_a_version() -> None:
    assert all((2, 9, 0) <= function.since <= (2, 15, 0) for function in Function)
