"""What is wrong between streams: what does not arrive, was skipped, or will be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.health.doctor.check import APPLY, RESYNC, Patient, Symptom, check
from vstream.health.report import PairState
from vstream.health.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.health.report import PairStatus
    from vstream.health.snapshot import SourceSnapshot

STUCK_AFTER = 30.0
"""Seconds that a message may wait while its source is heard: a source that catches up needs less."""
_HALF = 0.5


@check("VD201", "dead-source")
def dead_source(patient: Patient) -> Iterator[Symptom]:
    """
    A stream has not heard one of its sources for a while, although that one answers.

    ## Why is this bad?
    Nothing arrives, and servers report a lag of 0. After an outage, servers try again after 10 s, then later and
    later, up to two minutes; a link or gateway that is cut stays so.

    ## What to do
    `vstream resync` makes its leader hand over: the next one asks at once. If that does not help, look for VD401,
    and for the permissions of the account.
    """
    for pair, source in _pairs(patient, PairState.SILENT):
        yield Symptom(about=pair.reader, evidence=_evidence(pair, source), do=RESYNC)


@check("VD202", "no-source")
def no_source(patient: Patient) -> Iterator[Symptom]:
    """
    A stream does not take from an origin that the topology gives it.

    ## Why is this bad?
    What is published in that region never arrives here.

    ## What to do
    `vstream plan` shows the difference, `vstream apply` adds the source. It is filled from the beginning.
    """
    for pair in patient.status.pairs:
        reader, origin = patient.snapshot.streams.get(pair.reader), patient.snapshot.streams.get(pair.origin)
        is_known = reader is not None and origin is not None and reader.leader is not None
        if is_known and _source_of(patient, pair) is None:
            yield Symptom(about=pair.reader, evidence=f"`{pair.origin}` is not among its sources", do=APPLY)


@check("VD203", "stuck-source")
def stuck_source(patient: Patient) -> Iterator[Symptom]:
    """
    A message has been waiting for long, although its source is heard.

    ## Why is this bad?
    Sourcing goes on, but not for this message: it was skipped, or the source is stuck. Servers report a lag of 0.

    ## What to do
    `vstream resync`. If the message still does not come, it was skipped: `vstream repair` shows all that are missing,
    and with `--yes` puts them in.
    """
    for pair, source in _pairs(patient, PairState.BEHIND):
        if pair.age is not None and pair.age > STUCK_AFTER:
            yield Symptom(about=pair.reader, evidence=_evidence(pair, source), do=RESYNC)


@check("VD204", "skipped")
def find_skipped(patient: Patient) -> Iterator[Symptom]:
    """
    A stream has passed messages of an origin without taking them, and the origin still has them.

    ## Why is this bad?
    They will never arrive by themselves, and servers report a lag of 0. Only the newest messages are looked at:
    there may be more.

    ## What to do
    `vstream repair --kind replay` shows all that are missing in each region, and with `--yes` puts them in, at the
    end of the read stream. Causes: the layout of VD101 after an outage, an `opt_start_seq` or a source that was
    removed and added again, or one `Nats-Msg-Id` used in two regions while the stream deduplicates.
    """
    for gap in patient.snapshot.gaps:
        count = gap.last - gap.first + 1
        sequences = f"sequence {gap.first:,}" if count == 1 else f"sequences {gap.first:,} to {gap.last:,}"
        sources = patient.snapshot.streams[gap.reader].sources
        lags = [f"; servers say `lag: {source.lag}`" for source in sources if source.stream == gap.origin]
        yield Symptom(
            about=gap.reader,
            evidence=f"it lacks {sequences} of `{gap.origin}`, which still has messages there, and has later ones"
            + "".join(lags[:1]),
            do="`vstream repair --kind replay`",
        )


@check("VD205", "started-over")
def started_over(patient: Patient) -> Iterator[Symptom]:
    """
    A stream took messages of an origin again that it had taken before.

    ## Why is this bad?
    It holds them twice, and so do its consumers get them. Only the newest messages are looked at: there may be more.

    ## What to do
    `vstream repair --kind delete` shows everything that is doubled, and with `--yes` deletes the copies. Causes: the
    layout of VD101 when a leader changed, a source that was removed and added again or changed without `opt_start_seq`, a server that went back to an older snapshot of its data.
    """
    told: set[tuple[str, str]] = set()
    for repeat in patient.snapshot.repeats:
        if (repeat.reader, repeat.origin) not in told:
            told.add((repeat.reader, repeat.origin))
            yield Symptom(
                about=repeat.reader,
                evidence=f"after sequence {repeat.later:,} of `{repeat.origin}` it took sequence {repeat.seq:,} again",
                do="`vstream repair --kind delete`",
            )


@check("VD301", "rolled-back")
def rolled_back(patient: Patient) -> Iterator[Symptom]:
    """
    A write stream ends before what its readers have taken.

    ## Why is this bad?
    It has lost its end: power was lost before it was written to disk, or it was restored from a backup. Its next
    messages get sequences that readers believe they have: they are acknowledged, and skipped everywhere else.
    `lag` is 0.

    ## What to do
    Stop publishing in that region, and run `vstream repair`: it shows, and with `--yes` publishes, what is gone, as
    the other regions' read streams hold it, under the sequences that it had. Readers pass what they have, those that
    lacked it take it, and what is published next arrives. Each message names the one before it: if somebody else
    publishes meanwhile, the repair stops, and nothing is overwritten. Sequences that nobody holds, such as those of
    probes, are filled on the stream's `canary` subject; without one, the sequence can be moved by
    `nats stream purge NAME --seq POSITION+1`, which drops what slower readers have not taken.
    `sync_interval: always` prevents the first cause.
    """
    for pair, source in _pairs(patient, PairState.ROLLED_BACK):
        yield Symptom(
            about=pair.origin,
            evidence=_evidence(pair, source),
            do=f"do not publish there until its sequence is past {pair.cursor:,}; `vstream repair`",
        )


@check("VD302", "lost-to-retention")
def lost_to_retention(patient: Patient) -> Iterator[Symptom]:
    """
    An origin has dropped messages that a reader had not taken.

    ## Why is this bad?
    They are gone for that region: the outage was longer than the write stream keeps messages. Canaries of a probe that were
    removed look the same.

    ## What to do
    Other regions may have them in their read streams: `vstream repair --kind replay` shows which, and with `--yes`
    puts them in. Raise `max_age` of write streams above the longest outage that is to lose nothing.
    """
    for pair, source in _pairs(patient, PairState.LOSSY):
        yield Symptom(about=pair.reader, evidence=_evidence(pair, source), do="`vstream repair --kind replay`")


@check("VD303", "retention-margin", Severity.WARNING)
def retention_margin(patient: Patient) -> Iterator[Symptom]:
    """
    More than half of the time has passed in which an outage loses nothing.

    ## Why is this bad?
    When the rest has passed, the write stream drops messages that a region has not taken.

    ## What to do
    Raise `max_age` (and `max_bytes`) of the write streams now: it works while a region is down, and is the only way to
    win time.
    """
    worst: dict[tuple[str, str], PairStatus] = {}
    for pair in patient.status.pairs:
        if pair.left is None or pair.age is None or pair.state is PairState.LOSSY:
            continue
        if pair.left < _HALF * (pair.left + pair.age):
            # One for each pair of places: the one with the least time left.
            key = pair.origin_place, pair.reader_place
            worst[key] = min(worst.get(key, pair), pair, key=lambda each: each.left or 0.0)
    for pair in worst.values():
        yield Symptom(
            about=pair.origin,
            evidence=(
                f"`{pair.reader}` lacks messages that are up to {format_duration(pair.age or 0.0)} old; they are "
                f"dropped in {format_duration(pair.left or 0.0)}"
            ),
            do="raise `max_age` of the write streams now",
        )


def _pairs(patient: Patient, state: PairState) -> Iterator[tuple[PairStatus, SourceSnapshot]]:
    """The pairs in *state* of streams that both answer, each with what its reader says of the origin."""
    for pair in patient.status.pairs:
        source = _source_of(patient, pair)
        if pair.state is state and source is not None and pair.origin in patient.snapshot.streams:
            yield pair, source


def _source_of(patient: Patient, pair: PairStatus) -> SourceSnapshot | None:
    reader = patient.snapshot.streams.get(pair.reader)
    sources = () if reader is None else reader.sources
    return next((source for source in sources if source.stream == pair.origin), None)


def _evidence(pair: PairStatus, source: SourceSnapshot) -> str:
    return f"{pair.detail}; servers say `lag: {source.lag}`"
