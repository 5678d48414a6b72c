"""What a rule is, and how rules are run."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from vstream import resources
from vstream.findings import Edit, Finding, Related, Severity, Span
from vstream.formatting import quote_names, suggest_name
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.syntax.yaml import Path, SourceMap

S = TypeVar("S")
T = TypeVar("T")


@value_class
class Violation:
    """What a rule found, and where: a path in a YAML document, or a span of a file."""

    at: Path | Span
    message: str
    hint: str | None = None
    on_key: bool = False
    """Point at the key that the path ends with, not at its value."""
    severity: Severity | None = None
    """Where this finding weighs more or less than the rule says."""
    related: tuple[Related, ...] = ()
    """Other places that explain the finding."""
    fix: tuple[Edit, ...] = ()
    """What `--fix` writes: only what cannot change the meaning of anything else."""


def make_refusal(at: Span, message: str, hint: str, *related: Related) -> Violation:
    """A Violation that says: with what is at *at*, a server does not start."""
    return Violation(at=at, message=f"{message}: the server does not start", hint=hint, related=related)


def suggest_closest(word: str, names: list[str], label: str) -> str:
    """A hint about a name that does not exist: the likely one, or all existing ones."""
    return suggest_name(word, names) or f"{label}: {quote_names(names) if names else 'none'}"


def choose_usual(items: Sequence[T], value_of: Callable[[T], object]) -> T:
    """The first of *items* with the value that most of them have. Raises ValueError if there are none."""
    values = [value_of(item) for item in items]
    return items[values.index(max(values, key=values.count))]


@value_class
class Rule(Generic[S]):
    """
    A check of one kind of subject.

    Its manual page is the docstring of the check, and its example in `examples/rules`, which the tests run.
    """

    code: str
    name: str
    severity: Severity
    check: Callable[[S], Iterator[Violation]]

    @property
    def manual(self) -> str:
        """What the rule is about and why it matters, then a bad and a good example. A test names one without examples."""
        example = resources.rule_examples() / f"{self.code}.md"
        text = example.read_text(encoding="utf-8") if example.is_file() else ""
        return f"{inspect.cleandoc(self.check.__doc__ or '')}\n\n{text}"


def rule(code: str, name: str, severity: Severity) -> Callable[[Callable[[S], Iterator[Violation]]], Rule[S]]:
    """Turn a generator of findings into a Rule. `find_rules` sees it where it stands."""

    def decorate(check: Callable[[S], Iterator[Violation]]) -> Rule[S]:
        return Rule(code=code, name=name, severity=severity, check=check)

    return decorate


def once_per_place(check: Callable[[S], Iterator[Violation]]) -> Callable[[S], Iterator[Violation]]:
    """Of what *check* finds at one place, the first: several streams take a setting from there, or servers include it."""

    @wraps(check)
    def check_places(subject: S) -> Iterator[Violation]:
        seen = set()
        for violation in check(subject):
            if violation.at not in seen:
                seen.add(violation.at)
                yield violation

    return check_places


def find_rules(package: str, path: Iterable[str]) -> tuple[Rule[Any], ...]:
    """Every rule in the modules of *package*, whose files are in *path*, in the order of their codes."""
    modules = (import_module(f"{package}.{module.name}") for module in pkgutil.iter_modules(path))
    rules = {member for module in modules for member in vars(module).values() if isinstance(member, Rule)}
    return tuple(sorted(rules, key=lambda member: member.code))


def run_rules(
    rules: Iterable[Rule[S]],
    subject: S,
    source: SourceMap | None = None,
    *,
    unsure: Collection[Path] = (),
    written_at: Callable[[Path], Path] = lambda path: path,
) -> tuple[Finding, ...]:
    """
    Every finding of *rules* about *subject*, in the order of the file. *written_at* says where in it a path of *subject* stands.

    *unsure* are paths that could not be read: what is said about them, about what they
    are a part of or about their parts may only be a consequence, and is left out.
    """
    findings: list[Finding] = []
    for rule in rules:
        for violation in rule.check(subject):
            at = violation.at
            if not isinstance(at, Span):
                at = written_at(at)
            if not any(_is_about(at, path) for path in unsure):
                findings.append(_as_finding(rule, violation, _locate(at, source, on_key=violation.on_key)))
    return tuple(sorted(findings, key=Finding.sort_key))


def _as_finding(rule: Rule[S], violation: Violation, where: Span | None) -> Finding:
    return Finding(
        code=rule.code,
        severity=violation.severity or rule.severity,
        message=violation.message,
        where=where,
        hint=violation.hint,
        related=violation.related,
        fix=violation.fix,
    )


def _is_about(at: Path | Span, path: Path) -> bool:
    return not isinstance(at, Span) and all(part == unsure_part for part, unsure_part in zip(at, path, strict=False))


def _locate(at: Path | Span, source: SourceMap | None, *, on_key: bool) -> Span | None:
    if isinstance(at, Span):
        return at
    if source is None:
        return None
    return source.key_span(at) if on_key else source.value_span(at)
