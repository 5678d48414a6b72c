"""Availability by window, by fault and by interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from vstream.capture.records import FaultRecord, Sample, Window
from vstream.capture.verdict.context import CaptureContext
from vstream.capture.verdict.history import History
from vstream.capture.verdict.packed_operations import INDETERMINATE, OK, REJECTED, OperationLog, quantile, summarize
from vstream.capture.verdict.timeline import PublishSecond
from vstream.capture.verdict.verdict import Availability, ControlPlane, Outage, WindowVerdict

_SECOND = 1_000_000_000
_MOST_INTERVALS = 1_800
"""Longest timeline: half an hour at one second each."""
_FAILED = -1


def judge_window(window: Window, history: History, samples: Sequence[Sample], regions: Sequence[str]) -> WindowVerdict:
    """Availability in *window*."""
    return WindowVerdict(
        window=window,
        publishes=tuple(_availabilities(history.publishes, window)),
        reads=tuple(_availabilities(history.reads, window)),
        control_plane=tuple(_control_plane(samples, window, regions)),
    )


def _availabilities(calls: Mapping[tuple[str, str], OperationLog], window: Window) -> Iterator[Availability]:
    for (stream, region), call in calls.items():
        low, high = call.between(window.start, window.end)
        yield Availability(
            stream=stream,
            region=region,
            attempted=high - low,
            ok=call.count(OK, low, high),
            rejected=call.count(REJECTED, low, high),
            indeterminate=call.count(INDETERMINATE, low, high),
            longest_gap=call.longest_gap(low, high, window.end),
            time=summarize(call.times(low, high)),
        )


def _control_plane(samples: Sequence[Sample], window: Window, regions: Sequence[str]) -> Iterator[ControlPlane]:
    result: defaultdict[str, list[int | None]] = defaultdict(list)
    for sample in samples:
        if window.start <= sample.at < window.end:
            result[sample.region].append(sample.control_plane)
    for region in dict.fromkeys((*regions, *result)):
        answers = result.get(region, [])
        if not answers:
            continue
        times = [took for took in answers if took is not None]
        yield ControlPlane(region=region, asked=len(answers), answered=len(times), time=summarize(times))


def find_outages(context: CaptureContext, fault: FaultRecord, history: History) -> Iterator[Outage]:
    """Failed publishes from the first signal of *fault* until the next fault, or until the end of the load."""
    later = [second.injected for second in context.faults if second.injected > fault.injected]
    until = min([*later, context.run.end])
    for (stream, region), calls in history.publishes.items():
        low, high = calls.between(fault.injected, until)
        first, last = calls.next_failure(low, high), calls.last_failure(low, high)
        if last is None:
            continue
        after = calls.next_success(last, high)
        yield Outage(
            stream=stream,
            region=region,
            failed=high - low - calls.count(OK, low, high),
            first_failure=calls.due[first] - fault.injected,
            recovered=calls.due[after] - fault.injected if after < high else None,
        )


def timeline_intervals(run: Window) -> tuple[int, int]:
    """Length and number of the timeline's intervals."""
    length = max(run.end - run.start, 1)
    interval = _SECOND * -(-length // (_SECOND * _MOST_INTERVALS))
    return interval, -(-length // interval)


def publish_seconds(history: History, start: int, interval: int, count: int) -> Mapping[str, tuple[PublishSecond, ...]]:
    """The publishes in each interval, by region."""
    regions: defaultdict[str, list[OperationLog]] = defaultdict(list)
    for (_, region), calls in history.publishes.items():
        regions[region].append(calls)
    seconds_by_region = {}
    for region, logs in regions.items():
        seconds_by_region[region] = tuple(_second(logs, start + place * interval, interval) for place in range(count))
    return seconds_by_region


def _second(every: Sequence[OperationLog], start: int, interval: int) -> PublishSecond:
    counts = [0, 0, 0]
    times: list[int] = []
    for calls in every:
        low, high = calls.between(start, start + interval)
        for code in (OK, REJECTED, INDETERMINATE):
            counts[code] += calls.count(code, low, high)
        times += calls.times(low, high)
    times.sort()
    return PublishSecond(
        ok=counts[OK],
        rejected=counts[REJECTED],
        indeterminate=counts[INDETERMINATE],
        p50=quantile(times, 0.5) if times else None,
        p99=quantile(times, 0.99) if times else None,
    )


def read_shares(history: History, start: int, interval: int, count: int) -> Mapping[str, tuple[float | None, ...]]:
    """The share of answered reads in each interval, by region."""
    totals: dict[str, list[list[int]]] = {}
    for (_, region), calls in history.reads.items():
        total = totals.setdefault(region, [[0, 0] for _ in range(count)])
        for place in range(count):
            low, high = calls.between(start + place * interval, start + (place + 1) * interval)
            total[place][0] += calls.count(OK, low, high)
            total[place][1] += high - low
    shares = {}
    for region, total in totals.items():
        if any(asked for _, asked in total):
            shares[region] = tuple(ok / asked if asked else None for ok, asked in total)
    return shares


def control_plane_seconds(
    samples: Sequence[Sample], start: int, interval: int, count: int, regions: Sequence[str]
) -> Mapping[str, tuple[int | None, ...]]:
    """The meta leader's slowest answer in each interval, by region; -1 if a request failed."""
    result: dict[str, list[int | None]] = {}
    for sample in samples:
        place = (sample.at - start) // interval
        if not 0 <= place < count:
            continue
        values = result.setdefault(sample.region, [None] * count)
        existing = values[place]
        if sample.control_plane is None or existing == _FAILED:
            values[place] = _FAILED
        else:
            values[place] = max(existing or 0, sample.control_plane)
    return {region: tuple(result[region]) for region in dict.fromkeys((*regions, *result)) if region in result}
