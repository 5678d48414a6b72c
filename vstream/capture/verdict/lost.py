"""Find missing messages."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import or_

from vstream.capture.records import CapturedStream, GivenUpStream
from vstream.capture.verdict.contents import READ_ROLES, Ledger, StreamScan, find_displaced
from vstream.capture.verdict.context import ExampleCollector, ExampleFactory
from vstream.capture.verdict.history import NOTHING
from vstream.capture.verdict.verdict import Affected, ServedVerdict

_AT_THE_HEAD = ("max_msgs", "max_bytes", "max_age")
"""Limits that remove the oldest messages of a stream."""
_PER_SUBJECT = "max_msgs_per_subject"


def find_removed_by_limits(scan: StreamScan, ledger: Ledger, absent: Sequence[int]) -> AbstractSet[int]:
    """
    The messages of *absent* that the stream's limits can have removed, and no more.

    Limits remove the oldest messages of a stream or of a subject, and each origin's messages arrive in order. So while
    an earlier message is present, no later one of the same origin (under a limit per subject: of the same subject) may
    be gone. And a subject that lost messages to its limit holds as many as it may.
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


_SEVERAL = 2


class Holdings:
    """The contents of all physical streams of one virtual stream."""

    def __init__(
        self,
        scans: Mapping[str, StreamScan],
        ledger: Ledger,
        examples: ExampleFactory,
        given_up: Sequence[GivenUpStream] = (),
    ) -> None:
        self._scans = scans
        self._given_up = given_up
        self._ledger = ledger
        self._examples = examples
        anywhere = bytearray(len(ledger.attempts))
        for scan in scans.values():
            anywhere = bytearray(map(or_, anywhere, scan.copies))
        self._anywhere = anywhere
        self._lost: set[int] = set()

    def lost_by_origin(self) -> Mapping[str, int]:
        """Messages lost in the regions checked by `judge_served`, each counted once, by region of origin."""
        attempts = self._ledger.attempts
        counts = Counter(attempts.regions.text(attempts.region[number]) for number in self._lost)
        return dict(sorted(counts.items()))

    def judge_served(self, region: str, captured: CapturedStream | None) -> ServedVerdict:
        """Compare what clients of *region* read (*captured*) with what they should."""
        if captured is None:
            return ServedVerdict(region=region, stream=None)
        scan = self._scans[captured.name]
        if scan.error is not None:
            return ServedVerdict(region=region, stream=captured.name)
        attempts = self._ledger.attempts
        lost, by_origin, everywhere = ExampleCollector(), Counter[str](), 0
        acked = [number for number in _find_absent(scan) if attempts.is_acked(number)]
        absent = [number for number in acked if not self._is_given_up(scan, number)]
        superseded = find_removed_by_limits(scan, self._ledger, absent)
        for number in absent:
            if number in superseded:
                continue
            self._lost.add(number)
            by_origin[attempts.regions.text(attempts.region[number])] += 1
            everywhere += not self._anywhere[number]
            if lost.wants_more:
                lost.add(self._examples.describe_attempt(number, self._lost_detail(number), stream=captured.name))
            else:
                lost.count += 1
        recovered, rejected = self._find_recovered(scan)
        return ServedVerdict(
            region=region,
            stream=captured.name,
            lost=lost.as_affected(),
            lost_by_origin=dict(sorted(by_origin.items())),
            lost_everywhere=everywhere,
            recovered=recovered,
            recovered_rejected=rejected,
            superseded=len(superseded),
            given_up=len(acked) - len(absent),
        )

    def _find_recovered(self, scan: StreamScan) -> tuple[Affected, int]:
        attempts = self._ledger.attempts
        recovered, rejected = ExampleCollector(), 0
        for number, outcome in enumerate(attempts.outcomes):
            # Those that no stream acknowledged.
            if outcome and scan.copies[number]:
                rejected += attempts.is_rejected(number)
                how = "was rejected" if attempts.is_rejected(number) else "was not answered"
                if recovered.wants_more:
                    detail = f"stored, though its publish {how}"
                    recovered.add(self._examples.describe_attempt(number, detail, stream=scan.captured.name))
                else:
                    recovered.count += 1
        return recovered.as_affected(), rejected

    def find_held_elsewhere(self, scan: StreamScan) -> Affected:
        """Messages that *scan* should hold and does not, while another stream does. Lost messages are left out."""
        attempts = self._ledger.attempts
        is_read = scan.captured.role in READ_ROLES
        collector = ExampleCollector()
        absent = []
        for number in _find_absent(scan):
            belongs = self._is_home(scan, number) if scan.is_write else not (is_read and attempts.is_acked(number))
            if belongs and self._anywhere[number] and not self._is_given_up(scan, number):
                absent.append(number)
        excused = find_removed_by_limits(scan, self._ledger, absent)
        for number in absent:
            if number in excused:
                continue
            if collector.wants_more:
                detail = f"not there, but in {self._holders(number)}"
                collector.add(self._examples.describe_attempt(number, detail, stream=scan.captured.name))
            else:
                collector.count += 1
        return collector.as_affected()

    def _is_given_up(self, scan: StreamScan, number: int) -> bool:
        """Whether it was said that *scan* would lack this message, when the stream that acknowledged it was given up."""
        attempts = self._ledger.attempts
        if not self._given_up or attempts.acked_by[number] == NOTHING:
            return False
        name, seq = attempts.streams.text(attempts.acked_by[number]), attempts.acked_seq[number]
        streams = [stream for stream in self._given_up if stream.stream == name]
        return any(attempts.done[number] <= stream.at and stream.is_lost(seq, scan.captured.name) for stream in streams)

    def _is_home(self, scan: StreamScan, number: int) -> bool:
        """Whether the stream of *scan* is the one that the message was published to."""
        attempts = self._ledger.attempts
        if attempts.acked_by[number] != NOTHING:
            return attempts.streams.text(attempts.acked_by[number]) == scan.captured.name
        if self._ledger.home[number] != NOTHING:
            return False
        writes = [scan for scan in self._scans.values() if scan.is_write]
        return len(writes) == 1 or scan.captured.region == attempts.regions.text(attempts.region[number])

    def _holders(self, number: int) -> str:
        return ", ".join(name for name, scan in self._scans.items() if scan.copies[number])

    def _lost_detail(self, number: int) -> str:
        attempts, ledger = self._ledger.attempts, self._ledger
        holders = self._holders(number)
        if ledger.home[number] != NOTHING:
            home = ledger.streams.text(ledger.home[number])
            return f"{home} holds it as sequence {ledger.home_seq[number]}; held by {holders}"
        where = f"held by {holders} alone" if holders else "no stream holds it"
        by, seq = attempts.acked_by[number], attempts.acked_seq[number]
        scan = self._scans.get(attempts.streams.text(by)) if by != NOTHING else None
        if scan is None or seq == NOTHING:
            return where
        place = bisect_left(scan.seqs, seq)
        if place < len(scan.seqs) and scan.seqs[place] == seq:
            second = self._examples.id_of(scan.numbers[place])
            return f"{where}: {scan.captured.name} was set back, and has given its sequence {seq} to {second}"
        if seq > scan.last_seq:
            return f"{where}: {scan.captured.name} was set back, and ends at sequence {scan.last_seq}"
        return f"{where}: {scan.captured.name} has a gap at its sequence {seq}"


def _find_absent(scan: StreamScan) -> Iterator[int]:
    """The attempts that the stream does not hold."""
    number = scan.copies.find(0)
    while number >= 0:
        yield number
        number = scan.copies.find(0, number + 1)


def compare_served_order(scans: Sequence[StreamScan]) -> tuple[bool | None, int]:
    """
    Whether the messages common to all *scans* have one order, and the most that any stream would have to move.

    None if that is unknown: a stream could not be read, or there is only one.
    """
    if len({scan.captured.name for scan in scans}) < _SEVERAL or any(scan.error is not None for scan in scans):
        return None, 0
    first, *rest = scans
    rank = array("i", [NOTHING]) * len(first.copies)
    for place, number in enumerate(first.numbers):
        rank[number] = place
    common = (array("i", (rank[number] for number in scan.numbers if rank[number] != NOTHING)) for scan in rest)
    worst = max(len(find_displaced(ranks)) for ranks in common)
    return worst == 0, worst
