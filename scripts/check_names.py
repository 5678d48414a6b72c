#!/usr/bin/env python3
"""
Plain code: counts what makes it hard to read, and fails where a count is above its limit. All of it in vstream/; in
tests/ and scripts/ vague names.

    scripts/check_names.py             # each count against its limit
    scripts/check_names.py FILE...     # where in these files

Limits only go down: whoever removes something lowers them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {
    "participle as a function name": 0,
    "vague local": 0,
    "vague parameter": 0,
    "vague function name": 0,
    "function without a verb": 0,
    "question that is not answered by yes or no": 0,
    "nested conditional": 0,
    "comprehension over three lines": 0,
    "import inside a function": 0,
    "import_module inside a function": 10,
    "command over 60 lines": 0,
    "class name used twice": 0,
    "docstring with a name that its function lacks": 0,
    "docstring with a name that is nowhere": 0,
    "length called a deadline": 0,
    "value class written out": 0,
    "number without a quantity": 0,
    "noqa": 41,
    "line": 99_837,
    "file": 580,
    "vague local in tests": 0,
    "participle as a function name in tests": 0,
}
LAZY_LOADERS = {"vstream/cli/lazy_group.py", "vstream/lint/late.py"}
"""Where an import inside a function is what the file is for."""
SHARED_CLASS_NAMES: set[str] = set()
"""Names that more than one class may have. Private classes need not be here: nobody else can mean them."""

MOST_LINES = 3
"""Of a comprehension."""
MOST_COMMAND_LINES = 60
"""Of what a command does. Its parameters and its help are declarations."""
VAGUE = frozenset(
    (
        "aside",
        "found",
        "given",
        "here",
        "kept",
        "known",
        "one",
        "other",
        "others",
        "own",
        "said",
        "some",
        "taken",
        "there",
        "thing",
        "things",
        "wanted",
        "way",
        "ways",
        "what",
    )
)
"""Names that tell nothing about a value: a stream is called `stream`, a message `message`."""
WITHOUT_VERB = frozenset(
    (
        "about",
        "after",
        "all",
        "at",
        "before",
        "below",
        "beside",
        "between",
        "beyond",
        "both",
        "by",
        "elsewhere",
        "in",
        "instead",
        "missing",
        "of",
        "or",
        "over",
        "per",
        "since",
        "through",
        "under",
        "until",
        "within",
    )
)
"""
What the name of no function begins with. Factories of a class may be called `of`, rules and checks are called what they
find, and what converts is called `as_`, `to_`, `from_`, `with_` or `without_`.
"""
QUESTIONS = frozenset(("are", "can", "does", "has", "is", "may", "needs", "was"))
"""What the names of functions begin with that say whether something is so."""
NO_ANSWERS = frozenset(("None", "int", "str", "int | None", "str | None"))
"""What they cannot return: a reason why not reads as yes."""
VALUE_CLASS = "dataclass(frozen=True, slots=True, kw_only=True)"
"""What `@value_class` says."""
PARTICIPLES = frozenset(
    (
        "begun",
        "bound",
        "brought",
        "built",
        "chosen",
        "come",
        "done",
        "drawn",
        "driven",
        "fallen",
        "felt",
        "found",
        "given",
        "gone",
        "grown",
        "heard",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "led",
        "left",
        "lent",
        "lost",
        "made",
        "meant",
        "met",
        "mended",
        "paid",
        "put",
        "read",
        "said",
        "seen",
        "sent",
        "set",
        "shown",
        "shut",
        "spent",
        "stood",
        "sunk",
        "sworn",
        "taken",
        "taught",
        "thought",
        "thrown",
        "told",
        "understood",
        "won",
        "worn",
        "written",
    )
)
QUANTITIES = frozenset(
    [
        "TIMEOUT",
        "SECONDS",
        "SECOND",
        "MINUTES",
        "MINUTE",
        "DAY",
        "INTERVAL",
        "MS",
        "US",
        "NS",
        "BYTES",
        "BYTE",
        "BIT",
        "MAX",
        "MIN",
        "COUNT",
        "LIMIT",
        "LENGTH",
        "SIZE",
        "DEPTH",
        "HEIGHT",
        "PERCENT",
        "SHARE",
        "FACTOR",
        "DIVISOR",
        "CUTOFF",
        "RATE",
        "RANK",
        "BASE",
        "SEED",
        "VALUE",
        "MODE",
        "STATUS",
        "CODE",
        "PORT",
        "PORTS",
        "VERSION",
        "FORMAT",
        "SINCE",
        "ROWS",
        "COLUMNS",
        "LINES",
        "DIGITS",
        "TOKENS",
        "MESSAGES",
        "SEQ",
        "SEQUENCES",
        "COPIES",
        "REPLICAS",
        "ATTEMPTS",
        "ROUNDS",
        "INT32",
        "UINT32",
        "INT64",
    ]
)
"""One of these is in the name of a constant that is a number, unless a docstring below says what it is."""
NAMING_FIELDS = ("id", "attr", "arg", "name")
"""Where nodes of a syntax tree have a name."""
WORD = re.compile(r"\w+")
MARKED = re.compile(r"(?<![\w*])\*([a-z_]\w*)\*(?![\w*])")
"""A parameter, a local or a field, as docstrings write it."""
QUOTED = re.compile(r"(?<!`)`(?:\w+\.)*([a-z][a-z0-9_]*)`(?!`)")
"""What docstrings name otherwise. Names with capitals in them are often those of other programs."""
OF_OTHERS = frozenset(
    (
        "api_token",
        "connect_tls",
        "f1",
        "js_ack_fc_v2",
        "js_raft_delete_range",
        "js_snapshot_sources",
        "kill_region",
        "server_metadata",
        "use_attribute_docstrings",
    )
)
"""Names that are nowhere in the code: of libraries, of servers, and in examples."""
REGULAR_PARTICIPLE = re.compile(r"[a-z]{2,}[^e]ed|[a-z]+[bcdfglmnprstvz]ied")
NOT_PARTICIPLES = frozenset(("feed", "need", "put", "read", "seed", "set", "speed", "shut"))
"""They are nouns, or verbs too."""


class Problem(NamedTuple):
    line: int
    kind: str
    detail: str = ""


def find_problems(tree: ast.AST, path: str) -> Iterator[Problem]:
    """Everything that can be seen in one file."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from find_function_problems(node, path)
            case ast.Name(ctx=ast.Store()) if node.id in VAGUE:
                yield Problem(node.lineno, "vague local", node.id)
            case ast.arguments():
                yield from find_vague_parameters(node)
            case ast.ClassDef() if VALUE_CLASS in map(ast.unparse, node.decorator_list):
                yield Problem(node.lineno, "value class written out", node.name)
            case ast.keyword(arg="timeout") | ast.BinOp(op=ast.Add()) | ast.Assign(value=ast.Constant()) if has_operand(
                node, "deadline"
            ):
                yield Problem(node.lineno, "length called a deadline", ast.unparse(node))
            case ast.IfExp() if isinstance(node.body, ast.IfExp) or isinstance(node.orelse, ast.IfExp):
                yield Problem(node.lineno, "nested conditional")
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                if (node.end_lineno or node.lineno) - node.lineno >= MOST_LINES:
                    yield Problem(node.lineno, "comprehension over three lines")


def find_bare_numbers(module: ast.Module, path: str) -> Iterator[Problem]:
    """Constants of a module that are numbers and do not say of what. A module of codes says it for all of its own."""
    if path.endswith("_codes.py"):
        return
    for statement, below in zip_longest(module.body, module.body[1:]):
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                is_described = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                is_quantity = not QUANTITIES.isdisjoint(name.split("_"))
                if name.isupper() and is_number(value) and not (is_described or is_quantity):
                    yield Problem(statement.lineno, "number without a quantity", name)


def is_number(value: ast.expr | None) -> bool:
    """Whether it is a number, or computed from nothing else."""
    match value:
        case ast.Constant(value=int() | float() as number):
            return not isinstance(number, bool)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
    return False


def has_operand(node: ast.AST, name: str) -> bool:
    """Whether a variable or an attribute of that name stands right in *node*."""
    parts = ast.iter_child_nodes(node)
    names = (str(getattr(part, "id", getattr(part, "attr", ""))) for part in parts)
    return any(each.strip("_").lower() == name for each in names)


def find_function_problems(function: ast.FunctionDef | ast.AsyncFunctionDef, path: str) -> Iterator[Problem]:
    """What is wrong with a function as a whole."""
    if is_participle(function.name):
        yield Problem(function.lineno, "participle as a function name", function.name)
    if function.name.strip("_") in VAGUE:
        yield Problem(function.lineno, "vague function name", function.name)
    if function.name.strip("_").split("_")[0] in WITHOUT_VERB and not is_named_otherwise(function):
        yield Problem(function.lineno, "function without a verb", function.name)
    returns = "" if function.returns is None else ast.unparse(function.returns)
    if is_question(function) and not is_named_otherwise(function) and returns in NO_ANSWERS:
        yield Problem(function.lineno, "question that is not answered by yes or no", function.name)
    if path not in LAZY_LOADERS:
        yield from find_late_imports(function)
    if is_command(function, path) and count_body_lines(function) > MOST_COMMAND_LINES:
        yield Problem(function.lineno, "command over 60 lines", function.name)


def find_vague_parameters(arguments: ast.arguments) -> Iterator[Problem]:
    """The vague ones of a function or lambda. Of a method, `other` is Python's own word."""
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    is_method = bool(parameters) and parameters[0].arg == "self"
    for parameter in parameters:
        if parameter.arg in VAGUE and not (is_method and parameter.arg == "other"):
            yield Problem(parameter.lineno, "vague parameter", parameter.arg)


def is_participle(name: str) -> bool:
    """Whether a function is called by what has been done, not by what it does."""
    word = name.strip("_")
    return word not in NOT_PARTICIPLES and (word in PARTICIPLES or REGULAR_PARTICIPLE.fullmatch(word) is not None)


def is_named_otherwise(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a property, a factory of its class, a rule, a check, or called by Python."""
    names = {ast.unparse(decorator).partition("(")[0] for decorator in function.decorator_list}
    return not names.isdisjoint(
        ("property", "cached_property", "classmethod", "rule", "check")
    ) or function.name.endswith("__")


def is_question(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is called as if it said yes or no."""
    return function.returns is not None and function.name.strip("_").split("_")[0] in QUESTIONS


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef, path: str) -> bool:
    """Whether the command line calls it: it is called `command`, or a decorator enters it."""
    decorators = (ast.unparse(decorator) for decorator in function.decorator_list)
    is_entered = any(".command(" in decorator or ".callback(" in decorator for decorator in decorators)
    return path.startswith("vstream/cli/") and (is_entered or function.name == "command")


def count_body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """From its first statement to its last, without the docstring."""
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - statements[0].lineno + 1 if statements else 0


def find_late_imports(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Problem]:
    """Imports in *function* itself; those in functions within it are theirs."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield Problem(node.lineno, "import inside a function")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield Problem(node.lineno, "import_module inside a function", ast.unparse(node))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))


def find_missing_marks(tree: ast.AST, path: str) -> Iterator[Problem]:
    """
    Marked names in docstrings that are no name in what they describe.

    A function may name what it or a function around it uses, and the fields of its class; in the audit also a column.
    """
    columns = set()
    if path.startswith("vstream/audit/"):
        columns = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    pending: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(tree, ())]
    while pending:
        node, around = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if marked := set(MARKED.findall(ast.get_docstring(node) or "")):
                names = list_names(node).union(columns, *map(list_fields, around))
                for name in sorted(marked - names):
                    detail = f"{node.name} {name}"
                    yield Problem(node.lineno, "docstring with a name that its function lacks", detail)
            around = (*around, node)
        if not isinstance(node, ast.expr):
            pending += [(child, around) for child in ast.iter_child_nodes(node)]


def list_fields(owner: ast.AST) -> set[str]:
    """What the functions in *owner* share: of a class its fields and methods, of a function all of its names."""
    if not isinstance(owner, ast.ClassDef):
        return list_names(owner)
    methods = [part for part in owner.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    names = {method.name for method in methods}
    names |= {node.attr for node in ast.walk(owner) if isinstance(node, ast.Attribute)}
    names |= {parameter.arg for method in methods if method.name == "__init__" for parameter in method.args.args}
    return names.union(*(list_names(part) for part in owner.body if part not in methods))


def list_names(tree: ast.AST) -> set[str]:
    """Every name that is used in *tree*."""
    names: set[str] = set()
    for node in ast.walk(tree):
        names.update(getattr(node, field) for field in NAMING_FIELDS if field in node._fields)
    return names


def list_docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """The texts that stand by themselves: at the head of what they describe, or below it."""
    pending = [tree]
    while pending:
        match node := pending.pop():
            case ast.Expr(value=ast.Constant(value=str()) as text):
                yield text
            case ast.Module() | ast.stmt():
                pending += ast.iter_child_nodes(node)


def find_unknown_names(texts: dict[str, str]) -> Iterator[tuple[str, Problem]]:
    """Names that docstrings quote, and that are not in the code of any file."""
    names = {part for path in texts for part in path.removesuffix(".py").split("/")} | OF_OTHERS
    quoted: list[tuple[str, int, str]] = []
    for path, text in texts.items():
        lines = text.splitlines()
        for docstring in list_docstrings(ast.parse(text)):
            quoted += [(path, docstring.lineno, name) for name in QUOTED.findall(str(docstring.value))]
            for number in range(docstring.lineno, (docstring.end_lineno or 0) + 1):
                lines[number - 1] = ""
        names.update(WORD.findall("\n".join(lines)))
    for path, line, name in quoted:
        if name not in names:
            yield path, Problem(line, "docstring with a name that is nowhere", name)


def find_shared_names(classes: dict[str, list[tuple[str, int]]]) -> Iterator[tuple[str, Problem]]:
    """Classes whose name another class has."""
    for name, places in classes.items():
        if len(places) > 1 and name not in SHARED_CLASS_NAMES and not name.startswith("_"):
            for path, line in places[1:]:
                yield path, Problem(line, "class name used twice", f"{name}, as in {places[0][0]}")


def examine() -> tuple[Counter[str], list[tuple[str, Problem]]]:
    """How often each thing occurs, and where."""
    problems: list[tuple[str, Problem]] = []
    totals: Counter[str] = Counter()
    classes: dict[str, list[tuple[str, int]]] = {}
    texts: dict[str, str] = {}
    for file in sorted((ROOT / "vstream").rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        texts[path] = text
        totals["file"] += 1
        totals["line"] += text.count("\n")
        problems += [(path, problem) for problem in (*find_problems(tree, path), *find_missing_marks(tree, path))]
        problems += [(path, problem) for problem in find_bare_numbers(tree, path)]
        for number, line in enumerate(text.splitlines(), 1):
            if "# noqa" in line:
                problems.append((path, Problem(number, "noqa", line.partition("# noqa")[2].strip(": "))))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append((path, node.lineno))
    problems += [*find_shared_names(classes), *find_unknown_names(texts)]
    for folder in ("tests", "scripts"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            for problem in find_problems(ast.parse(file.read_text(encoding="utf-8")), path):
                if (kind := f"{problem.kind} in tests") in LIMITS:
                    problems.append((path, problem._replace(kind=kind)))
    totals.update(problem.kind for _, problem in problems)
    return totals, problems


def main(arguments: list[str]) -> int:
    totals, problems = examine()
    if arguments:
        asked = {Path(argument).resolve().relative_to(ROOT).as_posix() for argument in arguments}
        for path, problem in sorted(problems):
            if path in asked:
                print(f"{path}:{problem.line}: {problem.kind} {problem.detail}".rstrip())
        return 0
    for kind, limit in LIMITS.items():
        advice = (
            "raise it, and say why in the commit"
            if kind in {"line", "file"}
            else "`scripts/check_names.py FILE` says where"
        )
        mark = f"  <- above its limit: {advice}" if totals[kind] > limit else ""
        print(f"{totals[kind]:7,} of {limit:7,}  {kind}{mark}")
    return int(any(totals[kind] > limit for kind, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
