from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.plans import render_streams
from vstream.plan.canonical import DEFAULTS, EqualityCache, is_known, to_canonical_stream

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_a_bare_stream_is_what_the_servers_fill_in() -> None:
    form = to_canonical_stream({"name": "foo", "subjects": ["foo.>"]})
    assert form["max_msgs"] == -1
    assert form["num_replicas"] == 1
    assert form["duplicate_window"] == 120 * 10**9


def test_a_short_max_age_caps_the_default_duplicate_window() -> None:
    assert to_canonical_stream({"name": "foo", "max_age": 10**9})["duplicate_window"] == 10**9


def test_a_stream_with_sources_keeps_a_window_of_0() -> None:
    assert to_canonical_stream({"name": "foo", "sources": [{"name": "bar"}]})["duplicate_window"] == 0


def test_a_stream_without_subjects_listens_on_its_name() -> None:
    assert to_canonical_stream({"name": "foo"})["subjects"] == ["foo"]
    assert to_canonical_stream({"name": "foo", "mirror": {"name": "bar"}})["subjects"] == []


def test_the_servers_own_metadata_does_not_count() -> None:
    assert to_canonical_stream({"name": "foo", "metadata": {"_nats.ver": "2.15.1", "a": "b"}})["metadata"] == {"a": "b"}


def test_the_order_of_sets_does_not_count_and_that_of_transforms_does() -> None:
    transforms = [{"src": "a", "dest": "b"}, {"src": "c", "dest": "d"}]
    config: dict[str, Any] = {
        "name": "foo",
        "sources": [{"name": "x"}, {"name": "a", "subject_transforms": transforms}],
    }
    reordered: dict[str, Any] = {
        "name": "foo",
        "sources": [{"name": "a", "subject_transforms": transforms}, {"name": "x"}],
    }
    swapped: dict[str, Any] = {
        "name": "foo",
        "sources": [{"name": "a", "subject_transforms": transforms[::-1]}, {"name": "x"}],
    }
    assert to_canonical_stream(config) == to_canonical_stream(reordered)
    assert to_canonical_stream(config) != to_canonical_stream(swapped)
    assert to_canonical_stream({"subjects": ["b", "a"]}) == to_canonical_stream({"subjects": ["a", "b"]})


def test_empty_and_missing_are_the_same() -> None:
    assert to_canonical_stream({"placement": {"cluster": "", "tags": []}}) == to_canonical_stream({})
    assert (
        to_canonical_stream({"consumer_limits": {}})
        == to_canonical_stream({"consumer_limits": None})
        == to_canonical_stream({})
    )
    assert to_canonical_stream(
        {"sources": [{"name": "x", "filter_subject": "", "opt_start_seq": 0}]}
    ) == to_canonical_stream({"sources": [{"name": "x"}]})


def test_what_vstream_does_not_know_is_kept() -> None:
    assert to_canonical_stream({"name": "foo", "brand_new": {"x": 1}})["brand_new"] == {"x": 1}
    assert not is_known("brand_new")


def test_every_rendered_field_is_known() -> None:
    for stream in render_streams().streams:
        assert [field for field in stream.config.fields if not is_known(field)] == []


_FIELDS = st.dictionaries(
    st.sampled_from(
        sorted(set(DEFAULTS) - {"metadata", "sources", "mirror", "placement", "subjects", "consumer_limits"})
    ),
    st.one_of(st.integers(-1, 3), st.booleans(), st.sampled_from(["", "x"])),
)


@settings(derandomize=True)
@given(_FIELDS)
def test_canonical_form_is_its_own_canonical_form(fields: dict[str, Any]) -> None:
    fields.pop("max_age", None)
    once = to_canonical_stream(fields)
    assert to_canonical_stream(once) == once


_STREAMS = st.fixed_dictionaries(
    {"name": st.sampled_from("ab"), "metadata": st.sampled_from([{}, {"a": "b"}])},
    optional={
        "subjects": st.sampled_from([["a"], ["a", "b"], ["b", "a"]]),
        "sources": st.sampled_from([[], [{"name": "x"}], [{"name": "x", "external": {"api": "y", "deliver": ""}}]]),
        "max_age": st.sampled_from([0, 10**9]),
        "max_msgs": st.sampled_from([0, -1, 5]),
        "duplicate_window": st.sampled_from([0, 10**9, 120 * 10**9]),
    },
)


@settings(derandomize=True)
@given(st.lists(st.tuples(_STREAMS, _STREAMS), max_size=20))
def test_what_is_said_to_mean_the_same_does_whatever_was_compared_before(
    pairs: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    equality = EqualityCache()
    for desired, observed in pairs:
        assert not equality.is_known_equal(desired, observed) or to_canonical_stream(desired) == to_canonical_stream(
            observed
        )
        assert equality.is_known_equal(desired, dict(desired))


def test_of_a_thousand_streams_that_are_as_desired_a_few_are_compared_at_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = Counter[str]()

    def count(fields: Mapping[str, Any]) -> dict[str, Any]:
        compared[fields["name"]] += 1
        return to_canonical_stream(fields)

    monkeypatch.setattr("vstream.plan.canonical.to_canonical_stream", count)
    equality = EqualityCache()
    for number in range(1000):
        desired: dict[str, Any] = {
            "name": f"s{number}",
            "subjects": [f"s{number}.>"],
            "max_age": number % 7,
            "metadata": {"a": "b"},
        }
        observed = {"sealed": False, **desired, "consumer_limits": {}, "metadata": {"a": "b", "_nats.ver": "2.15.1"}}
        assert equality.is_known_equal(desired, observed)
    assert len(compared) == 7
