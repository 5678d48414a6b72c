"""No input makes the linter fail, and what it says of it makes sense."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.support.lint_inputs import INPUTS, SEEDS, check_files
from tests.support.night import repetitions


@settings(max_examples=repetitions(50, night=2000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files=INPUTS)
def test_no_input_makes_the_linter_fail(files: dict[str, bytes]) -> None:
    check_files(files)


def test_the_real_files_among_them_are_read() -> None:
    report = check_files({name: text.encode() for name, text in SEEDS.items()})
    assert sorted(SEEDS) == list(report.files)
    assert not [finding for finding in report.findings if finding.code.startswith("VS0") and finding.code != "VS009"]


def test_a_subject_that_no_configuration_can_hold_is_reported_in_the_topology() -> None:
    """Found by fuzzing: it used to fail after rendering, as an error of the template."""
    text = SEEDS["topology.yaml"].replace('[foo.>, "bar.*.x"]', "['(\"bar.*.x\"']")
    report = check_files({"topology.yaml": text.encode()})
    assert {finding.span.file for finding in report.findings if finding.is_error and finding.span} == {"topology.yaml"}
