"""The stages of an audit in their order. Each writes tables that the next ones read, and that can be kept."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from vstream.audit import cut as cutting
from vstream.audit import delays, faults, folding, journal, judge, keys, looking, normalise, order, reconcile
from vstream.audit.frames import checked
from vstream.audit.local import from_arrow, gathered, table
from vstream.audit.session import interpreted
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from vstream.audit.cut import Cut
    from vstream.audit.report import Report

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
_JOURNAL = "journal"
_CONTEXT = StructType([StructField("context", StringType())])
_FILES = StructType([StructField("name", StringType()), StructField("files", ArrayType(StringType()))])


class Stage(Enum):
    """What is done, in this order."""

    EXTRACT = "extract"
    """Reads streams into `messages` and `streams`; done by whoever calls `run`."""
    NORMALISE = "normalise"
    RECONCILE = "reconcile"
    JUDGE = "judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What an audit knows besides messages."""

    subject: str
    """What is audited, for people."""
    models: Mapping[str, str] = field(default_factory=dict)
    """By virtual stream, what it promises: a value of `model.topology.Consistency`."""
    windows: tuple[tuple[str, int, int], ...] = ()
    """Faults: their names, with beginning and end in nanoseconds since 1970."""
    is_narrow: bool = False
    """Whether streams were read from a moment on only."""
    is_sampled: bool = False
    """Whether only messages of some subjects were read."""
    unfinished: str | None = None
    """Why what is audited was not recorded to its end, if it was not."""
    has_journal: bool = False
    """Whether it is known what clients did and were told."""


class Shelf:
    """
    Where tables of an audit are kept: below *uri*, which any Spark file system can be, or in Spark's memory.

    *reads* is where those are that an earlier audit kept; without it, they are below *uri*.
    Of these, only what is about *virtuals* is read, if some are named.
    """

    def __init__(
        self, spark: SparkSession, uri: str | None = None, *, reads: str | None = None, virtuals: Sequence[str] = ()
    ) -> None:
        self.spark = spark
        self._uri = uri
        self._reads = reads or uri
        self._virtuals = list(virtuals)
        self._held: dict[str, DataFrame] = {}
        self._written: dict[str, list[str]] = {}
        self._known: dict[str, list[str]] | None = None

    def keep(self, name: str, rows: DataFrame, schema: StructType, *, is_here: bool = False) -> DataFrame:
        """Compute *rows* once, and give back what is kept of them under *name*; those that are on the driver stay there."""
        rows = rows.select(*schema.names)
        if self._uri is None:
            kept = rows if is_here else rows.persist()
        else:
            place = f"{self._uri}/{name}"
            rows.write.mode("overwrite").parquet(place)
            written = self.spark.read.schema(schema).parquet(place)
            self._written[name] = _files(written)
            kept = rows if is_here else written
        self._held[name] = kept
        return kept

    def seal(self) -> None:
        """Keep of which files the tables are that were written, so that one which is gone is noticed."""
        if self._written and self._uri is not None:
            known = self._files_at(self._uri) | self._written
            rows = table(self.spark, sorted(known.items()), _FILES)
            rows.coalesce(1).write.mode("overwrite").json(f"{self._uri}/files")

    def expects(self, name: str) -> bool:
        """Whether an earlier audit, which came to its end, has kept the table *name*."""
        return name in self._expected()

    def _expected(self) -> Mapping[str, list[str]]:
        if self._known is None:
            self._known = self._files_at(self._reads)
        return self._known

    def _files_at(self, place: str | None) -> dict[str, list[str]]:
        try:
            return {one.name: one.files for one in self.spark.read.schema(_FILES).json(f"{place}/files").collect()}
        except PySparkException:
            return {}

    def has(self, name: str) -> bool:
        """Whether this audit has computed the table *name*."""
        return name in self._held

    def held(self, name: str) -> DataFrame:
        """The table *name* of this audit. Raises KeyError if it was not computed."""
        return self._held[name]

    def files(self, name: str) -> Sequence[str] | None:
        """The files that hold the table *name*, and perhaps rows of other virtual streams; None where it is in memory."""
        place = self._uri if name in self._held else self._reads
        return None if place is None else self.spark.read.parquet(f"{place}/{name}").inputFiles()

    def read(self, name: str, schema: StructType) -> DataFrame:
        """The table *name* as an earlier audit kept it, all of it. Raises VstreamError if it is not there."""
        rows = checked(self.spark, f"{self._reads}/{name}", schema)
        found = _files(rows)
        if found != self._expected().get(name, found):
            raise VstreamError(
                f"the table `{self._reads}/{name}` has other files than were written",
                hint="begin at an earlier stage with `--from`",
            )
        if self._virtuals and "virtual" in schema.names:
            rows = rows.where(F.col("virtual").isin(self._virtuals))
        return rows


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
        looks = self._looks(copies, cut, operations)
        with ThreadPoolExecutor(_BESIDE, "vstream-audit") as threads:
            if cut.messages <= self.here_up_to:
                # Each takes Spark longer to plan than to do, and planning keeps one core busy.
                looks = {name: threads.submit(look, is_small=True).result for name, look in looks.items()}
            try:
                buckets, found = self.reconciled(copies, cut, self.shelf.files("copies"))
                report = self._judge(copies, cut, buckets, found, looks)
            finally:
                threads.shutdown(wait=False, cancel_futures=True)
        self.shelf.seal()
        return report

    def reconciled(self, copies: DataFrame, cut: Cut, files: Sequence[str] | None) -> tuple[DataFrame, DataFrame]:
        """The buckets, and the FAULTS that messages show; *files* are those that hold `copies`, if any do."""
        if self.begin is Stage.JUDGE:
            return self.shelf.read("buckets", reconcile.BUCKETS), self.shelf.read("faults", faults.FAULTS)
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
            Stage.RECONCILE, "faults", faults.FAULTS, lambda: self._faults(copies, cut, buckets, backsteps, folded)
        )
        return buckets, found

    def _folded(self, copies: DataFrame, cut: Cut, tracks: DataFrame, files: Sequence[str] | None) -> folding.Folded:
        """Digests and order from one pass over the rows, where that costs least."""
        if cut.messages <= self.here_up_to:
            return folding.of_rows(copies, cut, tracks, size=self.bucket)
        if folding.can_open(files):
            return folding.of_files(files or (), copies, cut, tracks, size=self.bucket)
        return folding.of_partitions(copies, cut, tracks, size=self.bucket)

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
        self, copies: DataFrame, cut: Cut, buckets: DataFrame, backsteps: DataFrame, folded: folding.Folded
    ) -> DataFrame:
        """All FAULTS that messages show. What digests and order prove to be well is not looked at again."""
        found = self._differing(folded, copies, cut, buckets, backsteps)
        ordered = sorted(name for name, model in self.context.models.items() if model in _ONE_ORDER)
        return found.unionByName(delays.misordered(copies, ordered)) if ordered else found

    def _differing(
        self, folded: folding.Folded, copies: DataFrame, cut: Cut, buckets: DataFrame, backsteps: DataFrame
    ) -> DataFrame:
        """FAULTS of what was folded: few rows are judged without compiling anything for them."""
        spark = copies.sparkSession
        with interpreted(spark):
            differing = gathered(reconcile.suspects(buckets, backsteps, cut, size=self.bucket).select(*SUSPECTS.names))
            suspects = from_arrow(spark, differing, SUSPECTS)
            suspects = self.shelf.keep("suspects", suspects, SUSPECTS, is_here=True)
            which = sorted(set(differing["bucket"].to_pylist()))
            is_small = looking.number(folded.buckets, differing) <= _CLOSELY
            if is_small:
                rows = looking.rows_of(copies, suspects, which, size=self.bucket)
                look = looking.closely(rows, copies, cut, backsteps)
            else:
                look = looking.everything(copies, which, size=self.bucket)
            found = self._looked_into(look, copies, cut, folded, backsteps, suspects if which else None)
            if is_small:
                found = from_arrow(spark, gathered(found.select(*faults.FAULTS.names)), faults.FAULTS)
        return found

    def _looked_into(
        self,
        look: looking.Look,
        copies: DataFrame,
        cut: Cut,
        folded: folding.Folded,
        backsteps: DataFrame,
        suspects: DataFrame | None,
    ) -> DataFrame:
        """FAULTS of what there is to look into. What there is not is not asked of Spark, which takes time to say so."""
        extents = looking.extents(copies.sparkSession, folded.buckets)
        # With streams that were read from a moment on, the oldest messages of origins are not what is gone from them.
        found = faults.passed(extents, cut) if not cut.is_narrow else table(copies.sparkSession, [], faults.FAULTS)
        if suspects is not None:
            found = found.unionByName(faults.faults(look, copies, cut, extents, suspects, size=self.bucket))
        strange = looking.strange(folded.buckets)
        if {part for part, _ in strange} & {"foreign", "ahead"}:
            ahead = {bucket for part, bucket in strange if part == "ahead"}
            found = found.unionByName(faults.misplaced(copies, cut, ahead, size=self.bucket))
        if not folded.is_in_order:
            found = found.unionByName(faults.reordered(look.behind, backsteps))
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
            journaled = partial(journal.broken, operations, copies, cut), partial(journal.answers, operations, copies)
            found["broken"] = self._look("broken", journaled[0], faults.FAULTS)
            found["answers"] = self._look("answers", journaled[1], journal.ANSWERS)
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
        )
        self.seconds[Stage.JUDGE.value] = time.monotonic() - started
        return replace(report, seconds=self.seconds)


def _one_in(most: int, cut: Cut) -> int:
    """One message in so many is looked at, so that there are about *most*."""
    return max(1, cut.messages // most)


def _files(rows: DataFrame) -> list[str]:
    """The names of the files that *rows* are read from."""
    return sorted(PurePosixPath(urlsplit(one).path).name for one in rows.inputFiles())


def save_context(shelf: Shelf, context: Context) -> None:
    """Keep *context* beside the tables, so that they can be judged again."""
    text = json.dumps(
        {
            "subject": context.subject,
            "models": dict(context.models),
            "windows": [list(one) for one in context.windows],
            "is_narrow": context.is_narrow,
            "is_sampled": context.is_sampled,
            "unfinished": context.unfinished,
            "has_journal": context.has_journal,
        }
    )
    shelf.keep("context", table(shelf.spark, [(text,)], _CONTEXT), _CONTEXT)


def read_context(shelf: Shelf, subject: str) -> Context:
    """The context that was kept; one that knows nothing but *subject* if there is none."""
    try:
        rows = shelf.read("context", _CONTEXT).collect()
    except VstreamError:
        if shelf.expects("context"):
            raise
        rows = []
    if not rows:
        return Context(subject=subject)
    kept = json.loads(rows[0]["context"])
    return Context(
        subject=subject,
        models=kept["models"],
        windows=tuple((one[0], one[1], one[2]) for one in kept["windows"]),
        is_narrow=kept["is_narrow"],
        is_sampled=kept["is_sampled"],
        unfinished=kept["unfinished"],
        has_journal=kept["has_journal"],
    )


def save_journal(shelf: Shelf, operations: DataFrame) -> DataFrame:
    """Keep the operations of a scenario beside the tables."""
    return shelf.keep(_JOURNAL, operations, journal.JOURNAL)


def read_journal(shelf: Shelf) -> DataFrame:
    """The operations that were kept. Raises VstreamError if there are none."""
    return shelf.read(_JOURNAL, journal.JOURNAL)
