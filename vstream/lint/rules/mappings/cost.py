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
    10,400 rules, it is an error: at 42,000 rules a message took 9.3 ms, a start 14 s and a reload 10.5 s.
    """
    for block in workspace.blocks:
        count = len(view(block).entries)
        cost = publish_cost_us(count)
        if cost >= NOTICEABLE_US:
            yield Violation(
                at=block.key_span,
                message=f"{count:,} rules cost every message of every client of the account about {_duration(cost)}: "
                f"at most {_two_digits(_PER_SECOND / cost)} messages a second for each connection",
                hint="give streams a common root and map that with one rule, leave out requests that nobody sends, "
                "or split the account",
                severity=Severity.ERROR if cost >= TOO_MUCH_US else None,
            )


def _duration(us: float) -> str:
    return f"{us:.0f} µs" if us < _PER_SECOND / 1_000 else f"{us / 1_000:.1f} ms"


def _two_digits(number: float) -> str:
    """Two digits that matter: more would claim too much."""
    step = 10 ** (len(str(int(number))) - 2)
    return f"{round(number / step) * step:,}"
