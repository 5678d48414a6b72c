"""The settings of lint: `[lint]` of `.vstream.toml`, or `[tool.vstream.lint]` of `pyproject.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from vstream.errors import VstreamError
from vstream.findings import Severity
from vstream.formatting import suggest_name
from vstream.lint.selection import DEFAULT, NO_FILES, Anchor, FilePatterns, Selection, parse_selectors
from vstream.value_class import value_class

Path = tuple[str, ...]

OWN_FILE: Final = ".vstream.toml"
FAIL_ON: Final = Severity.WARNING
"""From which severity on a finding is a reason to fail, if nobody says another."""
_LISTS: Final = ("select", "ignore", "extend-select", "exclude", "env", "env-files")
_TABLES: Final = ("per-file-ignores", "severity")
_TEXTS: Final = ("fail-on", "topology", "server-version", "baseline", "docs-url")
_KEYS: Final = (*_LISTS, *_TABLES, *_TEXTS)
_SEVERITIES: Final = {severity.value: severity for severity in Severity}
_AT: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)")
_HEADER: Final = re.compile(r"\s*\[{1,2}(?P<keys>[^\]]+)\]")
_ASSIGNMENT: Final = re.compile(r"\s*(?P<keys>(?:[\w.-]|\"[^\"]*\"|'[^']*')+)\s*=")
_KEY: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")


@value_class
class LintSettings:
    """What a file of settings says. *env_files*, *topology* and *baseline* are relative to its directory."""

    selection: Selection = field(default_factory=Selection)
    exclude: FilePatterns = NO_FILES
    """Files that are passed over in directories."""
    fail_on: Severity = FAIL_ON
    env: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    topology: str | None = None
    server_version: str | None = None
    baseline: str | None = None
    docs_url: str | None = None
    """Where the manual of the rules is, with `{code}` or an anchor for the code to come."""


def parse_settings(text: str, file: str, codes: Collection[str], anchor: Anchor) -> LintSettings | None:
    """
    The settings in *text*, None if it has none of lint.

    *file* says by its name where in it they are. *anchor* is the directory of the file, which patterns are relative to.
    Raises VstreamError, with the place of the mistake.
    """
    try:
        document = tomllib.loads(text)
    except ValueError as error:
        match = _AT.search(str(error))
        place = f"{match[1]}:{match[2]}" if match and match[1] else f"{text.count(chr(10)) + 1}:1"
        raise VstreamError(f"{file}:{place}: not TOML: {_AT.sub('', str(error))}", hint="correct the file") from None
    reader = _SettingsReader(text, file, frozenset(codes))
    parents: Path = () if file.endswith(OWN_FILE) else ("tool", "vstream")
    table: object = document
    for key in parents:
        table = table.get(key) if isinstance(table, dict) else None
    if table is None:
        return None
    reader.require_known_keys(reader.as_table(table, parents), parents, ("lint",), "section")
    section = reader.as_table(table, parents).get("lint")
    return None if section is None else reader.read(section, (*parents, "lint"), anchor)


class _SettingsReader:
    """Settings to a value; whatever is wrong is said with its place."""

    def __init__(self, text: str, file: str, codes: frozenset[str]) -> None:
        self._lines = text.splitlines()
        self._file = file
        self._codes = codes
        self._places = dict(_find_keys(self._lines))

    def read(self, section: object, path: Path, anchor: Anchor) -> LintSettings:
        table = self.as_table(section, path)
        self.require_known_keys(table, path, _KEYS, "setting")
        lists = {key: self._read_texts(table.get(key, []), (*path, key)) for key in _LISTS}
        texts = {key: self._read_text(table[key], (*path, key)) for key in _TEXTS if key in table}
        by_file = self.as_table(table.get("per-file-ignores", {}), (*path, "per-file-ignores"))
        weights = self.as_table(table.get("severity", {}), (*path, "severity"))
        selection = Selection(
            select=self._read_selectors(lists["select"], (*path, "select")) if "select" in table else (DEFAULT,),
            ignore=self._read_selectors(lists["ignore"], (*path, "ignore")),
            extend_select=self._read_selectors(lists["extend-select"], (*path, "extend-select")),
            per_file_ignores=self._read_ignores(by_file, (*path, "per-file-ignores")),
            severity=self._read_weights(weights, (*path, "severity")),
            anchor=anchor,
        )
        fail_on = self._read_severity(texts["fail-on"], (*path, "fail-on")) if "fail-on" in texts else FAIL_ON
        return LintSettings(
            selection=selection,
            exclude=FilePatterns(patterns=lists["exclude"], anchor=anchor),
            fail_on=fail_on,
            env=lists["env"],
            env_files=lists["env-files"],
            topology=texts.get("topology"),
            server_version=texts.get("server-version"),
            baseline=texts.get("baseline"),
            docs_url=texts.get("docs-url"),
        )

    def as_table(self, value: object, path: Path) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._error(path, f"`{path[-1]}` must be a table", f"write `[{'.'.join(path)}]`")
        return value

    def require_known_keys(self, table: Mapping[str, Any], path: Path, known_keys: Collection[str], kind: str) -> None:
        unknown = next((key for key in table if key not in known_keys), None)
        if unknown is None:
            return
        hint = suggest_name(unknown, known_keys) or f"known keys: {', '.join(known_keys)}"
        if kind == "section" and unknown in _KEYS:
            hint = f"write it under `[{'.'.join((*path, 'lint'))}]`"
        raise self._error((*path, unknown), f"unknown {kind} `{unknown[:40]}`", hint)

    def _read_ignores(self, table: Mapping[str, Any], path: Path) -> dict[str, tuple[str, ...]]:
        ignores = {}
        for pattern, words in table.items():
            place = (*path, pattern)
            ignores[pattern] = self._read_selectors(self._read_texts(words, place), place)
        return ignores

    def _read_weights(self, table: Mapping[str, Any], path: Path) -> dict[str, Severity]:
        weights: dict[str, Severity] = {}
        for key, value in table.items():
            (selector,) = self._read_selectors((key,), (*path, key)) or (key,)
            weights[selector] = self._read_severity(value, (*path, key))
        return weights

    def _read_texts(self, value: object, path: Path) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._error(path, f"`{path[-1]}` must be a list of strings", f'write `{path[-1]} = ["…"]`')
        return tuple(value)

    def _read_text(self, value: object, path: Path) -> str:
        if not isinstance(value, str):
            raise self._error(path, f"`{path[-1]}` must be a string", f'write `{path[-1]} = "…"`')
        return value

    def _read_severity(self, value: object, path: Path) -> Severity:
        if not isinstance(value, str) or value not in _SEVERITIES:
            raise self._error(path, f"`{path[-1]}` must be one of {', '.join(_SEVERITIES)}", "correct the value")
        return _SEVERITIES[value]

    def _read_selectors(self, words: Iterable[str], path: Path) -> tuple[str, ...]:
        selectors: list[str] = []
        for word in words:
            try:
                selectors += parse_selectors([word], self._codes)
            except VstreamError as error:
                raise self._error(path, error.message, error.hint, word) from None
        return tuple(selectors)

    def _error(self, path: Path, message: str, hint: str | None, word: str | None = None) -> VstreamError:
        """What is wrong at *path*, or at *word* in its value: at the nearest place that is written."""
        line, column = next(
            (self._places[path[:length]] for length in range(len(path), 0, -1) if path[:length] in self._places),
            (1, 1),
        )
        for number in range(line, len(self._lines) + 1 if word else line):
            position = self._lines[number - 1].find(f"{word}", column - 1 if number == line else 0)
            if position >= 0:
                line, column = number, position + 1
                break
        return VstreamError(f"{self._file}:{line}:{column}: {message}", hint=hint)


def _find_keys(lines: list[str]) -> list[tuple[Path, tuple[int, int]]]:
    """Where each table and each key of a TOML text begins, by its path; tables in one line have none below them."""
    places: dict[Path, tuple[int, int]] = {}
    table: Path = ()
    for number, line in enumerate(lines, start=1):
        header, assignment = _HEADER.match(line), _ASSIGNMENT.match(line)
        match = assignment or header
        if match is None:
            continue
        keys = tuple(next(filter(None, groups), "") for groups in _KEY.findall(match["keys"]))
        path = (*table, *keys) if assignment else keys
        if not assignment:
            table = keys
        for length in range(len(path), len(path) - len(keys), -1):
            places.setdefault(path[:length], (number, match.start("keys") + 1))
    return list(places.items())
