"""The sources of the documentation site. `scripts/site`, which the night runs, builds it and checks links and anchors."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.support.paths import ROOT
from vstream.cli.app import app

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


@pytest.mark.parametrize(
    ("html", "number"),
    [
        ('<script src="https://cdn.example.net/x.js"></script>', 1),
        ('<link rel="stylesheet" href="//fonts.example.net/a.css">', 1),
        ('<a href="https://nats.io">NATS</a> <img src="assets/a.png">', 0),
    ],
)
def test_a_page_that_asks_another_host_is_found(tmp_path: Path, html: str, number: int) -> None:
    (tmp_path / "index.html").write_text(html)
    assert len(site.find_foreign_requests(tmp_path)) == number
