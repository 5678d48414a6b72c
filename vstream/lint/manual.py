"""The manual: a page for every code that a finding can have."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from vstream.codes import Chapter, Page
from vstream.findings import Severity
from vstream.lint.rule import Rule
from vstream.lint.rules.mappings import RULES as MAPPING_RULES
from vstream.lint.rules.scenarios import RULES as SCENARIO_RULES
from vstream.lint.rules.servers import RULES as SERVER_RULES
from vstream.lint.rules.streams import RULES as STREAM_RULES
from vstream.lint.rules.topology import RULES as TOPOLOGY_RULES

S = TypeVar("S")


def _make_page(code: str, name: str, text: str, severity: Severity = Severity.ERROR) -> Page:
    return Page(code=code, name=name, severity=severity, text=inspect.cleandoc(text))


def _read_pages() -> Iterator[Page]:
    text = Path(__file__).with_name("file_pages.md").read_text(encoding="utf-8")
    for page in re.split(r"^# ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = page.partition("\n")
        code, name, severity = heading.split()
        yield _make_page(code, name, body.strip(), Severity(severity))


def _make_template_page(code: str, files: str) -> Page:
    return _make_page(
        code,
        f"template-{files}",
        f"""
        A template for {files} is missing, fails, or renders something other than it should.

        ## Why is this bad?
        Nothing is rendered. Compare your template (`--templates`) with the one that ships with vstream.
        """,
    )


_RENDERING: Final = (
    _make_template_page("VS201", "streams"),
    _make_template_page("VS240", "consumers"),
    _make_template_page("VS301", "mappings"),
    _make_template_page("VS401", "servers"),
    _make_template_page("VS402", "contexts"),
)


def _make_chapter(title: str, prefix: str, rules: Sequence[Rule[S]]) -> Chapter:
    pages = [page for page in _RENDERING if page.code.startswith(prefix)]
    pages += [Page(code=rule.code, name=rule.name, severity=rule.severity, text=rule.manual.rstrip()) for rule in rules]
    return Chapter(title=title, pages=tuple(sorted(pages, key=lambda page: page.code)))


CHAPTERS: Final = (
    Chapter(title="Files", pages=tuple(_read_pages())),
    _make_chapter("Topologies", "VS1", TOPOLOGY_RULES),
    _make_chapter("Streams", "VS2", STREAM_RULES),
    _make_chapter("Mappings", "VS3", MAPPING_RULES),
    _make_chapter("Servers", "VS4", SERVER_RULES),
    _make_chapter("Scenarios", "VS5", SCENARIO_RULES),
)

PAGES: Final = {page.code: page for chapter in CHAPTERS for page in chapter.pages}

CODES: Final = frozenset(PAGES)
