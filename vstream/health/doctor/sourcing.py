"""Problems between streams: messages that do not arrive, were skipped, or will be lost."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.findings import Severity
from vstream.formatting import format_duration
from vstream.health.doctor.check import APPLY, RESYNC, Drift, Issue, LiveSystem, check
from vstream.health.snapshot import Snapshot, SourceSnapshot
from vstream.health.status import AssessedPair, PairState

_HALF_SHARE = 0.5
_MAX_NAMED = 3


@check("VD201", "dead-source", drift=Drift.UNRELATED)
def dead_source(system: LiveSystem) -> Iterator[Issue]:
    """
    A stream has not heard from one of its sources for a while, although the source answers.

    ## Why is this bad?
    Nothing arrives, and servers report a lag of 0. After an outage, servers retry after 10 s, then after longer and
    longer delays, up to two minutes; a cut link or gateway must be repaired.

    ## What to do
    `vstream repair sources` makes its leader step down: the next one retries at once. If that does not help, look for VD401,
    and for the permissions of the account.
    """
    for pair, source in _list_pairs(system, PairState.SILENT):
        yield Issue(about=pair.reader, evidence=_describe(pair, source), hint=RESYNC)


@check("VD202", "no-source", drift=Drift.UNRELATED)
def no_source(system: LiveSystem) -> Iterator[Issue]:
    """
    A stream does not source an origin that the topology lists.

    ## Why is this bad?
    Messages published in that region never arrive here.

    ## What to do
    `vstream plan` shows the difference, `vstream apply` adds the source. It starts at its first message.
    """
    for pair in system.pairs:
        if lacks_source(pair, system.snapshot):
            yield Issue(about=pair.reader, evidence=f"`{pair.origin}` is not among its sources", hint=APPLY)


def lacks_source(pair: AssessedPair, snapshot: Snapshot) -> bool:
    """Whether the reader of *pair*, which has a leader, does not source the origin, which is there."""
    reader = snapshot.streams.get(pair.reader)
    is_known = reader is not None and reader.leader is not None and pair.origin in snapshot.streams
    return is_known and _find_source(snapshot, pair) is None


@check("VD203", "stuck-source", drift=Drift.UNRELATED)
def stuck_source(system: LiveSystem) -> Iterator[Issue]:
    """
    A message has been waiting for a long time, although its source is active.

    ## Why is this bad?
    Sourcing works, but not for this message: it was skipped, or the source is stuck. Servers report a lag of 0.

    ## What to do
    `vstream repair sources`. If the message still does not arrive, it was skipped: `vstream repair messages` shows all missing messages,
    and adds them with `--yes`.
    """
    for pair, source in _list_pairs(system, PairState.BEHIND):
        if pair.is_stuck:
            yield Issue(about=pair.reader, evidence=_describe(pair, source), hint=RESYNC)


@check("VD204", "skipped", drift=Drift.UNRELATED)
def skipped_messages(system: LiveSystem) -> Iterator[Issue]:
    """
    A stream has skipped messages of an origin, and the origin still has them.

    ## Why is this bad?
    They will never arrive by themselves, and servers report a lag of 0. Only the newest messages are checked: more may
    be missing.

    ## What to do
    `vstream repair messages --kind replay` shows all missing messages in each region, and with `--yes` adds them at the end of
    the read stream. Causes: the layout of VD101 after an outage, an `opt_start_seq` or a source that was removed and
    added again, or one `Nats-Msg-Id` used for two payloads while the stream deduplicates.
    """
    for gap in system.snapshot.gaps:
        count = gap.last - gap.first + 1
        sequences = f"sequence {gap.first:,}" if count == 1 else f"sequences {gap.first:,} to {gap.last:,}"
        sources = system.snapshot.streams[gap.reader].sources
        lags = [f"; servers say `lag: {source.lag}`" for source in sources if source.stream == gap.origin]
        yield Issue(
            about=gap.reader,
            evidence=f"it lacks {sequences} of `{gap.origin}`, which still has them, but has later messages"
            + "".join(lags[:1]),
            hint="`vstream repair messages --kind replay`",
        )


@check("VD205", "started-over", drift=Drift.UNRELATED)
def started_over(system: LiveSystem) -> Iterator[Issue]:
    """
    A stream has sourced messages of an origin twice.

    ## Why is this bad?
    It stores them twice, and its consumers get them twice. Only the newest messages are checked: there may be more.

    ## What to do
    `vstream repair messages --kind delete` shows all duplicates, and deletes them with `--yes`. Causes: the
    layout of VD101 when a leader changed, a source that was removed and added again or changed without `opt_start_seq`, a server that went back to an older snapshot of its data. Duplicates of a write stream that was restored from a backup stay on servers since 2.15: for them it is another stream.
    """
    told: set[tuple[str, str]] = set()
    for repeat in system.snapshot.repeats:
        if (repeat.reader, repeat.origin) not in told:
            told.add((repeat.reader, repeat.origin))
            yield Issue(
                about=repeat.reader,
                evidence=f"after sequence {repeat.later:,} of `{repeat.origin}` it took sequence {repeat.seq:,} again",
                hint="`vstream repair messages --kind delete`",
            )


@check("VD206", "unmeasured-lag", Severity.NOTE, drift=Drift.UNSEEN)
def unmeasured_lag(system: LiveSystem) -> Iterator[Issue]:
    """
    It is not known how far a stream is in one of its origins.

    ## Why is this bad?
    Perhaps nothing is. But messages that do not arrive, or were skipped, would not be seen there. Servers before 2.15
    do not say how far they are: vstream reads it from what they store, and some streams keep nothing of an origin.

    ## What to do
    Ask again with a longer `--timeout`, or when something was published in that region. `vstream audit` compares all messages.
    """
    unmeasured = list(_list_pairs(system, PairState.UNKNOWN))
    for pair, source in unmeasured[:_MAX_NAMED]:
        yield Issue(about=pair.reader, evidence=_describe(pair, source), hint="ask again, or `vstream audit`")
    if len(unmeasured) > _MAX_NAMED:
        yield Issue(
            about=system.topology.name,
            evidence=f"{len(unmeasured) - _MAX_NAMED:,} more streams are not measured",
            hint="ask again with a longer `--timeout`",
        )


@check("VD301", "rolled-back", drift=Drift.UNRELATED)
def rolled_back(system: LiveSystem) -> Iterator[Issue]:
    """
    A write stream ends before messages that its readers have already sourced.

    ## Why is this bad?
    It has lost its last messages: power failed before they were written to disk, or the stream was restored from a
    backup. Its next messages reuse sequences that readers already have: they are acknowledged, but skipped everywhere
    else. `lag` is 0.

    ## What to do
    Stop publishing in that region, and run `vstream repair messages`. It shows the lost messages, and with `--yes` publishes
    them again from the read streams of other regions, with their old sequences. Readers that have them skip them, the
    others source them, and new messages arrive everywhere. Each message names the one before it: if a client publishes
    meanwhile, the repair stops, and nothing is overwritten. Sequences that no stream has, such as those of probes, are
    filled on the stream's `canary` subject. Without a canary, `nats stream purge NAME --seq POSITION+1` moves the
    sequence, but drops messages that slower readers have not sourced. `sync_interval: always` prevents the first cause.
    """
    for pair, source in _list_pairs(system, PairState.ROLLED_BACK):
        yield Issue(
            about=pair.origin,
            evidence=_describe(pair, source),
            hint=f"do not publish there until its sequence is past {pair.cursor:,}; `vstream repair messages`",
        )


@check("VD302", "lost-to-retention", drift=Drift.UNRELATED)
def lost_to_retention(system: LiveSystem) -> Iterator[Issue]:
    """
    An origin has removed messages that a reader had not sourced.

    ## Why is this bad?
    They are lost for that region: the outage was longer than the write stream keeps messages. Removed canaries of a
    probe look the same.

    ## What to do
    Other regions may have them in their read streams: `vstream repair messages --kind replay` shows which, and adds them with
    `--yes`. Set `max_age` of write streams above the longest outage that must not lose messages.
    """
    for pair, source in _list_pairs(system, PairState.LOSSY):
        yield Issue(about=pair.reader, evidence=_describe(pair, source), hint="`vstream repair messages --kind replay`")


@check("VD303", "retention-margin", Severity.WARNING, drift=Drift.UNRELATED)
def retention_margin(system: LiveSystem) -> Iterator[Issue]:
    """
    More than half of an outage margin is used up.

    ## Why is this bad?
    It says how long an outage may last. When that is over, the write stream removes messages that a region has not sourced.

    ## What to do
    Raise `max_age` (and `max_bytes`) of the write streams now: this works while a region is down, and is the only way
    to gain time.
    """
    worst: dict[tuple[str, str], AssessedPair] = {}
    for pair in system.pairs:
        if pair.margin is None or pair.retention is None or pair.age is None or pair.state is PairState.LOSSY:
            continue
        if pair.margin < _HALF_SHARE * pair.retention:
            # One for each pair of places: the one with the smallest margin.
            key = pair.origin_place, pair.reader_place
            worst[key] = min(worst.get(key, pair), pair, key=lambda candidate: candidate.margin or 0.0)
    for pair in worst.values():
        yield Issue(
            about=pair.origin,
            evidence=(
                f"`{pair.reader}` lacks messages that are up to {format_duration(pair.age or 0.0)} old; they will be removed in {format_duration(pair.margin or 0.0)}"
            ),
            hint="raise `max_age` of the write streams now",
        )


def _list_pairs(system: LiveSystem, state: PairState) -> Iterator[tuple[AssessedPair, SourceSnapshot]]:
    """The pairs in *state* whose streams both answer, each with the reader's view of the origin."""
    for pair in system.pairs:
        source = _find_source(system.snapshot, pair)
        if pair.state is state and source is not None and pair.origin in system.snapshot.streams:
            yield pair, source


def _find_source(snapshot: Snapshot, pair: AssessedPair) -> SourceSnapshot | None:
    reader = snapshot.streams.get(pair.reader)
    return None if reader is None else reader.find_source(pair.origin)


def _describe(pair: AssessedPair, source: SourceSnapshot) -> str:
    return f"{pair.detail}; servers say `lag: {source.lag}`"
