"""The stages of an audit in their order. Each writes tables that the next ones read, and that can be kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.types import StringType, StructField, StructType

from vstream.audit import (
    classify,
    client_journal,
    delays,
    differing_messages,
    judge,
    keys,
    normalise,
    one_pass,
    order,
    reconcile,
)
from vstream.audit import cut as cutting
from vstream.audit.daemon_executor import Daemons
from vstream.audit.local_frames import from_arrow, gathered, table
from vstream.audit.session import interpreted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from vstream.audit.context import Context
    from vstream.audit.cut import Cut
    from vstream.audit.report import Report
    from vstream.audit.table_store import Shelf

_HOPS = 1_000_000
"""Delays are taken from about so many messages at most."""
_NEIGHBOURS = 250_000
"""Orders are compared at about so many messages of each reader at most."""
_CLOSELY = 500_000
"""Rows of buckets that differ, up to which they are gathered on the driver."""
_HERE = 1_000_000
"""Messages up to which all are."""
_BESIDE = 2
"""Tables of few messages that are computed at a time, beside what this thread does."""
_ONE_ORDER = frozenset({"ordered", "stretch", "homed"})

SUSPECTS = StructType(
    [
        *(StructField(name, StringType()) for name in reconcile.ORIGIN),
        *(one for one in reconcile.BUCKETS.fields if one.name == "bucket"),
    ]
)
CONTESTED = StructType([StructField("virtual", StringType()), StructField("key", StringType())])


class Stage(Enum):
    """What is done, in this order."""

    EXTRACT = "extract"
    """Reads streams into `messages` and `streams`; done by whoever calls `run`."""
    NORMALISE = "normalise"
    RECONCILE = "reconcile"
    JUDGE = "judge"


@dataclass(slots=True)
class Run:
    """One audit. *begin* is the first stage that is computed: tables of those before it are read from the shelf."""

    shelf: Shelf
    context: Context
    begin: Stage = Stage.NORMALISE
    on_stage: Callable[[Stage], None] = lambda _: None
    bucket: int = reconcile.BUCKET
    here_up_to: int = _HERE
    """Messages up to which they are gone through on the driver."""
    seconds: dict[str, float] = field(default_factory=dict)

    def __call__(self, messages: DataFrame, streams: DataFrame, operations: DataFrame | None = None) -> Report:
        """The report on `messages` and `streams`, and on the *operations* (`journal.JOURNAL`) of a scenario."""
        cut = cutting.take(streams, is_narrow=self.context.is_narrow, is_sampled=self.context.is_sampled)
        copies = self._stage(Stage.NORMALISE, "copies", normalise.COPIES, lambda: normalise.normalise(messages, cut))
        self.shelf.seal()
        looks = self._looks(copies, cut, operations)
        threads = Daemons(_BESIDE)
        if cut.messages <= self.here_up_to:
            # Each takes Spark longer to plan than to do, and planning keeps one core busy.
            looks = {name: threads.submit(look, is_small=True).result for name, look in looks.items()}
        try:
            buckets, found = self.reconciled(copies, cut, self.shelf.files("copies"))
            self.shelf.seal()
            report = self._judge(copies, cut, buckets, found, looks)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        self.shelf.seal()
        return report

    def reconciled(self, copies: DataFrame, cut: Cut, files: Sequence[str] | None) -> tuple[DataFrame, DataFrame]:
        """The buckets, and the FAULTS that messages show; *files* are those that hold `copies`, if any do."""
        if self.begin is Stage.JUDGE:
            return self.shelf.read("buckets", reconcile.BUCKETS), self.shelf.read("faults", classify.FAULTS)
        known = self._stage(
            Stage.RECONCILE, "tracks", reconcile.TRACKS, lambda: reconcile.tracks(copies, cut), is_here=True
        )
        started = time.monotonic()
        folded = self._folded(copies, cut, known, files)
        self._took(Stage.RECONCILE, started)
        buckets = self._stage(Stage.RECONCILE, "buckets", reconcile.BUCKETS, lambda: folded.digests, is_here=True)
        backsteps = self._stage(
            Stage.RECONCILE, "backsteps", order.BACKSTEPS, lambda: folded.backsteps, is_here=folded.is_here
        )
        found = self._stage(
            Stage.RECONCILE, "faults", classify.FAULTS, lambda: self._faults(copies, cut, buckets, backsteps, folded)
        )
        return buckets, found

    def _folded(self, copies: DataFrame, cut: Cut, tracks: DataFrame, files: Sequence[str] | None) -> one_pass.Folded:
        """Digests and order from one pass over the rows, where that costs least."""
        if cut.messages <= self.here_up_to:
            return one_pass.of_rows(copies, cut, tracks, size=self.bucket)
        if one_pass.can_open(files):
            return one_pass.of_files(files or (), copies, cut, tracks, size=self.bucket)
        return one_pass.of_partitions(copies, cut, tracks, size=self.bucket)

    def _stage(
        self,
        stage: Stage,
        name: str,
        schema: StructType,
        compute: Callable[[], DataFrame],
        *,
        is_here: bool = False,
    ) -> DataFrame:
        order = list(Stage)
        if order.index(stage) < order.index(self.begin):
            return self.shelf.read(name, schema)
        self.on_stage(stage)
        started = time.monotonic()
        kept = self.shelf.keep(name, compute(), schema, is_here=is_here)
        self._took(stage, started)
        return kept

    def _took(self, stage: Stage, started: float) -> None:
        self.seconds[stage.value] = self.seconds.get(stage.value, 0.0) + time.monotonic() - started

    def _faults(
        self, copies: DataFrame, cut: Cut, buckets: DataFrame, backsteps: DataFrame, folded: one_pass.Folded
    ) -> DataFrame:
        """All FAULTS that messages show. What digests and order prove to be well is not looked at again."""
        found = self._differing(folded, copies, cut, buckets, backsteps)
        ordered = sorted(name for name, model in self.context.models.items() if model in _ONE_ORDER)
        return found.unionByName(delays.misordered(copies, ordered)) if ordered else found

    def _differing(
        self, folded: one_pass.Folded, copies: DataFrame, cut: Cut, buckets: DataFrame, backsteps: DataFrame
    ) -> DataFrame:
        """FAULTS of what was folded: few rows are judged without compiling anything for them."""
        spark = copies.sparkSession
        with interpreted(spark):
            differing = gathered(reconcile.suspects(buckets, backsteps, cut, size=self.bucket).select(*SUSPECTS.names))
            suspects = from_arrow(spark, differing, SUSPECTS)
            suspects = self.shelf.keep("suspects", suspects, SUSPECTS, is_here=True)
            which = sorted(set(differing["bucket"].to_pylist()))
            is_small = differing_messages.number(folded.buckets, differing) <= _CLOSELY
            if is_small:
                rows = differing_messages.rows_of(copies, suspects, which, size=self.bucket)
                look = differing_messages.closely(rows, copies, cut, backsteps)
            else:
                look = differing_messages.everything(copies, which, size=self.bucket)
            found = self._looked_into(look, copies, cut, folded, backsteps, suspects if which else None)
            if is_small:
                found = from_arrow(spark, gathered(found.select(*classify.FAULTS.names)), classify.FAULTS)
        return found

    def _looked_into(
        self,
        look: differing_messages.Look,
        copies: DataFrame,
        cut: Cut,
        folded: one_pass.Folded,
        backsteps: DataFrame,
        suspects: DataFrame | None,
    ) -> DataFrame:
        """FAULTS of what there is to look into. What there is not is not asked of Spark, which takes time to say so."""
        extents = differing_messages.extents(copies.sparkSession, folded.buckets)
        # With streams that were read from a moment on, the oldest messages of origins are not what is gone from them.
        found = classify.passed(extents, cut) if not cut.is_narrow else table(copies.sparkSession, [], classify.FAULTS)
        if suspects is not None:
            found = found.unionByName(classify.faults(look, copies, cut, extents, suspects, size=self.bucket))
        strange = differing_messages.strange(folded.buckets)
        if {part for part, _ in strange} & {"foreign", "ahead"}:
            ahead = {bucket for part, bucket in strange if part == "ahead"}
            found = found.unionByName(classify.misplaced(copies, cut, ahead, size=self.bucket))
        if not folded.is_in_order:
            found = found.unionByName(classify.reordered(look.behind, backsteps))
        return found

    def _looks(
        self, copies: DataFrame, cut: Cut, operations: DataFrame | None
    ) -> Mapping[str, Callable[..., DataFrame]]:
        """What is found in `copies` whatever they lack: by its name, what computes a table."""
        keep = self.shelf.keep

        def late() -> DataFrame:
            hops = delays.hops(copies, cut, one_in=_one_in(_HOPS, cut))
            return delays.delays(keep("hops", hops, delays.HOPS))

        def conflicts() -> DataFrame:
            return keys.conflicts(copies, cut, keep("contested", keys.contested(copies), CONTESTED))

        def pairs() -> DataFrame:
            return delays.pairs(copies, one_in=_one_in(_NEIGHBOURS, cut))

        found = {
            "conflicts": self._look("conflicts", conflicts, keys.CONFLICTS),
            "delays": self._look("delays", late, delays.DELAYS),
            "pairs": self._look("pairs", pairs, delays.PAIRS),
            "twins": self._look("twins", lambda: keys.twins(copies, cut), keys.TWINS),
        }
        if operations is not None:
            journaled = (
                partial(client_journal.broken, operations, copies, cut),
                partial(client_journal.answers, operations, copies),
            )
            found["broken"] = self._look("broken", journaled[0], classify.FAULTS)
            found["answers"] = self._look("answers", journaled[1], client_journal.ANSWERS)
        return found

    def _look(self, name: str, compute: Callable[[], DataFrame], schema: StructType) -> Callable[..., DataFrame]:
        def look(*, is_small: bool = False) -> DataFrame:
            rows = compute()
            if is_small:
                rows = from_arrow(self.shelf.spark, gathered(rows.select(*schema.names)), schema)
            return self.shelf.keep(name, rows, schema, is_here=is_small)

        return look

    def _judge(
        self,
        copies: DataFrame,
        cut: Cut,
        buckets: DataFrame,
        found: DataFrame,
        looks: Mapping[str, Callable[[], DataFrame]],
    ) -> Report:
        self.on_stage(Stage.JUDGE)
        started = time.monotonic()
        keep, windows = self.shelf.keep, self.context.windows
        table_of = {name: look() for name, look in looks.items()}
        contested, hops = self.shelf.held("contested"), self.shelf.held("hops")
        evidence = judge.Evidence(
            cut=cut,
            buckets=buckets,
            faults=found.unionByName(table_of["broken"]) if "broken" in table_of else found,
            disputes=keep("disputes", keys.disputes(copies, cut, buckets, contested), keys.DISPUTES),
            conflicts=table_of["conflicts"],
            twins=table_of["twins"],
            delays=table_of["delays"],
            settling=keep("settling", delays.settling(hops, found, cut, windows), delays.SETTLING) if windows else None,
            pairs=table_of["pairs"],
            answers=table_of.get("answers"),
        )
        report = judge.judge(
            evidence,
            self.context.subject,
            virtuals=tuple(self.context.models),
            unfinished=self.context.unfinished,
            one_in=_one_in(_HOPS, cut),
            stretch=self.context.stretch,
        )
        self.seconds[Stage.JUDGE.value] = time.monotonic() - started
        return replace(report, seconds=self.seconds)


def _one_in(most: int, cut: Cut) -> int:
    """One message in so many is looked at, so that there are about *most*."""
    return max(1, cut.messages // most)
