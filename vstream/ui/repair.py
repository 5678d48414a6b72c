"""What a repair would do, and what it has done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from vstream.doctor.repair import sequences
from vstream.picture.report import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vstream.doctor.repair import Refill
    from vstream.picture.report import Pair


def text(found: Sequence[Refill], standing: Sequence[Pair]) -> Iterator[Text]:
    """Each stream that has lost its end, and what would be published; then pairs that stand still or say nothing."""
    for one in found:
        lost = one.lost
        yield Text.assemble(
            ("blocked ", "bold red") if one.blocked else ("refill  ", "bold yellow"),
            (lost.origin, "bold"),
            f" in {lost.place}: it ends at {lost.last:,}, and {', '.join(lost.readers)} have taken up to {lost.taken:,}",
        )
        if one.blocked:
            yield Text(f"        {one.blocked}")
            continue
        readers = ", ".join(dict.fromkeys(copy.reader for copy in one.copies))
        held = f", as {readers} has them" if one.copies else ""
        yield Text(f"        publish {len(one.copies):,} messages again{held}, under the sequences that they had")
        if one.absent:
            yield Text(f"        and an empty one on `{one.filler}` for {sequences(one.absent)}, which no reader holds")
    for pair in standing:
        do = "`vstream resync`" if pair.state is State.SILENT else "start its servers, and look again"
        yield Text.assemble(
            (f"{pair.state.value:8}", "bold cyan"), (f"{pair.origin} → {pair.reader}", "bold"), f": {pair.detail}; {do}"
        )
    if not found and not standing:
        yield Text("Nothing to repair: every write stream is where its readers have seen it.", style="bold green")


def done(found: Sequence[Refill]) -> Iterator[Text]:
    """What was published."""
    for one in found:
        count = one.lost.taken - one.lost.last
        yield Text.assemble(
            ("refilled ", "bold green"), f"{one.lost.origin}: {count:,} messages, to {one.lost.taken:,}"
        )
