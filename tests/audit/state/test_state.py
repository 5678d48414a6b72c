"""Audits that keep what they read: they hold what a whole one would read, whatever servers did and wherever they were killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.audit_histories import History, Maker
from tests.support.audit_timelines import NOW, SCRIPTED, SECOND, TROUBLES, StreamLog, Timeline
from vstream.audit.connector.values import CONSUMER, ReadSnapshot, StreamRef
from vstream.audit.report import Report
from vstream.audit.spark.local_frames import make_table
from vstream.audit.stages import StageRunner
from vstream.audit.state.audit_state import MANIFEST, AuditState, StateManifest, StateUpdate
from vstream.audit.state.incremental import StateMessages, judge_unverified
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import MESSAGES, STREAMS
from vstream.audit.tables.table_store import TableStore
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("small_tables"),
]

ROUNDS = 4
"""Audits of each history, the last one of it as a whole."""

Row = dict[str, Any]


@dataclass(frozen=True)
class StoredRecord:
    """What a stream holds at one moment, by sequence."""

    rows: Mapping[int, Row]
    last_seq: int
    created: str = "first"
    error: str | None = None
    limits: Mapping[str, int] | None = None
    snapshot_ns: int = 1
    num_deleted: int = 0
    era: int = 0
    """Another one after the stream was set back."""

    def snapshot(self, ref: StreamRef) -> ReadSnapshot:
        return ReadSnapshot(
            stream_ref=ref,
            snapshot_ns=self.snapshot_ns,
            first_seq=min(self.rows, default=self.last_seq + 1),
            last_seq=self.last_seq,
            messages=len(self.rows),
            bytes=len(self.rows),
            num_deleted=self.num_deleted,
            limits=self.limits,
            path=CONSUMER,
            created=self.created,
            last_ts=f"{self.last_seq} in era {self.era}",
            error=self.error,
        )


Moment = Mapping[StreamRef, StoredRecord]


class KilledError(Exception):
    """In the place of a signal: nothing of what is audited catches it."""


class MortalState(AuditState):
    """Ends before or after the manifest is replaced, if it is told to."""

    dies: str | None = None

    def _save(self, manifest: StateManifest) -> None:
        if self.dies == "before" and manifest.streams:
            raise KilledError
        super()._save(manifest)
        if self.dies == "after" and manifest.streams:
            raise KilledError


def streams_of(history: History) -> dict[StreamRef, StoredRecord]:
    result = {}
    for row in history.streams:
        ref = StreamRef(stream=row["stream"], region=row["region"], virtual=row["virtual"], role=row["role"])
        rows = {message["seq"]: message for message in history.of(row["stream"])}
        result[ref] = StoredRecord(rows, row["last_seq"] or 0, error=row["error"])
    return result


def pasts(random: Random, final: StoredRecord, number: int) -> list[StoredRecord]:
    """*number* moments before *final*, each of which may have led to the next one."""
    bounds = sorted(random.randint(max(0, final.last_seq - 15), final.last_seq) for _ in range(number))
    kind = random.choice(("grows", "grows", "loses", "loses", "again", "set back"))
    turn = random.randrange(number + 1)
    result = []
    for moment, last in enumerate(bounds):
        rows = {seq: row for seq, row in final.rows.items() if seq <= last}
        stored = replace(final, rows=rows, last_seq=last, error=None)
        if moment < turn and kind == "loses":
            stored = replace(stored, rows=with_more(final, last))
        elif moment < turn and kind == "again":
            stored = replace(stored, rows=change_rows(rows), created="before")
        elif moment < turn and kind == "set back" and rows:
            since = random.choice(sorted(rows))
            tail = {seq: row for seq, row in rows.items() if seq >= since}
            stored = replace(stored, rows=rows | change_rows(tail), era=1)
        if random.random() < 0.15:
            stored = replace(stored, error="no answer")
        result.append(stored)
    return result


def with_more(final: StoredRecord, last: int) -> dict[int, Row]:
    """What a stream had before messages were removed from it: all up to *last*."""
    first = max(1, min(final.rows, default=1) - 3)
    model = next(iter(final.rows.values()), None)
    if model is None:
        return {}
    return {seq: final.rows.get(seq, model | {"seq": seq, "digest": 5}) for seq in range(first, last + 1)}


def change_rows(rows: Mapping[int, Row]) -> dict[int, Row]:
    return {seq: row | {"digest": row["digest"] ^ 3, "time_ns": row["time_ns"] - 1} for seq, row in rows.items()}


def reading(spark: SparkSession, moment: Moment, without: Random | None = None) -> Any:
    """What reads streams as they are at *moment*; *without* a message that is removed meanwhile."""

    def read(snapshots: Sequence[ReadSnapshot]) -> DataFrame:
        rows = []
        for snapshot in snapshots:
            if snapshot.is_readable:
                stored = moment[snapshot.stream_ref].rows
                rows += [stored[seq] for seq in sorted(stored) if snapshot.first_seq <= seq <= snapshot.last_seq]
        if without is not None and rows:
            rows.remove(without.choice(rows))
        return make_table(spark, [tuple(row[name] for name in MESSAGES.names) for row in rows], MESSAGES)

    return read


def advance(state: AuditState, spark: SparkSession, moment: Moment) -> StateUpdate:
    return state.update([stored.snapshot(ref) for ref, stored in moment.items()], reading(spark, moment))


def sorted_rows(messages: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in messages.collect()), key=str)


def whole(spark: SparkSession, moment: Moment) -> DataFrame:
    snapshots = [stored.snapshot(ref) for ref, stored in moment.items()]
    rows: DataFrame = reading(spark, moment)([snapshot for snapshot in snapshots if snapshot.error is None])
    return rows


def judge(messages: DataFrame, streams: Iterable[Row]) -> dict[str, Any]:
    spark = messages.sparkSession
    rows = [tuple(row[name] for name in STREAMS.names) for row in streams]
    context = AuditContext(subject="test", models={row["virtual"]: "virtual" for row in streams})
    runner = StageRunner(store=TableStore(spark), context=context, bucket_size=4)
    report = runner.run(messages.persist(), make_table(spark, rows, STREAMS)).report.as_dict()
    return {name: told for name, told in report.items() if name != "seconds"}


def replay(spark: SparkSession, place: Path, number: int) -> tuple[DataFrame, DataFrame, list[Row]]:
    """What a state at *place* and a whole audit have of *number* histories in the end, and their `streams`."""
    random = Random(26)
    histories = [Maker(seed, f"v{seed}").make() for seed in range(number)]
    final = {ref: stored for history in histories for ref, stored in streams_of(history).items()}
    moments: list[dict[StreamRef, StoredRecord]] = [{} for _ in range(ROUNDS - 1)]
    for ref, stored in final.items():
        for moment, past in zip(moments, pasts(random, stored, ROUNDS - 1), strict=True):
            if random.random() < 0.95:  # else it is not in the topology
                moment[ref] = past
    for moment, dies in zip(moments, (None, "before", "after"), strict=True):
        state = MortalState(spark, place, "acme")
        state.dies = dies
        with nullcontext() if dies is None else pytest.raises(KilledError):
            state.update(
                [contents.snapshot(ref) for ref, contents in moment.items()], reading(spark, moment, without=random)
            )
    result, expected = advance(AuditState(spark, place, "acme"), spark, final), whole(spark, final)
    assert 0 < result.new < expected.count() + len(final)
    return result.messages, expected, [row for history in histories for row in history.streams]


def test_random_histories_cut_at_random_points_hold_what_a_whole_audit_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    held, expected, _ = replay(spark, tmp_path, 40)
    assert sorted_rows(held) == sorted_rows(expected)


@pytest.mark.night
def test_random_histories_cut_at_random_points_have_the_verdict_of_a_whole_audit(
    spark: SparkSession, tmp_path: Path
) -> None:
    held, expected, streams = replay(spark, tmp_path, 1500)
    assert sorted_rows(held) == sorted_rows(expected)
    assert judge(held, streams) == judge(expected, streams)


def hold(timeline: Timeline, at: int, row: Row, log: StreamLog) -> StoredRecord:
    limits = {"duplicate_window": 0} | log.limits
    return StoredRecord(log.rows(at), row["last_seq"], limits=limits, snapshot_ns=at, num_deleted=row["num_deleted"])


def audit_moments(
    spark: SparkSession, place: Path, timelines: Sequence[Timeline], moments_s: Sequence[float]
) -> Counter[str]:
    """
    At *moments_s* (seconds), an audit with a state says what a whole one says.

    Returns how often virtual streams of each kind had messages that were not judged again.
    """
    state = AuditState(spark, place, "acme")
    counts: Counter[str] = Counter()
    for moment in moments_s:
        moments, streams = {}, []
        for timeline in timelines:
            for log in timeline.logs:
                # Write streams are asked first.
                at = NOW + int(moment * SECOND) + (SECOND // 20 if log.role == "read" else 0)
                row = timeline.stream_row(log, at)
                ref = StreamRef(stream=log.name, region=log.region, virtual=timeline.virtual, role=log.role)
                moments[ref] = hold(timeline, at, row, log)
                streams.append(row | {"limits": {"duplicate_window": 0} | log.limits})
        advanced = advance(state, spark, moments)
        table = make_table(spark, [tuple(row[name] for name in STREAMS.names) for row in streams], STREAMS)
        context = AuditContext(
            subject="test", models=dict.fromkeys((timeline.virtual for timeline in timelines), "virtual")
        )
        runner = StageRunner(store=TableStore(spark), context=context, bucket_size=4, max_shown=10**9)
        arrivals = make_table(spark, [], MESSAGES)
        state_messages = StateMessages(state=state, verified=advanced.verified, arrivals=arrivals, number=0)
        mine = judge_unverified(state_messages, table, runner, "", at_least=0)
        whole_one = replace(runner, store=TableStore(spark)).run(advanced.messages, table).report
        kinds = {timeline.virtual: timeline.kind for timeline in timelines}
        assert tell(mine.report) == tell(whole_one), moment
        counts.update(kinds[item.virtual] for item in mine.facts.verified.virtuals)
        spark.catalog.clearCache()
    return counts


def tell(report: Report) -> dict[str, Any]:
    """What *report* says, but for what is measured of judged messages alone."""
    told: dict[str, Any] = report.as_dict()
    told["findings"] = [item for item in told["findings"] if item["name"] != "removed"]
    for item in told["findings"]:
        if item["name"] == "pending":
            # Only headers of older messages may tell it.
            item["ranges"] = [ranged | {"subject": None} for ranged in item["ranges"]]
    return {name: told[name] for name in ("verdict", "verdicts", "findings", "messages", "streams", "routes")}


def test_what_was_right_before_is_not_judged_again(spark: SparkSession, tmp_path: Path) -> None:
    timelines = [Timeline(seed, f"v{seed}") for seed in (*range(len(TROUBLES)), 352, 492, 512)]
    counts = audit_moments(spark, tmp_path, [*timelines, *SCRIPTED.values()], (50, 100, 140, 155, 230))
    assert counts.keys() >= {"none", "slow", "full", "twice", "polite"}


@pytest.mark.night
@pytest.mark.timeout(1800)
def test_random_timelines_have_the_verdict_of_a_whole_audit(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(18)
    timelines = [Timeline(seed, f"v{seed}") for seed in range(1500)]
    counts = audit_moments(spark, tmp_path, timelines, sorted(random.uniform(40, 260) for _ in range(6)))
    assert counts.keys() >= {"none", "slow", "full", "expires", "purged", "twice", "polite", "same_id"}


REF = StreamRef(stream="w-west", region="west", virtual="foo", role="write")
OTHER = StreamRef(stream="r-west", region="west", virtual="foo", role="read")


def make_stored(last: int, *, first: int = 1, **more: Any) -> StoredRecord:
    rows = {seq: message(seq) for seq in range(first, last + 1)}
    return StoredRecord(rows, last, **more)


def message(seq: int) -> Row:
    columns: Row = dict.fromkeys(MESSAGES.names)
    return columns | {
        "virtual": "foo", "stream": "w-west", "region": "west", "role": "write", "seq": seq, "time_ns": seq,
        "subject": "foo.a", "size": 1, "digest": seq,
    }  # fmt: skip


def test_only_what_is_new_is_read(spark: SparkSession, tmp_path: Path) -> None:
    state = AuditState(spark, tmp_path, "acme")
    empty = {OTHER: StoredRecord({}, 0)}
    assert advance(state, spark, {REF: make_stored(100)} | empty).new == 100
    assert advance(state, spark, {REF: make_stored(100)} | empty).new == 0
    # The last one shows that it is the same stream; the oldest ones are gone by age.
    grown = advance(state, spark, {REF: make_stored(107, first=20)} | empty)
    assert (grown.new, grown.reread, grown.messages.count()) == (8, (), 88)
    again = advance(state, spark, {REF: make_stored(110, first=20, created="later")} | empty)
    assert (again.new, again.reread, again.messages.count()) == (91, ("w-west",), 91)


def test_many_audits_leave_few_parts_and_little_that_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    state = AuditState(spark, tmp_path, "acme")
    for last in range(100, 197, 16):
        result = advance(state, spark, {REF: make_stored(last, first=last - 90)})
    assert [row.seq for row in result.messages.orderBy("seq").collect()] == list(range(106, 197))
    parts = json.loads((tmp_path / MANIFEST).read_text())["parts"]
    assert len(parts) <= 4
    assert sum(part["rows"] for part in parts) <= 2 * 91
    assert {f"part={part['number']}" for part in parts} | {MANIFEST} == {item.name for item in tmp_path.iterdir()}


def test_a_state_of_something_else_or_without_a_file_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    moment = {REF: make_stored(10)}
    advance(AuditState(spark, tmp_path, "acme"), spark, moment)
    with pytest.raises(VstreamError, match="is of `acme`, not of `other`"):
        advance(AuditState(spark, tmp_path, "other"), spark, moment)
    with pytest.raises(VstreamError, match="is of other servers, or all its 1 streams"):
        advance(
            AuditState(spark, tmp_path, "acme"), spark, {REF: make_stored(10, created="x"), OTHER: StoredRecord({}, 0)}
        )
    next(tmp_path.glob("part=1/part-*.parquet")).unlink()
    with pytest.raises(VstreamError, match="has lost"):
        advance(AuditState(spark, tmp_path, "acme"), spark, moment)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(VstreamError, match="is damaged"):
        advance(AuditState(spark, tmp_path, "acme"), spark, moment)


def test_a_state_is_kept_only_where_nothing_else_is(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "part=1").mkdir()
    with pytest.raises(VstreamError, match="other files are there"):
        advance(AuditState(spark, tmp_path, "acme"), spark, {REF: make_stored(10)})
    assert (tmp_path / "part=1").is_dir()
