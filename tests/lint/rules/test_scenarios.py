"""Each rule about scenarios: its manual page is true. What its branches say is in test_documents.py."""

from __future__ import annotations

import pytest

from tests.support import workspaces
from tests.support.scenarios import load_text
from tests.support.topologies import concise
from vstream.lint.rule import Rule
from vstream.lint.rules.scenarios import RULES
from vstream.lint.rules.scenarios.context import ScenarioSubject


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_bad_example_of_a_manual_page_shows_this_code_only_and_the_good_one_none(
    rule: Rule[ScenarioSubject],
) -> None:
    (bad,), (good,) = (files.values() for files in workspaces.examples(rule))
    assert {finding.code for finding in load_text(bad).findings} == {rule.code}
    assert concise(load_text(good).findings) == ""
