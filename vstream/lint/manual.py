"""The manual: a page for every code that a diagnostic can have."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Final, TypeVar

from vstream.codes import Chapter, Page
from vstream.diagnostics import Severity
from vstream.lint.registry import Rule
from vstream.lint.rules.mappings import RULES as MAPPING_RULES
from vstream.lint.rules.scenarios import RULES as SCENARIO_RULES
from vstream.lint.rules.servers import RULES as SERVER_RULES
from vstream.lint.rules.streams import RULES as STREAM_RULES
from vstream.lint.rules.topology import RULES as TOPOLOGY_RULES

S = TypeVar("S")


def _page(code: str, name: str, text: str, severity: Severity = Severity.ERROR) -> Page:
    return Page(code=code, name=name, severity=severity, text=inspect.cleandoc(text))


_FILES: Final = (
    _page(
        "VS001",
        "syntax",
        """
        The file is not YAML, or not JSON.

        ## Why is this bad?
        Nothing in the file can be checked or used.
        """,
    ),
    _page(
        "VS002",
        "duplicate-key",
        """
        A map contains the same key twice.

        ## Why is this bad?
        Parsers silently use one of the two: in JSON the last one, in YAML it depends on the program.
        """,
    ),
    _page(
        "VS003",
        "too-much",
        """
        The file is nested too deeply, or has too many values.

        ## Why is this bad?
        It is the wrong file, or one designed to exhaust memory (aliases of aliases of aliases).
        """,
    ),
    _page(
        "VS004",
        "unreadable",
        """
        The file cannot be read: it does not exist, access is denied, it is not UTF-8 text, it is larger than 32 MiB, it
        is an endless device, or it is a token that cannot be decoded.

        ## Why is this bad?
        The file is not checked. `vstream lint` checks the other files and exits with 3.
        """,
    ),
    _page(
        "VS005",
        "wrong-value",
        """
        A value in a topology or a scenario is missing, has the wrong type, or is out of range.

        ## Why is this bad?
        The file cannot be used. `vstream schema` prints the JSON Schema of topologies, for editors, and `vstream schema
        scenario` that of scenarios.
        """,
    ),
    _page(
        "VS006",
        "unknown-key",
        """
        A topology or a scenario has an unknown key.

        ## Why is this bad?
        It is a typo, or a setting in the wrong place: it would have no effect.
        """,
    ),
    _page(
        "VS007",
        "nothing-to-check",
        """
        A file on the command line is not of a kind that lint checks.

        ## Why is this bad?
        It may be intended, but the file is not checked. lint checks NATS configurations, streams and account claims as
        JSON, account tokens (JWT), topologies and scenarios. In directories, it skips other files without this note.
        """,
        Severity.NOTE,
    ),
    _page(
        "VS009",
        "suppression",
        """
        A suppression has no reason, names an unknown rule, or suppresses nothing.

        ## Why is this bad?
        A suppression that is no longer needed hides the next mistake on its line.

        ## What to do
        Write a comment on the line of the finding, or alone on the line above it, with the rules and the reason:

            "foo.>": bar.>   # vstream: ignore[VS303] the regions do not overlap in practice

        In a stream configuration, which is JSON, it is metadata: `"vstream.ignore": "VS210 reason; VS211 reason"`.
        Codes below VS100 cannot be ignored. Account claims and tokens cannot contain suppressions.
        """,
        Severity.WARNING,
    ),
    _page(
        "VS010",
        "conf-syntax",
        """
        The file is not a valid NATS configuration. As a warning: it probably does not mean what it says.

        ## Why is this bad?
        `nats-server -t` also refuses it, or the server reads a different value.
        """,
    ),
    _page(
        "VS011",
        "include",
        """
        An included file cannot be read, includes itself, or makes the configuration too large.

        ## Why is this bad?
        The server does not start. Paths are relative to the directory of the file with the include directive.
        """,
    ),
    _page(
        "VS012",
        "variable",
        """
        A variable is used, but is defined neither above nor in the environment.

        ## Why is this bad?
        The server does not start. An included file does not see the variables of the file that includes it.
        """,
    ),
)


def _template_page(code: str, files: str) -> Page:
    return _page(
        code,
        f"template-{files}",
        f"""
        A template for {files} is missing, fails, or renders something other than it should.

        ## Why is this bad?
        Nothing is rendered. Compare your template (`--templates`) with the one that ships with vstream.
        """,
    )


_RENDERING: Final = (
    _template_page("VS201", "streams"),
    _template_page("VS240", "consumers"),
    _template_page("VS301", "mappings"),
    _template_page("VS401", "servers"),
    _template_page("VS402", "contexts"),
)


def _chapter(title: str, prefix: str, rules: Sequence[Rule[S]]) -> Chapter:
    pages = [page for page in _RENDERING if page.code.startswith(prefix)]
    pages += [Page(code=rule.code, name=rule.name, severity=rule.severity, text=rule.manual.rstrip()) for rule in rules]
    return Chapter(title=title, pages=tuple(sorted(pages, key=lambda page: page.code)))


CHAPTERS: Final = (
    Chapter(title="Files", pages=_FILES),
    _chapter("Topologies", "VS1", TOPOLOGY_RULES),
    _chapter("Streams", "VS2", STREAM_RULES),
    _chapter("Mappings", "VS3", MAPPING_RULES),
    _chapter("Servers", "VS4", SERVER_RULES),
    _chapter("Scenarios", "VS5", SCENARIO_RULES),
)

PAGES: Final = {page.code: page for chapter in CHAPTERS for page in chapter.pages}

CODES: Final = frozenset(PAGES)
