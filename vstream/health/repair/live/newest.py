"""
Streams that keep the last messages of each subject: which messages can be put back.

A message is put back at the end, where it becomes the newest of its subject. So only the newest may be put back, and
messages that newer ones have replaced are not missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from vstream.health.repair.contents import MissingMessage, SubjectRank
from vstream.health.repair.live.scan import TIMEOUT, Scan
from vstream.health.repair.sequence_set import SequenceSet
from vstream.health.snapshot import to_unix_seconds
from vstream.jetstream import direct
from vstream.jetstream.connection import ask_api
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.jetstream.source_header import parse_provenance
from vstream.timing import CLOCK_SKEW_SECONDS
from vstream.topology import naming
from vstream.topology.stream_limits import PER_SUBJECT

OLDER = "newer messages of its subject are there, and it would come behind them"
"""Why a lost message is not put back where the newest of a subject counts."""


@dataclass(slots=True)
class _Subject:
    """What a holder has of one subject: its newest, the first that the reader has too (or 0), and the newest missing there."""

    newest: int = 0
    oldest_held: int = 0
    missing: list[int] = field(default_factory=list)
    held_since: int = 0
    """How many of those behind the last missing one the reader has."""


class NewestMessages:
    """Goes through what a holder has, message by message, and remembers the last *limit* missing ones of each subject."""

    def __init__(self, lacks: SequenceSet, held: SequenceSet, limit: int) -> None:
        self._lacks = lacks
        self._held = held
        self._limit = limit
        self._subjects: dict[str, _Subject] = defaultdict(_Subject)

    def add(self, subject: str, seq: int) -> None:
        """Add the next message; ascending, except for replayed ones."""
        entry = self._subjects[subject]
        entry.newest = max(entry.newest, seq)
        if seq in self._lacks:
            entry.missing = sorted({*entry.missing, seq})[-self._limit :]
            entry.held_since = 0
        elif seq in self._held:
            entry.oldest_held = entry.oldest_held or seq
            entry.held_since += 1

    def rank_missing(self) -> dict[int, SubjectRank]:
        """By sequence, what the reader may have lost. Newer ones of its origin have replaced the rest: limits remove the oldest."""
        ranks: dict[int, SubjectRank] = {}
        for entry in self._subjects.values():
            for newer, seq in enumerate(reversed(entry.missing), entry.held_since):
                is_behind = 0 < entry.oldest_held < seq
                if is_behind or newer < self._limit:
                    ranks[seq] = SubjectRank(seq == entry.newest, is_behind)
        return ranks


async def find_unreplayable(
    scan: Scan, messages: Iterable[MissingMessage], connections: Mapping[str, ReconnectingConnection]
) -> tuple[dict[str, SequenceSet], dict[str, dict[str, SequenceSet]]]:
    """
    By origin, what does not come back; and by origin and reason, what of it the stream of *scan* has lost for good.

    As an audit sees it, that is what the stream would still hold, and what is newer than a message that it does hold.
    """
    by_subject = defaultdict[str, list[MissingMessage]](list)
    for message in messages:
        by_subject[message.subject].append(message)
    passed = defaultdict[str, SequenceSet](SequenceSet)
    lost = defaultdict[str, dict[str, SequenceSet]](lambda: defaultdict(SequenceSet))
    for subject, candidates in by_subject.items():
        count, since = await read_subject_state(scan, subject)
        for newer, missing in enumerate(sorted(candidates, reverse=True)):
            is_lost = (
                newer + count < scan.limit(PER_SUBJECT)
                or missing.rank.has_older_in_reader
                or since + CLOCK_SKEW_SECONDS < missing.written_at
            )
            # Where one value counts, all regions get the last one. Of several, which are there is a matter of arrival.
            is_wanted = newer == 0 and missing.rank.is_newest and (is_lost or scan.limit(PER_SUBJECT) == 1)
            if is_wanted and not missing.obstacle and not await _has_newer(scan, missing, connections):
                continue
            passed[missing.origin].add(missing.seq)
            if is_lost:
                lost[missing.origin][missing.obstacle or OLDER].add(missing.seq)
    return passed, lost


async def read_subject_state(scan: Scan, subject: str) -> tuple[int, float]:
    """How many messages of *subject* the stream of *scan* has, and since when the first one, in seconds since 1970."""
    api = naming.api_subject("STREAM.INFO", scan.name)
    info = await ask_api(scan.connection, api, {"subjects_filter": subject}, timeout=TIMEOUT)
    count = sum(map(int, (info.get("state", {}).get("subjects") or {}).values()))
    first = await direct.get_next_from_leader(scan.connection, scan.name, subject, 1, timeout=TIMEOUT)
    return count, inf if first is None else to_unix_seconds(first.stored_at)


async def _has_newer(scan: Scan, missing: MissingMessage, connections: Mapping[str, ReconnectingConnection]) -> bool:
    """
    Whether the stream of *scan* has a newer message on the subject of *missing* than that.

    Of one origin, sequences tell. Of another, when it was written: where that is no longer known, when it arrived.
    """
    last = await direct.get_newest_from_leader(scan.connection, scan.name, missing.subject, timeout=TIMEOUT)
    if last is None:
        return False
    provenance = parse_provenance(last.headers)
    if provenance is not None and provenance.origin == missing.origin:
        return provenance.seq > missing.seq
    written: DirectMessage | None = None
    if provenance is not None and provenance.origin in connections:
        connection = connections[provenance.origin]
        written = await direct.get_by_seq_from_leader(connection, provenance.origin, provenance.seq, timeout=TIMEOUT)
    return to_unix_seconds((written or last).stored_at) >= missing.written_at
