"""
What an audit with a state costs beside a whole one: few new messages beside many old ones, on a real server.

One server with a write stream and three streams that source it, as three regions have them. Every audit is judged. CPU
seconds are those of this process and of what it has started, the server's apart.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_goals
from bench_extract import fill, measure_work, server, texts

from vstream.audit.connector import register, stream_snapshots
from vstream.audit.connector.client import api_request, connect
from vstream.audit.connector.values import StreamRef
from vstream.audit.extract.stream_rows import make_stream_row
from vstream.audit.spark.local_frames import make_table
from vstream.audit.spark.session import open_session
from vstream.audit.stages import StageRunner
from vstream.audit.state.audit_state import AuditState
from vstream.audit.state.incremental import StateMessages, judge_unverified
from vstream.audit.tables.audit_tables import read_live_messages
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import MESSAGES, STREAMS
from vstream.audit.tables.table_store import TableStore

if TYPE_CHECKING:
    from bench_extract import Server
    from pyspark.sql import SparkSession

REGIONS = ("west", "central", "east")
SIZE = 64
"""Bytes of a message."""
REFS = (
    StreamRef(stream="w", region="west", virtual="foo", role="write"),
    *(StreamRef(stream=f"r-{region}", region=region, virtual="foo", role="read") for region in REGIONS),
)


def regions(one: Server, count: int) -> None:
    """Streams that source `w`, with *count* messages each."""
    with connect(one.access) as client:
        for region in REGIONS:
            source = {"name": "w", "subject_transforms": [{"src": "w.>", "dest": "r.>"}]}
            body = {"name": f"r-{region}", "sources": [source], "allow_direct": True, "num_replicas": 1}
            api_request(client, one.access, f"STREAM.CREATE.r-{region}", body)
    _wait(one, count)


def add(one: Server, first: int, count: int) -> None:
    """Publish *count* messages more than the *first* ones."""
    payloads = texts(SIZE)
    with connect(one.access) as client:
        for begin in range(first, first + count, 5_000):
            numbers = range(begin, min(begin + 5_000, first + count))
            frames = (b"PUB w.%d.orders %d\r\n%s\r\n" % (n % 1000, SIZE, payloads[n % len(payloads)]) for n in numbers)
            client.send(b"".join(frames))
            while api_request(client, one.access, "STREAM.INFO.w")["state"]["messages"] < numbers.stop:
                pass
    _wait(one, first + count)


def _wait(one: Server, count: int) -> None:
    with connect(one.access) as client:
        for region in REGIONS:
            while api_request(client, one.access, f"STREAM.INFO.r-{region}")["state"]["messages"] < count:
                pass


def audit(spark: SparkSession, one: Server, place: Path) -> dict[str, tuple[float, float, float]]:
    """CPU seconds of readers and of the server, and seconds, for reading and for judging."""
    access = dict.fromkeys(REGIONS, one.access)
    held: list[Any] = []

    def read() -> None:
        snapshots = stream_snapshots.take_snapshots(REFS, access)
        state = AuditState(spark, place, "bench")
        held.append((state, state.update(snapshots, lambda some: read_live_messages(spark, some, access)), snapshots))

    def judge() -> None:
        state, advance, snapshots = held[0]
        streams = make_table(spark, [make_stream_row(item) for item in snapshots], STREAMS)
        with tempfile.TemporaryDirectory(prefix="vstream-bench-") as scratch:
            context = AuditContext(subject="bench", models={"foo": "virtual"})
            arrivals, number = make_table(spark, [], MESSAGES), sum(snapshot.messages for snapshot in snapshots)
            state_messages = StateMessages(state=state, verified=advance.verified, arrivals=arrivals, number=number)
            runner = StageRunner(store=TableStore(spark), context=context)
            report = judge_unverified(state_messages, streams, runner, f"file://{scratch}").report
        assert not report.findings, report.findings

    costs = {"reading": measure_work(one, 1_000_000, read), "judging": measure_work(one, 1_000_000, judge)}
    print(f"    {held[0][1].new:>12,} read, {held[0][1].verified.messages:>12,} not judged again", end="")
    for name, (mine, theirs, seconds) in costs.items():
        print(f"   {name} {mine:6.1f} + server {theirs:5.1f} s CPU, {seconds:6.1f} s", end="")
    print(flush=True)
    return costs


def main(sizes: list[int], new: int) -> None:
    for size in sizes:
        old, more = size // 4, new // 4
        with (
            tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory,
            server(Path(directory)) as nats_server,
            open_session(master="local[2,4]") as spark,
        ):
            register(spark)
            fill(nats_server, SIZE, old)
            regions(nats_server, old)
            place, anew = Path(directory) / "state", Path(directory) / "anew"
            place.mkdir()
            anew.mkdir()
            print(f"\n{4 * old:,} stored messages in four streams, then {4 * more:,} more", flush=True)
            print("  first audit (Spark compiles what it runs)")
            audit(spark, nats_server, place)
            add(nats_server, old, more)
            print("  with its state")
            mine = audit(spark, nats_server, place)
            print("  a whole one")
            whole = audit(spark, nats_server, anew)
        reading = sum(mine["reading"][:2]) / sum(whole["reading"][:2])
        everything = sum(_cpu(mine)) / sum(_cpu(whole))
        print(f"  reading {reading:.2f} of a whole audit's CPU, all {everything:.2f}", flush=True)
        bench_goals.record("audit --state, reading ÷ a whole one, CPU", reading)
        bench_goals.record("audit --state, all ÷ a whole one, CPU", everything)


def _cpu(costs: dict[str, tuple[float, float, float]]) -> list[float]:
    return [mine + theirs for mine, theirs, _ in costs.values()]
