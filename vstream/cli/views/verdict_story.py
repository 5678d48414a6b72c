"""What happened in a run, in sentences: the beginning of the verdict's page."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.capture.records import FaultOutcome
from vstream.capture.verdict.units import duration
from vstream.capture.verdict.verdict import About, CaseStatus, FaultVerdict, Verdict
from vstream.formatting import format_count

_MOST_FAULTS = 6


def tell(verdict: Verdict) -> Iterator[str]:
    """Who published what, each fault and what came of it, and what became of the messages. It claims nothing that is unknown."""
    yield _tell_workload(verdict)
    happened = [each for each in verdict.faults if each.fault.outcome is FaultOutcome.CONFIRMED]
    for fault in happened[:_MOST_FAULTS]:
        yield _tell_fault(fault, verdict.zero)
    if len(happened) > _MOST_FAULTS:
        yield f"{len(happened) - _MOST_FAULTS} more faults followed: the table of faults has all."
    yield _tell_messages(verdict)


def _tell_workload(verdict: Verdict) -> str:
    tallies = [tally for stream in verdict.streams for tally in stream.origins.values()]
    attempted = sum(tally.attempted for tally in tallies)
    acknowledged = sum(tally.acknowledged for tally in tallies)
    regions = {region for stream in verdict.streams for region, tally in stream.origins.items() if tally.attempted}
    load = verdict.manifest.load
    lasted = "" if load is None else f" in {duration(load[1] - load[0])}"
    return (
        f"Clients in {format_count(len(regions), 'region')} published {format_count(attempted, 'message')} to "
        f"{format_count(len(verdict.streams), 'virtual stream')}{lasted}. {acknowledged:,} were acknowledged."
    )


def _tell_fault(verdict: FaultVerdict, zero: int) -> str:
    fault = verdict.fault
    healed = "" if fault.healed is None else f", healed at {duration(fault.healed - zero)}"
    failed = sum(outage.failed for outage in verdict.outages)
    sentence = f"At {duration(fault.injected - zero)}: {fault.asked}{healed}. {format_count(failed, 'publish', 'publishes')} failed."
    took = [each.took for each in verdict.convergences]
    if any(each is None for each in took):
        return f"{sentence} Something that was written before never arrived."
    slowest = max((each for each in took if each is not None), default=None)
    if slowest is None:
        return sentence
    when = "at once" if slowest == 0 else f"{duration(slowest)} after healing"
    return f"{sentence} Every region held everything {when}."


def _tell_messages(verdict: Verdict) -> str:
    safety = [case.status for case in verdict.cases if case.about is About.SAFETY]
    copies = [each for stream in verdict.streams for each in stream.physical]
    counts = {
        "lost": sum(sum(stream.lost_by_origin.values()) for stream in verdict.streams),
        "doubled": sum(each.duplicated.count for each in copies),
        "reordered": sum(each.reordered.count for each in copies),
    }
    if any(counts.values()):
        return f"Of what was acknowledged: {', '.join(f'{count:,} {name}' for name, count in counts.items())}."
    if not safety or CaseStatus.UNKNOWN in safety:
        return "Whether a message was lost, duplicated or reordered is not known for all streams."
    if CaseStatus.FAIL in safety:
        return "Nothing was lost, duplicated or reordered, but messages are wrong in another way: see below."
    return "No acknowledged message was lost, duplicated or reordered."
