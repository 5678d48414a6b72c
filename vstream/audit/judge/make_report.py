"""Judge, last part: turn the tables into a report, whose `Report.verdict` decides PASS, FAIL or UNKNOWN."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from itertools import islice
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from vstream.audit.codes import BY_KIND, Count
from vstream.audit.connector.values import ABSENT
from vstream.audit.finding_kinds import MISSING, RANGED, FindingKind
from vstream.audit.judge.delays import choose_one_in, compare_orders, measure_hops, summarize_delays
from vstream.audit.judge.independent_tables import IndependentTables
from vstream.audit.reconcile.buckets import ORIGIN
from vstream.audit.report import (
    Delay,
    MessageFinding,
    OrderDifference,
    PublishOutcomes,
    ReaderRoute,
    Recovery,
    Report,
    SequenceRange,
    StreamState,
)
from vstream.audit.spark.local_frames import collect_arrow, plain_rows, select_virtuals
from vstream.audit.state.verified import NO_ROUTE
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import STREAMS
from vstream.audit.tables.stream_facts import StreamFacts
from vstream.audit.tables.stream_settings import is_origin
from vstream.findings import Severity
from vstream.topology.stream_limits import REMOVING
from vstream.value_class import value_class

MAX_EXAMPLES: Final = 5
"""Maximum number of keys and ids that a finding names."""
MAX_RANGES: Final = 100
"""Maximum number of ranges of a finding, for charts."""
_GROUP: Final = ("virtual", "kind", "stream", "region", "origin", "former")
"""What the differences of a finding have in common."""
_LONG_RUN_COPIES: Final = 10
"""Average number of adjacent copies from which on whole ranges count as repeated."""
_STARTED_OVER: Final = "whole ranges repeat: its source has started over, as after a restart in the published layout"
_ONLY_RECENT_HINT: Final = "only recent messages were checked: a longer `--since` may find some"


@value_class
class Evidence:
    """The tables to judge."""

    facts: StreamFacts
    copies: DataFrame
    buckets: DataFrame
    differences: DataFrame
    diverged_keys: DataFrame
    recovery: DataFrame | None
    """None without faults."""
    independent: IndependentTables


def make_report(evidence: Evidence, context: AuditContext, max_shown: int | None = None) -> Report:
    """The report on *evidence*. With *max_shown*, only virtual streams that do not pass have figures, and so many at most."""
    streams = _describe_streams(evidence)
    places = dict.fromkeys(stream.region for stream in streams)
    states = {(stream.virtual, stream.stream): stream for stream in streams}
    findings = [
        *_judge_streams(evidence, streams, context),
        *_judge_differences(evidence.differences, states),
        *_judge_keys(evidence),
    ]
    findings += _judge_clocks(evidence.independent.delays.negative_delays.collect())
    order = list(BY_KIND)
    by_code = {code.code: order.index(kind) for kind, code in BY_KIND.items()}
    findings.sort(
        key=lambda item: (item.severity is not Severity.ERROR, item.virtual, by_code[item.code], item.stream or "")
    )
    shown = None if max_shown is None else _find_shown(findings, max_shown)
    has_figures = shown is None or bool(shown)
    return Report(
        subject=context.subject,
        shown=shown,
        regions=tuple(place for place in places if place != context.stretch),
        stretch=context.stretch if context.stretch in places else None,
        streams=streams,
        findings=tuple(findings),
        routes=_describe_routes(evidence, states, findings, shown) if has_figures else (),
        delays=_list_delays(evidence, shown) if has_figures else (),
        one_in=choose_one_in(evidence.facts),
        verified_before=evidence.facts.verified.messages,
        recoveries=tuple(Recovery(**row.asDict()) for row in _sorted_rows(evidence.recovery)),
        order_differences=_list_orders(evidence, shown) if has_figures else (),
        publish_outcomes=tuple(
            PublishOutcomes(**row.asDict()) for row in _sorted_rows(evidence.independent.publish_outcomes)
        ),
    )


def _find_shown(findings: Iterable[MessageFinding], most: int) -> frozenset[str]:
    """The virtual streams that do not pass, *most* of them at most."""
    is_bad = (item.virtual for item in findings if item.severity is Severity.ERROR or item.leaves_open)
    return frozenset(islice(dict.fromkeys(is_bad), most))


def _sorted_rows(table: DataFrame | None) -> list[Any]:
    return [] if table is None else sorted(table.collect())


def _describe_streams(evidence: Evidence) -> tuple[StreamState, ...]:
    counts = collect_arrow(evidence.buckets.groupBy("virtual", "stream").agg(F.sum("copies")))
    rows = {(virtual, stream): copies for virtual, stream, copies in plain_rows(counts)}
    names, verified = (
        [field.name for field in fields(StreamState) if field.name in STREAMS.names],
        evidence.facts.verified,
    )
    states = []
    for row in evidence.facts.rows:
        copied = {name: getattr(row, name) for name in names}
        number = rows.get((row.virtual, row.stream), 0) - row.arrivals + verified.count(row.virtual, row.stream)
        states.append(StreamState(is_origin=is_origin(row), rows=number, **copied))
    return tuple(sorted(states, key=lambda item: (item.virtual, not item.is_origin, item.stream)))


def _make_finding(kind: FindingKind, virtual: str, count: int, **more: Any) -> MessageFinding:
    code = BY_KIND[kind]
    named = {"stream": more.get("stream"), "origin": more.get("origin")}
    return MessageFinding(
        code=code.code,
        name=code.name,
        severity=code.severity,
        leaves_open=code.leaves_open,
        virtual=virtual,
        message=code.says.format(n=Count(count), **named),
        where=more.get("stream") or more.get("region") or virtual,
        count=count,
        **more,
    )


def _judge_streams(
    evidence: Evidence, streams: Iterable[StreamState], context: AuditContext
) -> Iterator[MessageFinding]:
    keeping = set()
    for row in evidence.facts.rows:
        if row.limits is not None and not REMOVING & row.limits.keys():
            keeping.add((row.virtual, row.stream))
    by_virtual: dict[str, list[StreamState]] = {virtual: [] for virtual in context.models}
    for stream in streams:
        by_virtual.setdefault(stream.virtual, []).append(stream)
    for virtual, group in by_virtual.items():
        if context.unfinished is not None:
            yield _make_finding(FindingKind.UNFINISHED, virtual, 0, examples=(context.unfinished,))
        if not any(item.rows for item in group):
            yield _make_finding(
                FindingKind.NOTHING, virtual, 0, examples=(_ONLY_RECENT_HINT,) if evidence.facts.is_narrow else ()
            )
        for stream in group:
            place = {"region": stream.region, "stream": stream.stream}
            if stream.error is not None:
                yield (
                    _make_finding(FindingKind.ABSENT, virtual, 1, **place)
                    if stream.error == ABSENT
                    else _make_finding(FindingKind.UNREADABLE, virtual, 0, **place, examples=(stream.error,))
                )
                continue
            # Limits may remove messages between the snapshot and the reading.
            is_part = evidence.facts.is_narrow or evidence.facts.is_sampled
            may_be_fewer = is_part or ((virtual, stream.stream) not in keeping and stream.path != "capture")
            expected = stream.messages or 0
            if stream.rows > expected or (stream.rows < expected and not may_be_fewer):
                text = f"{stream.rows:,} rows, {expected:,} messages"
                yield _make_finding(
                    FindingKind.INCOMPLETE, virtual, abs(stream.rows - expected), **place, examples=(text,)
                )


def _judge_differences(
    differences: DataFrame, places: Mapping[tuple[str, str], StreamState]
) -> Iterator[MessageFinding]:
    """A finding for each kind, reader and origin, with the first ranges of consecutive sequences."""
    grouped: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    names = [field.name for field in fields(SequenceRange)]
    for row in _find_ranges(differences).collect():
        grouped[tuple(row[name] for name in _GROUP)].append(row)
    for (virtual, kind, stream, region, origin, former), members in grouped.items():
        source = places.get((virtual, origin)) if origin is not None else None
        count = members[0]["count"]
        yield _make_finding(
            kind,
            virtual,
            count,
            stream=stream,
            region=region,
            origin=origin,
            origin_region=source.region if source else None,
            former=former or None,
            ranges=tuple(SequenceRange(**{name: row[name] for name in names}) for row in members),
            more=members[0].ranges - len(members),
            examples=(_STARTED_OVER,)
            if kind == FindingKind.DUPLICATED and count >= _LONG_RUN_COPIES * members[0].ranges
            else (),
        )


def _find_ranges(differences: DataFrame) -> DataFrame:
    """The first ranges of consecutive sequences of each group, with the number of its ranges and messages."""
    place = F.coalesce("origin_seq", "seq")
    island = place - F.row_number().over(Window.partitionBy(*_GROUP).orderBy(place, "seq"))
    end = F.max(place + F.when(F.col("kind").isin(*RANGED), F.col("number") - 1).otherwise(F.lit(0)))
    ranges = (
        differences.withColumn("island", island)
        .groupBy(*_GROUP, "island")
        .agg(
            F.min(place).alias("first"),
            end.alias("last"),
            F.sum("number").alias("number"),
            F.min_by("seq", place).alias("seq"),
            F.min("key").alias("key"),
        )
    )
    whole = Window.partitionBy(*_GROUP)
    numbers = {
        "rank": F.row_number().over(whole.orderBy("first")),
        "ranges": F.count(F.lit(1)).over(whole),
        "count": F.sum("number").over(whole),
    }
    return ranges.withColumns(numbers).where(F.col("rank") <= MAX_RANGES).orderBy(*_GROUP, "rank")


def _judge_keys(evidence: Evidence) -> Iterator[MessageFinding]:
    compact = {row.virtual for row in evidence.facts.rows if row.limits and row.limits.get("max_msgs_per_subject") == 1}
    wrong = compact | evidence.facts.counters
    for (virtual,), count, rows in _find_first(evidence.diverged_keys.where("is_settled"), "key"):
        finding = _make_finding(
            FindingKind.DIVERGED_KEYS, virtual, count, examples=tuple(_format_diverged_key(row) for row in rows)
        )
        yield replace(finding, severity=Severity.ERROR) if virtual in wrong else finding
    for (virtual,), count, rows in _find_first(evidence.independent.keys.conflicts, "key"):
        yield _make_finding(
            FindingKind.CONFLICTS, virtual, count, examples=tuple(_format_conflict(row) for row in rows)
        )
    for (virtual, is_same), count, rows in _find_first(evidence.independent.shared_ids, "msg_id", "is_same"):
        texts = (f"`{row.msg_id}`: {row.origin} {row.origin_seq}, {row.other} {row.other_seq}" for row in rows)
        yield _make_finding(
            FindingKind.SHARED_ID_SAME if is_same else FindingKind.SHARED_ID_OTHER,
            virtual,
            count,
            examples=tuple(texts),
        )


def _find_first(table: DataFrame, by: str, *also: str) -> list[tuple[tuple[Any, ...], int, list[Any]]]:
    """By virtual stream (and *also*): the number of rows, and the first rows in the order of *by*."""
    group = ("virtual", *also)
    whole = Window.partitionBy(*group)
    rows = (
        table.withColumns({"rank": F.row_number().over(whole.orderBy(by)), "count": F.count(F.lit(1)).over(whole)})
        .where(F.col("rank") <= MAX_EXAMPLES)
        .collect()
    )
    grouped: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for row in sorted(rows, key=lambda item: item["rank"]):
        grouped[tuple(row[name] for name in group)].append(row)
    return [(key, group[0]["count"], group) for key, group in sorted(grouped.items())]


def _format_diverged_key(row: Any) -> str:
    return f"`{row.key}`: " + ", ".join(f"{item.region} has {item.origin} {item.origin_seq}" for item in row.last)


def _format_conflict(row: Any) -> str:
    return f"`{row.key}`: {row.origin} {row.origin_seq}, then {row.other} {row.other_seq} {row.apart_ns / 1e6:,.1f} ms later"


def _list_delays(evidence: Evidence, shown: Collection[str] | None) -> tuple[Delay, ...]:
    """The delays of the virtual streams *shown*, or of all."""
    if evidence.independent.delays.delays is not None:
        table = select_virtuals(evidence.independent.delays.delays, shown)
    else:
        table = summarize_delays(measure_hops(select_virtuals(evidence.copies, shown), evidence.facts))
    names = [field.name for field in fields(Delay)]
    rows = [Delay(**{name: row[name] for name in names}) for row in table.collect()]
    return tuple(sorted(rows, key=lambda item: (item.virtual, item.origin_region, item.region, item.minute or 0)))


def _judge_clocks(delays: Iterable[Any]) -> list[MessageFinding]:
    early: dict[str, list[str]] = defaultdict(list)
    for row in delays:
        early[row.virtual].append(f"{row.origin_region} → {row.region}: {-row.min_ns / 1e6:,.3f} ms too early")
    findings = []
    for virtual, group in sorted(early.items()):
        findings.append(
            _make_finding(FindingKind.CLOCKS, virtual, len(group), examples=tuple(sorted(group)[:MAX_EXAMPLES]))
        )
    return findings


def _list_orders(evidence: Evidence, shown: Collection[str] | None) -> tuple[OrderDifference, ...]:
    """The differences of order of the virtual streams *shown*, or of all."""
    if evidence.independent.order_differences is not None:
        table = select_virtuals(evidence.independent.order_differences, shown)
    else:
        table = compare_orders(select_virtuals(evidence.copies, shown), evidence.facts)
    rows = _sorted_rows(table.withColumnRenamed("other", "compared_with"))
    return tuple(OrderDifference(**row.asDict()) for row in rows)


def _describe_routes(
    evidence: Evidence,
    places: Mapping[tuple[str, str], StreamState],
    findings: Iterable[MessageFinding],
    shown: frozenset[str] | None,
) -> tuple[ReaderRoute, ...]:
    """Every origin of the virtual streams *shown* with every reader, even if nothing arrived."""
    seen = _find_extents(evidence, shown)
    counts = _count_errors(findings)
    by_virtual: dict[str, list[StreamState]] = defaultdict(list)
    for state in places.values():
        if shown is None or state.virtual in shown:
            by_virtual[state.virtual].append(state)
    routes = []
    for virtual, group in by_virtual.items():
        pairs = ((source, reader) for source in group if source.is_origin for reader in group if not reader.is_origin)
        for source, reader in pairs:
            key = (virtual, source.stream, reader.stream)
            row, verified = seen.get(key), evidence.facts.verified.routes.get(key, NO_ROUTE)
            ends = [row.least, row.greatest] if row else []
            ends += [verified.first, verified.until] if verified.first is not None else []
            arrived = (row.arrived if row else 0) + verified.messages
            routes.append(
                ReaderRoute(
                    virtual=virtual,
                    origin=source.stream,
                    origin_region=source.region,
                    stream=reader.stream,
                    region=reader.region,
                    arrived=None if reader.error is not None else arrived,
                    least=min(ends, default=None),
                    greatest=max(ends, default=None),
                    **{column: counts[*key, column] for column in ("missing", "extra", "mismatched")},
                )
            )
    return tuple(routes)


def _find_extents(evidence: Evidence, shown: frozenset[str] | None) -> dict[tuple[str, str, str], Any]:
    """By virtual stream, origin and reader: how many messages arrived, and the lowest and highest sequence of them."""
    extents = (
        select_virtuals(evidence.buckets, shown)
        .where(~F.col("is_origin") & F.col("origin").isNotNull() & (F.col("part") == "covered"))
        .groupBy(*ORIGIN, "stream")
        .agg(F.sum("copies").alias("arrived"), F.min("least").alias("least"), F.max("greatest").alias("greatest"))
        .where(F.col("former") == "")
    )
    return {(row.virtual, row.origin, row.stream): row for row in extents.collect()}


def _count_errors(findings: Iterable[MessageFinding]) -> Counter[tuple[str, str | None, str | None, str]]:
    """Messages by virtual stream, origin, reader, and what is wrong with them: a field of ReaderRoute."""
    counts: Counter[tuple[str, str | None, str | None, str]] = Counter()
    kinds = {code.code: kind for kind, code in BY_KIND.items()}
    for item in findings:
        if item.severity is Severity.ERROR:
            kind = kinds[item.code]
            present = "extra" if kind == FindingKind.DUPLICATED else "mismatched"
            counts[item.virtual, item.origin, item.stream, "missing" if kind in MISSING else present] += item.count
    return counts
