"""The shape of a document: keys that exist, values of the right kind. Each error has a place and a way out."""

from __future__ import annotations

from copy import deepcopy
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from vstream.diagnostics import Diagnostic, Severity, Span
from vstream.syntax.wording import shown
from vstream.topology.document import TopologyDocument

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_core import ErrorDetails

    from vstream.syntax.yaml import Document, Path

MOST = 200
"""Errors that are listed: a file with more is another kind of file."""


def shape(document: Document) -> tuple[TopologyDocument | None, tuple[Diagnostic, ...]]:
    """The document as the language has it, None if there are errors (VS005, VS006); and these, in the file's order."""
    try:
        return TopologyDocument.model_validate(document.data), ()
    except ValidationError as error:
        errors = error.errors(include_url=False)
    found = [_diagnostic(document, details) for details in errors[:MOST]]
    if len(errors) > MOST:
        whole = document.source.value(())
        found.append(
            Diagnostic(
                code="VS005",
                severity=Severity.ERROR,
                message=f"{len(errors) - MOST:,} more errors are not listed",
                span=Span.point(document.source.file, whole.end_line, whole.end_column),
                hint="is this a topology?",
            )
        )
    return None, tuple(sorted(found, key=Diagnostic.sort_key))


def readable_part(document: Document) -> tuple[TopologyDocument, tuple[Path, ...]] | None:
    """
    What is left of a document with wrong values when they are taken out, and the paths that were taken out.

    It is for checking the rest, so that all errors of a file come at once. None if what is wrong
    is something that the rest depends on.
    """
    data = deepcopy(document.data)
    taken: list[Path] = []
    for _ in range(_ROUNDS):
        try:
            return TopologyDocument.model_validate(data), tuple(taken)
        except ValidationError as error:
            paths = {_removable(details) for details in error.errors(include_url=False)}
        if None in paths:
            return None
        for path in sorted((path for path in paths if path is not None), key=len, reverse=True):
            _remove(data, path)
            taken.append(path)
    return None


_ROUNDS = 3
"""Taking out a value can leave its map without something that it needs, twice at most."""


def _removable(details: ErrorDetails) -> Path | None:
    """The smallest part that can go without moving others; None if too much hangs on it."""
    path: Path = details["loc"]
    if details["type"] == "missing" or (path and path[-1] == "[key]"):
        path = path[:-1]
    while path and isinstance(path[-1], int):
        path = path[:-1]
    is_needed = len(path) < _DEEP_ENOUGH and path[:1] not in {("streams",), ("defaults",)}
    return None if is_needed or path in {("streams",), ("defaults",)} else path


_DEEP_ENOUGH = 3
"""`regions.west` is too much to take out: everything that names the region would look wrong. `regions.west.tags` is not."""


def _remove(data: object, path: Path) -> None:
    for part in path[:-1]:
        if not isinstance(data, dict):
            return
        data = data.get(part)
    if isinstance(data, dict):
        data.pop(path[-1], None)


def _diagnostic(document: Document, details: ErrorDetails) -> Diagnostic:
    path: Path = details["loc"]
    kind = details["type"]
    is_key = bool(path) and path[-1] == "[key]" and kind.startswith("string_")
    if is_key:
        path = path[:-1]
    if "index" in details.get("ctx", {}):
        path = (*path, details["ctx"]["index"])
    code, span = "VS005", document.source.value(path)
    if kind == "extra_forbidden":
        code, span = "VS006", document.source.key(path)
        message, hint = f"unknown key {shown(path[-1])}", _unknown_key_hint(path)
    elif kind == "missing":
        message, hint = f"`{_where(path)}` is missing", _MISSING_HINTS.get(str(path[-1]))
        span = document.source.key(path[:-1])
    elif kind in _WORDINGS:
        message, hint = _WORDINGS[kind](path, details)
        span = document.source.key(path) if is_key else span
    else:
        message, hint = f"`{_where(path)}`: {details['msg']}", None
    return Diagnostic(code=code, severity=Severity.ERROR, message=message, span=span, hint=hint)


def _where(path: Path) -> str:
    return shown(".".join(str(part) for part in path) or "the document").strip("`")


_MISSING_HINTS = {
    "version": "write `version: 1`, the version of the topology language",
    "name": "name the topology: streams are marked with it as their owner",
    "server_version": 'state the oldest nats-server that must be able to run this, such as `server_version: "2.12"`',
    "subjects": "state what clients publish on, such as `subjects: [foo.>]`",
    "servers": "give a number (`servers: 3`) or host names",
    "regions": "name at least one region, such as `west: {servers: 3}`",
}


def _map(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    if details["input"] is not None:
        return f"`{_where(path)}` must be a map of keys and values", None
    if not path:
        return "the file has no content", "`vstream init` writes a commented starter"
    return f"`{_where(path)}` has nothing below it", "indent its keys below it, or remove it"


def _literal(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    expected, written = str(details["ctx"]["expected"]), details["input"]
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    if isinstance(written, str) and written == expected:
        return f"`{_where(path)}` must be the number {expected}", "remove the quotes"
    listed = ", ".join(f"`{choice}`" for choice in choices)
    return f"`{_where(path)}` must be {listed}, not {shown(written)}", _did_you_mean(str(written), choices)


def _text(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    is_scalar = isinstance(details["input"], (int, float))
    return f"`{_where(path)}` must be text", "put it in quotes" if is_scalar else None


def _name(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    pattern = str(details["ctx"]["pattern"])
    if "always" in pattern:
        return f"{shown(details['input'])} is no interval", "write `always`, or a time such as `10s` or `2m`"
    if pattern.startswith("^[A-Za-z_]["):
        # Perhaps the secret itself: it is not shown.
        return f"`{_where(path)}` must be the name of an environment variable", "the secret itself never stands here"
    start = ", beginning with a letter or digit" if pattern.startswith("^[A-Za-z0-9][") else ""
    return f"{shown(details['input'])} is no name", f"letters, digits, `-` and `_` only{start}"


def _too_long(_: Path, details: ErrorDetails) -> tuple[str, str | None]:
    return (
        f"{shown(details['input'])} is longer than {details['ctx']['max_length']} characters",
        "choose a shorter name",
    )


def _whole_number(path: Path, details: ErrorDetails) -> tuple[str, str | None]:
    most = "5" if path[-1] == "replicas" else "65535"
    hint = "remove the quotes" if isinstance(details["input"], str) and details["input"].isdecimal() else None
    return f"`{_where(path)}` must be a whole number from 1 to {most}", hint


_WORDINGS: dict[str, Callable[[Path, ErrorDetails], tuple[str, str | None]]] = {
    "model_type": _map,
    "dict_type": _map,
    "literal_error": _literal,
    "string_type": _text,
    "string_pattern_mismatch": _name,
    "string_too_long": _too_long,
    "string_too_short": lambda path, _: (f"`{_where(path)}` is empty", "remove it, or write something"),
    "too_short": lambda path, _: (f"`{_where(path)}` is empty", _MISSING_HINTS.get(str(path[-1]))),
    "bool_type": lambda path, _: (f"`{_where(path)}` must be `true` or `false`", None),
    "int_type": _whole_number,
    "greater_than_equal": _whole_number,
    "less_than_equal": _whole_number,
}


def _unknown_key_hint(path: Path) -> str | None:
    known = _known_keys(path[:-1])
    hint = _did_you_mean(str(path[-1]), known)
    if not hint and {"max_age", "config"} <= set(known):
        return "a setting of the JetStream API that vstream has no word for goes under `config`"
    return hint or f"known here: {', '.join(f'`{key}`' for key in known)}"


def _did_you_mean(word: str, known: list[str]) -> str | None:
    close = get_close_matches(word, known, n=1)
    return f"did you mean `{close[0]}`?" if close else None


def _known_keys(path: Path) -> list[str]:
    """The keys that the language allows at *path*, which is a map with fixed keys."""
    kind: Any = TopologyDocument
    for part in path:
        kind = _map_type(kind.model_fields[part].annotation) if _is_model(kind) else get_args(kind)[1]
    return sorted(kind.model_fields)


def _map_type(annotation: Any) -> Any:
    """The model or the dict in `X`, `X | None` and `dict[Name, X]`."""
    if get_origin(annotation) is dict:
        return annotation
    return next(one for one in (annotation, *get_args(annotation)) if _is_model(one))


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)
