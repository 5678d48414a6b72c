"""Explored scenarios: a line for each, and a table in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from vstream.capture.verdict.verdict import Status
from vstream.cli.views import console
from vstream.cli.views.cleaning import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.runner.explore import Exploration, ExploredRun

_STYLE = {Status.PASS: "green", Status.FAIL: "bold red", Status.UNKNOWN: "bold yellow"}
_MOST = 5


class ExplorationLog:
    """Says on standard error what happens."""

    def begins(self, number: int, seed: int, steps: str) -> None:
        """A scenario begins to run."""
        console.print_note(f"{number:>4}  seed {seed}: {steps or 'no fault'}")

    def shrinks(self, number: int, steps: str) -> None:
        """A shorter scenario is tried."""
        console.print_note(f"{number:>4}  shorter: {steps or 'no fault'}", style="dim")

    def on_end(self, explored: ExploredRun) -> None:
        """A scenario has run."""
        console.stderr().print(line(explored))


def line(one: ExploredRun) -> Text:
    """How one run ended."""
    result = one.outcome
    text = Text.assemble(
        "      ",
        (result.status.value.upper(), _STYLE[result.status]),
        f" in {one.seconds:g} s: {result.acknowledged:,} acknowledged, {result.lost:,} lost, {result.duplicated:,} duplicated",
    )
    if result.detail:
        text.append(f"; {clean(result.detail)}")
    return text


def table(found: Exploration) -> Iterator[Table | Text]:
    """What did not pass, and the sums."""
    for run in found.runs:
        if run.outcome.status is Status.PASS:
            continue
        yield Text.assemble(
            (run.outcome.status.value.upper(), _STYLE[run.outcome.status]), f" {run.directory}: {run.steps}"
        )
        for case in run.outcome.failed[:_MOST]:
            yield Text(f"  {clean(case)}")
        if len(run.outcome.failed) > _MOST:
            yield Text(f"  and {len(run.outcome.failed) - _MOST} more")
        if run.short is not None:
            yield Text(f"  replay: vstream scenario run {run.short}")
        if run.note:
            yield Text(f"  {run.note}")
    grid = Table(box=None, pad_edge=False, header_style="bold")
    words = ("seed", "runs", "passed", "failed", "unknown", "acknowledged", "lost", "duplicated")
    for word in words:
        grid.add_column(word, justify="right")
    sums = (
        sum(run.outcome.acknowledged for run in found.runs),
        sum(run.outcome.lost for run in found.runs),
        sum(run.outcome.duplicated for run in found.runs),
    )
    counts = (len(found.runs), *(found.count(status) for status in (Status.PASS, Status.FAIL, Status.UNKNOWN)))
    grid.add_row(str(found.seed), *(f"{number:,}" for number in (*counts, *sums)))
    yield grid
