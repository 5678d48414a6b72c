"""What a newcomer reads first: short, plain, and with links that lead somewhere."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import textstat

from scripts.docs import without_tables
from tests.support.command import walk_commands
from vstream.audit.codes import CHAPTER as AUDIT
from vstream.codes import RETIRED
from vstream.health.doctor.examine import CHAPTER as DOCTOR
from vstream.lint.manual import CHAPTERS as MANUAL
from vstream.scenario.fault_types import FAULTS
from vstream.topology.profiles import PROFILES

ROOT = next(parent for parent in Path(__file__).parents if (parent / "pyproject.toml").is_file())
MOST_WORDS = 800
MOST_GRADE = 9.0
"""Flesch-Kincaid: years of school that a reader needs."""
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("**/*.md"))
)
GUIDES = [page for page in PAGES if page.startswith(("docs/tutorials/", "docs/how-to/"))]
MOST_TUTORIAL_WORDS = 600


def prose(markdown: str) -> str:
    """Sentences alone: no code, tables, headings and addresses; a code span reads as one short word."""
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    text = re.sub(r"^(\||#+ ).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "it", text)
    return re.sub(r"[*_]", "", text)


def help_of(command: Any) -> str:
    """All that `--help` explains: the command, its arguments and its options, each with a full stop."""
    helps = [parameter.help for parameter in command.params if getattr(parameter, "help", None)]
    return "\n".join(text if text.endswith((".", ":")) else f"{text}." for text in [command.help, *helps])


COMMANDS = dict(walk_commands(with_groups=True))
DOCS = sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "README.md")
GENERATED = {"rules", "findings", "doctor", "compatibility", "lint-corpus", "what-sees-what"}
"""Pages that scripts write. Nor do the tables that `scripts/docs` writes into others count."""
RECORDS = {"measurements"}
MOST_REFERENCE_WORDS = 28_425
"""Explanation and reference: of the 79,000 that the pages had before they were rewritten."""
MOST_WORDS_IN_ALL = 38_425
"""Everything in docs/ that people write: with tutorials, how-tos, the index and the records of measurements."""


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_front_pages_are_easy_to_read(page: str) -> None:
    assert textstat.flesch_kincaid_grade(prose((ROOT / page).read_text())) <= MOST_GRADE


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_a_page_is_easy_to_read_and_says_whom_it_is_for(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    _, _, rest = text.partition("\n\n")
    assert rest.removeprefix("*").startswith(("For ", "Written by")), "begin with one line: for whom, and what for"
    assert textstat.flesch_kincaid_grade(prose(text)) <= MOST_GRADE


def test_the_pages_are_short() -> None:
    pages = (ROOT / "docs").rglob("*.md")
    written = {page: len(without_tables(page.read_text(encoding="utf-8")).split()) for page in pages}
    by_hand = {page: words for page, words in written.items() if page.stem not in GENERATED}
    assert (
        sum(words for page, words in by_hand.items() if page in DOCS and page.stem not in RECORDS)
        <= MOST_REFERENCE_WORDS
    ), "shorten a page"
    assert sum(by_hand.values()) <= MOST_WORDS_IN_ALL, "shorten a page"


@pytest.mark.parametrize("page", GUIDES)
def test_guides_are_easy_to_read_and_say_whom_they_are_for(page: str) -> None:
    text = (ROOT / page).read_text()
    assert textstat.flesch_kincaid_grade(prose(text)) <= MOST_GRADE
    assert re.match(r"# .+\n\n\*For .+", text)


@pytest.mark.parametrize("page", [page for page in GUIDES if "/tutorials/" in page])
def test_tutorials_are_short(page: str) -> None:
    assert len(prose((ROOT / page).read_text()).split()) <= MOST_TUTORIAL_WORDS


def test_every_command_is_read_with_its_options() -> None:
    assert {"", "plan", "lab up", "chaos kill-region"} < COMMANDS.keys()
    without = {
        name for name, command in COMMANDS.items() if not command.params and not getattr(command, "commands", None)
    }
    assert not without


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_easy_to_read(name: str) -> None:
    text = prose(help_of(COMMANDS[name]))
    assert textstat.flesch_kincaid_grade(text) <= MOST_GRADE, text


def test_tests_mirror_the_packages() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    alone = {str(folder) for folder in folders if not (ROOT / "vstream" / folder).is_dir()}
    # The promises to clients and the pages belong to no package; what `render` makes of accounts is several modules.
    assert alone == {"conformance", "docs", "render/accounts"}


def test_every_option_is_explained() -> None:
    unexplained = [
        f"{name} {parameter.name}"
        for name, command in COMMANDS.items()
        for parameter in command.params
        if not getattr(parameter, "help", None)
    ]
    assert not unexplained


SPELLINGS = {
    "--format": ["--format"],
    "--lab": ["--lab"],
    "--output": ["--output", "-o"],
    "--region": ["--region", "-r"],
    "--stream": ["--stream", "-s"],
    "--timeout": ["--timeout"],
    "--topology": ["--topology", "-t"],
    "--watch": ["--watch", "-w"],
    "--yes": ["--yes", "-y"],
}
OTHER_SPELLINGS = {
    "lint --topology": "-t is not taken: the files are what is checked",
    "lint --watch": "-w is not taken",
    "map --region": "--cluster is what the files call it",
    "map --stream": "-s chooses among streams elsewhere; here it is what is asked",
    "schema --output": "an output of a command, not a file",
}
OTHER_WORDS = {"--out": "--output", "--deadline": "--timeout"}


def test_commands_spell_options_alike() -> None:
    options = {
        f"{name} {parameter.opts[0]}": sorted(parameter.opts)
        for name, command in COMMANDS.items()
        for parameter in command.params
        if parameter.param_type_name == "option" and parameter.opts[0] in SPELLINGS
    }
    differing = {name for name, spelling in options.items() if spelling != SPELLINGS[f"--{name.partition(' --')[2]}"]}
    assert differing == set(OTHER_SPELLINGS)
    words = {option for command in COMMANDS.values() for parameter in command.params for option in parameter.opts}
    assert not words & OTHER_WORDS.keys()


def test_whatever_runs_on_writes_logs_for_machines() -> None:
    """What repeats itself, serves, watches or follows, besides what is for a screen."""
    endless = {"--every", "--watch", "--follow", "--serve"}
    options = {
        name: {each for part in command.params for each in (*part.opts, *part.secondary_opts)}
        for name, command in COMMANDS.items()
    }
    running = {name for name, option in options.items() if endless & option} - {"lint", "lab logs"}
    assert {"audit", "consumer sync", "export", "probe", "repair sources", "status"} == running
    assert not [name for name in running if not {"--log-format", "-q", "-v", "--verbose"} <= options[name]]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    file = ROOT / page
    text = re.sub(r"```.*?```", "", file.read_text(), flags=re.DOTALL)
    broken = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if is_broken(file, link)]
    assert not broken


def test_the_architecture_page_says_what_commands_call() -> None:
    table = (ROOT / "docs/architecture.md").read_text().partition("| command | function |")[2].partition("\n\n")[0]
    names = re.findall(r"`([a-z_]+(?:\.\w+)+)`", table)
    assert len(names) > len(re.findall(r"^\| `", table, flags=re.MULTILINE))
    for name in names:
        module, _, attribute = f"vstream.{name}".rpartition(".")
        assert hasattr(import_module(module), attribute), name


def test_the_places_that_contributors_are_sent_to_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.partition("| question | place below `vstream/` |")[2].partition("\n\n")[0]
    places = [f"vstream/{place}" for place in re.findall(r"`([a-z_/]+(?:/|\.py))`", table)]
    assert len(places) >= table.count("\n") - 1
    places += re.findall(r"`(vstream/[a-z_/]+(?:/|\.py))`", text)
    assert not [place for place in places if not (ROOT / place).exists()]
    for name, place in re.findall(r"`(?:\w+\.)?(\w+)` in `([\w/]+\.py)`", table):
        assert f"def {name}(" in (ROOT / "vstream" / place).read_text(), name


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


CODES = {page.code for chapter in (*MANUAL, AUDIT, DOCTOR) for page in chapter.pages}
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
OLD = frozenset((ROOT / "tests" / "fixtures" / "before_the_changelog.txt").read_text().splitlines())
"""What was there before the changelog began."""


def test_a_code_that_is_gone_is_retired_and_never_used_again() -> None:
    """Somebody may have it in a suppression, a dashboard or a script."""
    ever_used = set(re.findall(r"\bV[SAD]\d{3}\b", "\n".join((*OLD, CHANGELOG))))
    assert ever_used - CODES - RETIRED.keys() == set(), "enter it in RETIRED in vstream/codes.py, and leave it in OLD"
    assert CODES & RETIRED.keys() == set(), "take a new code: this one was used for something else"
    replacements = {code for note in RETIRED.values() for code in re.findall(r"V[SAD]\d{3}", note)}
    assert replacements - CODES == set(), "RETIRED names what is gone itself"


def test_the_changelog_names_what_is_new() -> None:
    names = {*CODES, *FAULTS, *(routing.value for routing in PROFILES), *(path for path in COMMANDS if path)}
    quoted = " ".join(re.findall(r"`[^`]+`|\bV[SADT]\d{3}\b", CHANGELOG))
    unnamed = {name for name in names - OLD if not re.search(rf"(?<![\w-]){name}(?![\w-])", quoted)}
    assert unnamed == set(), "add a line to CHANGELOG.md"
    assert OLD - names - RETIRED.keys() == set(), "take what is gone out of before_the_changelog.txt"
