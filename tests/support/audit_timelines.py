"""
Small virtual streams that grow over time, orderly but for one trouble each: what their streams hold at any moment.

Unlike `audit_histories`, most of what is written here is right, and most troubles begin late.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from random import Random
from typing import Any

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
LENGTH = 200 * SECOND
REGIONS = ("west", "central", "east")
IDENTITY = "AAAAAAAA"
TROUBLES = (
    "none", "none", "lost", "deleted", "twice", "payload", "slow", "expires", "expires_fast", "full", "purged", "purged_origin",
    "same_id", "polite", "polite", "blind", "swapped", "foreign", "clock", "unnamed",
)  # fmt: skip

Row = dict[str, Any]


@dataclass
class StreamLog:
    """One stream: its messages with the time when each was stored and removed, by servers' true clocks."""

    name: str
    region: str
    role: str
    limits: dict[str, int] = field(default_factory=dict)
    entries: list[tuple[int, Row]] = field(default_factory=list)
    removed: dict[int, int] = field(default_factory=dict)
    """By sequence: when the message was removed."""
    arrived: list[tuple[int, str, int]] = field(default_factory=list)
    """When the stream had taken what of which origin."""

    def add(self, at: int, row: Row) -> None:
        self.entries.append((at, row | {"seq": len(self.entries) + 1}))

    def rows(self, at: int) -> dict[int, Row]:
        stored = (row for moment, row in self.entries if moment <= at)
        return {row["seq"]: row for row in stored if self.removed.get(row["seq"], at + 1) > at}

    def last_seq(self, at: int) -> int:
        return sum(moment <= at for moment, _ in self.entries)


class Timeline:
    """A virtual stream of *seed*, with the trouble *kind*."""

    def __init__(self, seed: int, virtual: str) -> None:
        self.random = random = Random(seed)
        self.virtual = virtual
        self.kind = TROUBLES[seed % len(TROUBLES)]
        self.regions = REGIONS[: random.choice((1, 2, 3, 3))]
        self.form = random.choice(("2.12", "2.15", "2.15"))
        self.has_ids = random.random() < 0.5 or self.kind == "same_id"
        self.spread = random.choice((SECOND // 50, SECOND, 10 * SECOND))
        self.trouble_at = NOW + random.randrange(LENGTH)
        self.origins = {region: StreamLog(f"w-{region}", region, "write") for region in self.regions}
        self.readers = {region: StreamLog(f"r-{region}", region, "read") for region in self.regions}
        self.busy = self.regions[: random.choice((1, 3, 3))]
        self.last: dict[tuple[str, str], int] = {}
        self.seen: dict[tuple[str, str], int] = {}
        self.arrivals: dict[str, list[tuple[int, Row]]] = {region: [] for region in self.regions}
        self._write()
        self._copy()
        self._remove()

    @property
    def logs(self) -> list[StreamLog]:
        return [*self.origins.values(), *self.readers.values()]

    def _write(self) -> None:
        at = NOW
        for number in range(self.random.choice((3, 20, 60, 60))):
            at += self.random.randrange(1, LENGTH // 30)
            log = self.origins[self.random.choice(self.busy)]
            key = f"{log.region}.{self.random.randrange(4)}"
            shared = f"all.{self.random.randrange(2)}"
            is_blind = self.kind == "blind" and at >= self.trouble_at
            # Who has seen what others wrote does not overwrite it in ignorance.
            has_seen = self.seen.get((shared, log.region), 0) < at
            if (is_blind or (self.kind == "polite" and has_seen)) and self.random.random() < 0.8:
                key = shared
            log.add(at, self._row(log, at, f"_vs.{self.virtual}.{log.region}.{key}", f"{log.region}-{number}"))
            self._deliver(log, at, key)
        rows = [row for log in self.origins.values() for _, row in log.entries]
        if self.kind == "same_id":
            late = [row for row in rows if row["time_ns"] >= self.trouble_at] or rows
            row, twin = self.random.choice(late), self.random.choice(rows)
            row["msg_id"] = twin["msg_id"]
            row["digest"] = self.random.choice((row["digest"], twin["digest"]))

    def _deliver(self, origin: StreamLog, at: int, key: str) -> None:
        """The last message of *origin* arrives in every region, behind those before it."""
        for region in self.regions:
            route = (origin.region, region)
            arrival = max(at + self.random.randrange(1, self.spread), self.last.get(route, 0) + 1)
            is_slow = self.kind == "slow" and origin.region != region
            if is_slow and self.trouble_at <= arrival < self.trouble_at + 60 * SECOND:
                arrival = self.trouble_at + 60 * SECOND
            self.last[route] = arrival
            self.seen[key, region] = max(self.seen.get((key, region), 0), arrival)
            self.arrivals[region].append((arrival, origin.entries[-1][1]))

    def _row(self, log: StreamLog, at: int, subject: str, msg_id: str) -> Row:
        return {
            "virtual": self.virtual, "stream": log.name, "region": log.region, "role": log.role, "time_ns": at,
            "subject": subject, "msg_id": msg_id if self.has_ids else None, "source": None, "ttl": None, "rollup": None, "size": 3,
            "digest": self.random.getrandbits(63),
        }  # fmt: skip

    def _copy(self) -> None:
        for region, log in self.readers.items():
            self._store(log, sorted(self.arrivals[region], key=lambda item: item[0]))

    def _store(self, log: StreamLog, arrivals: list[tuple[int, Row]]) -> None:
        is_bad = log.region == self.random.choice(self.regions)
        late = [number for number, (at, _) in enumerate(arrivals) if at >= self.trouble_at]
        chosen = late[0] if is_bad and late else None
        if chosen is not None and self.kind == "swapped" and chosen + 1 < len(arrivals):
            first, second = arrivals[chosen : chosen + 2]
            arrivals[chosen : chosen + 2] = [(first[0], second[1]), (second[0], first[1])]
        for number, (at, row) in enumerate(arrivals):
            log.arrived.append((at, row["stream"], row["seq"]))
            copy = self._as_copy(log, row, at)
            if number != chosen:
                log.add(at, copy)
                continue
            if self.kind == "foreign":
                log.add(at, copy | {"source": None})
            if self.kind == "payload":
                copy["digest"] ^= 7
            if self.kind == "unnamed":
                copy["subject"] = "elsewhere"
            if self.kind != "lost":
                log.add(at, copy)
            if self.kind == "twice":
                log.add(at, self._as_copy(log, arrivals[self.random.randrange(number + 1)][1], at))

    def _as_copy(self, log: StreamLog, row: Row, at: int) -> Row:
        subject = row["subject"]
        _, _, region, rest = subject.split(".", 3)
        header = f"{row['stream']} {row['seq']} _vs.{self.virtual}.{region}.> foo.> {subject}"
        return row | {
            "stream": log.name, "region": log.region, "role": "read", "subject": f"foo.{rest}",
            "time_ns": at - (3 * SECOND if self.kind == "clock" and log.region == "west" else 0),
            "source": header + (f" {IDENTITY}" if self.form == "2.15" else ""),
        }  # fmt: skip

    def _remove(self) -> None:
        for log in self.logs:
            if self.kind in ("expires", "expires_fast"):
                shortest = 15 if self.kind == "expires_fast" else 60
                age = self.random.choice((shortest, shortest * 2, 90)) * SECOND
                log.limits = {"max_age": age}
                log.removed = {row["seq"]: at + age for at, row in log.entries}
            if self.kind == "full":
                self._keep(log, self.random.choice((5, 20)))
        names = {"purged": self.readers, "purged_origin": self.origins, "deleted": self.readers | self.origins}
        log = self.random.choice(list(names.get(self.kind, self.readers).values()))
        stored = list(log.rows(self.trouble_at))
        if self.kind in ("purged", "purged_origin"):
            log.limits = self.random.choice(({}, {"max_age": 1000 * SECOND}, {"max_msgs": 10_000}))
            log.removed = dict.fromkeys(stored, self.trouble_at)
        if self.kind == "deleted" and stored:
            log.removed = {self.random.choice(stored): self.trouble_at}

    def _keep(self, log: StreamLog, most: int) -> None:
        log.limits = {"max_msgs": most}
        log.removed = {row["seq"] - most: at for at, row in log.entries}

    def stream_row(self, log: StreamLog, at: int) -> Row:
        """The row of `streams` at a moment: write streams are asked first."""
        rows, last = log.rows(at), log.last_seq(at)
        first = min(rows, default=last + 1)
        cursors = dict.fromkeys((origin.name for origin in self.origins.values()), 0)
        for moment, name, seq in log.arrived:
            if moment <= at:
                cursors[name] = max(cursors[name], seq)
        sources = [{"origin": name, "last_seq": seq if self.form == "2.15" else None} for name, seq in cursors.items()]
        return {
            "virtual": self.virtual, "stream": log.name, "region": log.region, "role": log.role, "first_seq": first,
            "last_seq": last, "messages": len(rows), "num_deleted": last - first + 1 - len(rows), "snapshot_ns": at, "read_at_ns": at, "arrivals": 0,
            "server_version": None, "path": "consumer", "error": None, "sources": sources if log.role == "read" else [],
            "limits": log.limits, "identity": IDENTITY if self.form == "2.15" else None, "mirror": None, "transform": None,
        }  # fmt: skip


Delivery = tuple[float, str, str, dict[str, float]]
"""When a message is written, in seconds, where, its key, and when it arrives in each region, or is lost (minus)."""


class ScriptedTimeline(Timeline):
    """Orderly messages in three regions until second 45 and from 160 on, and *deliveries* in between."""

    regions = REGIONS

    def __init__(
        self,
        virtual: str,
        deliveries: list[Delivery],
        *,
        max_msgs: int | None = None,
        purged: int = 0,
        behind: str | None = None,
    ) -> None:
        self._deliveries = deliveries
        self._max_msgs = max_msgs
        self._purged = purged
        """The last sequence that somebody removes from the east's read stream at second 120."""
        self._behind = behind
        """The region whose write stream has a clock that is twenty seconds behind."""
        super().__init__(1, virtual)

    def _write(self) -> None:
        self.regions, self.kind, self.form, self.has_ids = REGIONS, "none", "2.15", False
        self.origins = {region: StreamLog(f"w-{region}", region, "write") for region in REGIONS}
        self.readers = {region: StreamLog(f"r-{region}", region, "read") for region in REGIONS}
        self.arrivals = {region: [] for region in REGIONS}
        orderly: list[Delivery] = []
        for at in (*range(5, 45, 5), *range(160, 190, 5)):
            for region in REGIONS:
                orderly.append((at, region, f"{region}.0", dict.fromkeys(REGIONS, at + 0.01)))
        for at, region, key, arrivals in sorted([*orderly, *self._deliveries], key=lambda item: item[:2]):
            log, moment = self.origins[region], NOW + int(at * SECOND)
            subject = f"_vs.{self.virtual}.{region}.{key}"
            log.add(moment, self._row(log, moment, subject, ""))
            row = log.entries[-1][1]
            for reader, arrival in arrivals.items():
                self.arrivals[reader].append((NOW + int(abs(arrival) * SECOND), row | {"is_lost": arrival < 0}))
            if region == self._behind:
                row["time_ns"] -= 20 * SECOND

    def _store(self, log: StreamLog, arrivals: list[tuple[int, Row]]) -> None:
        for at, row in arrivals:
            log.arrived.append((at, row["stream"], row["seq"]))
            if not row["is_lost"]:
                log.add(at, self._as_copy(log, row, at))

    def _remove(self) -> None:
        if self._max_msgs is not None:
            for log in self.logs:
                self._keep(log, self._max_msgs)
        removed = self.readers["east"].removed
        for seq in range(1, self._purged + 1):
            removed[seq] = min(removed.get(seq, sys.maxsize), NOW + 120 * SECOND)


def everywhere(at: float, **others: float) -> dict[str, float]:
    """Arrival at *at* in all regions but *others*."""
    return {**dict.fromkeys(REGIONS, at), **others}


SCRIPTED = {
    # What was on its way when the first one was closed stands before it in one region, and after it in the others.
    "overtaken": ScriptedTimeline(
        "overtaken",
        [
            (99, "west", "all", everywhere(99.01, east=99.9)),
            (99.5, "central", "all", everywhere(99.6, west=101)),
        ],
    ),
    # Nothing of its region has come since, so that only older headers tell its key.
    "unnamed": ScriptedTimeline(
        "unnamed",
        [
            (99, "west", "all", everywhere(99.8)),
            (99.5, "central", "all", everywhere(101)),
        ],
    ),
    "behind": ScriptedTimeline(
        "behind",
        [
            (99, "west", "all", everywhere(99.01)),
            (101, "central", "all", everywhere(101.5)),
        ],
        behind="central",
    ),
    # A limit has removed messages, but not this one: older ones are still there.
    "full": ScriptedTimeline(
        "full",
        [(101, "west", "k", everywhere(101.1, east=-101.2)), (102, "west", "k", everywhere(102.1))],
        max_msgs=20,
    ),
    # Its limit leaves these.
    "purged": ScriptedTimeline("purged", [], max_msgs=20, purged=14),
}
