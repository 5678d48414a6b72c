"""What samples say of streams whose contents do not tell when messages came: a mirror keeps the times of what it mirrors."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vstream.capture.records import Sample


class SampledProgress:
    """How far one stream had come at each look at it."""

    def __init__(self, looks: Iterable[tuple[int, int]]) -> None:
        """*looks* are moments, in ascending order, and the stream's last sequence at each."""
        looks_by_stream = list(looks)
        self._moments = [moment for moment, _ in looks_by_stream]
        # A stream that was set back had a sequence for good only from when it never was behind it again.
        self._seqs = list(accumulate((seq for _, seq in reversed(looks_by_stream)), min))[::-1]

    def first(self, seq: int) -> int | None:
        """The first look at which the stream had *seq*, since the capture's start; None: it came after the last one."""
        place = bisect_left(self._seqs, seq)
        return self._moments[place] if place < len(self._moments) else None


def progress_by_stream(samples: Iterable[Sample]) -> dict[tuple[str, str], SampledProgress]:
    """By region and stream; *samples* are in ascending order."""
    looks_by_stream: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for sample in samples:
        for stream, seq in sample.last_seq.items():
            looks_by_stream[sample.region, stream].append((sample.at, seq))
    return {place: SampledProgress(each) for place, each in looks_by_stream.items()}
