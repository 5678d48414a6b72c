"""From the events of the lexer to a tree: keys find their values, variables and includes are resolved."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from vstream.findings import Finding, Severity, Span
from vstream.syntax.natsconf import values
from vstream.syntax.natsconf.lexer import MAX_DEPTH, Lexer
from vstream.syntax.natsconf.nodes import (
    Comment,
    ConfArray,
    ConfDocument,
    ConfEntry,
    ConfMap,
    ConfNode,
    ConfScalar,
    Reference,
    ScalarKind,
)
from vstream.syntax.natsconf.scalars import Scanned, Shape

Include: TypeAlias = Callable[[str, str], tuple[str, str]]

MAX_SOURCES_DEPTH: Final = 32
MAX_INCLUDES: Final = 1000

_tuple: Final = tuple.__new__
"""Makes a named tuple without the call of a function in Python: two for every value of a file."""
_LINE_BREAK: Final = re.compile("\n")
_BOM: Final = "\ufeff"
_TRUE: Final = frozenset({"true", "yes", "on"})
_ENVIRONMENT_KEY: Final = "pk"
_BCRYPT: Final = "2a$"
_OTHER_BCRYPT: Final = ("2b$", "2x$", "2y$")


def parse(
    text: str, file: str, *, include: Include | None = None, env: Mapping[str, str] | None = None
) -> ConfDocument:
    """
    Everything *text* says, and all that is wrong with it; never raises.

    *include* is called with the path of an include directive as it was written and the name of the file
    it stands in. It returns the name and the text of the file it found, or raises OSError or ValueError.
    To the server every path, even one that begins with a slash, is relative to the directory of the
    including file. A directive in the value of the environment variable `NAME` stands in the file `$NAME`.

    *env* is the environment for variables that no enclosing map defines; without it, it is empty.
    Line breaks must be those of the file: the server does not read CRLF as it reads LF.
    """
    session = _Session(include=include, env={} if env is None else env)
    output = _Output()
    root = _TextReader(text, _Source(file, files=(file,)), session, output).read()
    return ConfDocument(root.node, tuple(output.findings), tuple(output.comments), tuple(output.references))


@dataclass(frozen=True, slots=True)
class _Source:
    """A text and the way to it: the files and the environment variables that are being read, outermost first."""

    name: str
    files: tuple[str, ...]
    variables: tuple[str, ...] = ()

    @property
    def is_too_deep(self) -> bool:
        return len(self.files) + len(self.variables) > MAX_SOURCES_DEPTH


@dataclass(slots=True)
class _Session:
    """What all texts of one document share."""

    include: Include | None
    env: Mapping[str, str]
    includes: int = 0
    environment: dict[str, _Variable | str] = field(default_factory=dict)


@dataclass(slots=True)
class _Output:
    findings: list[Finding] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Variable:
    """The value of a variable, how many levels of maps and arrays it has, and the key that holds it."""

    node: ConfNode
    levels: int
    definition: Span | None


@dataclass(frozen=True, slots=True)
class _Root:
    node: ConfMap
    frame: _Frame


class _Frame:
    """A map or an array that is being read."""

    __slots__ = ("_index_of", "_seen", "entries", "is_map", "items", "keys_before", "levels", "levels_of", "start")

    def __init__(self, start: int, *, is_map: bool, keys_before: int) -> None:
        self.start = start
        self.is_map = is_map
        self.keys_before = keys_before
        self.entries: list[ConfEntry] = []
        self.items: list[ConfNode] = []
        self.levels = 1
        self.levels_of: list[int] = []
        self._index_of: dict[str, int] = {}
        self._seen = 0

    def find(self, key: str) -> _Variable | None:
        """What was written under *key* so far. Only variables ask, so the index is built when one does."""
        for index in range(self._seen, len(self.entries)):
            self._index_of[self.entries[index].key] = index
        self._seen = len(self.entries)
        node = self._index_of.get(key)
        if node is None:
            return None
        return _Variable(self.entries[node].value, self.levels_of[node], self.entries[node].key_span)


class _TextReader:
    """Reads one text; the sink of its lexer."""

    def __init__(self, text: str, source: _Source, session: _Session, output: _Output) -> None:
        self._text = text
        self._source = source
        self._session = session
        self._output = output
        self._file = source.name
        self._line_starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text)), len(text) + 2]
        self._line = 1
        self._frames = [_Frame(0, is_map=True, keys_before=0)]
        self._keys: list[tuple[str, int, int]] = []
        self._failed = False

    def read(self) -> _Root:
        """The whole text, or what comes before the first error."""
        if self._text.startswith(_BOM):
            message = "the file begins with a byte order mark, which the server takes for a part of the first key"
            self.warning(message, "save the file as UTF-8 without a byte order mark", 0, 1)
        Lexer(self._text, self).run()
        # What is open after an error is kept. What is open without one, the server drops.
        while self._failed and len(self._frames) > 1:
            del self._keys[self._frames[-1].keys_before :]
            self.close(len(self._text))
        root = self._frames[0]
        return _Root(ConfMap(tuple(root.entries), self._span(0, len(self._text))), root)

    # The events of the lexer, see Sink

    def key(self, key: str, start: int, end: int) -> None:
        self._keys.append((key, start, end))

    def string(self, value: str, start: int, end: int) -> None:
        self._add_node(ConfScalar(value, ScalarKind.STRING, self._text[start:end], self._span(start, end)))

    def scalar(self, scanned: Scanned, start: int) -> None:
        shape, text, end = scanned
        match shape:
            case Shape.STRING:
                self.string(text, start, end)
            case Shape.VARIABLE:
                self._resolve_variable(text, start, end)
            case _:
                self._add_typed_scalar(shape, text, start, end)

    def open(self, start: int, *, is_map: bool) -> None:
        self._frames.append(_Frame(start, is_map=is_map, keys_before=len(self._keys)))

    def close(self, end: int) -> None:
        frame = self._frames.pop()
        span = self._span(frame.start, end)
        node = ConfMap(tuple(frame.entries), span) if frame.is_map else ConfArray(tuple(frame.items), span)
        self._add_node(node, frame.levels)

    def comment(self, text: str, start: int, end: int) -> None:
        self._output.comments.append(Comment(text, self._span(start, end)))

    def error(self, message: str, hint: str, start: int, end: int) -> None:
        self._failed = True
        self._report("VS010", message, hint, start, end)

    def warning(self, message: str, hint: str, start: int, end: int) -> None:
        self._report("VS010", message, hint, start, end, severity=Severity.WARNING)

    def include(self, path: str, start: int, end: int) -> None:
        try:
            source, text = self._read_include(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            hint = "paths are relative to the directory of the file with the include directive"
            if path.startswith("$"):
                hint = "write the path out: variables have no meaning in the path of an include directive"
            self._report("VS011", f"cannot include `{path}`: {reason}", hint, start, end)
            return
        included = _TextReader(text, source, self._session, self._output).read().frame
        frame = self._frames[-1]
        if len(self._frames) + included.levels > MAX_DEPTH + 2:
            message = f"with `{path}`, maps and arrays are nested deeper than {MAX_DEPTH} levels"
            self._report("VS011", message, "flatten the configuration", start, end)
            return
        frame.levels = max(frame.levels, included.levels)
        frame.entries += included.entries
        frame.levels_of += included.levels_of

    # How they become nodes

    def _add_node(self, node: ConfNode, levels: int = 0) -> None:
        frame = self._frames[-1]
        if levels >= frame.levels:
            frame.levels = levels + 1
        if frame.is_map:
            # As in the server, a key whose value got lost stays behind and takes the place of an outer one.
            key, start, end = self._keys.pop()
            frame.entries.append(ConfEntry(key, self._span(start, end), node))
            frame.levels_of.append(levels)
        else:
            frame.items.append(node)

    def _add_typed_scalar(self, shape: Shape, text: str, start: int, end: int) -> None:
        span = self._span(start, end)
        try:
            match shape:
                case Shape.INTEGER:
                    number, is_exact = values.parse_integer(text)
                    if not is_exact:
                        message = f"`{text}` does not fit into 64 bits: the server takes it for {number}"
                        self.warning(message, "use a smaller size", start, end)
                    self._add_node(ConfScalar(number, ScalarKind.INTEGER, text, span))
                case Shape.FLOAT:
                    self._add_node(ConfScalar(values.parse_float(text), ScalarKind.FLOAT, text, span))
                case Shape.DATETIME:
                    self._add_node(ConfScalar(values.parse_timestamp(text), ScalarKind.DATETIME, text, span))
                case _:
                    self._add_node(ConfScalar(text.lower() in _TRUE, ScalarKind.BOOLEAN, text, span))
        except values.NoSuchUnitError as error:
            self.warning(f"{error}: the server drops the value", "use k, kb, m, mb, g, gb, t or tb", start, end)
        except values.NotAValueError as error:
            self.error(str(error), "correct it, or put it in double quotes if it is text", start, end)
            self._add_node(ConfScalar(text, ScalarKind.STRING, text, span))

    def _resolve_variable(self, name: str, start: int, end: int) -> None:
        raw, span = self._text[start:end], self._span(start, end)
        if name.startswith(_BCRYPT):
            self._add_node(ConfScalar(raw, ScalarKind.STRING, raw, span))
            return
        variable = self._find_variable(name)
        if isinstance(variable, _Variable) and len(self._frames) + variable.levels > MAX_DEPTH + 1:
            variable = f"with the variable `{name}`, maps and arrays are nested deeper than {MAX_DEPTH} levels"
        if isinstance(variable, str):
            hint = f"define `{name}` above this line or in the environment, or put the value in quotes if it is text"
            if name.startswith(_OTHER_BCRYPT):
                hint = "put the hash in quotes: only those that begin with `$2a$` can do without"
            self._report("VS012", variable, hint, start, end)
            variable = _Variable(ConfScalar(raw, ScalarKind.UNRESOLVED, raw, span), 0, None)
        self._output.references.append(Reference(name, span, variable.definition))
        match variable.node:
            case ConfScalar(value=value, kind=kind):
                self._add_node(ConfScalar(value, kind, raw, span))
            case ConfMap(entries=entries):
                self._add_node(ConfMap(entries, span), variable.levels)
            case ConfArray(items=items):
                self._add_node(ConfArray(items, span), variable.levels)

    def _find_variable(self, name: str) -> _Variable | str:
        """The value of a variable, or what is wrong with it."""
        for frame in reversed(self._frames):
            if frame.is_map and (reference := frame.find(name)):
                return reference
        if name in self._source.variables:
            cycle = " → ".join(f"`{variable}`" for variable in (*self._source.variables, name))
            return f"the variable `{name}` refers to itself: {cycle}"
        if name not in self._session.environment:
            self._session.environment[name] = self._from_environment(name)
        return self._session.environment[name]

    def _from_environment(self, name: str) -> _Variable | str:
        text = self._session.env.get(name)
        if text is None:
            return f"the variable `{name}` is not defined"
        source = _Source(f"${name}", self._source.files, (*self._source.variables, name))
        if source.is_too_deep:
            return f"the variable `{name}` is defined through more than {MAX_SOURCES_DEPTH} others"
        # The server reads the value as that of a key, and so its first line is ours shifted by the key.
        output = _Output()
        root = _TextReader(f"{_ENVIRONMENT_KEY}={text}", source, self._session, output).read()
        fault = next((finding for finding in output.findings if finding.is_error), None)
        if fault is not None:
            return f"the value of `{name}` in the environment cannot be read: {fault.message}"
        variable = root.frame.find(_ENVIRONMENT_KEY)
        if variable is None:
            return f"the value of `{name}` in the environment is none"
        return _Variable(variable.node, variable.levels, None)

    def _read_include(self, path: str) -> tuple[_Source, str]:
        """The file at *path* and its text; raises OSError or ValueError if there is none to be read."""
        session, files = self._session, self._source.files
        if session.include is None:
            raise ValueError("include directives are not followed here")
        session.includes += 1
        if session.includes > MAX_INCLUDES:
            raise ValueError(f"there are more than {MAX_INCLUDES} include directives")
        name, text = session.include(path, self._source.name)
        if name in files:
            raise ValueError("it includes itself: " + " → ".join(f"`{file}`" for file in (*files, name)))
        source = _Source(name, (*files, name), self._source.variables)
        if source.is_too_deep:
            raise ValueError(f"include directives are nested deeper than {MAX_SOURCES_DEPTH} levels")
        return source, text

    # Where they are

    def _span(self, start: int, end: int) -> Span:
        starts, line = self._line_starts, self._line
        # What is read next is nearly always on the line of what was read last.
        if not starts[line - 1] <= start < starts[line]:
            line = self._line = bisect_right(starts, start)
        before = starts[line - 1] - 1
        if end < starts[line]:
            return _tuple(Span, (self._file, line, start - before, line, end - before))
        end_line = bisect_right(starts, end)
        return Span(self._file, line, start - before, end_line, end - starts[end_line - 1] + 1)

    def _report(
        self, code: str, message: str, hint: str, start: int, end: int, *, severity: Severity = Severity.ERROR
    ) -> None:
        span = self._span(start, max(start + 1, end))
        self._output.findings.append(Finding(code=code, severity=severity, message=message, where=span, hint=hint))
