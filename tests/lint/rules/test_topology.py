"""Each rule about topologies: its manual page is true. What its branches say is in test_documents.py."""

from __future__ import annotations

import pytest

from tests.support import workspaces
from tests.support.paths import TESTS
from tests.support.topologies import HEAD
from vstream.findings import Severity
from vstream.lint.check_topology import check_topology
from vstream.lint.rule import Rule
from vstream.lint.rules.topology import RULES
from vstream.lint.rules.topology.context import TopologySubject

CODES = [rule.code for rule in RULES]
ABBREVIATED = {
    "<LONG>": "x" * 5_000,
    "<MANY>": ", ".join(f"r{number}: {{servers: 99}}" for number in range(48)),
}
"""What manual pages leave out because nobody wants to read it."""


@pytest.mark.parametrize("rule", RULES, ids=CODES)
def test_the_bad_example_of_a_manual_page_shows_this_code_only_and_the_good_one_none(
    rule: Rule[TopologySubject],
) -> None:
    (bad,), (good,) = (files.values() for files in workspaces.examples(rule))
    for short, long in ABBREVIATED.items():
        bad = bad.replace(short, long)
    assert {finding.code for finding in check_topology(bad.encode(), "bad.yaml").findings} == {rule.code}
    assert check_topology(good.encode(), "good.yaml").findings == ()


def test_a_mistake_in_the_defaults_is_reported_once_for_all_streams() -> None:
    streams = "".join(f"  s{number}: {{subjects: [s{number}.>]}}\n" for number in range(100))
    text = f"{HEAD}regions: {{west: {{servers: 1}}}}\ndefaults: {{replicas: 3, write: {{max_age: 1h}}}}\nstreams:\n{streams}"
    (finding,) = check_topology(text.encode(), "t.yaml").findings
    assert finding.code == "VS104"
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == (5, 22)


def test_a_file_that_overlaps_everywhere_reports_a_bounded_number_of_pairs() -> None:
    streams = "".join(f"  s{number}: {{subjects: [foo.>]}}\n" for number in range(500))
    text = f"{HEAD}regions: {{west: {{servers: 1}}}}\ndefaults: {{write: {{max_age: 1h}}}}\nstreams:\n{streams}"
    assert len(check_topology(text.encode(), "t.yaml").findings) == 200


def test_warnings_leave_a_topology_usable_and_errors_do_not() -> None:
    loaded = check_topology((TESTS / "rules" / "VS120" / "bad.yaml").read_bytes(), "t.yaml")
    assert {finding.severity for finding in loaded.findings} == {Severity.WARNING}
    assert loaded.require().name == "acme"
