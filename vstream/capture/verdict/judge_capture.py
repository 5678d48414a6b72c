"""From a capture to its verdict. PASS, FAIL or UNKNOWN: of each case in `cases`, of the whole by `Verdict.status`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vstream.capture.records import FaultRecord, Manifest, Sample, Window
from vstream.capture.store import Capture
from vstream.capture.verdict import units
from vstream.capture.verdict.cases import is_deadly, list_cases
from vstream.capture.verdict.contents import AttemptLedger, StreamScan, find_layout
from vstream.capture.verdict.context import CaptureContext, ExampleCollector, ExampleFactory, Intervals, end_of_fault
from vstream.capture.verdict.deliveries import Deliveries
from vstream.capture.verdict.history import History, read_history
from vstream.capture.verdict.lost import Holdings, compare_served_order
from vstream.capture.verdict.measures import Measurements
from vstream.capture.verdict.model import (
    Affected,
    Availability,
    ControlPlane,
    Convergence,
    Distribution,
    Example,
    FaultVerdict,
    Outage,
    PublishInterval,
    StreamVerdict,
    Timeline,
    Verdict,
    WindowVerdict,
)
from vstream.capture.verdict.packed_operations import INDETERMINATE, OK, REJECTED, OperationLog, quantile, summarize
from vstream.capture.verdict.propagation import Propagation, SampledProgress, index_progress
from vstream.scenario.model import Expectation
from vstream.timing import SECOND_NS

RUN = "the whole run"
_MAX_LATENESS_NS = 50_000_000
"""Nanoseconds. A recorder whose p99 lateness is higher has not offered the requested load."""
_MAX_INTERVALS = 1_800
"""Longest timeline: half an hour at one second each."""
_FAILED_VALUE = -1


def judge_capture(capture: Capture, expectations: Sequence[Expectation] = ()) -> Verdict:
    """
    Judge *capture* against *expectations*, and against what must always hold.

    Reads operations, deliveries and every stream once. Raises VstreamError if the capture cannot be decoded. A stream
    that cannot be read makes cases UNKNOWN.
    """
    history = read_history(capture)
    manifest = capture.manifest()
    windows = tuple(sorted(capture.windows(), key=lambda window: window.start))
    faults = tuple(sorted(capture.faults(), key=lambda fault: fault.injected))
    start, end = manifest.load or (0, history.last_due() + 1)
    whole_run = Window(name=RUN, start=start, end=end, action="load")
    context = CaptureContext(manifest=manifest, faults=faults, windows=windows, whole_run=whole_run)
    samples = sorted(capture.samples(), key=lambda sample: sample.at)
    seen = index_progress(samples)
    deliveries = Deliveries(history.attempts)
    for delivery in capture.deliveries():
        deliveries.add(delivery)
    streams: dict[str, StreamVerdict] = {}
    flows: dict[str, Propagation] = {}
    for name in _list_virtual_streams(manifest, history):
        streams[name], flows[name] = _judge_stream(capture, context, name, history, deliveries, seen)
    facts = Measurements(
        context=context,
        history=history,
        deliveries=deliveries,
        samples=samples,
        lines=capture.count_lines() if manifest.lines else {},
        windows={window.name: judge_window(window, history, samples, manifest.regions) for window in windows},
        whole_run=judge_window(context.whole_run, history, samples, manifest.regions),
        streams=streams,
        propagations=flows,
    )
    lateness = summarize(history.lateness())
    return Verdict(
        manifest=manifest,
        cases=tuple(list_cases(facts, expectations)),
        streams=tuple(streams.values()),
        windows=(facts.whole_run, *facts.windows.values()),
        faults=tuple(_judge_faults(facts)),
        lateness=lateness,
        timeline=_build_timeline(facts),
        warnings=tuple(_list_warnings(context, lateness, samples, streams.values())),
    )


def _judge_faults(facts: Measurements) -> Iterator[FaultVerdict]:
    """What each fault stopped, and how long regions took to agree once it was healed."""
    faults = facts.context.faults
    healed = sorted({fault.healed for fault in faults if fault.healed is not None})
    converged: dict[int | None, list[Convergence]] = {moment: [] for moment in healed}
    for flow in facts.propagations.values():
        for moment, convergences in zip(healed, flow.convergences(healed), strict=True):
            converged[moment] += convergences
    for fault in faults:
        outages = tuple(find_outages(facts.context, fault, facts.history))
        yield FaultVerdict(fault=fault, outages=outages, convergences=tuple(converged.get(fault.healed, ())))


def _build_timeline(facts: Measurements) -> Timeline:
    intervals = _choose_intervals(facts.context)
    lag: dict[str, dict[str, tuple[int, ...]]] = {}
    for flow in facts.propagations.values():
        for origin, reader, behind in flow.lag(intervals):
            readers = lag.setdefault(origin, {})
            before = readers.get(reader, (0,) * intervals.count)
            readers[reader] = tuple(map(sum, zip(before, behind, strict=True)))
    regions = facts.context.manifest.regions
    return Timeline(
        start=intervals.start,
        interval=intervals.length,
        intervals=intervals.count,
        publishes=_count_publishes_by_region(facts.history, intervals),
        reads=_measure_answered_shares(facts.history, intervals),
        control_plane=_find_slowest_meta_answers(facts.samples, intervals, regions),
        lag=lag,
    )


def _list_virtual_streams(manifest: Manifest, history: History) -> Iterable[str]:
    return dict.fromkeys(
        [*manifest.models, *(stream.virtual for stream in manifest.streams), *sorted(history.attempts)]
    )


def _judge_stream(
    capture: Capture,
    context: CaptureContext,
    name: str,
    history: History,
    deliveries: Deliveries,
    seen: Mapping[tuple[str, str], SampledProgress],
) -> tuple[StreamVerdict, Propagation]:
    """The verdict on one virtual stream; its contents are read here, and forgotten except for what later questions need."""
    attempts = history.attempts[name]
    tallies = history.tallies(name)
    layout = find_layout(context.manifest, name, tallies)
    ledger = AttemptLedger(attempts)
    examples = ExampleFactory(context, attempts)
    scans: dict[str, StreamScan] = {}
    for captured in (*layout.writes, *layout.copies):
        is_write = captured in layout.writes
        scan = scans[captured.name] = StreamScan(captured, ledger, examples, context, is_write=is_write)
        scan.judge(capture)
    holdings = Holdings(scans, ledger, examples, context.manifest.given_up)
    physical = []
    for scan in scans.values():
        physical.append(scan.as_verdict(holdings.find_held_elsewhere(scan) if scan.error is None else Affected()))
    served = {region: scans[item.name] for region, item in layout.served.items() if item is not None}
    readable = {region: scan for region, scan in served.items() if scan.error is None}
    looked_at = {}
    for region, scan in readable.items():
        if (place := (scan.captured.region, scan.captured.name)) in seen:
            looked_at[region] = seen[place]
    flow = Propagation(context, name, ledger, readable, looked_at)
    is_same, displaced = compare_served_order([*{scan.captured.name: scan for scan in served.values()}.values()])
    read, lost_by_origin = holdings.judge_served(layout.served)
    verdict = StreamVerdict(
        name=name,
        model=context.manifest.models.get(name, "virtual"),
        origins=tallies,
        served=read,
        physical=tuple(physical),
        lost_by_origin=lost_by_origin,
        same_order=is_same,
        displaced=displaced,
        arrivals=tuple(flow.arrival_delays()),
        consumers=tuple(deliveries.judge_consumers(name, served)),
        unexpected_reads=_count_unexpected_reads(context, name, history),
    )
    return verdict, flow


def _count_unexpected_reads(context: CaptureContext, stream: str, history: History) -> Mapping[str, Affected]:
    by_region: dict[str, Affected] = {}
    for (name, region), operations in sorted(history.read_ids.items()):
        if name != stream or not operations:
            continue
        collector = ExampleCollector()
        for id_, operation in operations.items():
            collector.add(
                Example(
                    id=id_,
                    detail="read, but never published",
                    stream=operation.acked_by,
                    seq=operation.seq,
                    faults=context.faults_open_at(operation.sent),
                )
            )
        by_region[region] = collector.as_affected()
    return by_region


def _choose_intervals(context: CaptureContext) -> Intervals:
    """Those of the load, and of steps and faults before and after it, from a whole second of the load on."""
    starts = [context.whole_run.start, *(window.start for window in context.windows)]
    ends = [context.whole_run.end, *(window.end for window in context.windows)]
    for fault in context.faults:
        starts.append(fault.injected)
        ends.append(end_of_fault(fault) or fault.injected)
    start = min(starts) - (min(starts) - context.whole_run.start) % SECOND_NS
    span = max(max(ends) - start, 1)
    length = SECOND_NS * -(-span // (SECOND_NS * _MAX_INTERVALS))
    return Intervals(start=start, length=length, count=-(-span // length))


def _list_warnings(
    context: CaptureContext, lateness: Distribution | None, samples: Sequence[Sample], streams: Iterable[StreamVerdict]
) -> Iterator[str]:
    if lateness is not None and lateness.p99 > _MAX_LATENESS_NS:
        yield (
            f"the recorder was late: p99 {units.format_nanoseconds(lateness.p99)}, at most {units.format_nanoseconds(lateness.max)}; "
            "this machine was too busy to offer the load evenly"
        )
    for server in context.manifest.servers:
        yield from (f"{server.name} logged: {line}" for line in server.panics if not is_deadly(line))
    for stream in streams:
        for served in stream.served:
            if served.recovered_rejected:
                yield (
                    f"{served.stream} holds {served.recovered_rejected:,} messages whose publish was rejected: "
                    "clients were told that nothing was stored"
                )
        for consumer in stream.consumers:
            if consumer.repeated:
                yield f"{consumer.client} received {consumer.repeated:,} messages again that were not marked as redelivered"
            if consumer.skipped:
                yield f"{consumer.client} never received {consumer.skipped:,} messages before its last one"
    yield from _list_cursors_ahead(context, samples)


def _list_cursors_ahead(context: CaptureContext, samples: Sequence[Sample]) -> Iterator[str]:
    """Read streams that have taken more than there is: the mark of a write stream that was set back."""
    last: dict[str, int] = {}
    latest = {sample.region: sample for sample in samples if sample.last_seq or sample.sourced}
    for sample in latest.values():
        last |= {stream: sample.last_seq[stream] for stream in sample.last_seq}
    for sample in latest.values():
        if sample.at < context.whole_run.end:
            continue
        for reader, sources in sorted(sample.sourced.items()):
            for source, seq in sorted(sources.items()):
                if source in last and seq > last[source]:
                    yield (
                        f"{reader} has taken {source} up to sequence {seq:,}, which ends at {last[source]:,}: "
                        "it was set back, and what it stores next does not arrive there"
                    )


def judge_window(window: Window, history: History, samples: Sequence[Sample], regions: Sequence[str]) -> WindowVerdict:
    """Availability in *window*."""
    return WindowVerdict(
        window=window,
        publishes=tuple(_measure_availabilities(history.publishes, window)),
        reads=tuple(_measure_availabilities(history.reads, window)),
        control_plane=tuple(_judge_control_plane(samples, window, regions)),
    )


def _measure_availabilities(calls: Mapping[tuple[str, str], OperationLog], window: Window) -> Iterator[Availability]:
    for (stream, region), call in calls.items():
        low, high = call.find_range(window.start, window.end)
        yield Availability(
            stream=stream,
            region=region,
            attempted=high - low,
            ok=call.count(OK, low, high),
            rejected=call.count(REJECTED, low, high),
            indeterminate=call.count(INDETERMINATE, low, high),
            longest_gap=call.longest_gap(low, high, window.end),
            time=summarize(call.durations(low, high)),
        )


def _judge_control_plane(samples: Sequence[Sample], window: Window, regions: Sequence[str]) -> Iterator[ControlPlane]:
    answers_by_region: defaultdict[str, list[int | None]] = defaultdict(list)
    for sample in samples:
        if window.start <= sample.at < window.end:
            answers_by_region[sample.region].append(sample.control_plane)
    for region in dict.fromkeys((*regions, *answers_by_region)):
        answers = answers_by_region.get(region, [])
        if not answers:
            continue
        times = [took for took in answers if took is not None]
        yield ControlPlane(region=region, requests=len(answers), answered=len(times), time=summarize(times))


def find_outages(context: CaptureContext, fault: FaultRecord, history: History) -> Iterator[Outage]:
    """Failed publishes from the first signal of *fault* until the next fault, or until the end of the load."""
    later = [second.injected for second in context.faults if second.injected > fault.injected]
    until = min([*later, context.whole_run.end])
    for (stream, region), calls in history.publishes.items():
        low, high = calls.find_range(fault.injected, until)
        first, last = calls.find_next_failure(low, high), calls.find_last_failure(low, high)
        if last is None:
            continue
        after = calls.find_next_success(last, high)
        yield Outage(
            stream=stream,
            region=region,
            failed=high - low - calls.count(OK, low, high),
            first_failure=calls.due[first] - fault.injected,
            recovered=calls.due[after] - fault.injected if after < high else None,
        )


def _count_publishes_by_region(history: History, intervals: Intervals) -> Mapping[str, tuple[PublishInterval, ...]]:
    """The publishes in each interval, by region."""
    regions: defaultdict[str, list[OperationLog]] = defaultdict(list)
    for (_, region), calls in history.publishes.items():
        regions[region].append(calls)
    counts = {}
    for region, logs in regions.items():
        counts[region] = tuple(_count_publishes(logs, start, intervals.length) for start in intervals.starts)
    return counts


def _count_publishes(every: Sequence[OperationLog], start: int, interval: int) -> PublishInterval:
    counts = [0, 0, 0]
    times: list[int] = []
    for calls in every:
        low, high = calls.find_range(start, start + interval)
        for code in (OK, REJECTED, INDETERMINATE):
            counts[code] += calls.count(code, low, high)
        times += calls.durations(low, high)
    times.sort()
    return PublishInterval(
        ok=counts[OK],
        rejected=counts[REJECTED],
        indeterminate=counts[INDETERMINATE],
        p50=quantile(times, 0.5) if times else None,
        p99=quantile(times, 0.99) if times else None,
    )


def _measure_answered_shares(history: History, intervals: Intervals) -> Mapping[str, tuple[float | None, ...]]:
    """The share of answered reads in each interval, by region."""
    totals: dict[str, list[list[int]]] = {}
    for (_, region), calls in history.reads.items():
        total = totals.setdefault(region, [[0, 0] for _ in range(intervals.count)])
        for place, start in enumerate(intervals.starts):
            low, high = calls.find_range(start, start + intervals.length)
            total[place][0] += calls.count(OK, low, high)
            total[place][1] += high - low
    shares = {}
    for region, total in totals.items():
        if any(asked for _, asked in total):
            shares[region] = tuple(ok / asked if asked else None for ok, asked in total)
    return shares


def _find_slowest_meta_answers(
    samples: Sequence[Sample], intervals: Intervals, regions: Sequence[str]
) -> Mapping[str, tuple[int | None, ...]]:
    """The meta leader's slowest answer in each interval, by region; -1 if a request failed."""
    slowest: dict[str, list[int | None]] = {}
    for sample in samples:
        place = intervals.find(sample.at)
        if not 0 <= place < intervals.count:
            continue
        values = slowest.setdefault(sample.region, [None] * intervals.count)
        existing = values[place]
        if sample.control_plane is None or existing == _FAILED_VALUE:
            values[place] = _FAILED_VALUE
        else:
            values[place] = max(existing or 0, sample.control_plane)
    return {region: tuple(slowest[region]) for region in dict.fromkeys((*regions, *slowest)) if region in slowest}
