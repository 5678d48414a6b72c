"""Which gaps may be explained by what a reader lacks, against a matching that is found by trying."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from vstream.audit.reconcile.absences import GapAtReader, find_explained


def make_gap(low: int, high: int, number: int) -> GapAtReader:
    return GapAtReader("foo", "w-west", low, number, "r-west", low, high)


def can_match(gaps: Sequence[GapAtReader]) -> bool:
    """Whether each message that is gone can have a lacked sequence of its own: augmenting paths."""
    candidates = [range(gap.low + 1, gap.high + 1) for gap in gaps for _ in range(gap.number)]
    matched: dict[int, int] = {}

    def give(index: int, seen: set[int]) -> bool:
        for seq in candidates[index]:
            if seq not in seen:
                seen.add(seq)
                if seq not in matched or give(matched[seq], seen):
                    matched[seq] = index
                    return True
        return False

    return all(give(index, set()) for index in range(len(candidates)))


gaps_of_a_reader = st.lists(
    st.builds(
        lambda low, length, number: make_gap(low, low + length, number),
        st.integers(0, 12),
        st.integers(0, 5),
        st.integers(1, 3),
    ),
    max_size=6,
)


@given(gaps_of_a_reader)
def test_what_is_explained_can_be_matched(gaps: list[GapAtReader]) -> None:
    explained = find_explained(gaps)
    assert can_match(explained)
    if can_match(gaps):
        assert sorted(explained) == sorted(gaps)


def test_one_lacked_sequence_explains_one_message() -> None:
    both = [make_gap(0, 2, 1), make_gap(1, 3, 1)]
    assert find_explained(both) == both
    # One of the two in between is of another origin: three are gone, and only two were ever here.
    assert find_explained([make_gap(0, 2, 2), make_gap(0, 2, 1)]) == []
    # There are enough in all, and too few for one of them.
    assert find_explained([make_gap(0, 1, 2), make_gap(0, 4, 1), make_gap(6, 7, 1)]) == [make_gap(6, 7, 1)]
