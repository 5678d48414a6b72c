"""
The stages of an audit. Each writes tables that later stages read, and that can be stored.

The driver is this process, as Spark calls it; what is on the driver need not be computed by tasks. Collected there are: a
row for each stream, for each origin with each reader, and for each 4,096 messages of these; up to
`_MAX_MESSAGES_ON_DRIVER` messages, all of them, and up to `_MAX_ROWS_COLLECTED` of buckets that differ; 100 ranges and five
examples of a finding, and figures of 100 virtual streams in at most 1,440 intervals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from vstream.audit.judge import delays, keys
from vstream.audit.judge.independent_tables import IndependentTables, begin_independent_tables
from vstream.audit.judge.make_report import Evidence, make_report
from vstream.audit.normalise.message_copies import COPIES, collect_origin_facts, make_copies
from vstream.audit.reconcile import classify, deleted_everywhere, differing_messages, one_pass, order
from vstream.audit.reconcile.buckets import BUCKET_SIZE, BUCKETS, build_substreams, find_suspects
from vstream.audit.report import Report
from vstream.audit.request import MAX_STREAMS_WITH_FIGURES, AuditStage
from vstream.audit.spark.daemon_threads import DaemonExecutor
from vstream.audit.spark.local_frames import collect_arrow, make_local, make_table, plain_rows
from vstream.audit.spark.session import without_codegen
from vstream.audit.state.verified import NOTHING_VERIFIED, VerifiedPart
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.stream_facts import StreamFacts, build_stream_facts
from vstream.audit.tables.table_store import TableStore
from vstream.topology.model import Consistency
from vstream.value_class import value_class

_MAX_ROWS_COLLECTED = 500_000
"""Rows of buckets that differ are collected on the driver up to this number."""
_MAX_MESSAGES_ON_DRIVER = 1_000_000
"""All rows are processed on the driver up to this number of messages."""
_MAX_MESSAGES_LOCAL_TABLE = 50_000
"""Up to this number of messages, `copies` is a local table: Spark would plan for longer than it computes."""
_MAX_THREADS = 2
"""Number of small tables that are computed at the same time, in addition to this thread's work."""

SUSPECTS = make_schema("virtual string, origin string, former string, bucket bigint")


@value_class
class AuditResult:
    """The *report* of an audit, and what it was made of."""

    report: Report
    copies: DataFrame
    buckets: DataFrame
    facts: StreamFacts


@dataclass(slots=True)
class AuditPipeline:
    """One audit, from *first_stage* on: the tables of earlier stages are read from *store*."""

    store: TableStore
    context: AuditContext
    first_stage: AuditStage = AuditStage.NORMALISE
    on_stage: Callable[[AuditStage], None] = lambda _: None
    bucket_size: int = BUCKET_SIZE
    max_on_driver: int = _MAX_MESSAGES_ON_DRIVER
    """The number of messages up to which rows are processed on the driver."""
    max_shown: int = MAX_STREAMS_WITH_FIGURES
    """Up to this number of virtual streams, all have figures; of more, those that do not pass, and so many at most."""
    verified: VerifiedPart = NOTHING_VERIFIED
    """What is not judged, but counted."""
    is_kept: bool = False
    """Whether the tables of figures are wanted whole, however many virtual streams there are."""
    _seconds: dict[str, float] = field(init=False, default_factory=dict)

    def make_report(self, messages: DataFrame, streams: DataFrame, journal: DataFrame | None = None) -> Report:
        """The report on `messages` and `streams`, and on the *journal* (`client_journal.JOURNAL`) of a scenario's clients."""
        return self.make_result(messages, streams, journal).report

    def make_result(self, messages: DataFrame, streams: DataFrame, journal: DataFrame | None = None) -> AuditResult:
        """As `make_report`, with what the report was made of."""
        context = self.context
        facts = build_stream_facts(
            streams, is_narrow=context.is_narrow, is_sampled=context.is_sampled, verified=self.verified
        )
        on_driver = self._is_on_driver(facts) and facts.messages <= _MAX_MESSAGES_LOCAL_TABLE

        def normalise_rows() -> DataFrame:
            rows = make_copies(messages, facts, collect_origin_facts(messages, facts))
            return make_local(rows, COPIES) if on_driver else rows

        copies = self._run_stage(AuditStage.NORMALISE, "copies", COPIES, normalise_rows, on_driver=on_driver)
        # Sealed after each stage: if the audit is killed in the next one, `--from` begins with that.
        self.store.seal()
        threads = DaemonExecutor(_MAX_THREADS)
        try:
            tables = begin_independent_tables(
                self.store,
                threads if self._is_on_driver(facts) else None,
                copies=copies,
                facts=facts,
                journal=journal,
                has_windows=bool(context.windows),
                max_shown=None if self.is_kept else self._limit_shown(facts),
            )
            buckets, differences = self.find_differences(copies, facts, self.store.files("copies"))
            self.store.seal()
            with self._measure(AuditStage.JUDGE):
                report = self._judge(copies, facts, buckets, differences, tables)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        self.store.seal()
        return AuditResult(report=replace(report, seconds=self._seconds), copies=copies, buckets=buckets, facts=facts)

    def find_differences(
        self, copies: DataFrame, facts: StreamFacts, files: Sequence[str] | None
    ) -> tuple[DataFrame, DataFrame]:
        """The buckets, and the DIFFERENCES of messages; *files* are those of `copies`, if it is stored in files."""
        if self._is_done(AuditStage.RECONCILE):
            read = self.store.read_earlier
            return read("buckets", BUCKETS), read("differences", classify.DIFFERENCES)
        with self._measure(AuditStage.RECONCILE):
            substreams, on_driver = build_substreams(copies, facts), self._is_on_driver(facts)
            folded = one_pass.fold_copies(copies, facts, substreams, files, on_driver=on_driver, size=self.bucket_size)
        buckets = self._run_stage(AuditStage.RECONCILE, "buckets", BUCKETS, lambda: folded.digests, on_driver=True)
        out_of_order = self._run_stage(
            AuditStage.RECONCILE,
            "out_of_order",
            order.OUT_OF_ORDER,
            lambda: folded.out_of_order,
            on_driver=folded.on_driver,
        )
        result = self._run_stage(
            AuditStage.RECONCILE,
            "differences",
            classify.DIFFERENCES,
            lambda: self._classify_differences(copies, facts, out_of_order, folded),
        )
        return buckets, result

    def _run_stage(
        self,
        stage: AuditStage,
        name: str,
        schema: StructType,
        compute: Callable[[], DataFrame],
        *,
        on_driver: bool = False,
    ) -> DataFrame:
        if self._is_done(stage):
            return self.store.read_earlier(name, schema)
        with self._measure(stage):
            return self.store.keep(name, compute(), schema, on_driver=on_driver)

    def _limit_shown(self, facts: StreamFacts) -> int | None:
        """How many virtual streams have figures at most; None if all have."""
        return self.max_shown if len({row.virtual for row in facts.rows}) > self.max_shown else None

    def _is_on_driver(self, facts: StreamFacts) -> bool:
        return facts.messages <= self.max_on_driver

    def _is_done(self, stage: AuditStage) -> bool:
        """Whether an earlier audit has left the tables of *stage*."""
        stages = list(AuditStage)
        return stages.index(stage) < stages.index(self.first_stage)

    @contextmanager
    def _measure(self, stage: AuditStage) -> Iterator[None]:
        """Say that *stage* goes on, and count the seconds of the block as its own."""
        self.on_stage(stage)
        started = time.monotonic()
        yield
        self._seconds[stage.value] = self._seconds.get(stage.value, 0.0) + time.monotonic() - started

    def _classify_differences(
        self, copies: DataFrame, facts: StreamFacts, out_of_order: DataFrame, folded: one_pass.SinglePassResult
    ) -> DataFrame:
        """All DIFFERENCES of messages. Does not look again at what digests and order prove to be correct."""
        result = self._classify_buckets(folded, copies, facts, out_of_order)
        ordered = sorted(name for name, model in self.context.models.items() if Consistency(model).has_one_order)
        return result.unionByName(delays.find_misordered(copies, ordered)) if ordered else result

    def _classify_buckets(
        self, folded: one_pass.SinglePassResult, copies: DataFrame, facts: StreamFacts, out_of_order: DataFrame
    ) -> DataFrame:
        """DIFFERENCES of the result of one pass: few rows are classified without compiling plans."""
        spark = copies.sparkSession
        with without_codegen(spark):
            steps = None if folded.is_in_order else out_of_order
            suspected = set(find_suspects(folded.buckets, steps, facts, size=self.bucket_size))
            purged = classify.find_purged_buckets(copies, facts, size=self.bucket_size)
            if purged is not None:
                suspected.update(plain_rows(collect_arrow(purged)))
            suspects = make_table(spark, sorted(suspected), SUSPECTS)
            suspects = self.store.keep("suspects", suspects, SUSPECTS, on_driver=True)
            which = sorted({bucket for *_, bucket in suspected})
            on_driver = differing_messages.count_rows(folded.buckets, suspected) <= _MAX_ROWS_COLLECTED
            if on_driver:
                rows = differing_messages.gather_rows(copies, suspects, which, size=self.bucket_size)
                messages = differing_messages.select_differing(rows, copies, facts, out_of_order)
            else:
                messages = differing_messages.select_messages_near(copies, which, size=self.bucket_size)
            result = self._classify_messages(messages, copies, facts, folded, out_of_order, suspects if which else None)
            return make_local(result, classify.DIFFERENCES) if on_driver else result

    def _classify_messages(
        self,
        messages: differing_messages.DifferingMessages,
        copies: DataFrame,
        facts: StreamFacts,
        folded: one_pass.SinglePassResult,
        out_of_order: DataFrame,
        suspects: DataFrame | None,
    ) -> DataFrame:
        """DIFFERENCES of the differing messages. Skips Spark queries that are known to return nothing."""
        extents = differing_messages.measure_extents(copies.sparkSession, folded.buckets)
        # With streams that were read from a moment on, the oldest messages of origins are not what is gone from them.
        result = (
            classify.find_expired_before_read(extents, facts)
            if not facts.is_narrow
            else make_table(copies.sparkSession, [], classify.DIFFERENCES)
        )
        if suspects is not None:
            result = result.unionByName(
                classify.find_message_differences(
                    messages, copies, facts, extents, suspects, self.context.canaries, size=self.bucket_size
                )
            )
        strange = differing_messages.find_misplaced_buckets(folded.buckets)
        if {part for part, _ in strange} & {"foreign", "ahead"}:
            ahead = {bucket for part, bucket in strange if part == "ahead"}
            result = result.unionByName(classify.find_misplaced(copies, facts, ahead, size=self.bucket_size))
        if facts.holes:
            result = result.unionByName(
                deleted_everywhere.find_deleted_everywhere(copies, facts, self.context.canaries)
            )
        if not folded.is_in_order:
            result = result.unionByName(order.find_reordered(messages.behind, out_of_order))
        return result

    def _judge(
        self,
        copies: DataFrame,
        facts: StreamFacts,
        buckets: DataFrame,
        differences: DataFrame,
        tables: IndependentTables,
    ) -> Report:
        keep, windows = self.store.keep, self.context.windows
        shared_keys, conflicts = tables.conflicts()
        hops, negative_delays, all_delays = tables.delays()
        broken = tables.journal_differences()
        diverged_keys = keys.find_diverged_keys(copies, facts, buckets, shared_keys)
        recovery = delays.measure_recovery(hops, differences, facts, windows) if windows else None
        evidence = Evidence(
            facts=facts,
            copies=copies,
            buckets=buckets,
            differences=differences if broken is None else differences.unionByName(broken),
            diverged_keys=keep("diverged_keys", diverged_keys, keys.DIVERGED_KEYS),
            conflicts=conflicts,
            shared_ids=tables.shared_ids(),
            negative_delays=negative_delays,
            delays=all_delays,
            order_differences=tables.order_differences(),
            recovery=None if recovery is None else keep("recovery", recovery, delays.RECOVERY),
            publish_outcomes=tables.publish_outcomes(),
        )
        return make_report(evidence, self.context, self._limit_shown(facts))
