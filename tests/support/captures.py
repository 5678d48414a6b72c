"""Captures that nobody ran: a clean history, for tests to plant one thing in."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vstream.capture.digest import digest
from vstream.capture.records import (
    CapturedServer,
    CapturedStream,
    Delivery,
    FaultOutcome,
    FaultRecord,
    Manifest,
    OperationKind,
    OperationOutcome,
    OperationRecord,
    Sample,
    StoredRecord,
    Window,
)
from vstream.capture.store import FORMAT, Capture, RecordWriter

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
WALL = 1_790_000_000 * SECOND
REGIONS = ("west", "central", "east")


@dataclass
class History:
    """A capture in memory, which tests change before it is written."""

    manifest: Manifest
    operations: list[OperationRecord] = field(default_factory=list)
    streams: dict[str, list[StoredRecord]] = field(default_factory=dict)
    roles: dict[str, CapturedStream] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    faults: list[FaultRecord] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)

    def write(self, path: Path) -> Capture:
        """As a run would have left it; each stream is said to hold what is in it, but for those that are said to be unread."""
        capture = Capture(path)
        streams = tuple(
            role if role.messages is None else replace(role, messages=len(self.streams[name]))
            for name, role in self.roles.items()
        )
        capture.write_manifest(replace(self.manifest, streams=streams))
        for region in {operation.region for operation in self.operations}:
            _lines(
                capture.operations_file(region),
                OperationRecord,
                [operation for operation in self.operations if operation.region == region],
            )
        for region in {delivery.region for delivery in self.deliveries}:
            _lines(
                capture.deliveries_file(region),
                Delivery,
                [delivery for delivery in self.deliveries if delivery.region == region],
            )
        for name, rows in self.streams.items():
            _lines(capture.stream_file(name), StoredRecord, rows)
        _lines(path / "samples.jsonl", Sample, self.samples)
        _lines(path / "faults.jsonl", FaultRecord, self.faults)
        _lines(path / "windows.jsonl", Window, self.windows)
        capture.write_manifest(replace(capture.manifest(), lines=capture.count_lines()))
        return capture

    def of(self, outcome: OperationOutcome) -> list[OperationRecord]:
        """The publishes that ended so."""
        return [
            operation
            for operation in self.operations
            if operation.kind is OperationKind.PUBLISH and operation.outcome is outcome
        ]

    def is_published_to(self, name: str) -> bool:
        """Whether the stream takes publishes."""
        return self.roles[name].role in {"write", "origin"}

    def reads(self) -> list[str]:
        """The names of the streams that are read."""
        return [name for name, role in self.roles.items() if role.role == "read"]


def _lines(file: Path, kind: Any, records: Iterable[Any]) -> None:
    with closing(RecordWriter(file, kind)) as lines:
        for record in records:
            lines.write(record)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a clean history is like."""

    model: str = "virtual"
    regions: Sequence[str] = REGIONS
    messages: int = 30
    """In each region."""
    rate: int = 10
    """Per second in each region."""
    seed: int = 1
    keys: int = 4
    rejected: float = 0.0
    """Share of publishes."""
    indeterminate: float = 0.0
    stored: float = 0.5
    """Share of the indeterminate ones that were stored all the same."""
    consumers: bool = True
    has_digests: bool = True
    has_origins: bool = True
    has_mirrors: bool = True
    """Whether it says what is mirrored, which captures did not always."""


def make_manifest(**fields: Any) -> Manifest:
    """Of a run in one region, but for what *fields* say."""
    plain = {
        "format": FORMAT,
        "vstream": "0",
        "scenario": "synthetic",
        "seed": 1,
        "started": "2026-01-01T00:00:00Z",
        "wall": WALL,
        "backend": "proxy",
        "regions": ("west",),
        "models": {"foo": "virtual"},
        "machine": {"cpus": 2},
    }
    return Manifest(**{**plain, **fields})


def clean(shape: Shape | None = None) -> History:
    """A history in which nothing is wrong."""
    shape = shape or Shape()
    random_ = random.Random(shape.seed)
    regions = tuple(shape.regions)
    end = shape.messages * SECOND // shape.rate
    history = History(
        manifest=make_manifest(
            seed=shape.seed,
            regions=regions,
            models={"foo": shape.model},
            machine={"cpus": 2, "load": 0.5},
            load=(0, end),
            servers=tuple(
                CapturedServer(name=f"{region}-1", region=region, cluster=region, version="2.15.1")
                for region in regions
            ),
            is_complete=True,
        )
    )
    writes = _write(history, shape, random_)
    _replicate(history, shape, writes, random_)
    if shape.consumers:
        _deliver(history)
    _sample(history, end)
    return history


def _write(history: History, shape: Shape, random_: random.Random) -> dict[str, list[StoredRecord]]:
    """Publish in all regions, and store what is acknowledged, and some of what is not."""
    regions = tuple(shape.regions)
    only_region = {"homed": regions[0], "stretch": "stretch"}.get(shape.model)
    writes: dict[str, list[StoredRecord]] = {}
    for region in [only_region] if only_region else regions:
        name, role = ("foo", "origin") if only_region else (f"foo-write-{region}", "write")
        writes[name] = []
        history.roles[name] = CapturedStream(name=name, virtual="foo", region=region, role=role, messages=0)
    due = sorted(
        (number * SECOND // shape.rate + place * MILLISECOND, region, number)
        for place, region in enumerate(regions)
        for number in range(shape.messages)
    )
    for moment, region, number in due:
        name = "foo" if only_region else f"foo-write-{region}"
        id_ = f"{region}-{number}"
        payload = f"{id_} {'x' * random_.randrange(9)}"
        subject = f"foo.load.{region}.{random_.randrange(shape.keys)}"
        sent = moment + random_.randrange(MILLISECOND)
        done = sent + random_.randrange(MILLISECOND, 5 * MILLISECOND)
        draw = random_.random()
        outcome, error = OperationOutcome.OK, None
        if draw < shape.rejected:
            outcome, error = OperationOutcome.REJECTED, "no responders"
        elif draw < shape.rejected + shape.indeterminate:
            outcome, error = OperationOutcome.INDETERMINATE, "timeout"
        seq = None
        if outcome is OperationOutcome.OK or (
            outcome is OperationOutcome.INDETERMINATE and random_.random() < shape.stored
        ):
            rows = writes[name]
            seq = len(rows) + 1
            rows.append(
                StoredRecord(
                    seq=seq,
                    time=max(WALL + done - MILLISECOND // 2, rows[-1].time + 1 if rows else 0),
                    subject=f"_vs.foo.{region}.{subject}" if shape.model in {"virtual", "ordered"} else subject,
                    id=id_,
                    msg_id=id_,
                    source=None,
                    origin=None,
                    origin_seq=None,
                    size=len(payload),
                    digest=digest(payload.encode()),
                )
            )
        history.operations.append(
            OperationRecord(
                client=f"{region}/publish-foo",
                region=region,
                kind=OperationKind.PUBLISH,
                stream="foo",
                due=moment,
                sent=sent,
                done=done if outcome is not OperationOutcome.INDETERMINATE else None,
                outcome=outcome,
                id=id_,
                subject=subject,
                digest=digest(payload.encode()) if shape.has_digests else None,
                acked_by=name if outcome is OperationOutcome.OK else None,
                seq=seq if outcome is OperationOutcome.OK else None,
                error=error,
            )
        )
    history.streams |= writes
    return writes


def _replicate(
    history: History, shape: Shape, writes: Mapping[str, list[StoredRecord]], random_: random.Random
) -> None:
    """Each region reads what all have written, in an order of its own where the model allows that."""
    arrivals = [(row.time, name, row) for name, rows in writes.items() for row in rows]
    # A mirror keeps the times of what it mirrors: that of the origin, or of the ordering stream.
    delay = 40 * MILLISECOND if shape.model == "ordered" else 0
    one_order = sorted((time + delay, name, row.seq, row) for time, name, row in arrivals)
    if shape.model == "ordered":
        history.roles["foo-order-stretch"] = CapturedStream(
            name="foo-order-stretch", virtual="foo", region="stretch", role="order", messages=0
        )
        history.streams["foo-order-stretch"] = _make_sourced(one_order, shape)
    for region in shape.regions:
        if shape.model == "homed" and region == shape.regions[0]:
            continue  # the origin is there
        name = f"foo-read-{region}"
        mirror = (
            {"ordered": "foo-order-stretch", "virtual": None}.get(shape.model, "foo") if shape.has_mirrors else None
        )
        history.roles[name] = CapturedStream(
            name=name, virtual="foo", region=region, role="read", messages=0, mirror=mirror
        )
        order = one_order
        if shape.model == "virtual":
            delays = {write: random_.randrange(5, 200) * MILLISECOND for write in sorted(writes)}
            order = sorted((time + delays[write], write, row.seq, row) for time, write, row in arrivals)
        history.streams[name] = _make_sourced(order, shape)


def _make_sourced(order: Iterable[tuple[int, str, int, StoredRecord]], shape: Shape) -> list[StoredRecord]:
    has_origin = shape.has_origins and shape.model in {"virtual", "ordered"}
    return [
        replace(
            row,
            seq=seq,
            time=time,
            subject=row.subject.split(".", 3)[3] if row.subject.startswith("_vs.") else row.subject,
            source=f"{name} {row.seq}" if has_origin else None,
            origin=name if has_origin else None,
            origin_seq=row.seq if has_origin else None,
        )
        for seq, (time, name, _, row) in enumerate(order, 1)
    ]


def _deliver(history: History) -> None:
    for name in history.reads():
        region = history.roles[name].region
        for row in history.streams[name]:
            assert row.id is not None
            at = row.time - WALL + MILLISECOND
            client = f"{region}/consume-foo"
            history.deliveries.append(
                Delivery(client=client, region=region, stream="foo", id=row.id, seq=row.seq, at=at, deliveries=1)
            )
            history.operations.append(
                OperationRecord(
                    client=client,
                    region=region,
                    kind=OperationKind.FETCH,
                    stream="foo",
                    due=at,
                    sent=at,
                    done=at,
                    outcome=OperationOutcome.OK,
                    count=1,
                )
            )


def _sample(history: History, end: int) -> None:
    for at in range(0, end + 2 * SECOND, SECOND // 2):
        for region in history.manifest.regions:
            last = {
                name: bisect_right(rows, WALL + at, key=lambda row: row.time)
                for name, rows in history.streams.items()
                if history.roles[name].region in {region, "stretch"}
            }
            history.samples.append(
                Sample(at=at, region=region, control_plane=3 * MILLISECOND, error=None, last_seq=last)
            )


def fault(
    command: str = "kill-region west",
    *,
    injected: int = SECOND,
    healed: int | None = 2 * SECOND,
    outcome: FaultOutcome = FaultOutcome.CONFIRMED,
    error: str | None = None,
) -> FaultRecord:
    kind, *targets = command.split()
    return FaultRecord(
        id=kind,
        command=command,
        kind=kind,
        targets=tuple(targets),
        regions=tuple(targets),
        outcome=outcome,
        injected=injected,
        confirmed=injected + MILLISECOND if outcome is FaultOutcome.CONFIRMED else None,
        evidence="3 of 3 servers are gone" if outcome is FaultOutcome.CONFIRMED else None,
        healing=None if healed is None else healed - SECOND // 2,
        healed=healed,
        error=error,
    )


def renumber(rows: Iterable[StoredRecord]) -> list[StoredRecord]:
    """*rows* with sequences from 1 on, as if the stream had stored them so."""
    return [replace(row, seq=seq) for seq, row in enumerate(rows, 1)]
