"""
Which findings to report: by group, code, file and weight.

A selector is a group, a code, or the beginning of one: `mapping`, `VS303`, `VS3`. `default` is every group but `policy`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from fnmatch import fnmatch
from pathlib import PurePosixPath
from posixpath import join, normpath, relpath
from typing import Final

from vstream import resources
from vstream.codes import RETIRED
from vstream.errors import VstreamError
from vstream.findings import Finding, Severity
from vstream.formatting import suggest_name
from vstream.value_class import value_class

POLICY: Final = "policy"
DEFAULT: Final = "default"
_GROUPS: Final = (
    ("files", "VS000", "VS099"),
    ("topology", "VS100", "VS199"),
    ("streams", "VS200", "VS299"),
    ("mapping", "VS300", "VS314"),
    ("routing", "VS315", "VS359"),
    ("mapping", "VS360", "VS399"),
    ("servers", "VS400", "VS413"),
    ("servers", "VS420", "VS499"),
    ("scenarios", "VS500", "VS599"),
    (POLICY, "VS414", "VS419"),
)
"""Each group with the first and last of its codes: the code of a rule says its group."""
GROUPS: Final = tuple(dict.fromkeys(name for name, _, _ in _GROUPS))
_CODE: Final = re.compile(r"VS\d{0,3}")
_FIXED: Final = re.compile(r"VS0(?!07|09)\d\d")
"""What says that a file cannot be read: without it, silence would mean nothing."""
_BY_ALL_RANK: Final = 1
_BY_GROUP_RANK: Final = 2
_WITHOUT_EXAMPLE: Final = (
    *(f"VS{number:03}" for number in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12)),
    *("VS201", "VS240", "VS301", "VS401", "VS402"),
)


def known_codes() -> frozenset[str]:
    """Every code of lint. Rules have an example; what is said of files and templates has none."""
    examples = (path.stem for path in resources.rule_examples().glob("VS*.md"))
    return frozenset((*examples, *_WITHOUT_EXAMPLE))


def group_of(code: str) -> str:
    """The group of a rule."""
    return next(name for name, first, last in _GROUPS if first <= code <= last)


@value_class
class Anchor:
    """
    A directory that names of files are relative to, whatever directory a command runs in.

    *root* is its absolute path, *working_directory* that of the process. Empty: names stay as they are.
    """

    root: str = ""
    working_directory: str = ""

    def relative(self, file: str) -> str:
        """The path of *file* from *root*; what is no path, such as `<stdin>`, as it is."""
        if not self.root or file.startswith("<"):
            return file
        return relpath(normpath(join(self.working_directory, file)), self.root)


AS_NAMED: Final = Anchor()
"""Relative to nothing: paths as they were given."""


@value_class
class FilePatterns:
    """Patterns of paths, relative to the directory of the settings they stand in."""

    patterns: tuple[str, ...] = ()
    anchor: Anchor = AS_NAMED

    def match(self, file: str) -> bool:
        """Whether *file* is one of theirs."""
        if not self.patterns:
            return False
        name = self.anchor.relative(file)
        return any(matches_file(name, pattern) for pattern in self.patterns)


@value_class
class Selection:
    """Which findings to report."""

    select: tuple[str, ...] = (DEFAULT,)
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By a pattern of file names."""
    severity: Mapping[str, Severity] = field(default_factory=dict)
    """By selector: how much it weighs here. A code wins over the beginning of one, that over a group."""
    anchor: Anchor = AS_NAMED
    """What the patterns are relative to."""

    def apply(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """The findings that are selected and not ignored for their file, with the severity that is configured."""
        return tuple(self._weigh(finding) for finding in findings if self.wants(finding))

    def _weigh(self, finding: Finding) -> Finding:
        selectors = [selector for selector in self.severity if _is_named(finding.code, (selector,))]
        if not selectors:
            return finding
        closest = max(selectors, key=lambda selector: len(selector) if selector.startswith("VS") else 0)
        return replace(finding, severity=self.severity[closest])

    def selects(self, code: str) -> bool:
        """Whether to report findings of *code*, in any file: what names it most closely counts."""
        return is_always_reported(code) or self._is_selected(code)

    def _is_selected(self, code: str) -> bool:
        # The beginning of codes stands for rules that are on anyway: policy has to be asked for.
        is_policy = group_of(code) == POLICY
        selectors = (*self.select, *self.extend_select)
        asking = [name for name in selectors if not is_policy or name == code or not name.startswith("VS")]
        return _specificity(code, asking) > _specificity(code, self.ignore)

    def wants(self, finding: Finding) -> bool:
        """Whether to report *finding*. What makes a file unreadable always is."""
        code = finding.code
        # A value that comes from elsewhere is a note: the file can be read.
        if is_always_reported(code) and finding.severity is not Severity.NOTE:
            return True
        if not self._is_selected(code):
            return False
        file = self.anchor.relative(finding.span.file) if finding.span and self.per_file_ignores else ""
        return not any(
            matches_file(file, pattern) and _is_named(code, codes) for pattern, codes in self.per_file_ignores.items()
        )


def is_always_reported(code: str) -> bool:
    """Whether findings of *code* are always reported: they say that a file cannot be read."""
    return _FIXED.fullmatch(code) is not None


def _is_named(code: str, selectors: Iterable[str]) -> bool:
    return _specificity(code, selectors) > 0


def _specificity(code: str, selectors: Iterable[str]) -> int:
    """How closely one of *selectors* names *code*: more for a code than for its beginning, a group, or all; 0 for none."""
    return max((_closeness(code, selector) for selector in selectors), default=0)


def _closeness(code: str, selector: str) -> int:
    group = group_of(code)
    if selector == "ALL" or (selector == DEFAULT and group != POLICY):
        return _BY_ALL_RANK
    if selector == group:
        return _BY_GROUP_RANK
    # The length of `VS3` says more than a group does.
    return len(selector) if selector.startswith("VS") and code.startswith(selector) else 0


def matches_file(file: str, pattern: str) -> bool:
    """Whether a path, one of its directories, or its last part matches *pattern*."""
    path = PurePosixPath(file)
    names = [path.as_posix(), *(part for part in path.parts), *(parent.as_posix() for parent in path.parents)]
    return any(fnmatch(name, pattern.rstrip("/").removeprefix("./")) for name in names)


NO_FILES: Final = FilePatterns()


def parse_selectors(selectors: Iterable[str], codes: Iterable[str]) -> tuple[str, ...]:
    """*selectors* in their usual spelling. Raises VstreamError for one that selects nothing."""
    all_codes = frozenset(codes)
    checked = []
    for written in selectors:
        for word in written.replace(",", " ").split():
            selector = word.upper() if word.upper().startswith("VS") or word.upper() == "ALL" else word.lower()
            if selector in RETIRED:
                raise VstreamError(f"{selector} is retired: {RETIRED[selector]}")
            is_prefix = _CODE.fullmatch(selector) and any(code.startswith(selector) for code in all_codes)
            if not is_prefix and selector not in {"ALL", DEFAULT, *GROUPS}:
                hint = suggest_name(selector, [*GROUPS, *all_codes]) or f"groups are {', '.join(GROUPS)}"
                raise VstreamError(f"there is no rule or group `{word[:40]}`", hint=hint)
            checked.append(selector)
    return tuple(checked)
