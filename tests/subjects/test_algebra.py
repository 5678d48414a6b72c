from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.call_counts import count_calls
from tests.support.night import repetitions
from vstream.subjects.algebra import (
    SubjectTrie,
    example_of_overlap,
    has_wildcards,
    is_deliverable,
    is_literal,
    is_subset,
    is_valid,
    matches,
    overlaps,
)

laws = settings(derandomize=True, deadline=None, max_examples=repetitions(60, night=2000))

WORDS = ("a", "b", "x")


@st.composite
def patterns(draw: st.DrawFn) -> str:
    head = draw(st.lists(st.sampled_from((*WORDS, "*")), max_size=4))
    tail = draw(st.sampled_from((*WORDS, "*", ">")))
    return ".".join([*head, tail])


literals = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(".".join)


@pytest.mark.parametrize(
    "subject", ["a", "a.b", "a.*", "a.>", ">", "*", "*a", "a>", ">a", "a*b", "$JS.API", "é", "a.{{x}}", "\0"]
)
def test_subjects_that_the_server_takes_are_valid(subject: str) -> None:
    assert is_valid(subject)


@pytest.mark.parametrize("subject", ["", ".", "a.", ".a", "a..b", ">.a", "a.>.b", " ", "a b", "a.\t", "a\n", "a.b\fc"])
def test_subjects_that_the_server_refuses_are_not_valid(subject: str) -> None:
    assert not is_valid(subject)


def test_other_white_space_is_part_of_a_token() -> None:
    assert is_valid("a\v.\u00a0")


@pytest.mark.parametrize(("subject", "expected"), [("a.*", True), ("a.>", True), ("a.*b.>c", False), ("a", False)])
def test_a_wildcard_is_a_whole_token(subject: str, expected: bool) -> None:
    assert expected is has_wildcards(subject)
    assert expected is not is_literal(subject)


def test_a_subject_with_an_empty_token_reaches_nobody() -> None:
    assert not is_deliverable("a..b")
    assert not is_deliverable("")
    assert is_deliverable("a b.*")


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"),
    [
        ("a", "a", True),
        ("a.b", "a.*", True),
        ("a.b", "a.>", True),
        ("a", "a.>", False),
        ("a.*", "a.>", True),
        ("a.>", "a.*", False),
        ("a.>", "a.>", True),
        (">", "*.>", False),
        ("*.>", ">", True),
        ("*", "a", False),
        ("a.b.c", "a.*", False),
        ("a", "a.b", False),
        ("*a", "*", True),
        ("a", "*a", False),
    ],
)
def test_subset_agrees_with_matching(narrow: str, wide: str, expected: bool) -> None:
    assert expected is is_subset(narrow, wide)


@pytest.mark.parametrize(
    ("one", "other", "example"),
    [
        ("a.*", "*.b", "a.b"),
        ("a.>", "*.b.*", "a.b.x"),
        ("a.*.c", "a.>", "a.x.c"),
        (">", ">", "x"),
        ("*", "*", "x"),
        ("a", "a", "a"),
        ("a.>", "a", None),
        ("a.*", "a.b.c", None),
        ("a.*", "b.*", None),
        ("*a", "b", None),
    ],
)
def test_example_of_overlap(one: str, other: str, example: str | None) -> None:
    assert example == example_of_overlap(one, other)


@laws
@given(patterns(), patterns())
def test_an_example_of_overlap_matches_both(one: str, other: str) -> None:
    example = example_of_overlap(one, other)
    assert overlaps(one, other) is overlaps(other, one) is (example is not None)
    if example is not None:
        assert is_literal(example)
        assert matches(example, one)
        assert matches(example, other)


@laws
@given(literals, patterns(), patterns())
def test_what_matches_both_makes_them_overlap(subject: str, one: str, other: str) -> None:
    if matches(subject, one) and matches(subject, other):
        assert overlaps(one, other)
    if is_subset(one, other) and matches(subject, one):
        assert matches(subject, other)


@laws
@given(patterns(), patterns())
def test_a_subset_overlaps(one: str, other: str) -> None:
    if is_subset(one, other):
        assert overlaps(one, other)


@laws
@given(st.lists(patterns(), max_size=12))
def test_the_trie_finds_exactly_the_overlapping_pairs(many: list[str]) -> None:
    expected = [pair for pair in combinations(range(len(many)), 2) if overlaps(many[pair[0]], many[pair[1]])]
    assert expected == sorted(SubjectTrie(many).overlapping_pairs())


@laws
@given(st.lists(patterns(), max_size=12), literals, patterns())
def test_the_trie_finds_exactly_what_matches(many: list[str], subject: str, pattern: str) -> None:
    trie = SubjectTrie(many)
    assert [n for n, candidate in enumerate(many) if matches(subject, candidate)] == trie.matching(subject)
    assert [n for n, candidate in enumerate(many) if overlaps(pattern, candidate)] == trie.overlapping(pattern)


def test_pairs_of_many_patterns_without_overlap_take_work_in_proportion() -> None:
    def once(count: int) -> int:
        many = [f"$JS.API.{kind}.{n}.*" for kind in ("STREAM", "CONSUMER", "DIRECT") for n in range(count)]
        many += [f"*.API.{n}.other" for n in range(count)]
        assert not list(SubjectTrie(many).overlapping_pairs())
        return count_calls(lambda: list(SubjectTrie(many).overlapping_pairs()))

    assert once(1_000) < 4.5 * once(250)


def test_a_very_long_subject_is_no_problem() -> None:
    long = ".".join(["a"] * 20_000)
    trie = SubjectTrie([long, ">"])
    assert trie.matching(long) == [0, 1]
    assert list(trie.overlapping_pairs()) == [(0, 1)]
