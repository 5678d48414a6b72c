"""What is wrong between streams: what does not arrive, was skipped, or will be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.health.doctor.finding import APPLY, RESYNC, diagnose
from vstream.health.report import PairState
from vstream.health.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.diagnostics import Finding
    from vstream.health.report import PairStatus, Status
    from vstream.health.snapshot import Snapshot

STUCK_AFTER = 30.0
"""Seconds that a message may wait while its source is heard: a source that catches up needs less."""
_HALF = 0.5


def check(picture: Status, facts: Snapshot) -> Iterator[Finding]:
    """Findings about pairs of streams."""
    for pair in picture.pairs:
        yield from _pair(pair, facts)
    for gap in facts.gaps:
        count = gap.last - gap.first + 1
        which = f"sequence {gap.first:,}" if count == 1 else f"sequences {gap.first:,} to {gap.last:,}"
        source = next((one for one in facts.streams[gap.reader].sources if one.stream == gap.origin), None)
        lag = f"; servers say `lag: {source.lag}`" if source else ""
        yield diagnose(
            code="VD204",
            about=gap.reader,
            evidence=f"it lacks {which} of `{gap.origin}`, which still has messages there, and has later ones{lag}",
            do="`vstream repair --kind replay`",
        )
    begun: set[tuple[str, str]] = set()
    for repeat in facts.repeats:
        if (repeat.reader, repeat.origin) not in begun:
            begun.add((repeat.reader, repeat.origin))
            yield diagnose(
                code="VD205",
                about=repeat.reader,
                evidence=f"after sequence {repeat.later:,} of `{repeat.origin}` it took sequence {repeat.seq:,} again",
                do="`vstream repair --kind delete`",
            )
    yield from _margin(picture)


def _pair(pair: PairStatus, facts: Snapshot) -> Iterator[Finding]:
    reader, origin = facts.streams.get(pair.reader), facts.streams.get(pair.origin)
    if reader is None or origin is None:
        return
    source = next((one for one in reader.sources if one.stream == pair.origin), None)
    if source is None:
        if reader.leader is not None:
            yield diagnose(
                code="VD202", about=pair.reader, evidence=f"`{pair.origin}` is not among its sources", do=APPLY
            )
        return
    said = f"servers say `lag: {source.lag}`"
    if pair.state is PairState.ROLLED_BACK:
        yield diagnose(
            code="VD301",
            about=pair.origin,
            evidence=f"{pair.detail}; {said}",
            do=f"no publishes there until its sequence is past {pair.cursor:,}; `vstream repair`",
        )
    elif pair.state is PairState.LOSSY:
        yield diagnose(
            code="VD302", about=pair.reader, evidence=f"{pair.detail}; {said}", do="`vstream repair --kind replay`"
        )
    elif pair.state is PairState.SILENT:
        yield diagnose(code="VD201", about=pair.reader, evidence=f"{pair.detail}; {said}", do=RESYNC)
    elif pair.state is PairState.BEHIND and pair.age is not None and pair.age > STUCK_AFTER:
        yield diagnose(code="VD203", about=pair.reader, evidence=f"{pair.detail}; {said}", do=RESYNC)


def _margin(picture: Status) -> Iterator[Finding]:
    """One for each pair of places: the one with the least time left."""
    worst: dict[tuple[str, str], PairStatus] = {}
    for pair in picture.pairs:
        if pair.left is None or pair.age is None or pair.state is PairState.LOSSY:
            continue
        if pair.left < _HALF * (pair.left + pair.age):
            key = pair.origin_place, pair.reader_place
            worst[key] = min(worst.get(key, pair), pair, key=lambda one: one.left or 0.0)
    for pair in worst.values():
        yield diagnose(
            code="VD303",
            about=pair.origin,
            evidence=(
                f"`{pair.reader}` lacks what is up to {format_duration(pair.age or 0.0)} old; it is dropped in {format_duration(pair.left or 0.0)}"
            ),
            do="raise `max_age` of the write streams now",
        )
