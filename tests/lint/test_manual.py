"""The manual: a page for every code, and docs/rules.md."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

import pytest

from scripts.docs import rules_markdown
from tests.support.paths import ROOT
from vstream.lint import manual, rules, selection
from vstream.lint.registry import Rule
from vstream.lint.rules.scenarios import RULES as SCENARIO_RULES
from vstream.lint.rules.topology import RULES as TOPOLOGY_RULES

LISTED: tuple[Rule[Any], ...] = (
    *TOPOLOGY_RULES,
    *(rule for folder in ("streams", "mappings", "servers") for rule in rules.rules_of(folder)),
    *SCENARIO_RULES,
)
HEADINGS = ("## Why is this bad?", "## Example", "## Use instead")


def find_defined_codes() -> set[str]:
    """The codes of all rules that any module defines."""
    names = [info.name for info in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}.")]
    values = (value for name in names for value in vars(importlib.import_module(name)).values())
    return {value.code for value in values if isinstance(value, Rule)}


def test_every_rule_runs() -> None:
    assert find_defined_codes() == {rule.code for rule in LISTED}


def test_codes_are_unique_and_in_order() -> None:
    codes = [rule.code for rule in LISTED]
    assert [code for code in dict.fromkeys(codes) if codes.count(code) > 1] == []
    folders = [[rule.code for rule in rules.rules_of(name)] for name in ("streams", "mappings", "servers")]
    topology, scenarios = ([rule.code for rule in listed] for listed in (TOPOLOGY_RULES, SCENARIO_RULES))
    for of_folder in (topology, *folders, scenarios):
        assert of_folder == sorted(of_folder)


def test_names_are_unique_in_their_chapter() -> None:
    for chapter in manual.CHAPTERS:
        names = [page.name for page in chapter.pages]
        assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("rule", LISTED, ids=lambda rule: rule.code)
def test_every_rule_has_a_manual_page_with_examples(rule: Rule[Any]) -> None:
    headings = [line for line in rule.manual.splitlines() if line in HEADINGS]
    assert headings == list(HEADINGS), f"in its docstring, then in examples/rules/{rule.code}.md"


@pytest.mark.parametrize("rule", LISTED, ids=lambda rule: rule.code)
def test_every_rule_is_a_function_of_its_name(rule: Rule[Any]) -> None:
    assert rule.check.__name__ == rule.name.replace("-", "_")


def test_the_documentation_is_up_to_date() -> None:
    file = ROOT / "docs" / "rules.md"
    assert file.read_text(encoding="utf-8") == rules_markdown(), "run scripts/docs"


def test_every_page_has_a_summary_of_one_sentence() -> None:
    assert [page.code for page in manual.PAGES.values() if not page.summary.endswith(".")] == []


def test_the_codes_that_can_be_selected_are_those_of_the_manual() -> None:
    assert selection.known_codes() == manual.CODES


def test_retired_codes_are_never_used_again_and_name_what_replaced_them() -> None:
    for code, note in selection.RETIRED.items():
        assert code not in manual.CODES
        (replacement,) = re.findall(r"VS\d{3}", note)
        assert replacement in manual.CODES


def test_every_code_belongs_to_a_group() -> None:
    assert {selection.group_of(code) for code in manual.CODES} == set(selection.GROUPS)
