"""The one Jinja environment: delimiters that NATS does not use, nothing undefined, every value quoted by a filter."""

from __future__ import annotations

import json
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

import jinja2
from jinja2.bccache import Bucket
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vstream.files import leaves_repository
from vstream.syntax.document import Json

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SECONDS, _MEMORY = 20, 1 << 29
"""What somebody else's template may take for one file: seconds of the processor, and bytes."""


def _stop_template(*_: object) -> None:
    raise TimeoutError(f"it runs for more than {_SECONDS} s")


@contextmanager
def limit_template() -> Iterator[None]:
    """End a template that runs for ever or takes all memory by an error. On Linux, and in the main thread."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return (yield)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most if soft == resource.RLIM_INFINITY else min(soft, most), hard))
    signal.signal(signal.SIGVTALRM, _stop_template)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
    try:
        yield
    except MemoryError:
        raise MemoryError("it takes too much memory") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class _Directories(jinja2.FileSystemLoader):
    """Directories of templates: first somebody else's, where no link leads out of its repository, and last our own."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        text, file, is_current = super().get_source(environment, template)
        if not Path(file).is_relative_to(self.searchpath[-1]) and leaves_repository(Path(file)):
            raise jinja2.TemplateError(f"{file} is a link out of the repository")
        return text, file, is_current


class _CompiledTemplates(jinja2.BytecodeCache):
    """
    Templates as this process has compiled them, by file and text: to compile one takes longer than to render it.

    What is on the disk is read for every render. Another text is another template.
    """

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        if bucket.code is not None:
            self._code[bucket.key, bucket.checksum] = bucket.code


# One for each way of escaping, which is compiled in.
_COMPILED = {is_html: _CompiledTemplates() for is_html in (False, True)}


def make_jinja_environment(directories: Sequence[Path], *, is_html: bool = False) -> jinja2.Environment:
    """
    Templates from *directories*, the first that has a file wins. `<< >>`, `<% %>` and `<# #>` delimit.

    With *is_html* every value is escaped; configurations and JSON quote theirs by a filter.
    A template can come with somebody else's topology or scenario: it reads values, and can run no code.
    """
    env = ImmutableSandboxedEnvironment(
        autoescape=is_html,
        finalize=_to_printable if is_html else None,
        loader=_Directories(directories),
        bytecode_cache=_COMPILED[is_html],
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # A render is one moment: it does not look at the disk again for every stream.
        auto_reload=False,
    )
    env.intercepted_binops = frozenset({"**"})
    env.binop_table["**"] = _refuse_power
    env.filters["q"] = quote
    env.filters["json"] = to_json
    return env


def _refuse_power(*_: object) -> None:
    raise TypeError("`**` is not for templates: one can take hours")


def _to_printable(value: object) -> object:
    """*value* without what HTML has no place for: control characters, which nothing escapes."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", value) if type(value) is str else value


def quote(value: object) -> str:
    """A NATS configuration string that reads back as *value* (conf/lex.go: double quotes, backslash escapes)."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02X}", text) + '"'


def _refuse(value: object) -> str:
    # The text of what is undefined raises, and says what it is.
    raise TypeError(f"{value} is not a JSON value")


# Made once: `json.dumps` makes one for each value, and a large topology has hundreds of thousands.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_refuse)


def to_json(value: Json) -> str:
    """One line of JSON; keys keep their order."""
    return _ENCODER.encode(value)
