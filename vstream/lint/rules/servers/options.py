"""Every option that servers know, by the block it belongs to (server/opts.go), and rules about options."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from vstream.findings import Severity, Span
from vstream.formatting import quote_value
from vstream.lint.detect import nearest_option
from vstream.lint.rule import Violation, make_refusal, rule
from vstream.lint.rules.server_values import list_whole
from vstream.lint.rules.servers.option_kinds import FORMS, OptionKind, ValueKind
from vstream.lint.workspace import ServerConf, Workspace
from vstream.syntax.natsconf.nodes import ConfArray, ConfEntry, ConfMap, ConfNode
from vstream.topology.units import format_version

if TYPE_CHECKING:
    from vstream.topology.model import ServerVersion


FIRST: Final[ServerVersion] = (0, 0)
_TABLES: Final = tomllib.loads(Path(__file__).with_name("options.toml").read_text(encoding="utf-8"))
_WORD_KINDS: Final[dict[str, OptionKind]] = {name: tuple(words.split()) for name, words in _TABLES["words"].items()}
_OPTION_KINDS: Final = {**{kind.name.lower(): kind for kind in ValueKind}, **FORMS, **_WORD_KINDS}
NAMES: Final = [names.split() for names in _TABLES["names"]]
"""The names of one option, in every block that knows them."""


@dataclass(frozen=True, slots=True)
class Block:
    """
    One kind of block. *title* says which, *options* are the names it may hold, and *kinds* what their values must be.

    *since* has those that 2.10 does not know, *inner* the blocks below it, *items* the block that each entry with a name
    of one's own is, as under `accounts`, and *ranges* the least and the greatest value of numbers.
    """

    title: str
    options: frozenset[str]
    kinds: Mapping[str, OptionKind]
    since: Mapping[str, ServerVersion]
    inner: Mapping[str, str]
    items: str | None
    ranges: Mapping[str, Sequence[int]]


def _read_block(table: dict[str, Any]) -> Block:
    kinds = _invert({kind: names for kind, names in table.items() if kind in _OPTION_KINDS})
    since = _invert(table.get("since", {}))
    return Block(
        title=table["title"],
        options=frozenset((*table.get("any", "").split(), *kinds)),
        kinds={option: _OPTION_KINDS[kind] for option, kind in kinds.items()},
        since={option: _read_version(version) for option, version in since.items()},
        inner=_invert(table.get("inner", {})),
        items=table.get("items"),
        ranges=table.get("range", {}),
    )


def _invert(lists: Mapping[str, str]) -> dict[str, str]:
    """From each option to the list that has it."""
    return {option: name for name, options in lists.items() for option in options.split()}


def _read_version(text: str) -> ServerVersion:
    major, minor = text.split(".")
    return int(major), int(minor)


BLOCKS: Final[Mapping[str, Block]] = {name: _read_block(table) for name, table in _TABLES["blocks"].items()}
"""Every block of `options.toml`."""


class WrittenOption(NamedTuple):
    """An option as written, and the block it is in."""

    block: Block
    entry: ConfEntry

    @property
    def is_known(self) -> bool:
        """Whether any server knows it there."""
        return self.block.items is not None or self.entry.key.lower() in self.block.options


def blocks_of(conf: ConfMap, block: Block = BLOCKS["server"]) -> Iterator[tuple[ConfMap, Block]]:
    """Every block of a configuration whose options servers have names for, and its kind; the whole of it first."""
    yield conf, block
    for entry in conf.effective_entries():
        name = block.items or block.inner.get(entry.key.lower())
        if name is not None:
            for inner in _maps_of(entry.value):
                yield from blocks_of(inner, BLOCKS[name])


def _maps_of(node: ConfNode) -> Iterator[ConfMap]:
    """The maps that a value is, or holds as an array."""
    if isinstance(node, ConfMap):
        yield node
    elif isinstance(node, ConfArray):
        yield from (item for item in node.items if isinstance(item, ConfMap))


_CUTOFF: Final = 0.8
_MAX_PLACES: Final = 3


@rule("VS420", "option-needs-newer-server", Severity.ERROR)
def option_needs_newer_server(workspace: Workspace) -> Iterator[Violation]:
    """
    An option is newer than the oldest server that has to read the file.

    ## Why is this bad?
    A server does not start with an option that it does not know (`unknown field`), and refuses to reload. Only checked
    if the oldest version is known. The options are those that `server/opts.go` has in 2.11, 2.12 and 2.14 but not in
    2.10 (compared with `nats-server -t` of 2.10.26, 2.11.11 and 2.12.8).
    """
    oldest = workspace.stated_version
    if oldest is None:
        return
    for _, option in list_judged_options(list_whole(workspace)):
        since = option.block.since.get(option.entry.key.lower(), FIRST)
        if oldest < since:
            yield Violation(
                at=option.entry.key_span,
                message=f"`{option.entry.key}` needs nats-server {format_version(since)}, "
                f"the oldest is {format_version(oldest)}",
                hint=f"remove it until all servers are {format_version(since)}: older servers do not start with it",
            )


@rule("VS421", "unknown-option", Severity.ERROR)
def unknown_option(workspace: Workspace) -> Iterator[Violation]:
    """
    A configuration has an option that no server knows at that place.

    ## Why is this bad?
    The server does not start (`unknown field`), and refuses to reload. A misspelt `mappings` also hides its rules from
    all checks. The options are those that `server/opts.go` of 2.15 knows in each block. An option that defines a
    variable may have any name.
    """
    for server, option in list_judged_options(workspace.servers):
        hint = None if option.is_known else _write_hint(server, option)
        if hint is not None:
            message = f"{quote_value(option.entry.key)} is not an option of {option.block.title}"
            yield make_refusal(option.entry.key_span, message, hint)


def list_judged_options(servers: Iterable[ServerConf]) -> Iterator[tuple[ServerConf, WrittenOption]]:
    """The options of *servers*, each place once: not those that define variables, which may be called anything."""
    seen: set[Span] = set()
    for server in servers:
        variables = {reference.definition for reference in server.document.references}
        for conf, block in blocks_of(server.root):
            for entry in conf.effective_entries():
                if entry.key_span not in seen and entry.key_span not in variables:
                    seen.add(entry.key_span)
                    yield server, WrittenOption(block, entry)


def _write_hint(server: ServerConf, option: WrittenOption) -> str | None:
    """What was meant; None where it may be right after all, as nobody knows what includes the file."""
    name = option.entry.key.lower()
    places = [block for block in BLOCKS.values() if name in block.options]
    if server.is_fragment and option.block is BLOCKS["server"]:
        meant = None if places else nearest_option(name)
        return f"did you mean `{meant}`?" if meant else None
    close = get_close_matches(name, sorted(option.block.options), n=1, cutoff=_CUTOFF if places else 0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    if not places:
        return "remove it"
    return f"move it: `{name}` belongs to {' or '.join(block.title for block in places[:_MAX_PLACES])}"
