"""
Judge: the tables that do not depend on which messages are missing.

Of few messages, threads compute them while reconciling looks for those: each takes Spark longer to plan than to do, and
planning keeps one core busy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from vstream.audit.judge import client_journal, delays, keys
from vstream.audit.reconcile import classify
from vstream.audit.spark.daemon_threads import DaemonExecutor
from vstream.audit.spark.local_frames import make_local, select_virtuals
from vstream.audit.tables.stream_facts import StreamFacts
from vstream.audit.tables.table_store import TableStore

T = TypeVar("T")


class DelayTables(NamedTuple):
    """What is told of delays, and the `delays.HOPS` that it is measured of."""

    hops: DataFrame
    negative_delays: DataFrame
    delays: DataFrame | None
    """Of all virtual streams; None if there are more of them than have figures."""


class IndependentTables:
    """
    Each attribute returns its table, and may be called once.

    With *threads*, these compute all tables from now on; without, each is computed when it is asked for. Those of figures
    are whole unless *max_shown* virtual streams have figures (`AuditPipeline`).
    """

    def __init__(
        self,
        store: TableStore,
        threads: DaemonExecutor | None,
        *,
        copies: DataFrame,
        facts: StreamFacts,
        journal: DataFrame | None,
        has_windows: bool,
        max_shown: int | None,
    ) -> None:
        self._store, self._threads = store, threads
        self._copies, self._facts, self._journal = copies, facts, journal
        self._has_windows = has_windows
        self._is_whole = max_shown is None
        candidates = (None, None) if max_shown is None else _find_early_candidates(copies, facts, max_shown)
        self._may_be_early, self._may_conflict = candidates
        # What takes longest begins first.
        self.conflicts = self._begin(self._find_conflicts)
        self.delays = self._begin(self._measure_delays)
        self.journal_differences = self._begin(self._find_broken_promises)
        self.publish_outcomes = self._begin(self._count_outcomes)
        self.shared_ids = self._begin(self._find_shared_ids)
        self.order_differences = self._begin(self._compare_orders)

    def _begin(self, compute: Callable[[], T]) -> Callable[[], T]:
        return compute if self._threads is None else self._threads.submit(compute).result

    def _keep(self, name: str, rows: DataFrame, schema: StructType) -> DataFrame:
        on_driver = self._threads is not None
        return self._store.keep(name, make_local(rows, schema) if on_driver else rows, schema, on_driver=on_driver)

    def _find_conflicts(self) -> tuple[DataFrame, DataFrame]:
        """The keys of several origins, and the conflicts among them."""
        shared_keys = self._store.keep("shared_keys", keys.find_shared_keys(self._copies), keys.SHARED_KEYS)
        conflicts = keys.find_conflicts(self._copies, self._facts, select_virtuals(shared_keys, self._may_conflict))
        return shared_keys, self._keep("conflicts", conflicts, keys.CONFLICTS)

    def _measure_delays(self) -> DelayTables:
        measured = self._copies if self._has_windows else select_virtuals(self._copies, self._may_be_early)
        hops = delays.measure_hops(measured, self._facts)
        if self._is_whole or self._has_windows:
            hops = self._store.keep("hops", hops, delays.HOPS)
        if not self._is_whole:
            return DelayTables(
                hops, self._keep("negative_delays", delays.find_negative_delays(hops), delays.NEGATIVE_DELAYS), None
            )
        summary = self._keep("delays", delays.summarize_delays(hops), delays.DELAYS)
        return DelayTables(hops, summary.where("minute is null and min_ns < 0"), summary)

    def _find_broken_promises(self) -> DataFrame | None:
        """None without the journal of a scenario's clients."""
        if self._journal is None:
            return None
        broken = client_journal.find_broken_promises(self._journal, self._copies, self._facts)
        return self._keep("journal_differences", broken, classify.DIFFERENCES)

    def _count_outcomes(self) -> DataFrame | None:
        """None without the journal of a scenario's clients."""
        if self._journal is None:
            return None
        answers = client_journal.count_outcomes(self._journal, self._copies)
        return self._keep("publish_outcomes", answers, client_journal.PUBLISH_OUTCOMES)

    def _find_shared_ids(self) -> DataFrame:
        return self._keep("shared_ids", keys.find_shared_ids(self._copies, self._facts), keys.SHARED_IDS)

    def _compare_orders(self) -> DataFrame | None:
        """None if there are more virtual streams than have figures."""
        if not self._is_whole:
            return None
        return self._keep(
            "order_differences", delays.compare_orders(self._copies, self._facts), delays.ORDER_DIFFERENCES
        )


def _find_early_candidates(
    copies: DataFrame, facts: StreamFacts, most: int
) -> tuple[Collection[str] | None, Collection[str] | None]:
    """The virtual streams that may have messages that came too early, and conflicts; None for all, if more than *most*."""
    rows = delays.find_early_or_conflicting(copies, {row.region for row in facts.rows})
    early = [row.virtual for row in rows if row.is_early]
    blind = [row.virtual for row in rows if row.is_concurrent]
    return early if len(early) <= most else None, blind if len(blind) <= most else None
