"""Options that no server has at their place, or none of the oldest version."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from vstream.diagnostics import Severity
from vstream.lint.detect import nearest_option
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.servers.options import BLOCKS, FIRST, options_of
from vstream.lint.rules.servers.values import whole
from vstream.lint.rules.streams.values import stated_version
from vstream.lint.rules.wording import format_version
from vstream.syntax.quoting import quote_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.diagnostics import Span
    from vstream.lint.rules.servers.options import Block, WrittenOption
    from vstream.lint.workspace import ServerConf, Workspace

_ALIKE: Final = 0.8
_MOST_PLACES: Final = 3


@rule("VS420", "option-needs-newer-server", Severity.ERROR)
def needs_newer_server(workspace: Workspace) -> Iterator[Violation]:
    """
    An option is newer than the oldest server that has to read the file.

    ## Why is this bad?
    A server does not start with an option that it does not know (`unknown field`), and
    refuses to reload. Looked at only where the oldest version is stated. The options
    are those that `server/opts.go` of 2.11, 2.12 and 2.14 has and that of 2.10 has not
    (compared with `nats-server -t` of 2.10.26, 2.11.11 and 2.12.8).
    """
    oldest = stated_version(workspace)
    if oldest is None:
        return
    seen: set[Span] = set()
    for server in whole(workspace):
        for option in _judged_options(server, seen):
            since = option.block.since.get(option.entry.key.lower(), FIRST)
            if oldest < since:
                yield Violation(
                    at=option.entry.key_span,
                    message=f"`{option.entry.key}` needs nats-server {format_version(since)}, "
                    f"the oldest is {format_version(oldest)}",
                    hint=f"remove it until all servers are {format_version(since)}: an older one does not start with it",
                )


@rule("VS421", "unknown-option", Severity.ERROR)
def unknown_option(workspace: Workspace) -> Iterator[Violation]:
    """
    A configuration has an option that no server knows at that place.

    ## Why is this bad?
    The server does not start (`unknown field`), and refuses to reload. A misspelt `mappings`
    also hides every rule in it from whoever checks the file. The options are those that
    `server/opts.go` of 2.15 knows in each block; those that a variable uses may have any name.
    """
    seen: set[Span] = set()
    for server in workspace.servers:
        for option in _judged_options(server, seen):
            hint = None if option.is_known else _hint(server, option)
            if hint is not None:
                yield Violation(
                    at=option.entry.key_span,
                    message=f"{quote_value(option.entry.key)} is not an option of {option.block.title}: the server does not start",
                    hint=hint,
                )


def _judged_options(server: ServerConf, seen: set[Span]) -> Iterator[WrittenOption]:
    """The options of *server*, each place once: not those that define variables, which may be called anything."""
    variables = {reference.definition for reference in server.document.references}
    for option in options_of(server.root):
        if option.entry.key_span not in seen and option.entry.key_span not in variables:
            seen.add(option.entry.key_span)
            yield option


def _hint(server: ServerConf, option: WrittenOption) -> str | None:
    """What was meant; None where it may be right after all, as nobody knows what includes the file."""
    name = option.entry.key.lower()
    places = _places_of(name)
    if server.is_fragment and option.block is BLOCKS["server"]:
        meant = None if places else nearest_option(name)
        return f"did you mean `{meant}`?" if meant else None
    close = get_close_matches(name, sorted(option.block.options), n=1, cutoff=_ALIKE if places else 0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    if not places:
        return "remove it"
    return f"move it: `{name}` belongs to {' or '.join(block.title for block in places[:_MOST_PLACES])}"


def _places_of(name: str) -> list[Block]:
    return [block for block in BLOCKS.values() if name in block.options]
