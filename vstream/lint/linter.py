"""Sources and settings → findings, without what a baseline has, and what is left of them after corrections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vstream.findings import Severity
from vstream.lint.baseline import Baseline, FindingKey
from vstream.lint.checked_files import LintContext
from vstream.lint.corrections import apply_fixes
from vstream.lint.engine import LintReport, lint
from vstream.lint.parse_files import STDIN, Source
from vstream.lint.selection import Anchor
from vstream.lint.settings_file import LintSettings
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.topology.model import ServerVersion, Topology

_MAX_ROUNDS = 10


@value_class
class CheckResult:
    """What a run finds: *report* without what the baseline has, and *stale* entries of it that nothing has any more."""

    report: LintReport
    stale: Mapping[FindingKey, int]
    before_baseline: LintReport
    fail_on: Severity
    """What weighs as much, or more, is a reason to fail."""

    @property
    def is_complete(self) -> bool:
        """Whether everything could be read: if not, nobody knows what would be found."""
        return self.report.is_complete

    @property
    def is_failed(self) -> bool:
        """Whether everything could be read, and something was found that is a reason to fail."""
        return self.is_complete and self.report.has_any(self.fail_on)

    def without(self, baseline: Baseline) -> CheckResult:
        """What *baseline*, which was made of this, leaves."""
        new, _ = baseline.split(self.before_baseline.findings)
        return replace(self, report=replace(self.before_baseline, findings=new), stale={})


@value_class
class Linter:
    """Everything that decides which findings files get."""

    settings: LintSettings
    context: LintContext
    topology: Topology | None = None
    server_version: ServerVersion | None = None
    baseline: Baseline | None = None
    running: Sequence[Source] = ()
    """The files that the servers run with now."""

    def check(self, sources: Iterable[Source]) -> CheckResult:
        """What is wrong with *sources*."""
        report = lint(
            sources,
            self.context,
            topology=self.topology,
            server_version=self.server_version,
            selection=self.settings.selection,
            running=self.running,
        )
        checked = CheckResult(report=report, stale={}, before_baseline=report, fail_on=self.settings.fail_on)
        if self.baseline is None:
            return checked
        new, missing = self.baseline.split(report.findings)
        stale = {key: count for key, count in missing.items() if self._is_looked_for(key, self.baseline, report)}
        return replace(checked, report=replace(report, findings=new), stale=stale)

    def update_baseline(self, report: LintReport, anchor: Anchor) -> Baseline:
        """What was found as a baseline, at first relative to *anchor*; entries of files and rules not looked at stay."""
        old = self.baseline or Baseline(counts={}, anchor=anchor)
        staying = [key for key in old.counts if not self._is_looked_for(key, old, report)]
        return old.update(report.findings, staying)

    def _is_looked_for(self, key: FindingKey, baseline: Baseline, report: LintReport) -> bool:
        """Whether this run would have found *key*: it has read the file, or the file is gone."""
        if not self.settings.selection.selects(key.code):
            return False
        files = {baseline.anchor.relative(file) for file in report.texts}
        return key.file in files or not Path(baseline.anchor.root, key.file).exists()

    def fix(self, sources: Sequence[Source], checked: CheckResult) -> tuple[CheckResult, dict[str, str]]:
        """Correct what can be, until nothing more can; returns what is left, and the new texts. Nothing is written."""
        before = checked.report.texts
        writable = {source.name for source in sources if _is_writable(source, before)}
        after: dict[str, str] = {}
        for _ in range(_MAX_ROUNDS):
            changed = apply_fixes(checked.report.findings, checked.report.texts, writable)
            if not changed:
                break
            after |= changed
            sources = [_with_text(source, after) for source in sources]
            checked = self.check(sources)
        return checked, after


def _is_writable(source: Source, texts: Mapping[str, str]) -> bool:
    # The server does not read what is behind a byte order mark; to write without it would be more than was asked for.
    return source.name != STDIN and not texts.get(source.name, "\ufeff").startswith("\ufeff")


def _with_text(source: Source, texts: Mapping[str, str]) -> Source:
    return replace(source, content=texts[source.name].encode(), problem=None) if source.name in texts else source
