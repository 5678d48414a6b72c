"""What every check needs: the manifest, the faults and when they were open, and how examples are made."""

from __future__ import annotations

from vstream.capture.records import FaultOutcome, FaultRecord, Manifest, StoredRecord, Window
from vstream.capture.verdict.history import Attempts
from vstream.capture.verdict.model import Affected, Example
from vstream.value_class import value_class

MAX_EXAMPLES = 5


@value_class
class CaptureContext:
    """The parts of a capture that are small."""

    manifest: Manifest
    faults: tuple[FaultRecord, ...]
    """In order of injection."""
    windows: tuple[Window, ...]
    """The named steps, in order of their start."""
    whole_run: Window
    """The time with load, as a window."""

    def faults_open_at(self, moment: int) -> tuple[str, ...]:
        """The faults that were open at *moment*: injected and not yet healed."""
        open_faults = []
        for fault in self.faults:
            if fault.outcome is FaultOutcome.CONFIRMED and fault.injected <= moment < (
                self.whole_run.end if (ended := end_of_fault(fault)) is None else ended
            ):
                open_faults.append(fault.command)
        return tuple(open_faults)

    def shift_to_start(self, wall: int) -> int:
        """A server's wall-clock time *wall* as time since the capture's start."""
        return wall - self.manifest.wall


@value_class
class Intervals:
    """*count* intervals of a timeline from *start* on, each of *length* nanoseconds."""

    start: int
    length: int
    count: int

    @property
    def starts(self) -> range:
        """When each begins."""
        return range(self.start, self.start + self.count * self.length, self.length)

    def find(self, moment: int) -> int:
        """The place of the interval with *moment*; none has it if that is below zero, or not below *count*."""
        return (moment - self.start) // self.length


def end_of_fault(fault: FaultRecord) -> int | None:
    """When all servers were healthy again after *fault*; None if that is not recorded."""
    return fault.healed if fault.healed is not None else fault.healing


class ExampleCollector:
    """Counts, and keeps the first few examples."""

    __slots__ = ("count", "examples")

    def __init__(self) -> None:
        self.count = 0
        self.examples: list[Example] = []

    @property
    def wants_more(self) -> bool:
        """Whether the next example would be kept."""
        return len(self.examples) < MAX_EXAMPLES

    def add(self, example: Example) -> None:
        """Count one, and keep *example* if there is room."""
        self.count += 1
        if self.wants_more:
            self.examples.append(example)

    def as_affected(self) -> Affected:
        """How many there are, and the first few of them."""
        return Affected(count=self.count, examples=tuple(self.examples))


class ExampleFactory:
    """Makes examples of the messages of one virtual stream."""

    def __init__(self, context: CaptureContext, attempts: Attempts) -> None:
        self._context = context
        self._attempts = attempts
        self._ids: list[str] | None = None

    def id_of(self, number: int) -> str:
        """The identity of message *number*."""
        if self._ids is None:
            self._ids = self._attempts.ids()
        return self._ids[number]

    def describe_attempt(
        self, number: int, detail: str, *, stream: str | None = None, seq: int | None = None, at: int | None = None
    ) -> Example:
        """An example of a published message; *at* is when it was stored, since the capture's start."""
        attempts = self._attempts
        done, by, acked_seq = attempts.done[number], attempts.acked_by[number], attempts.acked_seq[number]
        acked = done if attempts.is_acked(number) and done >= 0 else None
        moment = next(time for time in (at, acked, attempts.due[number]) if time is not None)
        return Example(
            id=self.id_of(number),
            detail=detail,
            origin=attempts.regions.text(attempts.region[number]),
            acked=acked,
            acked_by=attempts.streams.text(by) if by >= 0 else None,
            acked_seq=acked_seq if acked_seq >= 0 else None,
            stream=stream,
            seq=seq,
            faults=self._context.faults_open_at(moment),
        )

    def describe_row(self, row: StoredRecord, detail: str, *, stream: str) -> Example:
        """An example of a message that nobody published."""
        return Example(
            id=row.id if row.id is not None else row.subject,
            detail=detail,
            stream=stream,
            seq=row.seq,
            faults=self._context.faults_open_at(self._context.shift_to_start(row.time)),
        )
