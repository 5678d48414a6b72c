"""What a stream's own limits have removed, and what they cannot have."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from vstream.capture.verdict.history import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from vstream.capture.verdict.contents import Ledger, StreamScan

_AT_THE_HEAD = ("max_msgs", "max_bytes", "max_age")
"""Limits that remove the oldest messages of a stream."""
_PER_SUBJECT = "max_msgs_per_subject"


def removed_by_limits(scan: StreamScan, ledger: Ledger, absent: Sequence[int]) -> AbstractSet[int]:
    """
    Those of *absent* that the limits of the stream explain: no more than can be.

    Limits remove the oldest messages of a stream, or of a subject, and each origin's
    arrive in order. So no later message may be gone while an earlier one of the same
    origin, and under a limit per subject of the same subject, is there; and a subject
    from which something was removed holds as many as it may.
    """
    limits = scan.captured.limits
    most = limits.get(_PER_SUBJECT, 0)
    has_head = scan.first_seq > 1 and any(limits.get(name, 0) > 0 for name in _AT_THE_HEAD)
    if not absent or scan.removed_count <= 0 or not (most > 0 or has_head):
        return frozenset()
    subjects = ledger.attempts.subject
    held = Counter(subjects[number] for number in scan.numbers)
    earliest: dict[tuple[int, int], int] = {}
    for number in scan.numbers:
        origin, rank = _rank(ledger, number)
        for key in ((origin, 0), (origin, subjects[number])):
            earliest[key] = min(rank, earliest.get(key, rank))
    excused = set()
    short: defaultdict[int, list[int]] = defaultdict(list)
    proven: Counter[int] = Counter()
    for number in absent:
        origin, rank = _rank(ledger, number)
        subject = subjects[number]
        if has_head and rank <= earliest.get((origin, 0), rank):
            excused.add(number)
        elif most > 0 and rank <= earliest.get((origin, subject), rank):
            excused.add(number)
            short[subject].append(number)
        else:
            proven[subject] += 1
    for subject, numbers in short.items():
        missing = most - held[subject] - proven[subject]
        excused.difference_update(sorted(numbers, reverse=True)[: max(0, missing)])
    return frozenset(sorted(excused)[: scan.removed_count])


def _rank(ledger: Ledger, number: int) -> tuple[int, int]:
    """The message's origin and its place there."""
    attempts = ledger.attempts
    if ledger.home[number] != NOTHING:
        return ledger.home[number], ledger.home_seq[number]
    by = attempts.acked_by[number]
    origin = ledger.streams.number(attempts.streams.text(by)) if by != NOTHING else NOTHING
    return origin, attempts.acked_seq[number]
