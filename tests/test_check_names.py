"""`scripts/check_names.py` finds what it is for. That vstream/ is within its limits is seen by `scripts/check`."""

from __future__ import annotations

import ast
import importlib.util
import tomllib
from types import ModuleType

import pytest

from tests.support.paths import ROOT

SCRIPT = ROOT / "scripts" / "check_names.py"
CASES = {
    "participle as a function name": ["def chosen(): ...", "async def _judged(): ...", "def begun(): ..."],
    "vague local": ["one = 1", "for found in (): ...", "[some for some in ()]"],
    "vague parameter": ["def f(one): ...", "def f(self, *, found): ...", "lambda some: 1", "def f(one, other): ..."],
    "question that is not answered by yes or no": [
        "def _is_gone(answer: Reply) -> str | None: pass",
        "async def has_room(server: Server) -> int: pass",
    ],
    "nested conditional": ["1 if a else 2 if b else 3"],
    "comprehension over three lines": ["[\n a\n for a in b\n if a\n]"],
    "import inside a function": ["def f():\n if a:\n  import b"],
    "length called a deadline": ["until = now + deadline", "f(timeout=options.deadline)", "DEADLINE = 10.0"],
    "value class written out": ["@dataclass(frozen=True, slots=True, kw_only=True)\nclass Plan: ..."],
    "import_module inside a function": ["def f():\n return import_module('a').b"],
}
PLAIN = """
@value_class
class Plan: ...
@dataclass(slots=True)
class Counter: ...
def take_streams(need): ...
def read(): ...
def join(self, other): ...
def seed(): ...
def is_old(row) -> Column: ...
left = deadline - now
f(timeout=timeout, deadline=deadline)
stream = [message for message in messages]
1 if a else 2
[
  a for a in b
]
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_names", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in CASES.items() for text in texts])
def test_check_names_finds_what_is_hard_to_read(script: ModuleType, kind: str, text: str) -> None:
    assert {problem.kind for problem in script.find_problems(ast.parse(text), "x.py")} == {kind}


def test_check_names_leaves_plain_code_alone(script: ModuleType) -> None:
    assert list(script.find_problems(ast.parse(PLAIN), "x.py")) == []


def test_a_number_says_what_it_counts(script: ModuleType) -> None:
    bare = ["_LATE = 1.0", "LATE: Final = 3 * 10**9", "_NONE = -1", "_LATE = 1.0\n_LATER_NS = 2"]
    for text in bare:
        (problem,) = script.find_bare_numbers(ast.parse(text), "vstream/x.py")
        assert problem.kind == "number without a quantity"
    plain = ["_LATE_NS = 1", '_LATE = 1.0\n"""Seconds."""', "late = 1", "_LATE = True", "_LATE = '1'"]
    for text in plain:
        assert list(script.find_bare_numbers(ast.parse(text), "vstream/x.py")) == []
    assert list(script.find_bare_numbers(ast.parse("NOT_FOUND = 404"), "vstream/error_codes.py")) == []


def test_a_command_is_short(script: ModuleType) -> None:
    texts = ["def command():\n" + " a\n" * 61, "@app.command('a')\ndef f(x,\n y):\n 'help'\n" + " a\n" * 61]
    for text in texts:
        (problem,) = script.find_problems(ast.parse(text), "vstream/cli/x.py")
        assert problem.kind == "command over 60 lines"
        assert list(script.find_problems(ast.parse(text), "vstream/x.py")) == []
        assert list(script.find_problems(ast.parse(text.removesuffix(" a\n")), "vstream/cli/x.py")) == []


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ('def f(name):\n """What *name* is, and *value*."""', ["f value"]),
        ('def f():\n """Returns *total*."""\n total = 1\n return total', []),
        ('def f(name):\n def g():\n  """Says *name*."""', []),
        (
            'class A:\n """With *size*."""\n size: int\n def f(self, other_size):\n  """Of *size*, *weight*."""',
            ["f weight"],
        ),
        ('class A:\n def f(self, size): ...\n def g(self):\n  """Of *size*."""', ["g size"]),
        ('def f():\n """By *seq*, a text."""\n return col("seq")', ["f seq"]),
    ],
)
def test_a_docstring_marks_what_its_function_has(script: ModuleType, text: str, lacks: list[str]) -> None:
    assert [problem.detail for problem in script.find_missing_marks(ast.parse(text), "vstream/x.py")] == lacks


def test_a_docstring_of_the_audit_may_name_a_column(script: ModuleType) -> None:
    tree = ast.parse('def f():\n """By *seq*, a text."""\n return col("seq")')
    assert list(script.find_missing_marks(tree, "vstream/audit/x.py")) == []


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("As `read_all`.", ["read_all"]),
        ("As `x.read_all`, and `read_some`.", ["read_all"]),
        ("A module: `x`; a field of servers: `max_age`; one of Go's: `ReadAll`; code: ``gone``.", []),
    ],
)
def test_a_docstring_quotes_what_is_there(script: ModuleType, text: str, unknown: list[str]) -> None:
    code = f'def read_some():\n """{text}"""\n return info["max_age"]'
    problems = [(path, problem.detail) for path, problem in script.find_unknown_names({"vstream/x.py": code})]
    assert problems == [("vstream/x.py", name) for name in unknown]


def test_the_lazy_loader_may_import_late(script: ModuleType) -> None:
    text = "def f():\n import b"
    assert list(script.find_problems(ast.parse(text), "vstream/cli/lazy_group.py")) == []


def test_each_contract_on_who_alone_imports_a_library_names_all_others() -> None:
    """Else a new package may import it, and nobody is told."""
    modules = {f"vstream.{path.stem}" for path in (ROOT / "vstream").iterdir() if not path.name.startswith("__")}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    only = {contract["name"].split()[1]: contract for contract in contracts if contract["name"].startswith("Only ")}
    assert set(only) == {"vstream.audit", "vstream.cli", "vstream.jetstream"}
    for owner, contract in only.items():
        assert set(contract["source_modules"]) == modules - {owner, "vstream.py"}, contract["name"]
