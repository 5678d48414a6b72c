"""How messages travel from write streams to read streams: delays, lag, convergence."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from vstream.capture.records import Sample, Window
from vstream.capture.verdict.contents import AttemptLedger, StreamScan
from vstream.capture.verdict.context import CaptureContext, Intervals
from vstream.capture.verdict.history import NO_VALUE
from vstream.capture.verdict.model import ArrivalDelay, Convergence
from vstream.capture.verdict.packed_operations import summarize
from vstream.topology.model import Consistency

_MIRRORED = {model.value for model in Consistency if model.has_mirrors}


class SampledProgress:
    """The last sequence of one stream at each sample."""

    def __init__(self, looks: Iterable[tuple[int, int]]) -> None:
        """*looks* are moments, in ascending order, and the stream's last sequence at each."""
        looks_by_stream = list(looks)
        self._moments = [moment for moment, _ in looks_by_stream]
        # A stream that was set back had a sequence for good only from when it never was behind it again.
        self._seqs = list(accumulate((seq for _, seq in reversed(looks_by_stream)), min))[::-1]

    def first_seen(self, seq: int) -> int | None:
        """
        When the first sample showed *seq* in the stream, since the capture's start.

        None: after the last sample.
        """
        index = bisect_left(self._seqs, seq)
        return self._moments[index] if index < len(self._moments) else None


def index_progress(samples: Iterable[Sample]) -> dict[tuple[str, str], SampledProgress]:
    """Progress by region and stream; *samples* must be in ascending order."""
    looks_by_stream: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for sample in samples:
        for stream, seq in sample.last_seq.items():
            looks_by_stream[sample.region, stream].append((sample.at, seq))
    return {place: SampledProgress(looks) for place, looks in looks_by_stream.items()}


class Propagation:
    """
    How the messages of one virtual stream spread. Times are since the capture's start.

    A mirror keeps the times of the stream that it mirrors. So the arrival of a message in a mirror is taken from
    *looks*, two samples a second; a mirror without samples says nothing about arrivals.
    """

    def __init__(
        self,
        context: CaptureContext,
        stream: str,
        ledger: AttemptLedger,
        served: Mapping[str, StreamScan],
        looks: Mapping[str, SampledProgress],
    ) -> None:
        """*served* has the streams that could be read, by region, and *looks* those of regions that read mirrors."""
        self._stream = stream
        self._ledger = ledger
        self._looks = looks
        has_mirrors = context.manifest.models.get(stream) in _MIRRORED
        self._mirrors = {region for region, scan in served.items() if has_mirrors and not scan.is_write}
        self._served = {
            region: scan for region, scan in served.items() if region in looks or region not in self._mirrors
        }
        attempts = ledger.attempts
        wall = context.manifest.wall
        self._wall = wall
        self.written = array("q", (time - wall if time != NO_VALUE else NO_VALUE for time in ledger.stored_at))
        """By number: when it was written; without a write stream's word, when it was acknowledged; -1 if neither is known."""
        for number, done in enumerate(attempts.done):
            if self.written[number] == NO_VALUE and attempts.is_acked(number):
                self.written[number] = done

    def _arrival_times(self, region: str, scan: StreamScan) -> Iterable[tuple[int, int]]:
        """Number and time of arrival of each message of *scan* that came while somebody looked."""
        if region not in self._mirrors:
            wall = self._wall
            return ((number, time - wall) for number, time in zip(scan.numbers, scan.times, strict=True))
        first = self._looks[region].first_seen
        seen = ((number, first(seq)) for number, seq in zip(scan.numbers, scan.seqs, strict=True))
        return ((number, moment) for number, moment in seen if moment is not None)

    def _rows(self, region: str, scan: StreamScan) -> Iterator[tuple[int, int, int]]:
        """Number, time of writing and time of arrival of each message of *scan* of which both are known."""
        written = self.written
        for number, arrived in self._arrival_times(region, scan):
            if written[number] != NO_VALUE:
                yield number, written[number], arrived

    def arrival_delays(self) -> Iterator[ArrivalDelay]:
        """Delays by origin and reading region. For mirrors, two samples a second are too coarse."""
        attempts = self._ledger.attempts
        for region, scan in self._served.items():
            if scan.is_write or region in self._mirrors:
                continue
            delays: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))
            region_of = attempts.region
            for number, written, arrived in self._rows(region, scan):
                delays[region_of[number]].append(arrived - written if arrived > written else 0)
            for origin, values in sorted(delays.items(), key=lambda item: attempts.regions.text(item[0])):
                result = summarize(values)
                assert result is not None
                yield ArrivalDelay(origin=attempts.regions.text(origin), region=region, spread=result)

    def lag(self, intervals: Intervals) -> Iterator[tuple[str, str, Sequence[int]]]:
        """By origin and reading region: messages written and not yet there at the end of each of *intervals*."""
        attempts, count = self._ledger.attempts, intervals.count
        regions = sorted(set(attempts.region))
        written: dict[int, list[int]] = {region: [0] * count for region in regions}
        for number, time in enumerate(self.written):
            if time != NO_VALUE:
                written[attempts.region[number]][min(max(intervals.find(time), 0), count - 1)] += 1
        for reader, scan in self._served.items():
            if scan.is_write:
                continue
            pending = {region: list(values) for region, values in written.items()}
            region_of = attempts.region
            for number, _, arrived in self._rows(reader, scan):
                pending[region_of[number]][min(max(intervals.find(arrived), 0), count - 1)] -= 1
            for region in regions:
                # Clocks of two servers on one machine agree, but not to the microsecond at an interval's end.
                yield attempts.regions.text(region), reader, [max(0, lag) for lag in accumulate(pending[region])]

    def convergences(self, healed: Sequence[int]) -> list[list[Convergence]]:
        """For each moment of *healed*, ascending: how long each region took to hold everything written before."""
        result: list[list[Convergence]] = [[] for _ in healed]
        for region, scan in self._served.items():
            if scan.is_write:
                continue
            # The last arrival of those that were written between one healing and the next.
            latest: list[int | None] = [0] * len(healed)
            for _, written, arrived in self._rows(region, scan):
                index = bisect_left(healed, written)
                if index < len(healed):
                    latest[index] = max(latest[index] or 0, arrived)
            for absent in scan.list_absent():
                index = bisect_left(healed, self.written[absent])
                if self.written[absent] != NO_VALUE and index < len(healed):
                    latest[index] = None
            moment: int | None = 0
            for index, heal in enumerate(healed):
                newest = latest[index]
                moment = None if moment is None or newest is None else max(moment, newest)
                took = None if moment is None else max(0, moment - heal)
                result[index].append(Convergence(stream=self._stream, region=region, took=took))
        return result

    def count_visible(self, window: Window, origin: str | None, region: str) -> int | None:
        """
        How many messages *region* had before the end of *window*, of those acknowledged in *origin* during it.

        If *origin* is None, all other regions count.
        """
        scan = self._served.get(region)
        if scan is None:
            return None
        attempts = self._ledger.attempts
        count = 0
        for number, arrived in self._arrival_times(region, scan):
            done = attempts.done[number]
            if attempts.is_acked(number) and window.start <= done < window.end and arrived < window.end:
                home = attempts.regions.text(attempts.region[number])
                count += home == origin or (origin is None and home != region)
        return count
