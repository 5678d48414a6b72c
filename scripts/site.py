"""
The sources of the documentation site: the pages of docs/, one page for each command, and mkdocs.yml with the navigation.

    scripts/site.py DIR                 # write them
    scripts/site.py --check-site DIR    # fail if a built page asks another host for something
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import typer.main  # noqa: E402 - behind the path

from vstream.cli.app import PANELS, app  # noqa: E402 - behind the path
from vstream.cli.lazy_group import LazyCommand  # noqa: E402 - behind the path

PROJECT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LOADS = re.compile(
    r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(?:https?:)?//'
)
CONFIG: dict[str, Any] = {
    "site_name": "vstream",
    "site_description": "Multi-region virtual streams on NATS JetStream, from one topology file",
    "docs_dir": "docs",
    "theme": {
        "name": "material",
        "font": False,
        "features": ["navigation.sections", "navigation.top", "content.code.copy", "search.suggest"],
        "palette": [
            {
                "media": "(prefers-color-scheme: light)",
                "scheme": "default",
                "toggle": {"icon": "material/weather-night", "name": "Dark"},
            },
            {
                "media": "(prefers-color-scheme: dark)",
                "scheme": "slate",
                "toggle": {"icon": "material/weather-sunny", "name": "Light"},
            },
        ],
    },
    "plugins": ["search"],
    "markdown_extensions": ["tables", "admonition", "pymdownx.superfences", {"toc": {"permalink": True}}],
    "validation": {
        "links": {"anchors": "warn", "not_found": "warn", "absolute_links": "warn"},
        "nav": {"omitted_files": "warn"},
    },
}
_TABLE_LINE = re.compile(r"^\| (.*?) \| (.*) \|$")
_LINK = re.compile(r"\[([^]]+)\]\(([^)#]+\.md)\)")


def read_navigation(index: str) -> list[dict[str, Any]]:
    """The sections of docs/README.md and the pages that each lists, in its order."""
    sections: list[dict[str, Any]] = []
    for line in index.splitlines():
        if line.startswith("## "):
            sections.append({line[3:]: []})
        elif sections and (row := _TABLE_LINE.match(line)):
            (pages,) = sections[-1].values()
            pages += [{title: path.removeprefix("../")} for title, path in _LINK.findall(row[1])]
    return sections


def walk_commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command below *command* by the words that run it."""
    loaded = command.load() if isinstance(command, LazyCommand) else command
    children = getattr(loaded, "commands", {})
    if not children:
        yield name, loaded
    for child_name, child in children.items():
        yield from walk_commands(child, f"{name} {child_name}".strip())


def describe_command(name: str, command: Any) -> str:
    """A command's page: what it does, how it is called, its arguments and options."""
    context = command.context_class(command, info_name=name)
    parameters = [parameter for parameter in command.get_params(context) if not getattr(parameter, "hidden", False)]
    lines = [
        f"# vstream {name}",
        "",
        (command.help or "").strip(),
        "",
        "```text",
        f"{describe_usage(name, parameters)}",
        "```",
        "",
    ]
    lines += ["| | | |", "|---|---|---|"]
    for parameter in parameters:
        names = ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))
        if parameter.param_type_name == "argument":
            names = f"`{parameter.metavar or parameter.name.upper()}`"
        value = describe_value(parameter) if parameter.param_type_name == "option" else ""
        text = " ".join((parameter.help or "").split()).replace("|", "\\|")
        variable = f" (`{parameter.envvar}`)" if parameter.envvar else ""
        lines.append(f"| {names} | {value.replace('|', chr(92) + '|')} | {text}{variable} |")
    return "\n".join(lines) + "\n"


def describe_value(parameter: Any) -> str:
    """What an option takes: its choices, or the name of its value; nothing for a switch."""
    choices = getattr(parameter.type_descriptor, "choices", None)
    if choices:
        return ", ".join(f"`{getattr(choice, 'value', choice)}`" for choice in choices)
    return f"`{parameter.metavar}`" if parameter.metavar else ""


def describe_usage(name: str, parameters: list[Any]) -> str:
    """How a command is called, in one line."""
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    words = [parameter.metavar or parameter.name.upper() for parameter in arguments]
    shown = [word if parameter.required else f"[{word}]" for word, parameter in zip(words, arguments, strict=True)]
    return " ".join(["vstream", name, "[OPTIONS]", *shown])


def write_sources(directory: Path) -> None:
    """Everything that mkdocs needs, below *directory*."""
    docs = directory / "docs"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(ROOT / "docs", docs)
    for page in PROJECT_PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        (docs / page).write_text(text.replace("](docs/", "]("), encoding="utf-8")
    for file in docs.rglob("*.md"):
        text = file.read_text(encoding="utf-8")
        for page in PROJECT_PAGES:
            text = text.replace(f"](../{page}", f"]({page}")
        file.write_text(text, encoding="utf-8")
    index = docs / "README.md"
    navigation = read_navigation(index.read_text(encoding="utf-8"))
    index.rename(docs / "index.md")
    panels: dict[str, list[dict[str, str]]] = {panel: [] for panel in PANELS}
    panel_of = {name: panel for panel, entries in PANELS.items() for name in entries}
    (docs / "cli").mkdir()
    for name, command in walk_commands(typer.main.get_command(app), ""):
        page = f"cli/{name.replace(' ', '-')}.md"
        (docs / page).write_text(describe_command(name, command), encoding="utf-8")
        panels[panel_of[name.partition(" ")[0]]].append({name: page})
    commands = {"Commands": [{panel: pages} for panel, pages in panels.items()]}
    config = {**CONFIG, "nav": [{"Home": "index.md"}, *navigation, commands]}
    (directory / "mkdocs.yml").write_text(json.dumps(config, indent=2), encoding="utf-8")
    pages = sorted(file.relative_to(docs).as_posix() for file in docs.rglob("*.md"))
    (docs / "llms.txt").write_text("# vstream\n\n" + "".join(f"- {page}\n" for page in pages), encoding="utf-8")


def find_foreign_requests(site: Path) -> list[str]:
    """Pages that ask another host for a script, a style, a font or a picture."""
    return [
        f"{page.relative_to(site)}: {match[0][:80]}"
        for page in sorted(site.rglob("*.html"))
        for match in _LOADS.finditer(page.read_text(encoding="utf-8"))
    ]


def main() -> int:
    """Write the sources, or check a built site."""
    if sys.argv[1] != "--check-site":
        write_sources(Path(sys.argv[1]))
        return 0
    foreign = find_foreign_requests(Path(sys.argv[2]))
    for line in foreign:
        print(line)
    return 1 if foreign else 0


if __name__ == "__main__":
    sys.exit(main())
