"""The sources of the documentation site. `scripts/site`, which the night runs, builds it and checks links and anchors."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.support.paths import ROOT
from vstream.cli import exit_codes
from vstream.cli.app import app
from vstream.outputs import OUTPUTS

_SPEC = importlib.util.spec_from_file_location("site_script", ROOT / "scripts" / "site.py")
assert _SPEC is not None
assert _SPEC.loader is not None
site = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(site)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site") / "src"
    site.write_sources(directory)
    return directory


def list_pages(navigation: Any) -> Iterator[str]:
    if isinstance(navigation, str):
        yield navigation
    for item in navigation if isinstance(navigation, list) else ():
        for child in item.values():
            yield from list_pages(child)


def test_every_page_is_in_the_navigation_once(sources: Path) -> None:
    pages = list(list_pages(json.loads((sources / "mkdocs.yml").read_text())["nav"]))
    written = [file.relative_to(sources / "docs").as_posix() for file in (sources / "docs").rglob("*.md")]
    assert sorted(pages) == sorted(written)


def test_every_command_has_a_page_with_its_options(sources: Path) -> None:
    for name, command in site.walk_commands(typer.main.get_command(app), ""):
        text = (sources / "docs" / "cli" / f"{name.replace(' ', '-')}.md").read_text()
        assert text.startswith(f"# vstream {name}\n")
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert f"`{parameter.opts[0]}`" in text, name


def test_every_command_has_a_manual_page_with_its_options(tmp_path: Path) -> None:
    site.write_manual(tmp_path / "man")
    for name, command in site.walk_commands(typer.main.get_command(app), ""):
        text = (tmp_path / "man" / f"vstream-{name.replace(' ', '-')}.1.md").read_text()
        assert f"# NAME\n\nvstream {name} - " in text
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert f"`{parameter.opts[0]}`" in text, name


def test_pages_are_of_four_kinds(sources: Path) -> None:
    navigation = json.loads((sources / "mkdocs.yml").read_text())["nav"]
    how_tos = [
        title for section in navigation[2]["How-to"] for pages in section.values() for page in pages for title in page
    ]
    assert {"Add a region", "Remove a region"} < {*how_tos}, (
        "links in the middle of a line of the index are titles here"
    )
    assert [next(iter(kind)) for kind in navigation] == [
        "Home", "Tutorials", "How-to", "Explanation", "Reference", "Project",
    ]  # fmt: skip


def test_every_code_and_every_output_has_a_page(sources: Path) -> None:
    written = {file.stem for file in (sources / "docs" / "codes").glob("*.md")}
    codes = {page.code for chapters in site.CODES.values() for chapter in chapters for page in chapter.pages}
    assert written == codes
    assert {"VS301", "VA001", "VD101"} < codes
    assert {file.stem for file in (sources / "docs" / "schemas").glob("*.md")} == {"topology", "scenario", *OUTPUTS}


def test_programs_find_every_page_as_markdown(sources: Path) -> None:
    """`llms.txt` links the pages as they are beside the built ones."""
    pages = [file.relative_to(sources / "docs").as_posix() for file in (sources / "docs").rglob("*.md")]
    text = (sources / "docs" / "llms.txt").read_text()
    assert sorted(re.findall(r"\]\(([^)]+)\)", text)) == sorted(pages)


TASKS = {
    "see it work": ["Three regions on a laptop"],
    "read a plan before I apply it": ["Your first topology"],
    "take it to Kubernetes": ["Helm"],
    "bring the blog's recipe under it": ["The blog's recipe"],
    "add a region": ["Add a region"],
    "get alerts": ["Watch with Prometheus"],
    "check my NATS files in CI": ["Lint in CI", "lint.yml"],
    "look up VS226": ["Rules", "VS226"],
    "let a consumer go on in another region": ["A consumer that survives its region"],
    "a region burns": ["Runbooks", "a region is dead for good"],
}
"""What people want, and the links they click, beginning with the index."""


@pytest.mark.parametrize("task", TASKS)
def test_tasks_are_found_in_three_clicks(task: str) -> None:
    assert len(TASKS[task]) <= 3
    page = ROOT / "docs" / "README.md"
    for text in TASKS[task]:
        assert page.suffix == ".md", page
        links = dict(re.findall(r"\[([^]]+)\]\(([^)]+)\)", page.read_text()))
        target = links[text].partition("#")[0]
        page = (page.parent / target).resolve() if target else page
        assert page.is_file()


def test_exit_codes_are_those_of_the_commands() -> None:
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "exit-codes.md").read_text(), re.MULTILINE)
    values = [value for name, value in vars(exit_codes).items() if name.isupper() and name != "MEANINGS"]
    assert [int(row) for row in rows] == values == list(exit_codes.MEANINGS)


@pytest.mark.parametrize(
    ("html", "number"),
    [
        ('<script src="https://cdn.example.net/x.js"></script>', 1),
        ('<link rel="stylesheet" href="//fonts.example.net/a.css">', 1),
        ('<pre class="mermaid">', 1),
        ('<style>body { background: url("https://example.net/a.png") }</style>', 1),
        ('<a href="https://nats.io">NATS</a> <img src="assets/a.png">', 0),
    ],
)
def test_a_page_that_asks_another_host_is_found(tmp_path: Path, html: str, number: int) -> None:
    (tmp_path / "index.html").write_text(html)
    assert len(site.find_foreign_requests(tmp_path)) == number
