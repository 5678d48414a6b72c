"""In which format `lint`, `validate` and `scenario validate` write findings, and how their lines are printed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.text import Text

from vstream.cli.views import console
from vstream.cli.views.lint import LintFormat

Format = Annotated[
    LintFormat | None,
    typer.Option("--format", help="How findings are written: `github` under GitHub Actions, otherwise `full`."),
]


def default_format() -> LintFormat:
    """Annotations under GitHub Actions, else text."""
    return LintFormat.GITHUB if os.environ.get("GITHUB_ACTIONS") == "true" else LintFormat.FULL


def print_cleaned_lines(lines: Iterable[Text | str]) -> None:
    """Print lines that are cleaned already."""
    screen = console.stdout()
    for line in lines:
        # Colours cost more than all rules together, where there are many findings and nobody to see them.
        if screen.is_terminal and not isinstance(line, str):
            screen.print(line)
        else:
            typer.echo(str(line))
