"""
A capture that a scenario recorded of real servers, and what one row of it is worth.

Every change of one row becomes a virtual stream of its own beside the untouched one, so
that one audit judges all of them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.labs import processes_in
from tests.support.night import repetitions
from tests.support.scenario_runs import NS, run_scenario, scenario
from vstream.audit.extract.from_capture import extract_capture
from vstream.audit.judge.client_journal import JOURNAL, make_journal_table
from vstream.audit.report import AuditVerdict
from vstream.audit.spark.local_frames import make_table
from vstream.audit.stages import StageRunner
from vstream.audit.tables.audit_tables import to_spark
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import MESSAGES, STREAMS
from vstream.audit.tables.table_store import TableStore
from vstream.capture.store import Capture
from vstream.findings import Severity
from vstream.scenario.model import Converge, Wait

pytestmark = [
    pytest.mark.lab,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("small_tables"),
]

EACH = repetitions(2, night=6)
"""Rows that are changed in each way: half of them in write streams, half in read streams."""
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Capture]:
    """Three regions that publish for a second, and nothing goes wrong."""
    place = tmp_path_factory.mktemp("real")
    rehearsal = scenario(("load", Wait(nanoseconds=NS)), ("together", Converge(within=120 * NS)), rate=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSTREAM_STATE_DIR", str(place / "state"))
        run_capture, _ = asyncio.run(run_scenario(rehearsal, place / "capture"))
    assert run_capture.manifest().is_complete
    yield run_capture
    assert processes_in(place / "state") == []


def of(rows: Rows, role: str) -> Rows:
    return [row for row in rows if row["role"] == role]


def delete_row(random: Random, rows: Rows, role: str) -> str:
    row = random.choice(of(rows, role))
    rows.remove(row)
    return str(row["stream"])


def double_row(random: Random, rows: Rows, role: str) -> str:
    row = random.choice(of(rows, role))
    rows.append(dict(row))
    return str(row["stream"])


def swap_rows(random: Random, rows: Rows, role: str) -> str:
    """Two messages of one origin in one read stream."""
    groups: dict[tuple[str, str], Rows] = defaultdict(list)
    for row in rows:
        if row["source"] is not None:
            groups[row["stream"], row["source"].split(" ")[0]].append(row)
    first, second = random.sample(random.choice([group for group in groups.values() if len(group) > 1]), 2)
    first["seq"], second["seq"] = second["seq"], first["seq"]
    return str(first["stream"])


def alter_row(random: Random, rows: Rows, role: str) -> str:
    row = random.choice(of(rows, role))
    row["digest"] ^= 1
    return str(row["stream"])


CHANGES: dict[str, Callable[[Random, Rows, str], str]] = {
    "deleted": delete_row,
    "doubled": double_row,
    "swapped": swap_rows,
    "altered": alter_row,
}


def test_one_row_or_line_deleted_doubled_swapped_or_altered_flips_the_verdict(
    spark: SparkSession, capture: Capture, tmp_path: Path
) -> None:
    frames_ = to_spark(spark, extract_capture(capture))
    clean: Rows = [row.asDict() for row in frames_.messages.collect()]
    streams = [row.asDict() for row in frames_.streams.collect()]
    operations = [row.asDict() for row in make_journal_table(spark, capture).collect()]
    assert len(clean) > 4 * EACH
    variants, where = {"foo": clean}, {}
    for title, change in CHANGES.items():
        for number in range(EACH):
            name = f"{title}-{number}"
            variants[name] = [dict(row) for row in clean]
            where[name] = change(Random(name), variants[name], ("write", "read")[number % 2])

    # And one of which a line is gone: what is left of that stream is not taken for all of it.
    snapshot = to_spark(spark, extract_capture(without_a_line(capture, tmp_path / "capture")))
    variants["snapshot"] = [row.asDict() for row in snapshot.messages.collect()]
    streams_of = dict.fromkeys(variants, streams) | {"snapshot": [row.asDict() for row in snapshot.streams.collect()]}

    def everywhere(rows_of: Mapping[str, Rows], schema: Any) -> Any:
        values = [
            tuple((row | {"virtual": name})[column] for column in schema.names)
            for name in variants
            for row in rows_of[name]
        ]
        return make_table(spark, values, schema)

    context = AuditContext(subject="test", models=dict.fromkeys(variants, "virtual"))
    runner = StageRunner(store=TableStore(spark), context=context)
    report = runner.run(
        everywhere(variants, MESSAGES).persist(),
        everywhere(streams_of, STREAMS),
        everywhere(dict.fromkeys(variants, operations), JOURNAL),
    ).report
    assert {name: report.verdict(name) for name in where} == dict.fromkeys(where, AuditVerdict.FAIL)
    assert report.verdict("foo") is AuditVerdict.PASS
    assert report.verdict("snapshot") is not AuditVerdict.PASS
    assert (
        Counter(finding.name for finding in report.findings_about("snapshot") if finding.stream == "foo-read-east")[
            "unreadable"
        ]
        == 1
    )
    # And it is said of the right stream.
    wrong: dict[str, set[str]] = defaultdict(set)
    for finding in report.findings:
        if finding.severity is Severity.ERROR:
            wrong[finding.virtual] |= {finding.stream or "", finding.origin or ""}
    assert {name for name, stream in where.items() if stream not in wrong[name]} == set()


def without_a_line(capture: Capture, place: Path) -> Capture:
    """A copy of *capture* in *place*, in which one line of a stream is gone."""
    shutil.copytree(capture.path, place)
    changed = Capture(place)
    file = changed.stream_file("foo-read-east")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:3] + lines[4:]))
    return changed
