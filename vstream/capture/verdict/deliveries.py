"""Compare what consumers received with what their streams hold."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping

from vstream.capture.records import Delivery, Window
from vstream.capture.verdict.contents import StreamScan
from vstream.capture.verdict.history import NO_VALUE, Attempts
from vstream.capture.verdict.model import ConsumerVerdict
from vstream.capture.verdict.packed_operations import quantile

_Key = tuple[str, str, str]
"""Client, region and virtual stream."""


class _ConsumerLog:
    """What one consumer received."""

    def __init__(self, count: int) -> None:
        self.seqs = array("q", [NO_VALUE]) * count
        """By number: as which sequence it came first."""
        self.times = array("q", [NO_VALUE]) * count
        """By number: when it came first."""
        self.at = array("q")
        self.redelivered = 0
        self.repeated = 0
        self.unknown = 0


class Deliveries:
    """All deliveries of a capture."""

    def __init__(self, attempts: Mapping[str, Attempts]) -> None:
        self._attempts = attempts
        self._received: dict[_Key, _ConsumerLog] = {}

    def add(self, delivery: Delivery) -> None:
        """Add one delivery."""
        key = (delivery.client, delivery.region, delivery.stream)
        attempts = self._attempts.get(delivery.stream) or Attempts()
        received = self._received.get(key)
        if received is None:
            received = self._received.setdefault(key, _ConsumerLog(len(attempts)))
        received.at.append(delivery.at)
        number = attempts.numbers.get(delivery.id)
        if number is None:
            received.unknown += 1
        elif received.seqs[number] == NO_VALUE:
            received.seqs[number] = delivery.seq
            received.times[number] = delivery.at
        elif delivery.deliveries > 1:
            received.redelivered += 1
        elif received.seqs[number] == delivery.seq:
            # A stream that holds a message twice delivers it twice: that is the stream's fault.
            received.repeated += 1

    def judge_consumers(self, stream: str, served: Mapping[str, StreamScan]) -> Iterable[ConsumerVerdict]:
        """What the consumers of *stream* received, compared with the streams in *served*, by region."""
        for (client, region, name), received in sorted(self._received.items()):
            if name != stream:
                continue
            scan = served.get(region)
            flags = [received.seqs[number] != NO_VALUE for number in scan.numbers] if scan is not None else []
            last = max((place for place, flag in enumerate(flags) if flag), default=NO_VALUE)
            yield ConsumerVerdict(
                client=client,
                region=region,
                delivered=sum(seq != NO_VALUE for seq in received.seqs),
                redelivered=received.redelivered,
                repeated=received.repeated,
                skipped=flags[: last + 1].count(False),
                behind=len(flags) - last - 1,
                unknown=received.unknown,
            )

    def count_delivered(self, stream: str, region: str, window: Window) -> int | None:
        """Messages that consumers of *stream* in *region* received in *window*; None without any delivery at all."""
        consumers = [received for (_, at, name), received in self._received.items() if (name, at) == (stream, region)]
        if not consumers:
            return None
        return sum(window.start <= moment < window.end for received in consumers for moment in received.at)

    def median_propagation(self, stream: str, origin: str | None, region: str, window: Window) -> int | None:
        """
        Median time from sending in *origin* to delivery in *region*, for messages sent in *window*.

        If *origin* is None, all other regions count. None without such a message.
        """
        attempts = self._attempts.get(stream)
        if attempts is None:
            return None
        first: defaultdict[int, list[int]] = defaultdict(list)
        for (_, at, name), received in self._received.items():
            if (name, at) != (stream, region):
                continue
            for number, time in enumerate(received.times):
                home = attempts.regions.text(attempts.region[number])
                requested = home == origin or (origin is None and home != region)
                if time != NO_VALUE and requested and window.start <= attempts.due[number] < window.end:
                    first[number].append(time - attempts.sent[number])
        took = sorted(min(times) for times in first.values())
        return quantile(took, 0.5) if took else None
