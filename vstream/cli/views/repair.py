"""What a repair would do, and what it has done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from vstream.health.repair.refill import format_sequences
from vstream.health.units import list_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.health.repair.plan import Duplicates, Leftover, Replay, Standstill
    from vstream.health.repair.refill import Refill
    from vstream.health.report import PairStatus


def flows(
    leftovers: Sequence[Leftover],
    standstills: Sequence[Standstill],
    refills: Sequence[Refill],
    standing: Sequence[PairStatus],
) -> Iterator[Text]:
    """What an interrupted repair left, streams that stand still, those that lost their end, and what says nothing."""
    for one in leftovers:
        used = f", sourced by {list_names(list(one.readers))}" if one.readers else ""
        if one.is_running:
            yield _line("running ", "bold cyan", one.stream, f"{used}: of a repair that still runs; wait for it")
        else:
            yield _line("clear   ", "bold yellow", one.stream, f"{used}: an interrupted repair left it")
    for still in standstills:
        yield _line(
            "blocked " if still.blocked else "resume  ", _style(still.blocked), still.reader, f": {still.detail}"
        )
        yield Text(f"        {still.blocked or 'have its leader hand over: the next one asks at once'}")
    for refill in refills:
        yield from _refill(refill)
    for pair in standing:
        yield _line(
            f"{pair.state.value:8}",
            "bold cyan",
            f"{pair.origin} → {pair.reader}",
            f": {pair.detail}; start its servers, and look again",
        )


def _refill(one: Refill) -> Iterator[Text]:
    lost = one.lost
    yield _line(
        "blocked " if one.blocked else "refill  ",
        _style(one.blocked),
        lost.origin,
        f" in {lost.place}: it ends at {lost.last:,}, and {', '.join(lost.readers)} have taken up to {lost.taken:,}",
    )
    if one.blocked:
        yield Text(f"        {one.blocked}")
        return
    readers = ", ".join(dict.fromkeys(copy.reader for copy in one.copies))
    held = f", as {readers} has them" if one.copies else ""
    yield Text(f"        publish {len(one.copies):,} messages again{held}, under the sequences that they had")
    if one.absent:
        yield Text(
            f"        and an empty one on `{one.filler}` for {format_sequences(one.absent)}, which no reader holds"
        )


def stock(replays: Sequence[Replay], doubles: Sequence[Duplicates], unread: Mapping[str, str]) -> Iterator[Text]:
    """What is missing and what is double, and what could not be read."""
    for one in replays:
        if one.count:
            yield _line(
                "replay  ",
                "bold yellow",
                one.reader,
                f" in {one.place}: it lacks {_messages(one.count)} of {one.origin}, {one.sequences.words()}",
            )
            yield Text(f"        put them in at its end, as {list_names(sorted(one.wanted))} has them")
        for reason, some in sorted(one.left.items()):
            yield _line("stays   ", "bold cyan", one.reader, f" lacks {some.words()} of {one.origin}: {reason}")
    for two in doubles:
        if two.count:
            first = two.examples[0]
            yield _line(
                "delete  ",
                "bold yellow",
                two.reader,
                f" in {two.place}: it holds copies of {_messages(two.count)}",
            )
            yield Text(
                f"        as {first.origin} {first.seq:,}, at {first.stays:,} and again at {first.goes:,}: one stays"
            )
        for reason, count in sorted(two.differing.items()):
            like = next((twin for twin in two.stay if twin.differs == reason), None)
            shown = f", as at {like.stays:,} and {like.goes:,}" if like else ""
            yield _line(
                "stays   ",
                "bold cyan",
                two.reader,
                f": {_messages(count)} with the origin and sequence of another{shown}, but {reason}",
            )
    for name, why in sorted(unread.items()):
        yield _line("unread  ", "bold red", name, f": {why}")


def done(refills: Sequence[Refill], leftovers: Sequence[Leftover], standstills: Sequence[Standstill]) -> Iterator[Text]:
    """What was done about how streams take from each other."""
    for one in leftovers:
        yield _line("cleared  ", "bold green", one.stream, "")
    for still in standstills:
        yield _line("resumed  ", "bold green", still.reader, f": it takes from {list_names(list(still.origins))} again")
    for refill in refills:
        count = refill.lost.taken - refill.lost.last
        yield _line("refilled ", "bold green", refill.lost.origin, f": {count:,} messages, to {refill.lost.taken:,}")


def mended(replays: Sequence[Replay], doubles: Sequence[Duplicates]) -> Iterator[Text]:
    """What was put in and deleted."""
    for one in replays:
        yield _line("replayed ", "bold green", one.reader, f": {_messages(one.count)} of {one.origin}")
    for two in doubles:
        yield _line("deleted  ", "bold green", two.reader, f": {_messages(two.count)}")


def left(words: Sequence[str]) -> Iterator[Text]:
    """What is still open."""
    for one in words:
        yield Text.assemble(("open     ", "bold red"), one)


def nothing(kinds: Sequence[str]) -> Text:
    """That all was looked at, and is well."""
    return Text(f"Nothing to repair: looked for what to {', '.join(kinds)}.", style="bold green")


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def _style(blocked: str | None) -> str:
    return "bold red" if blocked else "bold yellow"


def _line(verb: str, style: str, name: str, rest: str) -> Text:
    return Text.assemble((verb, style), (name, "bold"), rest)
