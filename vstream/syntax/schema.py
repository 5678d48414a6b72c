"""
The shape of a document: keys that exist, values of the right kind. Each error has a place and a hint.

A `Language` is a pydantic model and what is worth saying about mistakes in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from vstream.findings import Finding, Severity, Span
from vstream.formatting import quote_names, quote_value, suggest_name
from vstream.syntax.document import object_or_empty
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.syntax.yaml import Document, Path

M = TypeVar("M", bound=BaseModel)

MAX_FINDINGS = 200
"""Errors that are listed: a file with more is another kind of file."""

NEWER_HINT = "only a newer vstream reads this file"
"""About the version of a language that this vstream does not know yet."""

Wording = Callable[["Path", "ErrorDetails"], tuple[str, str | None]]
"""A message and a hint about one of pydantic's errors."""


@value_class
class Language(Generic[M]):
    """What may be written in one kind of file."""

    noun: str
    """What such a file is."""
    model: type[M]
    starter: str
    """The hint for a file without content."""
    is_needed: Callable[[Path], bool]
    """Whether too much hangs on the value at a path: everything that names it would look wrong without it."""
    mark: str
    """The key at the top that such a file has, and no other kind of file."""
    other_kinds: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Other kinds of files, by their marks: what is wrong if it is one, and what to do."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Hints, by the key that is missing."""
    wordings: Mapping[str, Wording] = field(default_factory=dict)
    """How some of pydantic's errors are said."""
    unknown_key: Callable[[str, list[str]], str | None] = suggest_name
    """A hint about a key that is unknown there."""


def format_path(path: Path) -> str:
    """A path as messages name it."""
    return quote_value(".".join(str(part) for part in path) or "the document").strip("`")


@value_class
class DecodedDocument(Generic[M]):
    """
    A document as a language has it.

    Of one with wrong values it is what is left without them, so that the rest can be checked and all errors of a file
    come at once.
    """

    model: M | None
    """None if nothing can be read, or something is wrong that the rest depends on."""
    removed: tuple[Path, ...]
    """Where wrong values were taken out."""
    is_whole: bool
    """Whether *model* is all that the document says."""
    findings: tuple[Finding, ...]
    """What is wrong with the document, and with its values (VS005, VS006)."""


def decode_document(document: Document, language: Language[M]) -> DecodedDocument[M]:
    """What *language* makes of *document*. Never raises: what cannot be read is in the findings."""
    if not document.is_readable:
        return DecodedDocument(model=None, removed=(), is_whole=False, findings=document.findings)
    mistaken = _find_other_kind(document, language)
    if mistaken is not None:
        return DecodedDocument(model=None, removed=(), is_whole=False, findings=(*document.findings, mistaken))
    whole, problems = _validate(document, language)
    if whole is not None:
        return DecodedDocument(model=whole, removed=(), is_whole=True, findings=document.findings)
    rest, removed = _take_out_wrong_values(document, language)
    everything = (*document.findings, *problems)
    return DecodedDocument(model=rest, removed=removed, is_whole=False, findings=everything)


def _find_other_kind(document: Document, language: Language[M]) -> Finding | None:
    """What is wrong if *document* is another kind of file: one error instead of one for each of its keys."""
    keys = object_or_empty(document.data)
    mark = next((mark for mark in language.other_kinds if mark in keys and language.mark not in keys), None)
    if mark is None:
        return None
    message, hint = language.other_kinds[mark]
    where = document.source.key_span((mark,))
    return Finding(code="VS005", severity=Severity.ERROR, message=message, where=where, hint=hint)


def _validate(document: Document, language: Language[M]) -> tuple[M | None, tuple[Finding, ...]]:
    """The document, None if there are errors; and these, in the file's order."""
    try:
        return language.model.model_validate(document.data), ()
    except ValidationError as error:
        errors = error.errors(include_url=False)
    findings = [_make_finding(document, language, details) for details in errors[:MAX_FINDINGS]]
    if len(errors) > MAX_FINDINGS:
        whole = document.source.value_span(())
        findings.append(
            Finding(
                code="VS005",
                severity=Severity.ERROR,
                message=f"{len(errors) - MAX_FINDINGS:,} more errors are not listed",
                where=Span.point(document.source.file, whole.end_line, whole.end_column),
                hint=f"is this a {language.noun}?",
            )
        )
    return None, tuple(sorted(findings, key=Finding.sort_key))


def _take_out_wrong_values(document: Document, language: Language[M]) -> tuple[M | None, tuple[Path, ...]]:
    """What is left without wrong values, None if the rest depends on one; and the paths that were taken out."""
    data = deepcopy(document.data)
    removed: list[Path] = []
    for _ in range(_MAX_ROUNDS):
        try:
            return language.model.model_validate(data), tuple(removed)
        except ValidationError as error:
            paths = {_find_removable(data, language, details) for details in error.errors(include_url=False)}
        if None in paths:
            return None, ()
        for path in sorted((path for path in paths if path is not None), key=len, reverse=True):
            _remove(data, path)
            removed.append(path)
    return None, ()


_MAX_ROUNDS = 3
"""Taking out a value can leave its map without something that it needs, twice at most."""


def _find_removable(data: Any, language: Language[M], details: ErrorDetails) -> Path | None:
    """The smallest part that can go without moving others; None if too much hangs on it."""
    path: Path = details["loc"]
    if details["type"] == "missing" or (path and path[-1] == "[key]"):
        path = path[:-1]
    while path and not isinstance(_get_at(data, path[:-1]), dict):
        # An item of a list of maps can be emptied. Any other would move those behind it.
        if isinstance(path[-1], int) and _is_list_of_maps(_get_at(data, path[:-1]), path[-1]):
            break
        path = path[:-1]
    return None if not path or language.is_needed(path) else path


def _is_list_of_maps(value: Any, index: int) -> bool:
    return isinstance(value, list) and any(
        isinstance(item, dict) for number, item in enumerate(value) if number != index
    )


def _get_at(data: Any, path: Path) -> Any:
    """The value at *path*, None if there is none."""
    for part in path:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _remove(data: Any, path: Path) -> None:
    parent = _get_at(data, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)
    elif isinstance(parent, list) and isinstance(path[-1], int):
        parent[path[-1]] = {}


def _make_finding(document: Document, language: Language[M], details: ErrorDetails) -> Finding:
    path: Path = details["loc"]
    kind = details["type"]
    is_key = bool(path) and path[-1] == "[key]" and kind.startswith("string_")
    if is_key:
        path = path[:-1]
    if "index" in details.get("ctx", {}):
        path = (*path, details["ctx"]["index"])
    code, span = "VS005", document.source.value_span(path)
    wordings = {**_WORDINGS, **language.wordings}
    if kind == "extra_forbidden":
        code, span = "VS006", document.source.key_span(path)
        message, hint = f"unknown key {quote_value(path[-1])}", _unknown_key_hint(language, path)
    elif kind == "missing":
        message, hint = f"`{format_path(path)}` is missing", language.missing.get(str(path[-1]))
        span = document.source.keys.get(path) or document.source.key_span(path[:-1])
    elif kind == "too_short":
        # Below a map that is empty there are only keys that an overlay removed.
        span = next((at for below, at in document.source.keys.items() if below[:-1] == path), span)
        message, hint = f"`{format_path(path)}` is empty", language.missing.get(str(path[-1]))
    elif kind in {"model_type", "dict_type"} and not path and details["input"] is None:
        message, hint = "the file has no content", language.starter
    elif kind in wordings:
        message, hint = wordings[kind](path, details)
        span = document.source.key_span(path) if is_key else span
    else:
        message, hint = f"`{format_path(path)}`: {details['msg']}", details.get("ctx", {}).get("hint")
    return Finding(code=code, severity=Severity.ERROR, message=message, where=span, hint=hint)


def explain_map(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    """The error for a value that should be a map."""
    if details["input"] is not None:
        return f"`{format_path(path)}` must be a map of keys and values", None
    return f"`{format_path(path)}` has nothing below it", "indent its keys below it, or remove it"


def _explain_list(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    if details["input"] is not None:
        return f"`{format_path(path)}` must be a list", "begin each item with `- `"
    return f"`{format_path(path)}` has nothing below it", "indent its items below it, or remove it"


def _explain_literal(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    expected, written = str(details["ctx"]["expected"]), details["input"]
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    if isinstance(written, str) and written == expected:
        return f"`{format_path(path)}` must be the number {expected}", "remove the quotes"
    is_newer = len(path) == 1 and isinstance(written, int) and expected.isdigit() and written > int(expected)
    hint = NEWER_HINT if is_newer else suggest_name(str(written), choices)
    return f"`{format_path(path)}` must be {quote_names(choices)}, not {quote_value(written)}", hint


def _explain_text(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    is_scalar = isinstance(details["input"], (int, float))
    return f"`{format_path(path)}` must be text", "put it in quotes" if is_scalar else None


def explain_name(_: Path, details: ErrorDetails) -> tuple[str, str | None]:
    """The error for a text that is not a valid name."""
    start = ", beginning with a letter or digit" if str(details["ctx"]["pattern"]).startswith("^[A-Za-z0-9][") else ""
    return f"{quote_value(details['input'])} is not a valid name", f"letters, digits, `-` and `_` only{start}"


def _explain_too_long(_: Path, details: ErrorDetails) -> tuple[str, str | None]:
    return (
        f"{quote_value(details['input'])} is longer than {details['ctx']['max_length']} characters",
        "choose a shorter name",
    )


_WORDINGS: dict[str, Wording] = {
    "model_type": explain_map,
    "dict_type": explain_map,
    "list_type": _explain_list,
    "literal_error": _explain_literal,
    "string_type": _explain_text,
    "string_pattern_mismatch": explain_name,
    "string_too_long": _explain_too_long,
    "string_too_short": lambda path, _: (f"`{format_path(path)}` is empty", "remove it, or write something"),
    "bool_type": lambda path, _: (f"`{format_path(path)}` must be `true` or `false`", None),
}


def _unknown_key_hint(language: Language[M], path: Path) -> str | None:
    keys = known_keys(language.model, path[:-1])
    return language.unknown_key(str(path[-1]), keys) or f"known here: {', '.join(f'`{key}`' for key in keys)}"


def known_keys(model: type[BaseModel], path: Path) -> list[str]:
    """The keys that the language of *model* allows at *path*, which is a map with fixed keys."""
    kind: Any = model
    for part in path:
        kind = _get_inner(kind, part)
    return sorted(field.alias or name for name, field in kind.model_fields.items())


def _get_inner(kind: Any, part: str | int) -> Any:
    """The type of what is called *part* in a value of type *kind*: a model, a dict or a list."""
    if _is_model(kind):
        fields = {field.alias or name: field for name, field in kind.model_fields.items()}
        return _container(fields[str(part)].annotation)
    arguments = get_args(kind)
    return _container(arguments[1] if get_origin(kind) is dict else arguments[0])


def _container(annotation: Any) -> Any:
    """The model, the dict or the list in `X`, `X | None` and `Annotated[X, …]`."""
    if get_origin(annotation) in {dict, tuple, list} or _is_model(annotation):
        return annotation
    return (
        next(container for container in map(_container, get_args(annotation)) if container is not None)
        if get_args(annotation)
        else None
    )


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)
