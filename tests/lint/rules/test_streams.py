"""Rules about streams: what their fixes leave, values of the wrong kind, and many streams."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support import workspaces
from tests.support.call_counts import count_calls
from vstream.lint.rule import run_rules
from vstream.lint.rules.streams import RULES

HOUR = 3_600 * 10**9


@pytest.mark.parametrize("name", ["bad", "bad-renumbered"])
def test_the_fix_of_the_blogs_layout_leaves_nothing_to_report(name: str) -> None:
    text = (workspaces.FIXTURES / "VS205" / f"{name}.json").read_text()
    fixed = workspaces.apply_all_fixes(text, workspaces.findings({"a.json": text}))
    assert workspaces.concise(workspaces.findings({"a.json": fixed})) == ""
    before, after = json.loads(text), json.loads(fixed)
    for old, new in zip(before, after, strict=True):
        transforms = [transform for source in new["sources"] for transform in source["subject_transforms"]]
        assert [transform["src"] for transform in transforms] == [source["filter_subject"] for source in old["sources"]]
        assert old.keys() - new.keys() == {"subject_transform"}


def test_a_transform_that_is_the_last_field_is_removed_with_the_comma_before_it() -> None:
    text = (
        '{"name": "all", "allow_direct": true, "duplicate_window": 0,\n'
        ' "sources": [{"name": "a", "filter_subject": "a.>"}],\n'
        ' "subject_transform": {"src": "a.>", "dest": "b.>"}}\n'
    )
    fixed = workspaces.apply_all_fixes(text, workspaces.findings({"a.json": text}))
    assert json.loads(fixed)["sources"] == [{"name": "a", "subject_transforms": [{"src": "a.>", "dest": "b.>"}]}]


def test_streams_of_two_environments_are_not_taken_for_one_another() -> None:
    def environment(directory: str, ttl: bool) -> dict[str, str]:
        write = {"name": "foo-write-west", "subjects": ["_vs.foo.west.>"], "num_replicas": 3, "max_age": HOUR}
        read = {"name": "foo-read-west", "sources": [{"name": "foo-write-west"}], "duplicate_window": 0}
        more = {"placement": {"cluster": "west"}, "allow_msg_ttl": ttl, "allow_direct": True}
        return {f"{directory}/{stream['name']}.json": json.dumps({**stream, **more}) for stream in (write, read)}

    assert workspaces.codes({**environment("dev", True), **environment("prod", False)}) == set()


@pytest.mark.parametrize(
    "value",
    ["null", "[]", "{}", "17", '"x"', "true", "[null]", "[[]]", "[{}]", '[{"name": 3}]', '{"src": 1, "dest": []}'],
)
@pytest.mark.parametrize(
    "field",
    [
        "sources",
        "mirror",
        "subjects",
        "placement",
        "republish",
        "subject_transform",
        "max_age",
        "metadata",
        "num_replicas",
    ],
)
def test_values_of_the_wrong_kind_are_survived(field: str, value: str) -> None:
    text = f'{{"name": "foo-read-west", "retention": "limits", "sources": [{{"name": "a"}}], "{field}": {value}}}'
    if field == "sources":
        text = f'{{"name": "foo-read-west", "retention": "limits", "sources": {value}}}'
    workspaces.findings({"a.json": text})


def test_a_circle_of_more_streams_than_python_can_recurse_is_found() -> None:
    number = sys.getrecursionlimit() * 3 // 2
    streams = [
        {"name": f"s{index}", "subjects": [f"s{index}"], "sources": [{"name": f"s{(index + 1) % number}"}]}
        for index in range(number)
    ]
    assert workspaces.codes({"a.json": json.dumps(streams)}) == {"VS212"}


def test_streams_that_all_source_one_another_report_a_bounded_number_of_circles() -> None:
    names = [f"s{index}" for index in range(110)]
    streams = [{"name": name, "subjects": [name], "sources": [{"name": name} for name in names]} for name in names]
    findings = workspaces.findings({"a.json": json.dumps(streams)})
    assert [finding.code for finding in findings] == ["VS212"] * 100
    assert max(len(finding.message) for finding in findings) < 200


def test_time_grows_with_the_number_of_streams() -> None:
    def once(count: int) -> int:
        texts = [
            {
                "name": f"s{number}-{role}-{region}",
                "num_replicas": 3,
                "max_age": HOUR,
                "duplicate_window": 0,
                "placement": {"cluster": region},
                "allow_direct": True,
                **(
                    {"subjects": [f"s{number}.{region}.>"]}
                    if role == "write"
                    else {"sources": [{"name": f"s{number}-write-{region}"} for region in ("west", "east")]}
                ),
            }
            for number in range(count)
            for region in ("west", "east")
            for role in ("write", "read")
        ]
        looked_at = workspaces.workspace({"a.json": json.dumps(texts)})
        assert run_rules(RULES, looked_at) == ()
        return count_calls(lambda: run_rules(RULES, looked_at))

    assert once(160) < 4.5 * once(40)
