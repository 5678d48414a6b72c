"""
Streams that keep the last messages of each subject: which messages can be put back.

A message is put back at the end, where it becomes the newest of its subject. So only the newest may be put back, and
messages that newer ones have replaced are not missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from vstream.health.repair.live.scan import PATIENCE, Scan
from vstream.health.repair.sequence_set import SequenceSet
from vstream.health.snapshot import to_unix_seconds
from vstream.jetstream import direct
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.jetstream.source_header import parse_provenance
from vstream.topology import naming

OLDER = "newer messages of its subject are there, and it would come behind them"
"""Why a lost message is not put back where the newest of a subject counts."""


def kept_of_subject(scan: Scan) -> int:
    """Messages per subject that the stream of *scan* keeps; 0 for all."""
    return max(0, int(scan.info["config"].get("max_msgs_per_subject") or 0))


@dataclass(slots=True)
class _Subject:
    """What a holder has of one subject: its newest, the first that the reader has too (or 0), and the newest missing there."""

    newest: int = 0
    oldest_held: int = 0
    missing: list[int] = field(default_factory=list)


class NewestMessages:
    """Goes through what a holder has, message by message, and remembers the last *limit* missing ones of each subject."""

    def __init__(self, lacks: SequenceSet, held: SequenceSet, limit: int) -> None:
        self._lacks = lacks
        self._held = held
        self._most = limit
        self._subjects: dict[str, _Subject] = defaultdict(_Subject)

    def take(self, subject: str, seq: int) -> None:
        """Add the next message; ascending, except for replayed ones."""
        entry = self._subjects[subject]
        entry.newest = max(entry.newest, seq)
        if seq in self._lacks:
            entry.missing = sorted({*entry.missing, seq})[-self._most :]
        elif seq in self._held and not entry.oldest_held:
            entry.oldest_held = seq

    async def sort(self, scan: Scan) -> tuple[SequenceSet, SequenceSet]:
        """What may come back to the stream of *scan*, and what was lost there. The rest newer ones have replaced."""
        subjects = {name: entry for name, entry in self._subjects.items() if entry.missing}
        counts = await _count_messages(scan, tuple(subjects))
        newest, lost = SequenceSet(), SequenceSet()
        for name, entry in sorted(subjects.items(), key=lambda item: item[1].missing):
            # A limit removes the oldest first: not what is newer than one that is there.
            for newer, seq in enumerate(reversed(entry.missing)):
                if counts.get(name, 0) + newer < self._most or 0 < entry.oldest_held < seq:
                    lost.add(seq)
            # Where one value counts, all regions get the last one. Of several, which are there is a matter of arrival.
            if entry.missing[-1] == entry.newest and (self._most == 1 or entry.newest in lost):
                newest.add(entry.newest)
        return newest, lost


async def _count_messages(scan: Scan, subjects: tuple[str, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    api = naming.api_subject("STREAM.INFO", scan.name)
    for subject in subjects:
        info = await scan.connection.request_json(api, {"subjects_filter": subject}, timeout=PATIENCE)
        counts |= {name: int(number) for name, number in (info.get("state", {}).get("subjects") or {}).items()}
    return counts


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MissingMessage:
    """A missing message that nothing in its reader is newer than; the order is that in which they were written."""

    written: float
    seq: int
    origin: str


class Candidates:
    """By subject of one reader: what could come back, of all origins and from all holders."""

    def __init__(self) -> None:
        self._by_subject: dict[str, list[MissingMessage]] = defaultdict(list)

    def add(self, subject: str, candidate: MissingMessage) -> None:
        """Note *candidate*."""
        self._by_subject[subject].append(candidate)

    async def sort(self, scan: Scan) -> tuple[dict[str, SequenceSet], dict[str, SequenceSet]]:
        """By origin: what is not the last of its subject; and of that, what the stream of *scan* has lost for good."""
        passed, lost = defaultdict[str, SequenceSet](SequenceSet), defaultdict[str, SequenceSet](SequenceSet)
        several = {
            subject: sorted(candidates)[:-1] for subject, candidates in self._by_subject.items() if len(candidates) > 1
        }
        counts = await _count_messages(scan, tuple(several))
        for subject, older in several.items():
            room = max(0, kept_of_subject(scan) - counts.get(subject, 0) - 1)
            for candidate in older:
                passed[candidate.origin].add(candidate.seq)
            for candidate in older[-room:] if room else ():
                lost[candidate.origin].add(candidate.seq)
        return passed, lost


async def has_newer(
    scan: Scan,
    message: DirectMessage,
    origin: str,
    seq: int,
    subject: str,
    origins: Mapping[str, ReconnectingConnection],
) -> bool:
    """
    Whether the stream of *scan* has a newer message on *subject* than *message*, which is *seq* of *origin*.

    Of one origin, sequences tell. Of another, when it was written: where that is no longer known, when it arrived.
    """
    last = await direct.leader_last_by_subject(scan.connection, scan.name, subject, timeout=PATIENCE)
    if last is None:
        return False
    provenance = parse_provenance(last.headers)
    if provenance is not None and provenance.origin == origin:
        return provenance.seq > seq
    written: DirectMessage | None = None
    if provenance is not None and provenance.origin in origins:
        connection = origins[provenance.origin]
        written = await direct.leader_get_by_seq(connection, provenance.origin, provenance.seq, timeout=PATIENCE)
    return to_unix_seconds((written or last).stored_at) >= to_unix_seconds(message.stored_at)
