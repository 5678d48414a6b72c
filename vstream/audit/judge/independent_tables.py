"""
Judge: the tables that do not depend on which messages are missing.

Of few messages, threads compute them while reconciling looks for those: each takes Spark longer to plan than to do, and
planning keeps one core busy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
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
_MAX_THREADS = 2
"""Number of tables that are computed at the same time, beside reconciling."""


class DelayTables(NamedTuple):
    """What is told of delays, and the `delays.HOPS` that it is measured of."""

    hops: DataFrame
    negative_delays: DataFrame
    """Of `delays`, those of all time that are below zero."""
    delays: DataFrame | None
    """Of all virtual streams; None if there are more of them than have figures, whose delays are measured then."""


class KeyTables(NamedTuple):
    """The keys of several origins, and the conflicts among them."""

    shared_keys: DataFrame
    conflicts: DataFrame


@value_class
class IndependentTables:
    """The tables that follow from `copies` alone."""

    keys: KeyTables
    delays: DelayTables
    shared_ids: DataFrame
    order_differences: DataFrame | None
    """As `DelayTables.delays`."""
    journal_differences: DataFrame | None
    """None without the journal of a scenario's clients."""
    publish_outcomes: DataFrame | None
    """As *journal_differences*."""


@value_class
class IndependentWork:
    """What IndependentTables are computed of; all but `begin` compute one of them, or two that go together."""

    store: TableStore
    on_driver: bool
    """Whether there are so few messages that threads of the driver compute the tables."""
    copies: DataFrame
    facts: StreamFacts
    journal: DataFrame | None
    has_windows: bool
    max_shown: int | None
    """How many virtual streams have figures at most (`StageRunner`); None if all have."""

    @contextmanager
    def begin(self) -> Iterator[Callable[[], IndependentTables]]:
        """
        Gives the block what returns the tables: threads compute them from now on, or without these, the call itself does.

        Who leaves the block does not wait for the threads.
        """
        may_be_early, may_conflict = self._find_early_candidates()
        threads = DaemonExecutor(_MAX_THREADS if self.on_driver else 0)

        def begin(compute: Callable[[], T]) -> Callable[[], T]:
            return threads.submit(compute).result if self.on_driver else compute

        # What takes longest begins first.
        keys_ = begin(partial(self._find_conflicts, may_conflict))
        delays_ = begin(partial(self._measure_delays, may_be_early))
        journal_differences = begin(self._find_broken_promises)
        publish_outcomes = begin(self._count_outcomes)
        shared_ids = begin(self._find_shared_ids)
        order_differences = begin(self._compare_orders)
        try:
            yield lambda: IndependentTables(
                keys=keys_(),
                delays=delays_(),
                shared_ids=shared_ids(),
                order_differences=order_differences(),
                journal_differences=journal_differences(),
                publish_outcomes=publish_outcomes(),
            )
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    def _find_early_candidates(self) -> tuple[Collection[str] | None, Collection[str] | None]:
        """The virtual streams that may have messages that came too early, and conflicts; None for all, if more than have figures."""
        if self.max_shown is None:
            return None, None
        rows = delays.find_early_or_conflicting(self.copies, {row.region for row in self.facts.rows})
        early = [row.virtual for row in rows if row.is_early]
        blind = [row.virtual for row in rows if row.is_concurrent]
        return early if len(early) <= self.max_shown else None, blind if len(blind) <= self.max_shown else None

    def _keep(self, name: str, rows: DataFrame, schema: StructType) -> DataFrame:
        stored = make_local(rows, schema) if self.on_driver else rows
        return self.store.keep(name, stored, schema, on_driver=self.on_driver)

    def _find_conflicts(self, may_conflict: Collection[str] | None) -> KeyTables:
        shared_keys = self.store.keep("shared_keys", keys.find_shared_keys(self.copies), keys.SHARED_KEYS)
        conflicts = keys.find_conflicts(self.copies, self.facts, select_virtuals(shared_keys, may_conflict))
        return KeyTables(shared_keys, self._keep("conflicts", conflicts, keys.CONFLICTS))

    def _measure_delays(self, may_be_early: Collection[str] | None) -> DelayTables:
        measured = self.copies if self.has_windows else select_virtuals(self.copies, may_be_early)
        hops = delays.measure_hops(measured, self.facts)
        if self.max_shown is None or self.has_windows:
            hops = self.store.keep("hops", hops, delays.HOPS)
        if self.max_shown is not None:
            return DelayTables(
                hops, self._keep("negative_delays", delays.find_negative_delays(hops), delays.NEGATIVE_DELAYS), None
            )
        summary = self._keep("delays", delays.summarize_delays(hops), delays.DELAYS)
        return DelayTables(hops, summary.where("minute is null and min_ns < 0"), summary)

    def _find_broken_promises(self) -> DataFrame | None:
        if self.journal is None:
            return None
        broken = client_journal.find_broken_promises(self.journal, self.copies, self.facts)
        return self._keep("journal_differences", broken, classify.DIFFERENCES)

    def _count_outcomes(self) -> DataFrame | None:
        if self.journal is None:
            return None
        answers = client_journal.count_outcomes(self.journal, self.copies)
        return self._keep("publish_outcomes", answers, client_journal.PUBLISH_OUTCOMES)

    def _find_shared_ids(self) -> DataFrame:
        return self._keep("shared_ids", keys.find_shared_ids(self.copies, self.facts), keys.SHARED_IDS)

    def _compare_orders(self) -> DataFrame | None:
        if self.max_shown is not None:
            return None
        return self._keep("order_differences", delays.compare_orders(self.copies, self.facts), delays.ORDER_DIFFERENCES)
