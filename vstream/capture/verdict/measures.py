"""Measurements, ready to be compared with expectations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from vstream.capture.records import FaultOutcome, OperationOutcome, Sample, Window
from vstream.capture.verdict import units
from vstream.capture.verdict.context import CaptureContext, end_of_fault
from vstream.capture.verdict.deliveries import Deliveries
from vstream.capture.verdict.history import History
from vstream.capture.verdict.model import Affected, Availability, PhysicalStreamVerdict, StreamVerdict, WindowVerdict
from vstream.capture.verdict.propagation import Propagation
from vstream.scenario.model import SAFETY, Compare, Expectation, Measure
from vstream.value_class import value_class

OVER_THE_RUN = frozenset({*SAFETY, Measure.SAME_ORDER})
"""Measures that are judged over the whole run."""


@value_class
class Question:
    """An expectation for one stream and one region."""

    expectation: Expectation
    stream: str | None
    region: str | None


@value_class
class Measurement:
    """A measured value, and reasons to doubt it."""

    value: float | None
    detail: str
    doubts: tuple[str, ...] = ()
    floor: float | None = None
    """The value is at least this, whatever the doubts."""
    ceiling: float | None = None
    """The value is at most this, whatever the doubts."""


def make_unmeasured(why: str) -> Measurement:
    """Nothing was measured."""
    return Measurement(value=None, detail=why)


@value_class
class Measurements:
    """The parts of a verdict before it is judged."""

    context: CaptureContext
    history: History
    deliveries: Deliveries
    samples: Sequence[Sample]
    lines: Mapping[str, int]
    """Number of lines, by file of the capture."""
    windows: Mapping[str, WindowVerdict]
    """The named windows."""
    whole_run: WindowVerdict
    streams: Mapping[str, StreamVerdict]
    propagations: Mapping[str, Propagation]

    def measure(self, question: Question) -> Measurement:
        """Measure *question*, with its doubts."""
        expectation = question.expectation
        if expectation.measure in OVER_THE_RUN:
            measured = self._measure_run(question)
            window = None
        else:
            window = self.whole_run if expectation.window is None else self.windows.get(expectation.window)
            if window is None:
                return make_unmeasured(f"there was no step `{expectation.window}`")
            measured = self._measure_window(question, window)
        return self._with_doubts(
            question, measured, window.window if window is not None and expectation.window else None
        )

    def _with_doubts(self, question: Question, measurement: Measurement, window: Window | None) -> Measurement:
        doubts = list(measurement.doubts)
        if not (question.expectation.measure in OVER_THE_RUN and meets(question.expectation, measurement.value)):
            # What holds over the whole run holds for what did happen; the fault that did not is a case of its own.
            doubts += self._find_missing_faults(window)
        if window is None and not self.context.manifest.is_complete:
            doubts.append("the run did not reach its end")
        return replace(measurement, doubts=tuple(doubts))

    def _find_missing_faults(self, window: Window | None) -> Iterator[str]:
        """The faults that should have been open in *window*, or in the run, and were not."""
        for fault in self.context.faults:
            ended = end_of_fault(fault)
            touched = window is None or (fault.injected < window.end and (ended is None or ended > window.start))
            if touched and fault.outcome is FaultOutcome.UNSUPPORTED:
                yield f"`{fault.command}` is unsupported here"
            elif touched and fault.outcome is FaultOutcome.FAILED:
                yield f"`{fault.command}` was not seen to happen"

    # What is judged over the whole run.

    def _measure_run(self, question: Question) -> Measurement:
        stream = self.streams.get(question.stream or "")
        if stream is None:
            return make_unmeasured(
                f"the capture has no stream `{question.stream}`" if question.stream else "the capture has no streams"
            )
        if question.expectation.measure is Measure.SAME_ORDER:
            return _measure_order(stream)
        is_lost = question.expectation.measure is Measure.LOST
        measured = (self._measure_lost if is_lost else self._measure_stored)(stream, question)
        doubts = list(measured.doubts)
        if not sum(tally.attempted for tally in stream.origins.values()):
            doubts.append("nothing was published")
        elif not sum(tally.acknowledged for tally in stream.origins.values()):
            doubts.append("nothing was acknowledged")
        return replace(measured, doubts=tuple(doubts))

    def _measure_lost(self, stream: StreamVerdict, question: Question) -> Measurement:
        region, origin = question.region, question.expectation.origin
        served = [item for item in stream.served if region in {None, item.region}]
        missing = [item.region for item in served if item.stream is None]
        if missing or not served:
            where = " or ".join(missing) or region or "any region"
            return make_unmeasured(f"the capture has no stream that is read in {where}")
        by_origin = stream.lost_by_origin if region is None else served[0].lost_by_origin
        count = sum(by_origin.values()) if origin is None else by_origin.get(origin, 0)
        existing = {item.name: item for item in stream.physical}
        doubts = _list_unread([existing[name] for item in served if (name := item.stream) is not None])
        shown = [f"{name} lacks {item.lost.count:,}" for item in served if item.lost.count and (name := item.stream)]
        origins = ", ".join(f"{number:,} from {name}" for name, number in by_origin.items())
        noun = "message" if count == 1 else "messages"
        detail = f"{count:,} acknowledged {noun} lost" + (f" ({origins}): {', '.join(shown)}" if shown else "")
        if superseded := sum(item.superseded for item in served):
            detail += f"; limits removed {superseded:,}"
        if given_up := sum(item.announced_losses for item in served):
            detail += f"; `failover` had said that {given_up:,} would be"
        # A run that was stopped may have had messages on their way.
        floor = float(count) if self.context.manifest.is_complete else 0.0
        return Measurement(value=float(count), detail=detail, doubts=doubts, floor=floor)

    def _measure_stored(self, stream: StreamVerdict, question: Question) -> Measurement:
        measure, region = question.expectation.measure, question.region
        cell = streams_of_region(stream, region) if region is not None else stream.physical
        if not cell:
            return make_unmeasured(
                f"the capture has no stream in {region}" if region else "the capture has no stream of it"
            )
        find: Callable[[PhysicalStreamVerdict], Affected] = {
            Measure.DUPLICATED: lambda item: item.duplicated,
            Measure.UNEXPECTED: lambda item: item.unexpected,
            Measure.REORDERED: lambda item: item.reordered,
            Measure.DIVERGED: lambda item: item.diverged,
        }[measure]
        counts = {item.name: find(item).count for item in cell}
        reads = {}
        for name, unexpected_read in stream.unexpected_reads.items():
            if measure is Measure.UNEXPECTED and region in {None, name}:
                reads[name] = unexpected_read.count
        total = sum(counts.values()) + sum(reads.values())
        shown = [f"{count:,} in {name}" for name, count in counts.items() if count]
        shown += [f"{count:,} read in {name}" for name, count in reads.items()]
        is_whole = self.context.manifest.is_complete
        floor = float(total)
        if measure is Measure.UNEXPECTED and not is_whole:
            # The operations of a run that was stopped may be cut short.
            floor = float(sum(item.altered for item in cell))
        elif measure is Measure.DIVERGED and not is_whole:
            floor = 0.0
        detail = ", ".join(shown) or f"none in {len(cell):,} {'stream' if len(cell) == 1 else 'streams'}"
        return Measurement(value=float(total), detail=detail, doubts=_list_unread(cell), floor=floor)

    # What is judged in a window.

    def _measure_window(self, question: Question, window: WindowVerdict) -> Measurement:
        return {
            Measure.PUBLISHED: self._measure_share,
            Measure.READ: self._measure_share,
            Measure.PUBLISH_TIME: self._measure_time,
            Measure.READ_TIME: self._measure_time,
            Measure.PUBLISH_GAP: self._measure_gap,
            Measure.CONTROL_PLANE: self._measure_control_plane,
            Measure.DELIVERED: self._measure_delivered,
            Measure.PROPAGATION: self._measure_propagation,
            Measure.VISIBLE: self._measure_visible,
            Measure.CONVERGED: self._measure_converged,
            Measure.WORKS: self._measure_works,
        }[question.expectation.measure](question, window)

    def _measure_share(self, question: Question, window: WindowVerdict) -> Measurement:
        is_publish = question.expectation.measure is Measure.PUBLISHED
        item = _find_availability(window.publishes if is_publish else window.reads, question)
        if item is None or item.share is None:
            return make_unmeasured(f"no {'publish' if is_publish else 'read'} was due")
        done = "acknowledged" if is_publish else "answered"
        parts = [f"{item.ok:,} of {item.attempted:,} {done}"]
        parts += [f"{item.rejected:,} rejected"] if item.rejected else []
        parts += [f"{item.indeterminate:,} without an answer"] if item.indeterminate else []
        parts += [f"none for {units.format_nanoseconds(item.longest_gap)} at the longest"] if item.longest_gap else []
        return Measurement(value=item.share, detail=", ".join(parts))

    def _measure_time(self, question: Question, window: WindowVerdict) -> Measurement:
        is_publish = question.expectation.measure is Measure.PUBLISH_TIME
        item = _find_availability(window.publishes if is_publish else window.reads, question)
        if item is None or item.time is None:
            return make_unmeasured(f"no {'publish was acknowledged' if is_publish else 'read was answered'}")
        p99 = units.format_nanoseconds(item.time.p99)
        return Measurement(
            value=float(item.time.p50),
            detail=f"median {units.format_nanoseconds(item.time.p50)}, p99 {p99} of {item.time.count:,}",
        )

    def _measure_gap(self, question: Question, window: WindowVerdict) -> Measurement:
        item = _find_availability(window.publishes, question)
        if item is None or not item.attempted:
            return make_unmeasured("no publish was due")
        gap = item.longest_gap
        return Measurement(
            value=float(gap),
            detail=f"none for {units.format_nanoseconds(gap)} at the longest" if gap else "none failed",
        )

    def _measure_control_plane(self, question: Question, window: WindowVerdict) -> Measurement:
        entry = next((item for item in window.control_plane if item.region == question.region), None)
        if entry is None or entry.share is None:
            return make_unmeasured("no meta leader was asked for")
        return Measurement(value=entry.share, detail=f"{entry.answered:,} of {entry.requests:,} requests answered")

    def _measure_delivered(self, question: Question, window: WindowVerdict) -> Measurement:
        key = (question.stream or "", question.region or "")
        count = self.deliveries.count_delivered(*key, window.window)
        if count is None and key not in self.history.fetches:
            return make_unmeasured("there was no consumer")
        return Measurement(value=float(count or 0), detail=f"{count or 0:,} messages received")

    def _measure_propagation(self, question: Question, window: WindowVerdict) -> Measurement:
        took = self.deliveries.median_propagation(
            question.stream or "", question.expectation.origin, question.region or "", window.window
        )
        if took is None:
            return make_unmeasured("no consumer received such a message")
        return Measurement(value=float(took), detail=f"median {units.format_nanoseconds(took)}")

    def _measure_visible(self, question: Question, window: WindowVerdict) -> Measurement:
        flow = self.propagations.get(question.stream or "")
        count = flow.count_visible(window.window, question.expectation.origin, question.region or "") if flow else None
        if count is None:
            return make_unmeasured(f"the capture does not tell what {question.region} could read when")
        return Measurement(value=float(count), detail=f"{count:,} messages were there before the step ended")

    def _measure_converged(self, question: Question, window: WindowVerdict) -> Measurement:
        steps = [window] if question.expectation.window is not None else [*self.windows.values()]
        steps = [step for step in steps if step.window.action.startswith("converge")]
        if not steps:
            return make_unmeasured("there was no such step that waits for convergence")
        failed = [step.window for step in steps if not step.window.is_ok]
        if failed:
            return Measurement(value=inf, detail=failed[0].detail or "not converged")
        took = max(step.window.end - step.window.start for step in steps)
        return Measurement(value=float(took), detail=f"after {units.format_nanoseconds(took)}")

    def _measure_works(self, question: Question, window: WindowVerdict) -> Measurement:
        measured = []
        for trial in self.history.trials:
            if (
                window.window.start <= trial.due < window.window.end
                and trial.subject == question.expectation.operation
                and question.region in {None, trial.region}
                and question.stream in {None, trial.stream}
            ):
                measured.append(trial)
        if not measured:
            return make_unmeasured("it was not tried")
        failed = [item for item in measured if item.outcome is not OperationOutcome.OK]
        if failed:
            why = failed[0].error or ("no answer" if failed[0].outcome is OperationOutcome.INDETERMINATE else "refused")
            return Measurement(value=0.0, detail=why)
        return Measurement(value=1.0, detail="it worked")


def meets(expectation: Expectation, value: float | None) -> bool:
    """Whether *value* meets the expectation; None never does."""
    if value is None:
        return False
    if expectation.compare is Compare.EQUAL:
        return value == expectation.value
    if expectation.compare is Compare.AT_LEAST:
        return value >= expectation.value
    return value <= expectation.value


def streams_of_region(stream: StreamVerdict, region: str) -> list[PhysicalStreamVerdict]:
    """The physical streams of *region*: those its clients read, and those placed there."""
    read = {item.stream for item in stream.served if item.region == region}
    return [item for item in stream.physical if item.name in read or item.region == region]


def _list_unread(streams: Sequence[PhysicalStreamVerdict]) -> tuple[str, ...]:
    return tuple(f"{stream.name} could not be read: {stream.error}" for stream in streams if stream.error is not None)


def _find_availability(availabilities: Sequence[Availability], question: Question) -> Availability | None:
    key = (question.stream, question.region)
    return next(
        (availability for availability in availabilities if (availability.stream, availability.region) == key), None
    )


def _measure_order(stream: StreamVerdict) -> Measurement:
    if stream.same_order is None:
        if len({item.stream for item in stream.served}) == 1 and not _list_unread(stream.physical):
            return Measurement(value=1.0, detail="all regions read one stream")
        return make_unmeasured("the orders of two regions at least are needed")
    if stream.same_order:
        return Measurement(value=1.0, detail="the messages that all regions hold are in one order", floor=None)
    detail = f"{stream.displaced:,} messages are in another place in another region"
    return Measurement(value=0.0, detail=detail, ceiling=0.0)
