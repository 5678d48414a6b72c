"""
Which findings are wanted: by group, code, file and weight, from options and from a configuration file.

A selector is a group, a code, or the beginning of one: `mapping`, `VS303`, `VS3`. `default` is every group but `policy`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from vstream import resources
from vstream.diagnostics import Severity
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vstream.diagnostics import Finding

POLICY: Final = "policy"
DEFAULT: Final = "default"
_POLICY_CODES: Final = frozenset({"VS414", "VS415", "VS416", "VS417", "VS418", "VS419"})
_GROUPS: Final = (
    ("files", "VS000", "VS099"),
    ("topology", "VS100", "VS199"),
    ("streams", "VS200", "VS299"),
    ("mapping", "VS300", "VS314"),
    ("routing", "VS315", "VS359"),
    ("mapping", "VS360", "VS399"),
    ("servers", "VS400", "VS499"),
    ("scenarios", "VS500", "VS599"),
)
GROUPS: Final = (*dict.fromkeys(name for name, _, _ in _GROUPS), POLICY)
RETIRED: Final[Mapping[str, str]] = {
    "VS118": "it is a part of VS109",
    "VS126": "it is said by VS224, which looks at what a topology renders to as well",
    "VS145": "it is a part of VS123",
    "VS148": "it is a part of VS109",
    "VS351": "it is a part of VS350",
    "VS361": "it is a part of VS360, as an error",
    "VS411": "it is a part of VS410, as a note",
}
"""Codes that are no longer reported, and what replaced them. They are never given to anything else."""
_CODE: Final = re.compile(r"VS\d{0,3}")
_FIXED: Final = re.compile(r"VS0(?!07|09)\d\d")
"""What says that a file cannot be read: without it, silence would mean nothing."""
_WITHOUT_EXAMPLE: Final = (
    *(f"VS{number:03}" for number in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12)),
    *("VS201", "VS240", "VS301", "VS401", "VS402"),
)
_SEVERITIES: Final = {severity.value: severity for severity in Severity}


def known_codes() -> frozenset[str]:
    """Every code of lint. Rules have an example; what is said of files and templates has none."""
    examples = (path.stem for path in resources.rule_examples().glob("VS*.md"))
    return frozenset((*examples, *_WITHOUT_EXAMPLE))


def group_of(code: str) -> str:
    """The group of a rule."""
    if code in _POLICY_CODES:
        return POLICY
    return next(name for name, first, last in _GROUPS if first <= code <= last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is to be reported."""

    select: tuple[str, ...] = (DEFAULT,)
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By a pattern of file names."""
    severity: Mapping[str, Severity] = field(default_factory=dict)
    """By code: how much it weighs here."""

    def apply(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Those of *findings* that are wanted, with the weight they have here."""
        return tuple(self._weigh(finding) for finding in findings if self.wants(finding))

    def _weigh(self, finding: Finding) -> Finding:
        return replace(finding, severity=self.severity.get(finding.code, finding.severity))

    def wants(self, finding: Finding) -> bool:
        """Whether *finding* is to be reported. What makes a file unreadable always is."""
        code = finding.code
        if _FIXED.fullmatch(code):
            return True
        if not (_is_named(code, self.select) or _is_named(code, self.extend_select)) or _is_named(code, self.ignore):
            return False
        file = finding.span.file if finding.span else ""
        return not any(
            matches_file(file, pattern) and _is_named(code, codes) for pattern, codes in self.per_file_ignores.items()
        )


def _is_named(code: str, selectors: Iterable[str]) -> bool:
    group = group_of(code)
    for selector in selectors:
        if selector in {"ALL", group} or (selector == DEFAULT and group != POLICY):
            return True
        # The beginning of codes stands for rules that are on anyway: policy has to be asked for.
        if code == selector or (selector.startswith("VS") and code.startswith(selector) and group != POLICY):
            return True
    return False


def matches_file(file: str, pattern: str) -> bool:
    """Whether a path, one of its directories, or its last part matches *pattern*."""
    path = PurePosixPath(file)
    names = [path.as_posix(), *(part for part in path.parts), *(parent.as_posix() for parent in path.parents)]
    return any(fnmatch(name, pattern.rstrip("/").removeprefix("./")) for name in names)


def check_selectors(selectors: Iterable[str], codes: Iterable[str]) -> tuple[str, ...]:
    """*selectors* in their usual spelling. Raises VstreamError for one that selects nothing."""
    known_codes_ = frozenset(codes)
    checked = []
    for written in selectors:
        for word in written.replace(",", " ").split():
            selector = word.upper() if word.upper().startswith("VS") or word.upper() == "ALL" else word.lower()
            if selector in RETIRED:
                raise VstreamError(f"{selector} is retired: {RETIRED[selector]}")
            is_prefix = _CODE.fullmatch(selector) and any(code.startswith(selector) for code in known_codes_)
            if not is_prefix and selector not in {"ALL", DEFAULT, *GROUPS}:
                close = get_close_matches(selector, [*GROUPS, *known_codes_], n=1)
                hint = f"did you mean `{close[0]}`?" if close else f"groups are {', '.join(GROUPS)}"
                raise VstreamError(f"there is no rule or group `{word[:40]}`", hint=hint)
            checked.append(selector)
    return tuple(checked)


@dataclass(frozen=True, slots=True, kw_only=True)
class LintConfig:
    """What a configuration file says."""

    selection: Selection = field(default_factory=Selection)
    exclude: tuple[str, ...] = ()
    """Patterns of files that are passed over in directories."""
    fail_on: Severity | None = None
    env: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()


def read_config(table: Mapping[str, Any], file: str, codes: Iterable[str]) -> LintConfig:
    """The configuration in *table*, which is `[tool.vstream.lint]` or `[lint]` of *file*. Raises VstreamError."""
    all_codes = frozenset(codes)
    unknown = next((key for key in table if key not in _KEYS), None)
    if unknown is not None:
        close = get_close_matches(unknown, _KEYS, n=1)
        raise VstreamError(
            f"{file}: there is no setting `{unknown}` for lint",
            hint=f"did you mean `{close[0]}`?" if close else f"settings are {', '.join(_KEYS)}",
        )
    lists = {
        key: _texts(table, key, file) for key in ("select", "ignore", "extend-select", "exclude", "env", "env-files")
    }
    by_file = _table(table, "per-file-ignores", file)
    ignores = {pattern: check_selectors(_texts(by_file, pattern, file), all_codes) for pattern in by_file}
    weights = _table(table, "severity", file)
    check_selectors(weights, all_codes)
    return LintConfig(
        selection=Selection(
            select=check_selectors(lists["select"], all_codes) or (DEFAULT,),
            ignore=check_selectors(lists["ignore"], all_codes),
            extend_select=check_selectors(lists["extend-select"], all_codes),
            per_file_ignores=ignores,
            severity={code: _severity(weights[code], f"severity.{code}", file) for code in weights},
        ),
        exclude=lists["exclude"],
        fail_on=_severity(table["fail-on"], "fail-on", file) if "fail-on" in table else None,
        env=lists["env"],
        env_files=lists["env-files"],
    )


_KEYS: Final = (
    "select",
    "ignore",
    "extend-select",
    "per-file-ignores",
    "severity",
    "exclude",
    "fail-on",
    "env",
    "env-files",
)


def _texts(table: Mapping[str, Any], key: str, file: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise VstreamError(f"{file}: `{key}` must be a list of texts", hint=f'write `{key} = ["…"]`')
    return tuple(value)


def _table(table: Mapping[str, Any], key: str, file: str) -> Mapping[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise VstreamError(f"{file}: `{key}` must be a table", hint=f"write `[tool.vstream.lint.{key}]`")
    return value


def _severity(value: object, key: str, file: str) -> Severity:
    if not isinstance(value, str) or value not in _SEVERITIES:
        raise VstreamError(f"{file}: `{key}` must be one of {', '.join(_SEVERITIES)}")
    return _SEVERITIES[value]
