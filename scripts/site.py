"""
The sources of the documentation site: the pages of docs/, one page for each command, code and JSON output, and mkdocs.yml
with the navigation, which is that of docs/README.md.

    scripts/site.py DIR                 # write them
    scripts/site.py --manual DIR        # write manual pages, as Markdown that pandoc turns into `man`
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

    from vstream.codes import Chapter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import typer.main  # noqa: E402 - behind the path

from vstream.audit import codes as findings  # noqa: E402 - behind the path
from vstream.cli.app import PANELS, app  # noqa: E402 - behind the path
from vstream.cli.lazy_group import LazyCommand  # noqa: E402 - behind the path
from vstream.cli.schema import make_output_schema  # noqa: E402 - behind the path
from vstream.health.doctor import examine as doctor  # noqa: E402 - behind the path
from vstream.lint import manual  # noqa: E402 - behind the path
from vstream.outputs import OUTPUTS  # noqa: E402 - behind the path
from vstream.scenario.document import json_schema as scenario_schema  # noqa: E402 - behind the path
from vstream.topology.document import json_schema as topology_schema  # noqa: E402 - behind the path

PROJECT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LOADS = re.compile(
    r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//'
    r'|<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(?:https?:)?//'
    r'|class="mermaid"'  # the theme's script fetches a library where a page has a diagram
    r"|url\([\"']?(?:https?:)?//|@import"
)
CODES = {
    "Rules": manual.CHAPTERS,
    "Findings of an audit": (findings.CHAPTER,),
    "Checks of the doctor": (doctor.CHAPTER,),
}
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
    "hooks": ["hooks.py"],
    "extra": {"version": {"provider": "mike"}},
    "markdown_extensions": ["tables", "admonition", "pymdownx.superfences", {"toc": {"permalink": True}}],
    "validation": {
        "links": {"anchors": "warn", "not_found": "warn", "absolute_links": "warn"},
        "nav": {"omitted_files": "warn"},
    },
}
_TABLE_LINE = re.compile(r"^\| (.*?) \| (.*) \|$")
_LINK = re.compile(r"\[([^]]+)\]\(([^)#]+\.md)\)")


def read_navigation(index: str) -> list[dict[str, Any]]:
    """The kinds of docs/README.md, the sections within each, and the pages that each lists, in its order."""
    kinds: list[dict[str, Any]] = []
    entries: list[Any] = []
    for line in index.splitlines():
        if line.startswith("## "):
            entries = []
            kinds.append({line[3:]: entries})
        elif line.startswith("### "):
            (kind,) = kinds[-1].values()
            entries = []
            kind.append({line[4:]: entries})
        elif row := _TABLE_LINE.match(line):
            entries += [
                {title[:1].upper() + title[1:]: path.removeprefix("../")} for title, path in _LINK.findall(row[1])
            ]
    return kinds


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
    parameters = list_parameters(name, command)
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
        cells = (part.replace("|", "\\|") for part in describe_parameter(parameter))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def describe_manual(name: str, command: Any) -> str:
    """The same as a manual page in section 1, in the Markdown that pandoc reads."""
    parameters = list_parameters(name, command)
    first, _, rest = (command.help or "").strip().partition("\n")
    lines = [f"% VSTREAM-{name.replace(' ', '-').upper()}(1)", "", "# NAME", "", f"vstream {name} - {first}", ""]
    lines += [
        "# SYNOPSIS",
        "",
        f"`{describe_usage(name, parameters)}`",
        "",
        "# DESCRIPTION",
        "",
        rest.strip() or first,
        "",
    ]
    lines += ["# OPTIONS", ""]
    for parameter in parameters:
        names, value, text = describe_parameter(parameter)
        lines += [f"{names} {value}".strip(), "", f":   {text}", ""]
    return "\n".join([*lines, "# SEE ALSO", "", "`vstream --help`"]) + "\n"


def list_parameters(name: str, command: Any) -> list[Any]:
    """The arguments and options of a command that its help shows."""
    context = command.context_class(command, info_name=name)
    return [parameter for parameter in command.get_params(context) if not getattr(parameter, "hidden", False)]


def describe_parameter(parameter: Any) -> tuple[str, str, str]:
    """How it is written, which values it takes, and what it is for."""
    names = ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    value = describe_value(parameter) if parameter.param_type_name == "option" else ""
    text = " ".join((parameter.help or "").split())
    return names, value, f"{text} (`{parameter.envvar}`)" if parameter.envvar else text


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


def write_codes(docs: Path, chapters: tuple[Chapter, ...]) -> list[dict[str, Any]]:
    """A page for each code of *chapters*. Returns their navigation."""
    sections = []
    for chapter in chapters:
        pages = []
        for page in chapter.pages:
            path = f"codes/{page.code}.md"
            head = f"# {page.code} {page.name}\n\n*{page.severity.value.capitalize()}.* `vstream lint --explain {page.code}`"
            (docs / path).write_text(f"{head} prints this page.\n\n{page.text}\n", encoding="utf-8")
            pages.append({f"{page.code} {page.name}": path})
        sections.append({chapter.title: pages})
    if len(sections) > 1:
        return sections
    (pages,) = sections[0].values()
    return pages


def write_schemas(docs: Path) -> list[dict[str, Any]]:
    """A page for each format that has a JSON Schema. Returns their navigation."""
    pages = []
    schemas = {"topology": topology_schema(), "scenario": scenario_schema()}
    schemas |= {name: make_output_schema(name) for name in OUTPUTS}
    for name, schema in schemas.items():
        path = f"schemas/{name}.md"
        command = f"vstream schema {name}" if name in {"topology", "scenario"} else f"vstream schema --output {name}"
        text = json.dumps(schema, indent=2, ensure_ascii=False)
        lines = [f"# JSON Schema of `{name}`", "", f"`{command}` prints it.", "", "```json", text, "```", ""]
        (docs / path).write_text("\n".join(lines), encoding="utf-8")
        pages.append({name: path})
    return pages


def write_commands(docs: Path) -> list[dict[str, Any]]:
    """A page for each command. Returns their navigation, in the panels of the help."""
    panels: dict[str, list[dict[str, str]]] = {panel: [] for panel in PANELS}
    panel_of = {name: panel for panel, entries in PANELS.items() for name in entries}
    for name, command in walk_commands(typer.main.get_command(app), ""):
        page = f"cli/{name.replace(' ', '-')}.md"
        (docs / page).write_text(describe_command(name, command), encoding="utf-8")
        panels[panel_of[name.partition(" ")[0]]].append({name: page})
    return [{panel: pages} for panel, pages in panels.items()]


def write_manual(directory: Path) -> None:
    """A manual page for each command, as Markdown for pandoc."""
    directory.mkdir(parents=True)
    for name, command in walk_commands(typer.main.get_command(app), ""):
        file = directory / f"vstream-{name.replace(' ', '-')}.1.md"
        file.write_text(describe_manual(name, command), encoding="utf-8")


def copy_pages(docs: Path) -> None:
    """The pages that people wrote."""
    shutil.copytree(ROOT / "docs", docs)
    for page in PROJECT_PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        (docs / page).write_text(text.replace("](docs/", "]("), encoding="utf-8")
    for file in docs.rglob("*.md"):
        text = file.read_text(encoding="utf-8")
        for page in PROJECT_PAGES:
            text = text.replace(f"](../{page}", f"]({page}")
        text = text.replace("](../../examples/", "](../examples/")
        file.write_text(text, encoding="utf-8")
    (docs / "README.md").rename(docs / "index.md")
    shutil.copytree(ROOT / "examples" / "ci", docs / "examples" / "ci")
    for directory in ("cli", "codes", "schemas"):
        (docs / directory).mkdir()


def describe_pages(docs: Path, navigation: list[Any], depth: int = 2) -> Iterator[str]:
    """The lines of llms.txt: each page as plain Markdown, with its first sentence, below the headings of the navigation."""
    for entry in navigation:
        ((title, content),) = entry.items()
        if isinstance(content, list):
            yield f"\n{'#' * depth} {title}\n"
            yield from describe_pages(docs, content, depth + 1)
        else:
            text = (docs / content).read_text(encoding="utf-8")
            first = next((line for line in text.split("\n\n")[1:] if line[:1].isalpha() or line[:1] in "*`"), "")
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"(?s)^\*([^*]*)\*.*", r"\1", first))
            yield f"- [{title}]({content}): {' '.join(plain.split())}"


def write_sources(directory: Path) -> None:
    """Everything that mkdocs needs, below *directory*."""
    docs = directory / "docs"
    shutil.rmtree(directory, ignore_errors=True)
    copy_pages(docs)
    navigation = read_navigation((docs / "index.md").read_text(encoding="utf-8"))
    (reference,) = (pages for kind in navigation for name, pages in kind.items() if name == "Reference")
    reference.append({"Commands": write_commands(docs)})
    reference += [{title: write_codes(docs, chapters)} for title, chapters in CODES.items()]
    reference.append({"JSON schemas": write_schemas(docs)})
    navigation = [{"Home": "index.md"}, *navigation]
    (directory / "mkdocs.yml").write_text(json.dumps({**CONFIG, "nav": navigation}, indent=2), encoding="utf-8")
    shutil.copy(ROOT / "scripts" / "site_hooks.py", directory / "hooks.py")
    lines = ["# vstream", "", f"> {CONFIG['site_description']}", "", *describe_pages(docs, navigation)]
    (docs / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def find_foreign_requests(site: Path) -> list[str]:
    """Pages and styles that ask another host for a script, a style, a font or a picture."""
    return [
        f"{page.relative_to(site)}: {match[0][:80]}"
        for page in sorted((*site.rglob("*.html"), *site.rglob("*.css")))
        for match in _LOADS.finditer(page.read_text(encoding="utf-8"))
    ]


def main() -> int:
    """Write the sources, or check a built site."""
    if sys.argv[1] == "--manual":
        write_manual(Path(sys.argv[2]))
        return 0
    if sys.argv[1] != "--check-site":
        write_sources(Path(sys.argv[1]))
        return 0
    foreign = find_foreign_requests(Path(sys.argv[2]))
    for line in foreign:
        print(line)
    return 1 if foreign else 0


if __name__ == "__main__":
    sys.exit(main())
