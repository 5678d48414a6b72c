"""What rules cost everybody who publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.mappings.entries import view
from vstream.subjects.resolve import publish_cost_us

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.workspace import Workspace

NOTICEABLE_US = 10.0
"""An acknowledged publish costs a server about 4 µs without rules: from here on it mostly looks for rules."""
TOO_MUCH_US = 1_000.0
"""At most 1,000 messages a second for each connection, acknowledgements and all."""
_PER_SECOND = 1_000_000


@rule("VS360", "many-rules", Severity.WARNING)
def many_rules(workspace: Workspace) -> Iterator[Violation]:
    """
    An account has so many rules that finding one costs more than the rest of a publish.

    ## Why is this bad?
    The server compares each message of each client of the account with one rule
    after the other, acknowledgements and requests outside of every virtual stream
    included (server/accounts.go, selectMappedSubject; all versions). Measured with
    2.15.1: 1.6 µs at 20 rules, 13 µs at 200, 105 µs at 2,000, 2.4 ms at 20,000.

    Without rules a message costs 0.2 µs, and a publish with its acknowledgement
    about 4 µs. The warning begins where the search takes 10 µs, at 151 rules: one
    connection gets no further than 100,000 messages a second. From 1 ms on, at some
    10,400 rules, it is VS361.
    """
    yield from _costs(workspace, NOTICEABLE_US, TOO_MUCH_US)


@rule("VS361", "too-many-rules", Severity.ERROR)
def too_many_rules(workspace: Workspace) -> Iterator[Violation]:
    """
    An account has so many rules that each message takes a millisecond or more.

    ## Why is this bad?
    One connection gets no further than 1,000 messages a second, whatever the
    subject, and a core of the server is busy with comparing strings
    (server/accounts.go, selectMappedSubject; all versions). At 42,000 rules a
    message took 9.3 ms, a start 14 s and a reload 10.5 s with 2.15.1. VS360 has the
    whole curve.
    """
    yield from _costs(workspace, TOO_MUCH_US, None)


def _costs(workspace: Workspace, least: float, below: float | None) -> Iterator[Violation]:
    for block in workspace.blocks:
        count = len(view(block).entries)
        cost = publish_cost_us(count)
        if cost >= least and (below is None or cost < below):
            yield Violation(
                at=block.key_span,
                message=f"{count:,} rules cost every message of every client of the account about {_duration(cost)}: "
                f"at most {_rounded(_PER_SECOND / cost)} messages a second for each connection",
                hint="give streams a common root and map that with one rule, leave out requests that nobody sends, "
                "or split the account",
            )


def _duration(us: float) -> str:
    return f"{us:.0f} µs" if us < _PER_SECOND / 1_000 else f"{us / 1_000:.1f} ms"


def _rounded(number: float) -> str:
    """Two digits that matter: more would claim too much."""
    step = 10 ** (len(str(int(number))) - 2)
    return f"{round(number / step) * step:,}"
