"""Reconcile: the whole stage, from copies to differences. What digests and order prove to be correct is not looked at again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame

from vstream.audit.reconcile.buckets import BUCKET_SIZE, BUCKETS, build_substreams, find_suspects
from vstream.audit.reconcile.classify import (
    DIFFERENCES,
    find_expired_before_read,
    find_message_differences,
    find_misplaced,
    find_purged_buckets,
)
from vstream.audit.reconcile.deleted_everywhere import find_deleted_everywhere
from vstream.audit.reconcile.differing_messages import (
    DifferingMessages,
    count_rows,
    find_misplaced_buckets,
    gather_rows,
    measure_extents,
    select_differing,
    select_messages_near,
)
from vstream.audit.reconcile.one_pass import SinglePassResult, fold_copies
from vstream.audit.reconcile.order import OUT_OF_ORDER, find_misordered, find_reordered
from vstream.audit.spark.local_frames import collect_arrow, make_local, make_table, plain_rows
from vstream.audit.spark.session import without_codegen
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.stream_facts import StreamFacts
from vstream.audit.tables.table_store import TableStore
from vstream.topology.model import Consistency
from vstream.value_class import value_class

_MAX_ROWS_COLLECTED: Final = 500_000
"""Rows of buckets that differ are collected on the driver up to this number."""
_SUSPECTS: Final = make_schema("virtual string, origin string, former string, bucket bigint")


@value_class
class Reconciled:
    """What reconciling has found, as tables that are kept."""

    buckets: DataFrame
    """`buckets.BUCKETS`."""
    differences: DataFrame
    """`classify.DIFFERENCES`."""


@value_class
class Reconciliation:
    """Reconciles *copies* (`message_copies.COPIES`), and keeps each table in *store*."""

    copies: DataFrame
    facts: StreamFacts
    context: AuditContext
    store: TableStore
    bucket_size: int = BUCKET_SIZE

    def reconcile(self, files: Sequence[str] | None, *, on_driver: bool) -> Reconciled:
        """All that is found; *files* are those of the copies, if they are stored in files. *on_driver*: one pass is made there."""
        substreams = build_substreams(self.copies, self.facts)
        folded = fold_copies(self.copies, self.facts, substreams, files, on_driver=on_driver, size=self.bucket_size)
        buckets = self.store.keep("buckets", folded.digests, BUCKETS, on_driver=True)
        out_of_order = self.store.keep("out_of_order", folded.out_of_order, OUT_OF_ORDER, on_driver=folded.on_driver)
        differences = self._find_in_buckets(replace(folded, out_of_order=out_of_order))
        ordered = sorted(name for name, model in self.context.models.items() if Consistency(model).has_one_order)
        if ordered:
            differences = differences.unionByName(find_misordered(self.copies, ordered))
        return Reconciled(buckets=buckets, differences=self.store.keep("differences", differences, DIFFERENCES))

    def _find_in_buckets(self, folded: SinglePassResult) -> DataFrame:
        """DIFFERENCES of the buckets that differ: few rows are classified without compiling plans."""
        spark = self.copies.sparkSession
        with without_codegen(spark):
            suspected = self._find_suspected(folded)
            suspects = make_table(spark, sorted(suspected), _SUSPECTS)
            suspects = self.store.keep("suspects", suspects, _SUSPECTS, on_driver=True)
            on_driver = count_rows(folded.buckets, suspected) <= _MAX_ROWS_COLLECTED
            messages = self._select_messages(folded, suspected, suspects, on_driver=on_driver)
            tables = [*self._list_differences(folded, messages, suspects if suspected else None)]
            differences = reduce(DataFrame.unionByName, tables or [make_table(spark, [], DIFFERENCES)])
            return make_local(differences, DIFFERENCES) if on_driver else differences

    def _find_suspected(self, folded: SinglePassResult) -> set[tuple[str, str, str, int]]:
        """The buckets whose messages are looked at: virtual, origin, former and bucket."""
        out_of_order = None if folded.is_in_order else folded.out_of_order
        suspected = set(find_suspects(folded.buckets, out_of_order, self.facts, size=self.bucket_size))
        purged = find_purged_buckets(self.copies, self.facts, size=self.bucket_size)
        if purged is not None:
            suspected.update(plain_rows(collect_arrow(purged)))
        return suspected

    def _select_messages(
        self,
        folded: SinglePassResult,
        suspected: Collection[tuple[str, str, str, int]],
        suspects: DataFrame,
        *,
        on_driver: bool,
    ) -> DifferingMessages:
        """Those that may differ: *on_driver*, only these; else all that are in or near suspected buckets."""
        which = sorted({bucket for *_, bucket in suspected})
        if not on_driver:
            return select_messages_near(self.copies, which, size=self.bucket_size)
        rows = gather_rows(self.copies, suspects, which, size=self.bucket_size)
        return select_differing(rows, self.copies, self.facts, folded.out_of_order)

    def _list_differences(
        self, folded: SinglePassResult, messages: DifferingMessages, suspects: DataFrame | None
    ) -> Iterator[DataFrame]:
        """DIFFERENCES by question. Where it is known that there are none, Spark is not asked."""
        copies, facts, canaries, size = self.copies, self.facts, self.context.canaries, self.bucket_size
        extents = measure_extents(copies.sparkSession, folded.buckets)
        # With streams that were read from a moment on, the oldest messages of origins are not what is gone from them.
        if not facts.is_narrow:
            yield find_expired_before_read(extents, facts)
        if suspects is not None:
            yield find_message_differences(messages, copies, facts, extents, suspects, canaries, size=size)
        misplaced = find_misplaced_buckets(folded.buckets)
        if misplaced:
            yield find_misplaced(copies, facts, {bucket for part, bucket in misplaced if part == "ahead"}, size=size)
        if facts.holes:
            yield find_deleted_everywhere(copies, facts, canaries)
        if not folded.is_in_order:
            yield find_reordered(messages.behind, folded.out_of_order)
