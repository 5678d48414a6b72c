"""The progress display: importing what draws it takes as long as most commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from vstream.cli.views.console import DISPLAYS
from vstream.lab.readiness import ReadinessProgress


class _Bar(BarColumn):
    def render(self, task: Task) -> Any:
        """No bar where the total is unknown: it would say nothing."""
        return Text("") if task.total is None else super().render(task)


class _Count(MofNCompleteColumn):
    def render(self, task: Task) -> Text:
        """No count where the total is unknown."""
        return Text("") if task.total is None else super().render(task)


class _Display(Progress):
    """A progress display that other output of this process can erase."""

    def start(self) -> None:
        """Show it."""
        if not self.disable:
            DISPLAYS.append(self)
        super().start()

    def stop(self) -> None:
        """Erase it."""
        super().stop()
        if self in DISPLAYS:
            DISPLAYS.remove(self)


def progress_bar() -> Progress:
    """A progress display on stderr that disappears when it is done; nothing where stderr is no terminal."""
    # Not a CleanConsole, which would erase this display in order to draw it.
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
    return _Display(
        SpinnerColumn("dots" if console.encoding.startswith("utf") else "line"),
        TextColumn("{task.description}", markup=False),
        _Bar(),
        _Count(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal or console.is_dumb_terminal,
    )


@contextmanager
def show_steps(first: str = "connecting") -> Iterator[Callable[[str], None]]:
    """A spinner with what is done now, at the beginning *first*."""
    with progress_bar() as progress:
        task = progress.add_task(first, total=None)
        yield lambda step: progress.update(task, description=step)


@contextmanager
def show_readiness(doing: str = "waiting") -> Iterator[Callable[[ReadinessProgress], None]]:
    """A progress bar with what is waited for; it says *doing* until that is known."""
    with progress_bar() as progress:
        task = progress.add_task(doing, total=None)

        def show(step: ReadinessProgress) -> None:
            progress.update(task, description=step.stage.value, completed=step.done, total=step.total)

        yield show
