"""What a newcomer reads first: short, plain, and with links that lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import textstat
import typer

from vstream.cli.app import app

ROOT = next(parent for parent in Path(__file__).parents if (parent / "pyproject.toml").is_file())
MOST_WORDS = 800
MOST_GRADE = 9.0
"""Flesch-Kincaid: years of school that a reader needs."""
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("**/*.md"))
)


def prose(markdown: str) -> str:
    """Sentences alone: no code, tables, headings and addresses; a code span reads as one short word."""
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    text = re.sub(r"^(\||#+ ).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "it", text)
    return re.sub(r"[*_]", "", text)


def commands(group: click.Group, path: str = "vstream") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{path} {name} is listed and cannot be loaded"
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        yield f"{path} {name}", command


COMMANDS = dict(commands(typer.main.get_command(app)))  # type: ignore[arg-type]  # an app with commands is a group


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_front_pages_are_easy_to_read(page: str) -> None:
    assert textstat.flesch_kincaid_grade(prose((ROOT / page).read_text())) <= MOST_GRADE


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_easy_to_read(name: str) -> None:
    command = COMMANDS[name]
    options = [parameter.help or "" for parameter in command.params if isinstance(parameter, click.Option)]
    text = prose("\n".join([command.help or "", *options]))
    assert textstat.flesch_kincaid_grade(text) <= MOST_GRADE, text


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    file = ROOT / page
    text = re.sub(r"```.*?```", "", file.read_text(), flags=re.DOTALL)
    broken = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if is_broken(file, link)]
    assert not broken


def is_broken(file: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return False  # tests have no internet
    path, _, anchor = link.partition("#")
    target = (file.parent / path) if path else file
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target.read_text())


def anchors(markdown: str) -> set[str]:
    """The anchors of headings, as GitHub makes them, and those that are written down."""
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    written = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return written | {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
