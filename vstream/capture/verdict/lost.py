"""Find missing messages."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import or_

from vstream.capture.records import CapturedStream, GivenUpStream
from vstream.capture.verdict.contents import READ_ROLES, AttemptLedger, StreamScan, find_displaced
from vstream.capture.verdict.context import MAX_EXAMPLES, ExampleFactory
from vstream.capture.verdict.history import NO_VALUE
from vstream.capture.verdict.model import Affected, ServedStreamVerdict
from vstream.topology.stream_limits import OLDEST_FIRST, PER_SUBJECT

_MIN_SCANS = 2


def find_removed_by_limits(scan: StreamScan, ledger: AttemptLedger, absent: Sequence[int]) -> AbstractSet[int]:
    """
    The messages of *absent* that the stream's limits can have removed, and no more.

    Limits remove the oldest messages of a stream or of a subject, and each origin's messages arrive in order. So while
    an earlier message is present, no later one of the same origin (under a limit per subject: of the same subject) may
    be gone. And a subject that lost messages to its limit holds as many as it may.
    """
    limits = scan.captured.limits
    most = limits.get(PER_SUBJECT, 0)
    has_head = scan.first_seq > 1 and any(limits.get(name, 0) > 0 for name in OLDEST_FIRST)
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


def _rank(ledger: AttemptLedger, number: int) -> tuple[int, int]:
    """The message's origin and its place there."""
    attempts = ledger.attempts
    if ledger.write_stream[number] != NO_VALUE:
        return ledger.write_stream[number], ledger.write_seq[number]
    by = attempts.acked_by[number]
    origin = ledger.streams.number(attempts.streams.text(by)) if by != NO_VALUE else NO_VALUE
    return origin, attempts.acked_seq[number]


class Holdings:
    """The contents of all physical streams of one virtual stream."""

    def __init__(
        self,
        scans: Mapping[str, StreamScan],
        ledger: AttemptLedger,
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

    def judge_served(
        self, served: Mapping[str, CapturedStream | None]
    ) -> tuple[tuple[ServedStreamVerdict, ...], Mapping[str, int]]:
        """
        Compare what clients read, by region, with what they should.

        Also returns the messages lost in any of the regions, each counted once, by region of origin.
        """
        verdicts, lost = [], set[int]()
        for region, captured in served.items():
            scan = self._scans[captured.name] if captured is not None else None
            if scan is None or scan.error is not None:
                name = None if captured is None else captured.name
                verdicts.append(ServedStreamVerdict(region=region, stream=name))
                continue
            verdict, lost_here = self._judge_region(region, scan)
            verdicts.append(verdict)
            lost.update(lost_here)
        return tuple(verdicts), self._count_by_origin(lost)

    def _judge_region(self, region: str, scan: StreamScan) -> tuple[ServedStreamVerdict, Sequence[int]]:
        """The verdict on what clients of *region* read, and the messages that are lost there."""
        attempts = self._ledger.attempts
        acked = [number for number in scan.list_absent() if attempts.is_acked(number)]
        absent = [number for number in acked if not self._is_given_up(scan, number)]
        superseded = find_removed_by_limits(scan, self._ledger, absent)
        lost = [number for number in absent if number not in superseded]
        # Those that no stream acknowledged.
        recovered = [number for number, outcome in enumerate(attempts.outcomes) if outcome and scan.copies[number]]
        verdict = ServedStreamVerdict(
            region=region,
            stream=scan.captured.name,
            lost=self._make_affected(lost, scan, self._describe_lost),
            lost_by_origin=self._count_by_origin(lost),
            lost_everywhere=sum(not self._anywhere[number] for number in lost),
            recovered=self._make_affected(recovered, scan, self._describe_recovered),
            recovered_rejected=sum(map(attempts.is_rejected, recovered)),
            superseded=len(superseded),
            announced_losses=len(acked) - len(absent),
        )
        return verdict, lost

    def _count_by_origin(self, numbers: Iterable[int]) -> Mapping[str, int]:
        attempts = self._ledger.attempts
        return dict(sorted(Counter(attempts.regions.text(attempts.region[number]) for number in numbers).items()))

    def _make_affected(self, numbers: Sequence[int], scan: StreamScan, describe: Callable[[int], str]) -> Affected:
        """The messages *numbers*, of which the first are described as examples of *scan*."""
        examples = []
        for number in numbers[:MAX_EXAMPLES]:
            examples.append(self._examples.describe_attempt(number, describe(number), stream=scan.captured.name))
        return Affected(count=len(numbers), examples=tuple(examples))

    def find_held_elsewhere(self, scan: StreamScan) -> Affected:
        """Messages that *scan* should hold and does not, while another stream does. Lost messages are left out."""
        attempts = self._ledger.attempts
        is_read = scan.captured.role in READ_ROLES
        absent = []
        for number in scan.list_absent():
            belongs = self._is_home(scan, number) if scan.is_write else not (is_read and attempts.is_acked(number))
            if belongs and self._anywhere[number] and not self._is_given_up(scan, number):
                absent.append(number)
        excused = find_removed_by_limits(scan, self._ledger, absent)
        held_elsewhere = [number for number in absent if number not in excused]
        return self._make_affected(held_elsewhere, scan, self._describe_held_elsewhere)

    def _is_given_up(self, scan: StreamScan, number: int) -> bool:
        """Whether it was said that *scan* would lack this message, when the stream that acknowledged it was given up."""
        attempts = self._ledger.attempts
        if not self._given_up or attempts.acked_by[number] == NO_VALUE:
            return False
        name, seq = attempts.streams.text(attempts.acked_by[number]), attempts.acked_seq[number]
        streams = [stream for stream in self._given_up if stream.stream == name]
        return any(attempts.done[number] <= stream.at and stream.is_lost(seq, scan.captured.name) for stream in streams)

    def _is_home(self, scan: StreamScan, number: int) -> bool:
        """Whether the stream of *scan* is the one that the message was published to."""
        attempts = self._ledger.attempts
        if attempts.acked_by[number] != NO_VALUE:
            return attempts.streams.text(attempts.acked_by[number]) == scan.captured.name
        if self._ledger.write_stream[number] != NO_VALUE:
            return False
        writes = [scan for scan in self._scans.values() if scan.is_write]
        return len(writes) == 1 or scan.captured.region == attempts.regions.text(attempts.region[number])

    def _holders(self, number: int) -> str:
        return ", ".join(name for name, scan in self._scans.items() if scan.copies[number])

    def _describe_held_elsewhere(self, number: int) -> str:
        return f"not there, but in {self._holders(number)}"

    def _describe_recovered(self, number: int) -> str:
        how = "was rejected" if self._ledger.attempts.is_rejected(number) else "was not answered"
        return f"stored, though its publish {how}"

    def _describe_lost(self, number: int) -> str:
        attempts, ledger = self._ledger.attempts, self._ledger
        holders = self._holders(number)
        if ledger.write_stream[number] != NO_VALUE:
            home = ledger.streams.text(ledger.write_stream[number])
            return f"{home} holds it as sequence {ledger.write_seq[number]}; held by {holders}"
        where = f"held by {holders} alone" if holders else "no stream holds it"
        by, seq = attempts.acked_by[number], attempts.acked_seq[number]
        scan = self._scans.get(attempts.streams.text(by)) if by != NO_VALUE else None
        if scan is None or seq == NO_VALUE:
            return where
        place = bisect_left(scan.seqs, seq)
        if place < len(scan.seqs) and scan.seqs[place] == seq:
            second = self._examples.id_of(scan.numbers[place])
            return f"{where}: {scan.captured.name} was set back, and has given its sequence {seq} to {second}"
        if seq > scan.last_seq:
            return f"{where}: {scan.captured.name} was set back, and ends at sequence {scan.last_seq}"
        return f"{where}: {scan.captured.name} has a gap at its sequence {seq}"


def compare_served_order(scans: Sequence[StreamScan]) -> tuple[bool | None, int]:
    """
    Whether the messages common to all *scans* have one order, and the most that any stream would have to move.

    None if that is unknown: a stream could not be read, or there is only one.
    """
    if len({scan.captured.name for scan in scans}) < _MIN_SCANS or any(scan.error is not None for scan in scans):
        return None, 0
    first, *rest = scans
    rank = array("i", [NO_VALUE]) * len(first.copies)
    for place, number in enumerate(first.numbers):
        rank[number] = place
    common = (array("i", (rank[number] for number in scan.numbers if rank[number] != NO_VALUE)) for scan in rest)
    worst = max(len(find_displaced(ranks)) for ranks in common)
    return worst == 0, worst
