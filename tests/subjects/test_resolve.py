from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.call_counts import count_calls
from tests.support.mappings import only_outcome
from tests.support.night import repetitions
from vstream.subjects.compile_mapping import MappingErrorKind, go_quote
from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.subjects.resolve import (
    MappingTable,
    compile_mappings,
    publish_cost_us,
)

laws = settings(derandomize=True, deadline=None, max_examples=repetitions(60, night=1500))


def to(subject: str, weight: int = 100, cluster: str | None = None) -> Destination:
    return Destination(subject=subject, weight=weight, cluster=cluster)


def rule(source: str, *destinations: Destination) -> MappingRule:
    return MappingRule(source=source, destinations=destinations)


def table(*rules: MappingRule) -> MappingTable:
    compiled = compile_mappings(rules)
    assert not any(error.is_rejected for error in compiled.errors), compiled.errors
    return compiled


def resolve_outcomes(one: MappingTable, subject: str, cluster: str | None = None) -> set[tuple[int, str, str]]:
    return {
        (outcome.probability_percent, outcome.kind.value, outcome.subject)
        for outcome in one.resolve(subject, cluster).outcomes
    }


def errors(*rules: MappingRule) -> list[tuple[MappingErrorKind, str]]:
    return [(error.kind, error.server_message) for error in compile_mappings(rules).errors]


def test_without_a_rule_the_subject_stays() -> None:
    assert resolve_outcomes(table(), "a.b") == {(100, "identity", "a.b")}


def test_a_rule_maps_a_subject_to_its_destination() -> None:
    assert resolve_outcomes(table(rule("a.*", to("b.$1"))), "a.x") == {(100, "mapped", "b.x")}


def test_the_rest_of_the_weights_stays() -> None:
    mapping_table = table(rule("a.*", to("b.$1", 60), to("c.$1", 0)))
    assert resolve_outcomes(mapping_table, "a.x") == {(60, "mapped", "b.x"), (40, "identity", "a.x")}


def test_a_rule_without_destinations_keeps_the_subject() -> None:
    assert resolve_outcomes(table(rule("a.>")), "a.x.y") == {(100, "identity", "a.x.y")}


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ("west", {(100, "mapped", "w.x")}),
        ("east", {(30, "mapped", "e.x"), (70, "identity", "a.x")}),
        ("West", {(100, "mapped", "d.x")}),
        (None, {(100, "mapped", "d.x")}),
    ],
)
def test_clusters_have_their_own_weights(cluster: str | None, expected: set[tuple[int, str, str]]) -> None:
    mapping_table = table(rule("a.*", to("w.$1", 100, "west"), to("e.$1", 30, "east"), to("d.$1")))
    assert expected == resolve_outcomes(mapping_table, "a.x", cluster)


def test_a_cluster_without_destinations_keeps_the_subject() -> None:
    assert resolve_outcomes(table(rule("a", to("w", 100, "west"))), "a", "east") == {(100, "identity", "a")}


def test_the_source_as_a_destination_means_loss() -> None:
    assert resolve_outcomes(table(rule("a", to("b", 60), to("a", 0))), "a") == {
        (60, "mapped", "b"),
        (40, "dropped", ""),
    }


def test_the_source_as_a_destination_of_one_cluster_loses_everything_in_the_others() -> None:
    mapping_table = table(rule("a", to("a", 100, "west")))
    assert resolve_outcomes(mapping_table, "a", "west") == {(100, "identity", "a")}
    assert resolve_outcomes(mapping_table, "a", "east") == {(100, "dropped", "")}


def test_an_empty_token_reaches_nobody() -> None:
    mapping_table = table(rule("a.*", to("b.{{split(1,-)}}")))
    assert resolve_outcomes(mapping_table, "a.-") == {(100, "dropped", "b.")}
    assert mapping_table.resolve("a.-").admits(None)


def test_a_missing_destination_panics_the_server() -> None:
    mapping_table = table(rule("a", to("")))
    assert [(error.kind, error.is_rejected) for error in mapping_table.errors] == [(MappingErrorKind.PANICS, False)]
    assert resolve_outcomes(mapping_table, "a") == {(100, "panics", "")}


def test_a_missing_destination_that_is_never_chosen_does_no_harm() -> None:
    mapping_table = table(rule("a", to("", 0), to("b")))
    assert not mapping_table.errors
    assert resolve_outcomes(mapping_table, "a") == {(100, "mapped", "b")}


def test_overlapping_sources_are_ambiguous() -> None:
    wide, narrow = rule("a.>", to("b.>")), rule("a.x", to("c"))
    mapping_table = table(wide, narrow)
    resolution = mapping_table.resolve("a.x")
    assert resolution.is_ambiguous
    assert only_outcome(resolution) is None
    assert [candidate.mapping for candidate in resolution.candidates] == [wide, narrow]
    assert resolution.admits("b.x")
    assert resolution.admits("c")
    assert not resolution.admits("a.x")
    assert [{mapping.source for mapping in pair} for pair in mapping_table.overlapping()] == [{"a.>", "a.x"}]


def test_a_token_that_begins_with_a_star_overlaps_any_token() -> None:
    mapping_table = table(rule("*a.b", to("c")))
    assert resolve_outcomes(mapping_table, "z.b") == {(100, "mapped", "c")}


def test_the_last_of_equal_sources_wins() -> None:
    first, last = rule("a", to("b..c")), rule("a", to("d"))
    mapping_table = table(first, last)
    assert mapping_table.overridden == (first,)
    assert mapping_table.mappings == (last,)


def test_partition_of_a_literal_source_depends_on_the_order_of_rules() -> None:
    partitioned = rule("a.b", to("p.{{partition(1000)}}"))
    alone = table(partitioned).resolve("a.b")
    (outcome,) = alone.outcomes
    assert outcome.subject == f"p.{0x811C9DC5 % 1000}"
    both = table(partitioned, rule("z", to("y"))).resolve("a.b")
    assert [candidate.is_first for candidate in both.candidates] == [True, False]
    assert len({outcome.subject for outcome in both.outcomes}) == 2


def test_a_drawn_number_is_not_certain() -> None:
    resolution = table(rule("a", to("b.{{random(3)}}"))).resolve("a")
    assert only_outcome(resolution) is None
    assert [n for n in range(5) if resolution.admits(f"b.{n}")] == [0, 1, 2]


def test_only_literal_subjects_can_be_resolved() -> None:
    with pytest.raises(ValueError, match=r"`a\.\*` is not a literal subject"):
        table().resolve("a.*")


INVALID = "invalid mapping destination: "


@pytest.mark.parametrize(
    ("broken", "kind", "wording"),
    [
        (rule("a..b", to("c")), MappingErrorKind.INVALID_SOURCE, 'Subject "a..b" is not a valid subject'),
        (
            rule("a", to("b", 101)),
            MappingErrorKind.INVALID_WEIGHT,
            "Invalid weight 101 for mapping destination",
        ),
        (rule("a", to("b", -1)), MappingErrorKind.INVALID_WEIGHT, "Invalid weight -1 for mapping destination"),
        (
            rule("a", to("b", 50, "x"), to("b", 50, "y")),
            MappingErrorKind.DUPLICATE_DESTINATION,
            'duplicate entry for "b"',
        ),
        (
            rule("a", to("b", 51, "x"), to("c", 50, "x"), to("d", 100, "y")),
            MappingErrorKind.TOTAL_WEIGHT,
            "total weight needs to be <= 100",
        ),
        (rule("a.>", to("b")), MappingErrorKind.INVALID_DESTINATION, "invalid subject"),
        (
            rule("a.*", to("b.{{nope(1)}}")),
            MappingErrorKind.INVALID_DESTINATION,
            f"{INVALID}unknown function in {{{{nope(1)}}}}",
        ),
        (
            rule("a.$2.*", to("b", 50)),
            MappingErrorKind.INVALID_REMAINDER,
            f"{INVALID}wildcard index out of range in $2: [2]",
        ),
    ],
)
def test_a_mapping_that_the_server_refuses_is_left_out_with_its_reason(
    broken: MappingRule, kind: MappingErrorKind, wording: str
) -> None:
    mapping_table = compile_mappings([broken, rule("z", to("y"))])
    assert [(kind, wording)] == [(error.kind, error.server_message) for error in mapping_table.errors]
    assert any(error.is_rejected for error in mapping_table.errors)
    assert resolve_outcomes(mapping_table, "z") == {(100, "mapped", "y")}


def test_all_errors_of_a_mapping_are_reported() -> None:
    kinds = [kind for kind, _ in errors(rule("a", to("b", 200), to("c..d", 60), to("e", 60), to("e", 1), to("*")))]
    assert kinds == [
        MappingErrorKind.INVALID_WEIGHT,
        MappingErrorKind.INVALID_DESTINATION,
        MappingErrorKind.TOTAL_WEIGHT,
        MappingErrorKind.DUPLICATE_DESTINATION,
        MappingErrorKind.INVALID_DESTINATION,
    ]


def test_strings_are_quoted_as_go_does() -> None:
    assert go_quote('a"\\\n\x01é\udcc3\u2028\U000e0001') == '"a\\"\\\\\\n\\x01é\\xc3\\u2028\\U000e0001"'


@pytest.mark.parametrize(
    ("rules", "expected"),
    [(0, 0.21), (20, 1.55), (200, 13.0), (2_000, 105.0), (20_000, 2_429.0), (42_000, 9_346.0), (10, 0.88)],
)
def test_the_cost_goes_through_the_measured_points(rules: int, expected: float) -> None:
    assert publish_cost_us(rules) == pytest.approx(expected)


def test_the_cost_of_a_publish_never_falls_with_more_rules() -> None:
    assert all(publish_cost_us(n) < publish_cost_us(n + 7) for n in range(0, 60_000, 7))


weights = st.integers(0, 100)
clusters = st.sampled_from((None, "east", "west"))
wild_destinations = st.builds(to, st.sampled_from(("b.$1", "c.$1", "d", "e.{{random(3)}}")), weights, clusters)
literal_destinations = st.builds(to, st.sampled_from(("a", "b", "c", "d.{{random(3)}}", "")), weights, clusters)
rules = st.one_of(
    st.builds(rule, st.sampled_from(("a.*", "*.x", "*")), wild_destinations, wild_destinations),
    st.builds(rule, st.sampled_from(("a", "b", "a.x")), literal_destinations, literal_destinations),
)


@laws
@given(st.lists(rules, max_size=6), st.sampled_from(("a", "a.x", "b.x")), clusters)
def test_the_outcomes_of_a_candidate_add_up(many: list[MappingRule], subject: str, cluster: str | None) -> None:
    resolution = compile_mappings(many).resolve(subject, cluster)
    for candidate in resolution.candidates:
        assert sum(outcome.probability_percent for outcome in candidate.outcomes) == 100
        assert all(outcome.probability_percent > 0 for outcome in candidate.outcomes)
    assert resolution.is_ambiguous or len({candidate.mapping for candidate in resolution.candidates}) == 1


@laws
@given(st.lists(rules, max_size=6), st.sampled_from(("a", "a.x", "b.x")), clusters)
def test_a_subject_is_ambiguous_only_where_sources_overlap(
    many: list[MappingRule], subject: str, cluster: str | None
) -> None:
    compiled = compile_mappings(many)
    if compiled.resolve(subject, cluster).is_ambiguous:
        assert list(compiled.overlapping())


def test_many_rules_take_work_in_proportion() -> None:
    def once(count: int) -> int:
        many = [
            rule(f"a.{n}.*.>", *(to(f"{region}.{n}.{{{{wildcard(1)}}}}.>", 100, region) for region in ("east", "west")))
            for n in range(count)
        ]
        return count_calls(lambda: compile_mappings(many))

    assert once(2_000) < 4.5 * once(500)
