"""The manual: a page for every code that a diagnostic can have."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final, TypeVar

from vstream.codes import Chapter, Page, render_manual
from vstream.diagnostics import Severity
from vstream.lint.rules.mappings import RULES as MAPPING_RULES
from vstream.lint.rules.scenarios import RULES as SCENARIO_RULES
from vstream.lint.rules.servers import RULES as SERVER_RULES
from vstream.lint.rules.streams import RULES as STREAM_RULES
from vstream.lint.rules.topology import RULES as TOPOLOGY_RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.lint.registry import Rule

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
        Nothing in the file can be checked, or used.
        """,
    ),
    _page(
        "VS002",
        "duplicate-key",
        """
        A key is written twice in one map.

        ## Why is this bad?
        Readers take one of the two without a word: in JSON the last one, in YAML it depends on the program.
        """,
    ),
    _page(
        "VS003",
        "too-much",
        """
        The file nests too deep, or has more values than any file of its kind.

        ## Why is this bad?
        It is the wrong file, or one that is made to exhaust memory (aliases of aliases of aliases).
        """,
    ),
    _page(
        "VS004",
        "unreadable",
        """
        The file cannot be read: it does not exist, access is denied, it is not UTF-8 text, larger than 32 MiB, a
        device without an end, or a token that cannot be decoded.

        ## Why is this bad?
        Nothing is known about the file. `vstream lint` checks the others and exits with 3.
        """,
    ),
    _page(
        "VS005",
        "wrong-value",
        """
        A value of a topology or a scenario is missing, of the wrong type, or outside its range.

        ## Why is this bad?
        The file does not say what it is meant to say. `vstream schema` prints what a topology may say, for editors,
        and `vstream schema scenario` what a scenario may.
        """,
    ),
    _page(
        "VS006",
        "unknown-key",
        """
        A topology or a scenario has a key that means nothing there.

        ## Why is this bad?
        It is a typo, or a setting at the wrong place: what was meant does not happen.
        """,
    ),
    _page(
        "VS007",
        "nothing-to-check",
        """
        A file was named that is none of the kinds that are checked.

        ## Why is this bad?
        It is not, unless the file was meant to be checked: NATS configurations, streams and account claims as JSON,
        account tokens (JWT), topologies and scenarios are. In directories, other files are passed over without this note.
        """,
        Severity.NOTE,
    ),
    _page(
        "VS009",
        "suppression",
        """
        A suppression has no reason, names no rule that exists, or suppresses nothing.

        ## Why is this bad?
        A suppression that outlives what it was written for hides the next mistake on its line.

        ## What to do
        A comment on the line of the finding, or alone on the line above it, names the rules and says why:

            "foo.>": bar.>   # vstream: ignore[VS303] the regions do not overlap in practice

        In a stream configuration, which is JSON, it is metadata: `"vstream.ignore": "VS210 reason; VS211 reason"`.
        Codes below VS100 cannot be ignored. Account claims and tokens cannot be annotated.
        """,
        Severity.WARNING,
    ),
    _page(
        "VS010",
        "conf-syntax",
        """
        The file is not a NATS configuration; as a warning: it is one that hardly means what it says.

        ## Why is this bad?
        `nats-server -t` refuses it as well, or the server takes a value for another one.
        """,
    ),
    _page(
        "VS011",
        "include",
        """
        A file that is included cannot be read, includes itself, or makes the configuration too large.

        ## Why is this bad?
        The server does not start. Paths are relative to the directory of the file with the include directive.
        """,
    ),
    _page(
        "VS012",
        "variable",
        """
        A variable is defined neither above the place where it is used nor in the environment.

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
        A template for {files} is missing, fails, or writes something that does not read back as what it stands for.

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


def rules_markdown() -> str:
    """The whole manual of rules, as docs/rules.md has it."""
    return render_manual("Rules", "What `vstream validate` and `vstream lint` report.", CHAPTERS)
