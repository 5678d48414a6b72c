"""Captures, audited: what clients were told is joined in, and everything can be judged again from what was kept."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.captures import SECOND, WALL, History, Shape, clean
from vstream.audit.extract.extraction import ArrowTables
from vstream.audit.extract.from_capture import extract_capture
from vstream.audit.judge import keys
from vstream.audit.judge.client_journal import JOURNAL, make_journal_table
from vstream.audit.normalise.message_copies import COPIES
from vstream.audit.reconcile.classify import DIFFERENCES
from vstream.audit.report import AuditVerdict, Report
from vstream.audit.request import AuditStage
from vstream.audit.spark.local_frames import make_table
from vstream.audit.spark.session import without_codegen
from vstream.audit.spark.spark_errors import convert_spark_errors
from vstream.audit.stages import StageRunner
from vstream.audit.tables.audit_tables import read_tables, to_spark, write_tables
from vstream.audit.tables.context import AuditContext, read_context, save_context
from vstream.audit.tables.schema import STREAMS
from vstream.audit.tables.table_store import RESULTS, TableStore, publish_results, try_publishing
from vstream.capture.records import OperationOutcome
from vstream.errors import VstreamError
from vstream.findings import Severity

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("small_tables"),
]

WINDOWS = (("kill-region west", WALL + SECOND, WALL + 2 * SECOND),)


def kinds(report: Report, virtual: str | None = None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for finding in report.findings_about(virtual):
        counts[finding.name] += finding.count * (finding.severity is Severity.ERROR)
    return +counts


def make_unanswered() -> History:
    return clean(Shape(rejected=0.1, indeterminate=0.2, messages=60))


def make_wrong_in_the_journal() -> History:
    history = clean(Shape(rejected=0.1))
    west, east = history.streams["foo-write-west"], history.streams["foo-write-east"]
    # Acknowledged, and nowhere: the last message of a write stream, and all copies of it.
    lost = west.pop()
    # Acknowledged, and its sequence holds something else now; which nobody sent.
    east[-1] = replace(east[-1], digest="00000000000000ff", id=None)
    for name in history.reads():
        rows = [row for row in history.streams[name] if (row.origin, row.origin_seq) != ("foo-write-west", lost.seq)]
        history.streams[name] = [
            replace(row, seq=number, digest=east[-1].digest if row.msg_id == east[-1].msg_id else row.digest)
            for number, row in enumerate(rows, 1)
        ]
    # Refused, and stored all the same.
    refused = history.of(OperationOutcome.REJECTED)[0]
    stored = next(row for row in east if row.msg_id is not None)
    history.operations.remove(refused)
    history.operations.append(replace(refused, digest=stored.digest))
    return history


def make_ordered() -> History:
    return clean(Shape(model="ordered"))


def make_misordered() -> History:
    history = make_ordered()
    rows = history.streams["foo-read-east"]
    place = next(place for place, row in enumerate(rows) if row.origin != rows[place + 1].origin)
    first, second = rows[place], rows[place + 1]
    rows[place : place + 2] = [
        replace(second, seq=first.seq, time=first.time),
        replace(first, seq=second.seq, time=second.time),
    ]
    return history


def make_emptied() -> History:
    history = clean(Shape(model="ordered", consumers=False))
    writes = {name: len(rows) for name, rows in history.streams.items() if history.is_published_to(name)}
    history.samples = [replace(sample, sourced={"foo-order-stretch": writes}) for sample in history.samples]
    for name in ("foo-order-stretch", *history.reads()):
        history.streams[name].clear()
        history.roles[name] = replace(history.roles[name], limits={"max_age": SECOND // 10})
    return history


def make_repeated() -> History:
    history = clean()
    rows = history.streams["foo-read-east"]
    again = [row for row in rows if row.origin == "foo-write-west"][:15]
    rows += [replace(row, seq=rows[-1].seq + n, time=rows[-1].time + n) for n, row in enumerate(again, 1)]
    return history


PLANTED = (make_unanswered, make_wrong_in_the_journal, make_ordered, make_misordered, make_emptied, make_repeated)


@pytest.fixture(scope="module")
def planted_report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One audit of all PLANTED, each a virtual stream called like what is made: Spark plans one for seconds, however small."""
    place = tmp_path_factory.mktemp("planted")
    names = {make.__name__.removeprefix("make_"): make for make in PLANTED}
    captures = {name: make().write(place / name) for name, make in names.items()}
    tables = [rename_virtual(extract_capture(capture), name) for name, capture in captures.items()]
    journals = [
        make_journal_table(spark, capture).withColumn("virtual", F.lit(name)) for name, capture in captures.items()
    ]
    every = ArrowTables(
        messages=pa.concat_tables(table.messages for table in tables),
        streams=[row for table in tables for row in table.streams],
    )
    with without_codegen(spark):
        frames_ = to_spark(spark, every)
        models = {name: capture.manifest().models["foo"] for name, capture in captures.items()}
        runner = StageRunner(
            store=TableStore(spark), context=AuditContext(subject="test", models=models, windows=WINDOWS)
        )
        return runner.run(frames_.messages, frames_.streams, reduce(DataFrame.unionByName, journals)).report


def rename_virtual(tables: ArrowTables, virtual: str) -> ArrowTables:
    """*tables*, of a virtual stream that is called *virtual*."""
    place, column = tables.messages.schema.get_field_index("virtual"), STREAMS.names.index("virtual")
    names = pa.array([virtual] * tables.messages.num_rows, pa.string())
    return ArrowTables(
        messages=tables.messages.set_column(place, tables.messages.schema.field(place), names),
        streams=[(*row[:column], virtual, *row[column + 1 :]) for row in tables.streams],
    )


def test_publishes_without_an_answer_are_neither_lost_nor_failed(planted_report: Report) -> None:
    assert planted_report.verdict("unanswered") is AuditVerdict.PASS
    answers = [answer for answer in planted_report.publish_outcomes if answer.virtual == "unanswered"]
    indeterminate = [answer for answer in answers if answer.outcome == "indeterminate"]
    publishes, stored = (
        sum(window.publishes for window in indeterminate),
        sum(window.stored for window in indeterminate),
    )
    assert publishes == len(make_unanswered().of(OperationOutcome.INDETERMINATE))
    assert 0 < stored < publishes
    assert {answer.outcome: answer.stored for answer in answers if answer.outcome == "rejected"} == {"rejected": 0}
    settled = [settlement for settlement in planted_report.recoveries if settlement.virtual == "unanswered"]
    assert {(settlement.window, settlement.region) for settlement in settled} == {
        ("kill-region west", region) for region in ("west", "central", "east")
    }
    # What was written just before the fault was over arrived after it, in at most 200 ms.
    assert 0 < max(settlement.recovery_ns for settlement in settled) < SECOND // 5


def test_what_only_the_journal_of_publishes_shows_is_found(planted_report: Report) -> None:
    virtual = "wrong_in_the_journal"
    assert planted_report.verdict(virtual) is AuditVerdict.FAIL
    counts = kinds(planted_report, virtual)
    assert (counts["acked-lost"], counts["overwritten"], counts["unpublished"]) == (1, 1, 1)
    assert [
        finding.count for finding in planted_report.findings_about(virtual) if finding.name == "refused-stored"
    ] == [1]


def test_messages_out_of_the_common_order_are_found_where_it_is_promised(planted_report: Report) -> None:
    assert planted_report.verdict("ordered") is AuditVerdict.PASS
    assert kinds(planted_report, "misordered") == {"misordered": 2}
    assert {
        finding.stream for finding in planted_report.findings_about("misordered") if finding.name == "misordered"
    } == {"foo-read-east"}


def test_mirrors_that_limits_have_emptied_have_come_as_far_as_what_they_mirror(planted_report: Report) -> None:
    """Nothing in them says how far: what was mirrored, and how far that had come, was recorded."""
    assert (planted_report.verdict("emptied"), kinds(planted_report, "emptied")) == (AuditVerdict.PASS, Counter())


def test_ranges_that_repeat_are_explained(planted_report: Report) -> None:
    [repeat] = [finding for finding in planted_report.findings_about("repeated") if finding.severity is Severity.ERROR]
    assert (repeat.name, repeat.count, repeat.stream) == ("duplicated", 15, "foo-read-east")
    assert "started over" in repeat.examples[0]


def again(spark: SparkSession, uri: str, stage: AuditStage) -> Report:
    shelf, tables = TableStore(spark, earlier=uri), read_tables(spark, uri)
    runner = StageRunner(store=shelf, context=read_context(shelf, "test"), first_stage=stage)
    return runner.run(tables.messages, tables.streams, shelf.read_earlier("journal", JOURNAL)).report


def test_an_audit_is_done_again_from_any_stage_that_was_kept(spark: SparkSession, tmp_path: Path) -> None:
    history = clean()
    del history.streams["foo-read-east"][5]
    capture = history.write(tmp_path / "capture")
    uri = (tmp_path / "tables").as_uri()
    extracted, context = (
        to_spark(spark, extract_capture(capture)),
        AuditContext(subject="test", models={"foo": "virtual"}, windows=WINDOWS),
    )
    write_tables(extracted, uri)
    shelf = TableStore(spark, uri)
    save_context(shelf, context)
    first = (
        StageRunner(store=shelf, context=context)
        .run(extracted.messages, extracted.streams, shelf.keep("journal", make_journal_table(spark, capture), JOURNAL))
        .report
    )
    assert first.verdict() is AuditVerdict.FAIL
    for stage in (AuditStage.RECONCILE, AuditStage.JUDGE):
        assert replace(again(spark, uri, stage), seconds={}) == replace(first, seconds={})
    tables, whole = tmp_path / "tables", tmp_path / "whole"
    shutil.copytree(tables, whole)

    def store() -> TableStore:
        return TableStore(spark, earlier=uri)

    def begin_at(stage: AuditStage) -> Report:
        return (
            StageRunner(store=store(), context=context, first_stage=stage)
            .run(extracted.messages, extracted.streams)
            .report
        )

    # Each of them as its stage reads it: a whole audit takes seconds.
    readers: dict[str, Callable[[], object]] = {
        "differences": lambda: store().read_earlier("differences", DIFFERENCES).collect(),
        "copies": lambda: store().read_earlier("copies", COPIES).collect(),
        "journal": lambda: store().read_earlier("journal", JOURNAL),
        "messages": lambda: read_tables(spark, uri),
        "context": lambda: read_context(store(), "test"),
    }

    def catch_refusal(read: Callable[[], object]) -> tuple[str, str | None]:
        with pytest.raises(VstreamError) as caught, convert_spark_errors():
            read()
        assert "\n" not in caught.value.message
        shutil.rmtree(tables)
        shutil.copytree(whole, tables)
        return caught.value.message, caught.value.hint

    extract = "extract the tables again"
    hints = {"differences": "`--from reconcile` creates it again", "copies": "`--from normalise` creates it again"}
    # A file that is gone is no message that is, and a table that is gone is made by its stage.
    for name, read in readers.items():
        next((tables / name).glob("part-*.parquet")).unlink()
        message, hint = catch_refusal(read)
        assert (f"`{uri}/{name}`" in message, hint) == (True, hints.get(name, extract))
    for name, read, hint in (
        ("differences", readers["differences"], hints["differences"]),
        ("messages", readers["messages"], extract),
    ):
        spoil(tables / name, b"nothing of the kind")
        assert catch_refusal(read)[1] == f"a file of the table `{name}` is damaged: {hint}"
    for text in (None, "no JSON", '{"subject": "test", "models": {"foo": "none of ours"}}'):
        written = pa.BufferOutputStream()
        parquet.write_table(pa.table({"context": pa.array([text], pa.string())}), written)
        spoil(tables / "context", written.getvalue().to_pybytes())
        assert catch_refusal(readers["context"]) == (
            "the table `context` is damaged or was written by another version",
            extract,
        )
    spoil(tables / "files", b"no JSON")
    assert catch_refusal(readers["context"])[1] == extract
    # Of an audit that was ended, what it had not come to the end of is not read: it was made of other messages.
    write_tables(extracted, uri)
    for stage in (AuditStage.RECONCILE, AuditStage.JUDGE):
        with pytest.raises(VstreamError, match="/copies` is not in the list") as caught:
            begin_at(stage)
        assert caught.value.hint == hints["copies"]
    assert catch_refusal(readers["context"])[1] == extract


def spoil(table: Path, data: bytes) -> None:
    """Write *data* over the files of *table*, with nothing left that says what they were."""
    for file in table.glob(".part-*"):
        file.unlink()
    for file in table.glob("part-*"):
        file.write_bytes(data)


def test_a_run_that_did_not_end_is_no_pass(spark: SparkSession, tmp_path: Path) -> None:
    history = clean(Shape(messages=5))
    capture = history.write(tmp_path)
    frames_ = to_spark(spark, extract_capture(capture))
    context = AuditContext(subject="test", models={"foo": "virtual", "bar": "virtual"}, unfinished="it was stopped")
    report = StageRunner(store=TableStore(spark), context=context).run(frames_.messages, frames_.streams).report
    assert report.verdict() is AuditVerdict.UNKNOWN
    assert {(finding.name, finding.virtual) for finding in report.findings if finding.leaves_open} == {
        ("unfinished", "foo"),
        ("unfinished", "bar"),
        ("nothing-seen", "bar"),
    }


def test_who_stops_an_audit_does_not_wait_for_what_is_computed_beside_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames_ = to_spark(spark, extract_capture(clean(Shape(messages=2)).write(tmp_path)))
    is_begun, may_end = Event(), Event()

    def endless(*_: object) -> None:
        is_begun.set()
        may_end.wait()

    def stop_audit(*_: object) -> None:
        assert is_begun.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(keys, "find_shared_ids", endless)
    monkeypatch.setattr(StageRunner, "reconcile", stop_audit)
    try:
        with pytest.raises(KeyboardInterrupt):
            StageRunner(store=TableStore(spark), context=AuditContext(subject="test")).run(
                frames_.messages, frames_.streams
            )
    finally:
        may_end.set()


def tables_in(spark: SparkSession, schema: str) -> set[str]:
    """Without the temporary views of the session, which are listed in every schema."""
    return {row.tableName for row in spark.sql(f"SHOW TABLES IN {schema}").collect() if not row.isTemporary}


def test_what_was_found_is_written_into_a_catalog(spark: SparkSession, tmp_path: Path) -> None:
    shelf = TableStore(spark)
    values = {"virtual": "foo", "stream": "foo-read-east", "region": "east", "kind": "lost-middle", "number": 1}
    difference = tuple(values.get(name) for name in DIFFERENCES.names)
    shelf.keep("differences", make_table(spark, [difference], DIFFERENCES), DIFFERENCES)
    spark.sql(f"CREATE SCHEMA found LOCATION 'file://{tmp_path}/found'")
    try:
        for _ in range(2):  # what is there is replaced
            publish_results(shelf, "found", "parquet")
        assert tables_in(spark, "found") == set(RESULTS)
        lost = spark.sql("SELECT region, count(*) AS n FROM found.differences GROUP BY region").collect()
        assert [(row.region, row.n) for row in lost] == [("east", 1)]
        assert spark.table("found.publish_outcomes").count() == 0
        # What cannot be written is said before anything is read, and what is there is left alone.
        try_publishing(spark, "found", "parquet")
        assert tables_in(spark, "found") == set(RESULTS)
        with pytest.raises(VstreamError, match="gone when the audit ends"):
            try_publishing(spark, "default", "parquet")  # the one that a session of its own has
        assert tables_in(spark, "default") == set()
        for schema, kind, message in (("found", "delta", "delta"), ("nowhere", "parquet", "nowhere")):
            with pytest.raises(VstreamError, match=message):
                try_publishing(spark, schema, kind)
            with pytest.raises(VstreamError, match=message):
                publish_results(shelf, schema, kind)
    finally:
        spark.sql("DROP SCHEMA found CASCADE")
