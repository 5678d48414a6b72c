"""What a worker records, and what it reports to the runner."""

from __future__ import annotations

import time
from pathlib import Path

from vstream.capture.records import Delivery, OperationKind, OperationOutcome, OperationRecord
from vstream.capture.store import Capture, RecordWriter
from vstream.runner.workload.spec import WorkloadProgress

FLUSH_SECONDS = 0.5
"""Seconds. A killed worker loses the records since the last flush."""


class Recorder:
    """The operations and deliveries of one region. *start* is the capture's start on the monotonic clock."""

    def __init__(self, capture: Path, region: str, start: int) -> None:
        directory = Capture(capture)
        self.region = region
        self._start = start
        self._operations = RecordWriter(directory.operations_file(region), OperationRecord)
        self._deliveries = RecordWriter(directory.deliveries_file(region), Delivery)
        self._counts = dict.fromkeys(OperationOutcome, 0)
        self._due = self._reads = self._answered = self._delivered = 0
        self._late: list[int] = []

    def now(self) -> int:
        """Nanoseconds since the capture's start."""
        return time.monotonic_ns() - self._start

    def record_due(self, late: int) -> None:
        """A publish that was due *late* nanoseconds ago is being sent."""
        self._due += 1
        self._late.append(late)

    def record_operation(self, operation: OperationRecord) -> None:
        """Record a finished operation."""
        self._operations.write(operation)
        if operation.kind is OperationKind.PUBLISH:
            self._counts[operation.outcome] += 1
        elif operation.kind is OperationKind.READ:
            self._reads += 1
            self._answered += operation.outcome is OperationOutcome.OK

    def record_delivery(self, delivery: Delivery) -> None:
        """Record a message that a consumer received."""
        self._deliveries.write(delivery)
        self._delivered += 1

    def take_progress(self, *, is_drained: bool) -> WorkloadProgress:
        """The progress so far. Clears the lateness values that it reports."""
        late, self._late = sorted(self._late), []
        return WorkloadProgress(
            at=self.now(),
            due=self._due,
            acked=self._counts[OperationOutcome.OK],
            rejected=self._counts[OperationOutcome.REJECTED],
            indeterminate=self._counts[OperationOutcome.INDETERMINATE],
            reads=self._reads,
            answered=self._answered,
            delivered=self._delivered,
            late=late[len(late) * 99 // 100] if late else 0,
            is_ready=True,
            is_drained=is_drained,
        )

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._operations.flush()
        self._deliveries.flush()

    def close(self) -> None:
        """Flush and close."""
        self._operations.close()
        self._deliveries.close()
