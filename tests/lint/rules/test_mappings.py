"""Each rule about mappings: its manual page is true, it says exactly what it should, and it takes its time in proportion."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import workspaces
from tests.support.call_counts import count_calls
from tests.support.golden import Golden
from tests.support.paths import ROOT
from vstream.findings import Finding, Severity
from vstream.lint.check_topology import check_topology
from vstream.lint.rule import Rule, run_rules
from vstream.lint.rules import rules_for
from vstream.lint.rules.mappings import RULES, api
from vstream.lint.workspace import Workspace
from vstream.render.pipeline import render_bundle

CODES = [rule.code for rule in RULES]
BAD, GOOD = workspaces.fixtures(CODES, ".cfg")
BAD_CLAIMS, _ = workspaces.fixtures(CODES, ".json")
BAD = sorted({*BAD, *BAD_CLAIMS})
TOPOLOGIES = sorted([*(ROOT / "examples").glob("*.yaml"), *(ROOT / "tests" / "golden").glob("*.yaml")])
MANY = {"VS360": 200}
"""How many rules stand for the one in a manual page that has `<N>` in it."""
BLOG = (ROOT / "tests/fixtures/blog-mappings-short.cfg").read_text()
"""The mistakes of a published recipe (synadia.com/blog/multi-cluster-consistency-models), shortened."""


def list_findings(files: dict[str, str], *, oldest: tuple[int, int] | None = None) -> tuple[Finding, ...]:
    return run_rules(RULES, workspaces.workspace(files, server_version=oldest))


def lines(text: str) -> set[tuple[int, str]]:
    return {
        (finding.span.line, finding.code)
        for finding in list_findings({"mappings.cfg": text})
        if finding.span is not None
    }


def repeat_rules(files: dict[str, str], count: int) -> dict[str, str]:
    texts = {}
    for name, text in files.items():
        rows = [
            "".join(row.replace("<N>", str(number)) for number in range(count)) if "<N>" in row else row
            for row in text.splitlines(keepends=True)
        ]
        texts[name] = "".join(rows)
    return texts


def block(*entries: str) -> dict[str, str]:
    return {"mappings.cfg": "mappings {\n" + "".join(f"{entry}\n" for entry in entries) + "}\n"}


def virtual_streams(count: int) -> str:
    """*count* rules of virtual streams in three regions, nine for each stream."""
    shapes = (
        ("data.<V>.>", "_vs.<V>.<R>.data.<V>.>"),
        ("$JS.API.STREAM.INFO.<V>", "$JS.API.STREAM.INFO.<V>-read-<R>"),
        ("$JS.API.STREAM.MSG.GET.<V>", "$JS.API.STREAM.MSG.GET.<V>-read-<R>"),
        ("$JS.API.DIRECT.GET.<V>", "$JS.API.DIRECT.GET.<V>-read-<R>"),
        ("$JS.API.DIRECT.GET.<V>.>", "$JS.API.DIRECT.GET.<V>-read-<R>.>"),
        ("$JS.API.CONSUMER.*.<V>", "$JS.API.CONSUMER.{{wildcard(1)}}.<V>-read-<R>"),
        ("$JS.API.CONSUMER.*.<V>.>", "$JS.API.CONSUMER.{{wildcard(1)}}.<V>-read-<R>.>"),
        ("$JS.API.CONSUMER.MSG.NEXT.<V>.*", "$JS.API.CONSUMER.MSG.NEXT.<V>-read-<R>.{{wildcard(1)}}"),
        ("$JS.API.CONSUMER.DURABLE.CREATE.<V>.*", "$JS.API.CONSUMER.DURABLE.CREATE.<V>-read-<R>.{{wildcard(1)}}"),
    )
    entries = []
    for number in range(count):
        source, destination = shapes[number % len(shapes)]
        name = f"s{number // len(shapes)}"
        maps = ", ".join(
            f'{{destination: "{destination.replace("<V>", name).replace("<R>", region)}", weight: 100%, cluster: {region}}}'
            for region in ("west", "central", "east")
        )
        entries.append(f'"{source.replace("<V>", name)}": [{maps}]')
    return "\n".join(["mappings {", *entries, "}", ""])


@pytest.mark.parametrize("rule", RULES, ids=CODES)
def test_the_bad_example_of_a_manual_page_shows_this_code_only_and_the_good_one_none(rule: Rule[Workspace]) -> None:
    bad, good = (repeat_rules(files, MANY.get(rule.code, 1)) for files in workspaces.examples(rule))
    assert {rule.code for rule in run_rules(rules_for(workspaces.workspace(bad)), workspaces.workspace(bad))} == {
        rule.code
    }
    assert workspaces.concise(run_rules(rules_for(workspaces.workspace(good)), workspaces.workspace(good))) == ""


@pytest.mark.parametrize("path", BAD, ids=workspaces.fixture_name)
def test_every_branch_of_a_rule_says_what_where_and_the_way_out(path: Path, golden: Golden) -> None:
    findings = list_findings(workspaces.files_of(path))
    golden.check(path.with_suffix(".out"), workspaces.concise(findings))
    assert path.parent.name in {finding.code for finding in findings}
    workspaces.require_hints(findings)


@pytest.mark.parametrize("path", GOOD, ids=workspaces.fixture_name)
def test_what_is_right_is_not_reported(path: Path) -> None:
    findings = list_findings(workspaces.files_of(path))
    assert path.parent.name not in {finding.code for finding in findings}, workspaces.concise(findings)


def test_more_rules_than_a_server_can_search_in_a_millisecond_are_an_error() -> None:
    rules = "".join(f'"foo.{number}.>": "_vs.foo.{number}.>"\n' for number in range(11_000))
    findings = list_findings({"m.cfg": f"mappings {{\n{rules}}}\n"})
    assert {(finding.code, finding.severity) for finding in findings} == {("VS360", Severity.ERROR)}


def test_the_published_recipe_is_reported_line_by_line() -> None:
    assert lines(BLOG) == {
        (3, "VS350"),
        (6, "VS340"),
        (6, "VS341"),
        (6, "VS342"),
        (10, "VS343"),
        (14, "VS330"),
        (15, "VS330"),
        (16, "VS330"),
        (18, "VS334"),
        (22, "VS335"),
    }


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_what_a_topology_renders_to_is_not_reported(path: Path) -> None:
    """Neither with its topology nor alone, where only whoever has the topology can know what was chosen."""
    text = path.read_text()
    topology = check_topology(text.encode(), path.name).require()
    files = workspaces.list_files(render_bundle(topology))
    with_topology = list_findings({**files, path.name: text}, oldest=topology.server_version)
    assert with_topology == (), workspaces.concise(with_topology)
    alone = list_findings(files, oldest=topology.server_version)
    chosen = ({"VS350"} if topology.naming.value == "blog" else set()) | ({"VS343"} if topology.streams else set())
    assert {finding.code for finding in alone} <= chosen, workspaces.concise(alone)


def test_a_version_that_is_stated_makes_an_error_of_a_function_that_is_too_new() -> None:
    files = block('"a.*": "b.{{left(1,2)}}"')
    (assumed,) = list_findings(files)
    (stated,) = list_findings(files, oldest=(2, 12))
    assert (assumed.severity, stated.severity) == (Severity.NOTE, Severity.ERROR)
    assert list_findings(files, oldest=(2, 15)) == ()


def test_a_slip_in_a_weight_or_in_the_case_of_a_cluster_can_be_fixed() -> None:
    files = workspaces.files_of(workspaces.FIXTURES / "VS315" / "bad.cfg")
    (text,) = files.values()
    after = workspaces.apply_all_fixes(text, list_findings(files))
    assert 'cluster: "west"' in after
    assert "cluster: centrl" in after
    text = block('"a": {destination: "b", weight: 10, cluster: west}')["mappings.cfg"]
    after = workspaces.apply_all_fixes(text, list_findings({"mappings.cfg": text}))
    assert after == text.replace("weight: 10", "weight: 100%")
    assert list_findings({"mappings.cfg": after}) == ()


def test_weights_are_not_added_up_where_one_cannot_be_read() -> None:
    shares = '[{destination: "w.{{wildcard(1)}}", weight: 0.5}, {destination: "e.{{wildcard(1)}}", weight: 50%}]'
    assert [finding.code for finding in list_findings({"a.conf": f'mappings {{"foo.*": {shares}}}'})] == ["VS305"]


def test_a_file_that_overlaps_everywhere_reports_a_bounded_number_of_pairs() -> None:
    entries = [f'"a.{number}.>": "b.{number}.>"' for number in range(500)]
    findings = list_findings(block('"a.>": "c.>"', '"*.>": "d.>"', *entries))
    assert sum(finding.code == "VS302" for finding in findings) == 200


def test_a_block_that_maps_everything_twice_reports_a_bounded_number_of_rules() -> None:
    entries = [f'"a.{number}": "b.{number}"' for number in range(500)]
    findings = list_findings(block('"b.*": "c.{{wildcard(1)}}"', *entries))
    assert sum(finding.code == "VS350" for finding in findings) == 200


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("$JS.API.STREAM.MSG.DIRECT.foo", "$JS.API.DIRECT.GET.foo"),
        ("$JS.API.STREAM.DIRECT.GET.foo-read", "$JS.API.DIRECT.GET.foo-read"),
        ("$JS.API.STREAM.GET.foo", "$JS.API.STREAM.MSG.GET.foo"),
        ("$JS.API.STREAM.INFO.foo.>", "$JS.API.STREAM.INFO.foo"),
        ("$JS.API.STREM.INFO.foo", "$JS.API.STREAM.INFO.foo"),
        ("$JS.API.Stream.Info.foo", "$JS.API.STREAM.INFO.foo"),
        ("$JS.API.DIRECT.foo.>", "$JS.API.DIRECT.GET.foo.>"),
        ("$JS.API.CONSUMER.CRATE.foo.>", "$JS.API.CONSUMER.CREATE.foo.>"),
        ("$JS.API.CONSUMER.DURABLE.foo.*", "$JS.API.CONSUMER.DURABLE.CREATE.foo.*"),
        ("$JS.API.MSG.NEXT.foo.{{wildcard(1)}}", "$JS.API.CONSUMER.MSG.NEXT.foo.{{wildcard(1)}}"),
        ("$JS.hub.API.CONSUMER.INFO.foo", "$JS.hub.API.CONSUMER.INFO.foo.*"),
    ],
)
def test_the_request_that_was_meant_is_found(written: str, meant: str) -> None:
    request = api.parse_request(written)
    assert request is not None
    assert request.operations == ()
    assert api.suggest(request) == meant


@pytest.mark.parametrize("operation", api.OPERATIONS, ids=lambda one: one.pattern)
def test_every_request_is_known_by_its_pattern(operation: api.Operation) -> None:
    request = api.parse_request(api.PREFIX + operation.pattern)
    assert request is not None
    assert operation in request.operations


def test_work_grows_with_the_rules_and_no_faster() -> None:
    def once(count: int) -> int:
        workspace = workspaces.workspace({"mappings.cfg": virtual_streams(count)})
        return count_calls(lambda: run_rules(RULES, workspace))

    assert once(600) < 4.5 * once(150)
