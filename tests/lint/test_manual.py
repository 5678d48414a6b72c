"""The manual: a page for every code, and docs/rules.md."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import pytest

from scripts.docs import rules_markdown
from tests.support.paths import ROOT, TESTS
from vstream.lint import manual, rules, selection
from vstream.lint.parse_files import Source, parse_sources
from vstream.lint.rule import Rule, run_rules
from vstream.lint.rules.scenarios import RULES as SCENARIO_RULES
from vstream.lint.rules.topology import RULES as TOPOLOGY_RULES
from vstream.render.pipeline import render_sample
from vstream.topology.parse import parse_topology

FOLDERS: dict[str, tuple[tuple[Rule[Any], ...], tuple[str, ...]]] = {
    "VS1": (TOPOLOGY_RULES, (".yaml",)),
    "VS2": (rules.rules_of("streams"), (".json", "")),
    "VS3": (rules.rules_of("mappings"), (".cfg", ".json", "")),
    "VS4": (rules.rules_of("servers"), (".conf", "")),
    "VS5": (SCENARIO_RULES, (".yaml",)),
}
"""By what codes begin with: the rules, and how their cases in tests/rules end. A directory ends with nothing."""
LISTED = tuple(rule for listed, _ in FOLDERS.values() for rule in listed)
HEADINGS = ["## Why is this bad?", "## Example", "## Use instead"]
CASES = TESTS / "rules"


TWINS = {
    "VS104": "VS223",
    "VS105": "VS208",
    "VS112": "VS204",
    "VS113": "VS216",
    "VS116": "VS232",
    "VS127": "VS244",
    "VS146": "VS244",
}
"""By rule about settings in a topology: the rule that says the same of the streams in JSON that others wrote."""
ONLY_IN_TOPOLOGIES = {
    "VS107": "servers take any age; only a topology promises how long an outage may last",
    "VS111": "the fields of other streams are their owner's to set",
    "VS122": "servers say no in words, and nothing is lost",
    "VS131": "JSON does not say which cluster is stretched",
    "VS147": "what a counter may forget, only its owner knows",
}
"""Such rules without a twin, and why."""
PLACES_OF_THEIR_OWN = {
    "VS104": "regions differ in how many servers they have, and each is told",
    "VS107": "it points at the stream, which stands once",
    "VS122": "regions differ in the tags of their servers, and each is told",
}
"""Rules that walk physical streams without `@once_per_place`, and why they say nothing twice."""


def find_defined_codes() -> set[str]:
    """The codes of all rules that any module defines."""
    names = [info.name for info in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}.")]
    values = (value for name in names for value in vars(importlib.import_module(name)).values())
    return {value.code for value in values if isinstance(value, Rule)}


def test_every_rule_runs() -> None:
    assert find_defined_codes() == {rule.code for rule in LISTED}, "put its module into a folder of rules"


def test_codes_are_unique_and_in_order() -> None:
    codes = [rule.code for rule in LISTED]
    assert [code for code in dict.fromkeys(codes) if codes.count(code) > 1] == []
    for listed, _ in FOLDERS.values():
        assert list(listed) == sorted(listed, key=lambda rule: rule.code)


def test_names_are_unique_in_their_chapter() -> None:
    for chapter in manual.CHAPTERS:
        names = [page.name for page in chapter.pages]
        assert sorted(names) == sorted(set(names))


def list_cases(code: str, kind: str) -> list[Path]:
    """The *kind* of cases, bad or good ones, that the tests of its folder read."""
    _, endings = FOLDERS[code[:3]]
    return [path for path in CASES.glob(f"{code}/{kind}*") if path.suffix in endings]


def missing(rule: Rule[Any], begin: str) -> list[str]:
    """What somebody who added *rule*, in a folder whose codes *begin* so, has forgotten."""
    is_in_range = rule.code.startswith(begin) and rule.code not in selection._WITHOUT_EXAMPLE
    headings = [line for line in rule.manual.splitlines() if line.startswith("## ")]
    lacks = {
        f"a code of its folder, {begin}xx, that no template has": is_in_range,
        "a function of its name": rule.check.__name__ == rule.name.replace("-", "_"),
        "a docstring that begins with a sentence": manual.PAGES[rule.code].summary.endswith("."),
        f"`{HEADINGS[0]}` in its docstring": HEADINGS[0] in headings,
        f"the headings {HEADINGS} in this order: two are in examples/rules/{rule.code}.md": headings == HEADINGS,
        **{f"{kind}* cases in tests/rules/{rule.code}": list_cases(rule.code, kind) != [] for kind in ("bad", "good")},
    }
    return [lack for lack, is_there in lacks.items() if not is_there]


def is_about_settings(rule: Rule[Any]) -> bool:
    source = inspect.getsource(inspect.unwrap(rule.check))
    return "subject.physical" in source or "subject.setting_levels" in source


def test_every_rule_about_settings_has_a_twin_for_json() -> None:
    """A setting that servers refuse, or that loses messages, does so wherever it is written."""
    expected = {rule.code for rule in TOPOLOGY_RULES if is_about_settings(rule)}
    told = {*TWINS, *ONLY_IN_TOPOLOGIES}
    assert expected - told == set(), (
        "if servers refuse the setting, or it loses messages, write a rule in rules/streams, too, and enter both in TWINS; "
        "if not, say why in ONLY_IN_TOPOLOGIES"
    )
    assert told - expected == set(), "no rule about settings has this code: take it out"


def test_rules_that_walk_physical_streams_say_once_what_stands_once() -> None:
    sources = {rule.code: inspect.getsource(inspect.unwrap(rule.check)) for rule in TOPOLOGY_RULES}
    walking = {rule.code for rule in TOPOLOGY_RULES if "subject.physical" in sources[rule.code]}
    repeating = {rule.code for rule in TOPOLOGY_RULES if rule.check is inspect.unwrap(rule.check)} & walking
    assert repeating - PLACES_OF_THEIR_OWN.keys() == set(), (
        "decorate it with @once_per_place: several physical streams take a setting from one place, such as `defaults`; "
        "or say in PLACES_OF_THEIR_OWN why it says nothing twice"
    )
    assert PLACES_OF_THEIR_OWN.keys() - repeating == set(), "no such rule has this code: take it out"


@pytest.mark.parametrize(("code", "twin"), TWINS.items())
def test_a_twin_finds_in_json_what_its_rule_finds_in_a_topology(code: str, twin: str) -> None:
    parsed = parse_topology((CASES / code / "bad.yaml").read_bytes(), "bad.yaml")
    assert parsed.readable is not None
    topology = parsed.readable.topology
    files = {artifact.path: artifact.text for artifact in render_sample(topology).artifacts}
    sources = [
        Source(name=path, content=text.encode(), is_named=False)
        for path, text in files.items()
        if path.endswith(".json")
    ]
    workspace = parse_sources(sources, read=lambda _: b"").workspace(topology)
    assert twin in {finding.code for finding in run_rules(rules.rules_of("streams"), workspace)}


@pytest.mark.parametrize(
    ("rule", "begin"),
    [(rule, begin) for begin, (listed, _) in FOLDERS.items() for rule in listed],
    ids=lambda value: getattr(value, "code", ""),
)
def test_every_rule_is_whole(rule: Rule[Any], begin: str) -> None:
    lacks = missing(rule, begin)
    assert not lacks, f"{rule.code} lacks: {'; '.join(lacks)}"


def test_every_case_belongs_to_a_rule_and_is_tried() -> None:
    tried = {path for rule in LISTED for kind in ("bad", "good") for path in list_cases(rule.code, kind)}
    expected = {path.with_suffix(".out") for path in tried if path.name.startswith("bad")}
    assert set(CASES.glob("*/*")) - tried - expected == set(), "no rule has it, or its folder has other files"


def test_the_documentation_is_up_to_date() -> None:
    file = ROOT / "docs" / "rules.md"
    assert file.read_text(encoding="utf-8") == rules_markdown(), "run scripts/docs"


def test_every_page_has_a_summary_of_one_sentence() -> None:
    assert [page.code for page in manual.PAGES.values() if not page.summary.endswith(".")] == []


def test_the_codes_that_can_be_selected_are_those_of_the_manual() -> None:
    assert selection.known_codes() == manual.CODES, "each rule has a page in examples/rules, and each page a rule"


def test_every_code_belongs_to_a_group() -> None:
    assert {selection.group_of(code) for code in manual.CODES} == set(selection.GROUPS)
