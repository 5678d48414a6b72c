"""Whether a whole run has seen each JSON output: one that no test asks for is held against no schema."""

from __future__ import annotations

import pytest

from tests.support.command import OUTPUTS_SEEN
from vstream.outputs import OUTPUTS


class OutputRecorder:
    """Collects from the workers which outputs they have checked, and fails the run if one is missing."""

    def __init__(self) -> None:
        self.missing = set(OUTPUTS)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take what a worker has seen; one that crashed has said nothing."""
        self.missing.difference_update(getattr(node, "workeroutput", {}).get("outputs", ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a run that has passed otherwise: a failed test may be the one that would have asked."""
        if exitstatus == pytest.ExitCode.OK and self.missing - OUTPUTS_SEEN:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the outputs that are missing."""
        for name in sorted(self.missing - OUTPUTS_SEEN):
            terminalreporter.write_line(f"no test has seen the JSON output `{name}`", red=True)
