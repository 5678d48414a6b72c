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
from vstream.value_class import value_class

T = TypeVar("T")


class DelayTables(NamedTuple):
    """What is told of delays, and the `delays.HOPS` that it is measured of."""

    hops: DataFrame
    negative_delays: DataFrame
    delays: DataFrame | None
    """Of all virtual streams; None if there are more of them than have figures."""


@value_class
class IndependentTables:
    """What returns each table as soon as it is computed. Each may be called once."""

    conflicts: Callable[[], tuple[DataFrame, DataFrame]]
    """The keys of several origins, and the conflicts among them."""
    delays: Callable[[], DelayTables]
    journal_differences: Callable[[], DataFrame | None]
    """None without the journal of a scenario's clients."""
    publish_outcomes: Callable[[], DataFrame | None]
    """None without the journal of a scenario's clients."""
    shared_ids: Callable[[], DataFrame]
    order_differences: Callable[[], DataFrame | None]
    """None if there are more virtual streams than have figures."""


def begin_independent_tables(
    store: TableStore,
    threads: DaemonExecutor | None,
    *,
    copies: DataFrame,
    facts: StreamFacts,
    journal: DataFrame | None,
    has_windows: bool,
    max_shown: int | None,
) -> IndependentTables:
    """
    Let *threads* begin to compute all tables; without them, each is computed when it is asked for.

    Those of figures are whole unless *max_shown* virtual streams have figures (`AuditPipeline`).
    """
    may_be_early, may_conflict = (None, None) if max_shown is None else _find_early_candidates(copies, facts, max_shown)
    computation = _Computation(
        store=store,
        on_driver=threads is not None,
        copies=copies,
        facts=facts,
        journal=journal,
        has_windows=has_windows,
        is_whole=max_shown is None,
        may_be_early=may_be_early,
        may_conflict=may_conflict,
    )

    def begin(compute: Callable[[], T]) -> Callable[[], T]:
        return compute if threads is None else threads.submit(compute).result

    # What takes longest begins first.
    return IndependentTables(
        conflicts=begin(computation.find_conflicts),
        delays=begin(computation.measure_delays),
        journal_differences=begin(computation.find_broken_promises),
        publish_outcomes=begin(computation.count_outcomes),
        shared_ids=begin(computation.find_shared_ids),
        order_differences=begin(computation.compare_orders),
    )


@value_class
class _Computation:
    """What the tables are computed of; each method computes one of IndependentTables."""

    store: TableStore
    on_driver: bool
    copies: DataFrame
    facts: StreamFacts
    journal: DataFrame | None
    has_windows: bool
    is_whole: bool
    """Whether the tables of figures have all virtual streams."""
    may_be_early: Collection[str] | None
    """The virtual streams that may have messages that came too early; None for all."""
    may_conflict: Collection[str] | None

    def _keep(self, name: str, rows: DataFrame, schema: StructType) -> DataFrame:
        stored = make_local(rows, schema) if self.on_driver else rows
        return self.store.keep(name, stored, schema, on_driver=self.on_driver)

    def find_conflicts(self) -> tuple[DataFrame, DataFrame]:
        """The keys of several origins, and the conflicts among them."""
        shared_keys = self.store.keep("shared_keys", keys.find_shared_keys(self.copies), keys.SHARED_KEYS)
        conflicts = keys.find_conflicts(self.copies, self.facts, select_virtuals(shared_keys, self.may_conflict))
        return shared_keys, self._keep("conflicts", conflicts, keys.CONFLICTS)

    def measure_delays(self) -> DelayTables:
        measured = self.copies if self.has_windows else select_virtuals(self.copies, self.may_be_early)
        hops = delays.measure_hops(measured, self.facts)
        if self.is_whole or self.has_windows:
            hops = self.store.keep("hops", hops, delays.HOPS)
        if not self.is_whole:
            return DelayTables(
                hops, self._keep("negative_delays", delays.find_negative_delays(hops), delays.NEGATIVE_DELAYS), None
            )
        summary = self._keep("delays", delays.summarize_delays(hops), delays.DELAYS)
        return DelayTables(hops, summary.where("minute is null and min_ns < 0"), summary)

    def find_broken_promises(self) -> DataFrame | None:
        """None without the journal of a scenario's clients."""
        if self.journal is None:
            return None
        broken = client_journal.find_broken_promises(self.journal, self.copies, self.facts)
        return self._keep("journal_differences", broken, classify.DIFFERENCES)

    def count_outcomes(self) -> DataFrame | None:
        """None without the journal of a scenario's clients."""
        if self.journal is None:
            return None
        answers = client_journal.count_outcomes(self.journal, self.copies)
        return self._keep("publish_outcomes", answers, client_journal.PUBLISH_OUTCOMES)

    def find_shared_ids(self) -> DataFrame:
        return self._keep("shared_ids", keys.find_shared_ids(self.copies, self.facts), keys.SHARED_IDS)

    def compare_orders(self) -> DataFrame | None:
        """None if there are more virtual streams than have figures."""
        if not self.is_whole:
            return None
        return self._keep("order_differences", delays.compare_orders(self.copies, self.facts), delays.ORDER_DIFFERENCES)


def _find_early_candidates(
    copies: DataFrame, facts: StreamFacts, most: int
) -> tuple[Collection[str] | None, Collection[str] | None]:
    """The virtual streams that may have messages that came too early, and conflicts; None for all, if more than *most*."""
    rows = delays.find_early_or_conflicting(copies, {row.region for row in facts.rows})
    early = [row.virtual for row in rows if row.is_early]
    blind = [row.virtual for row in rows if row.is_concurrent]
    return early if len(early) <= most else None, blind if len(blind) <= most else None
