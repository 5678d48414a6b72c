"""
The stages of an audit after the extraction: normalise, reconcile and judge. Each keeps tables, which the next ones read.

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

from vstream.audit.judge.delays import RECOVERY, measure_recovery
from vstream.audit.judge.independent_tables import IndependentTables, IndependentWork
from vstream.audit.judge.keys import DIVERGED_KEYS, find_diverged_keys
from vstream.audit.judge.make_report import Evidence, make_report
from vstream.audit.normalise.message_copies import COPIES, collect_origin_facts, make_copies
from vstream.audit.reconcile.buckets import BUCKET_SIZE, BUCKETS
from vstream.audit.reconcile.classify import DIFFERENCES
from vstream.audit.reconcile.reconciliation import Reconciled, Reconciliation
from vstream.audit.report import Report
from vstream.audit.request import MAX_STREAMS_WITH_FIGURES, AuditStage
from vstream.audit.spark.local_frames import make_local
from vstream.audit.state.verified import NOTHING_VERIFIED, VerifiedPart
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.stream_facts import StreamFacts, build_stream_facts
from vstream.audit.tables.table_store import TableStore
from vstream.value_class import value_class

_MAX_MESSAGES_ON_DRIVER = 1_000_000
"""All rows are processed on the driver up to this number of messages."""
_MAX_MESSAGES_LOCAL_TABLE = 50_000
"""Up to this number of messages, `copies` is a local table: Spark would plan for longer than it computes."""


@value_class
class AuditResult:
    """The *report* of an audit, and what it was made of."""

    report: Report
    copies: DataFrame
    buckets: DataFrame
    facts: StreamFacts


@dataclass(slots=True)
class StageRunner:
    """Runs the stages from *first_stage* on: the tables of earlier stages are read from *store*."""

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

    def run(self, messages: DataFrame, streams: DataFrame, journal: DataFrame | None = None) -> AuditResult:
        """What `messages` and `streams` show, and the *journal* (`client_journal.JOURNAL`) of a scenario's clients."""
        context = self.context
        facts = build_stream_facts(
            streams, is_narrow=context.is_narrow, is_sampled=context.is_sampled, verified=self.verified
        )
        copies = self._normalise(messages, facts)
        # Sealed after each stage: if the audit is killed in the next one, `--from` begins with that.
        self.store.seal()
        # Whichever messages are missing, these tables follow from the copies: threads can compute them meanwhile.
        independent_work = IndependentWork(
            store=self.store,
            on_driver=self._is_on_driver(facts),
            copies=copies,
            facts=facts,
            journal=journal,
            has_windows=bool(context.windows),
            max_shown=None if self.is_kept else self._limit_shown(facts),
        )
        with independent_work.begin() as finish_tables:
            reconciled = self.reconcile(copies, facts, self.store.files("copies"))
            self.store.seal()
            with self._measure(AuditStage.JUDGE):
                report = self._judge(copies, facts, reconciled, finish_tables())
        self.store.seal()
        report = replace(report, seconds=self._seconds)
        return AuditResult(report=report, copies=copies, buckets=reconciled.buckets, facts=facts)

    def _normalise(self, messages: DataFrame, facts: StreamFacts) -> DataFrame:
        """The table COPIES."""
        if self._is_done(AuditStage.NORMALISE):
            return self.store.read_earlier("copies", COPIES)
        on_driver = self._is_on_driver(facts) and facts.messages <= _MAX_MESSAGES_LOCAL_TABLE
        with self._measure(AuditStage.NORMALISE):
            copies = make_copies(messages, facts, collect_origin_facts(messages, facts))
            rows = make_local(copies, COPIES) if on_driver else copies
            return self.store.keep("copies", rows, COPIES, on_driver=on_driver)

    def reconcile(self, copies: DataFrame, facts: StreamFacts, files: Sequence[str] | None) -> Reconciled:
        """Where regions differ; *files* are those of `copies`, if it is stored in files."""
        if self._is_done(AuditStage.RECONCILE):
            read = self.store.read_earlier
            return Reconciled(buckets=read("buckets", BUCKETS), differences=read("differences", DIFFERENCES))
        reconciliation = Reconciliation(
            copies=copies, facts=facts, context=self.context, store=self.store, bucket_size=self.bucket_size
        )
        with self._measure(AuditStage.RECONCILE):
            return reconciliation.reconcile(files, on_driver=self._is_on_driver(facts))

    def _judge(
        self, copies: DataFrame, facts: StreamFacts, reconciled: Reconciled, independent: IndependentTables
    ) -> Report:
        """What it all means."""
        keep, windows, differences = self.store.keep, self.context.windows, reconciled.differences
        diverged_keys = find_diverged_keys(copies, facts, reconciled.buckets, independent.keys.shared_keys)
        recovery = measure_recovery(independent.delays.hops, differences, facts, windows) if windows else None
        broken = independent.journal_differences
        evidence = Evidence(
            facts=facts,
            copies=copies,
            buckets=reconciled.buckets,
            differences=differences if broken is None else differences.unionByName(broken),
            diverged_keys=keep("diverged_keys", diverged_keys, DIVERGED_KEYS),
            recovery=None if recovery is None else keep("recovery", recovery, RECOVERY),
            independent=independent,
        )
        return make_report(evidence, self.context, self._limit_shown(facts))

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
        """Say that *stage* begins, and count the seconds of the block as its own."""
        self.on_stage(stage)
        started = time.monotonic()
        yield
        self._seconds[stage.value] = time.monotonic() - started
