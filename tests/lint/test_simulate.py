"""`vstream map`: the simulator's answer, in words and as JSON."""

from __future__ import annotations

from typing import Any

from vstream.cli.views import map as map_view
from vstream.lint.parse_files import Source, parse_sources
from vstream.lint.simulate import Simulation, simulate


def answer(text: str, subject: str, cluster: str | None = "west") -> Simulation:
    workspace = parse_sources([Source(name="m.cfg", content=text.encode())], read=lambda _: b"").workspace()
    return simulate(workspace.blocks[0], subject, cluster, ("west", "east"))


def words(text: str, subject: str, cluster: str | None = "west") -> list[str]:
    return [line.plain for line in map_view.render_resolution(answer(text, subject, cluster))]


BY_CLUSTER = """\
mappings {
  "foo.*": [
    {destination: "foo.west.{{wildcard(1)}}", weight: 75%, cluster: west}
    {destination: "foo.north.{{wildcard(1)}}", weight: 100%, cluster: north}
  ]
}
"""


def test_the_answer_names_rule_destinations_weights_clusters_and_cost() -> None:
    assert words(BY_CLUSTER, "foo.a") == [
        "a publish to `foo.a` in cluster `west`",
        "  by the rule `foo.*` at m.cfg:2:3",
        "     75 %  → foo.west.a",
        "     25 %  unchanged",
        "other clusters",
        "  east       unchanged",
        "  north      → foo.north.a",
        "  any other  unchanged",
        "next start or reload",
        "  the same",
        "cost",
        "  1 rule: about 0.28 µs for each message that a client publishes",
    ]


def test_without_a_cluster_all_are_listed() -> None:
    assert words(BY_CLUSTER, "foo.a", None)[1:6] == [
        "  by the rule `foo.*` at m.cfg:2:3",
        "  east       unchanged",
        "  north      → foo.north.a",
        "  west       75 % → foo.west.a, 25 % unchanged",
        "  any other  unchanged",
    ]


def test_rules_that_overlap_are_all_named() -> None:
    lines = words('mappings {\n  "foo.*": a\n  "foo.>": b.>\n}', "foo.x")
    assert "  by the rule `foo.*` at m.cfg:2:3" in lines
    assert "  or the rule `foo.>` at m.cfg:3:3" in lines
    assert "  the server picks one of 2 rules at random, each server for itself:" in lines
    assert "  east       → a  or  → b.x" in lines


def test_a_rule_that_is_forgotten_is_named() -> None:
    assert "    (the rule with the same source at m.cfg:1:12 is ignored)" in words("mappings { foo: a, foo: b }", "foo")


def test_what_is_lost_or_kills_the_server_is_said() -> None:
    lost = 'mappings { foo: [{destination: foo, weight: 40%}, {weight: 10%, destination: "b"}, {weight: 1}] }'
    lines = words(lost, "foo")
    assert "     49 %  lost: no subscriber gets it" in lines
    assert "      1 %  the server crashes: the rule has no destination" in lines


def test_numbers_that_the_server_draws_are_explained() -> None:
    lines = words('mappings { "foo.*": "bar.{{random(4)}}.x" }', "foo.1")
    assert "    100 %  → bar.*.x  (`*` is chosen from 0 to 3)" in lines


def test_mappings_that_are_refused_are_named() -> None:
    text = 'mappings {\n  "foo.*": "bar.{{wildcard(2)}}"\n  a: {dest: b}\n}'
    lines = words(text, "foo.1")
    assert [line for line in lines if line.startswith("  refused ")] == [
        "  refused m.cfg:3:6: the weight is missing",
        "  refused m.cfg:2:12: `{{wildcard(2)}}` refers to wildcard 2, the source has 1",
    ]


def test_the_json_of_an_answer_has_everything() -> None:
    document: dict[str, Any] = map_view.as_dict(answer(BY_CLUSTER, "foo.a"))
    assert document["candidates"] == [
        {
            "source": "foo.*",
            "file": "m.cfg",
            "line": 2,
            "column": 3,
            "only_if_first": None,
            "overrides_lines": [],
            "outcomes": [
                {
                    "percent": 75,
                    "kind": "mapped",
                    "subject": "foo.west.a",
                    "destination": "foo.west.{{wildcard(1)}}",
                    "random_tokens": [],
                },
                {"percent": 25, "kind": "identity", "subject": "foo.a", "destination": None, "random_tokens": []},
            ],
        }
    ]
    assert [candidate["cluster"] for candidate in document["elsewhere"]] == ["east", "north", None]
    assert (document["accepted"], document["ambiguous"], document["rules"]) == (True, False, 1)


def test_the_order_of_rules_can_decide() -> None:
    text = 'mappings { foo: "bar.{{partition(10)}}", x: y }'
    lines = words(text, "foo")
    assert "  by the rule `foo` at m.cfg:1:12, if the server tries it before the other rules" in lines
    assert "  the result depends on whether the server tries this rule before others" in lines
