"""The findings of an audit: their codes, what they weigh, and their manual. Imports no Spark."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Final

from vstream.codes import Chapter, Page, render_manual
from vstream.diagnostics import Severity


class Count(int):
    """How many of something."""

    def __format__(self, spec: str) -> str:
        """The count with what is counted, as one and as many: `f"{Many(2):key|keys}"` is `2 keys`."""
        item, _, many = spec.partition("|")
        return f"{int(self):,} {item if self == 1 else many}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCode:
    """One kind of finding."""

    kind: str
    """As in the table `faults`, or the name of another table."""
    code: str
    name: str
    severity: Severity
    says: str
    """What is true, with `{n:one|many}` for how many (`Many`), and `{stream}`, `{origin}` for physical streams."""
    manual: str
    leaves_open: bool = False
    """Whether it is about what could not be seen: then nothing is proven, and nothing refuted."""

    @property
    def page(self) -> Page:
        """Its page of the manual."""
        return Page(code=self.code, name=self.name, severity=self.severity, text=inspect.cleandoc(self.manual))


def _code(
    kind: str,
    code: str,
    name: str,
    says: str,
    manual: str,
    severity: Severity = Severity.ERROR,
    *,
    leaves_open: bool = False,
) -> FindingCode:
    return FindingCode(
        kind=kind, code=code, name=name, severity=severity, says=says, manual=manual, leaves_open=leaves_open
    )


_WARNING, _NOTE = Severity.WARNING, Severity.NOTE

ALL: Final = (
    _code(
        "nothing",
        "VA001",
        "nothing-seen",
        "no message in any stream",
        """
        No stream of the virtual stream holds a message.

        ## What it means
        Nothing was compared, so nothing is proven: the verdict is UNKNOWN, not PASS. Is it the right topology, the
        right lab, the right period (`--since`)?

        ## What to do
        Publish a message in each region. Of a topology with streams that nobody has used yet, `--streams` takes the others.
        """,
        leaves_open=True,
    ),
    _code(
        "unreadable",
        "VA002",
        "unreadable",
        "`{stream}` could not be read",
        """
        A stream that should be there could not be read.

        ## What it means
        What the others hold was compared, and findings about them stand. Whether this stream holds every message is
        not known. The reason is in the finding; a region that is cut off can be audited when it is back.
        """,
        leaves_open=True,
    ),
    _code(
        "incomplete",
        "VA003",
        "incomplete",
        "`{stream}`: the table has other messages than the stream had",
        """
        The table `messages` does not have as many rows of a stream as the stream had messages.

        ## What it means
        What was read is not what was there: a table was changed, or reading went wrong. Streams with limits may lose
        messages while they are read, and are not reported. Extract the tables again.
        """,
        leaves_open=True,
    ),
    _code(
        "row-twice",
        "VA004",
        "row-twice",
        "`{stream}`: {n:row|rows} more than sequences",
        """
        The table `messages` has two rows for one sequence of a write stream.

        ## What it means
        A stream cannot hold a sequence twice: the table was changed, or two extractions were put together. Extract the
        tables again.
        """,
    ),
    _code(
        "unfinished",
        "VA005",
        "unfinished",
        "what clients did and what streams held was not recorded to its end",
        """
        The scenario that left the capture did not come to its end.

        ## What it means
        What was seen was compared, and findings about it stand. What happened afterwards is not known, so that nothing
        found is no pass. The reason is in the finding.
        """,
        leaves_open=True,
    ),
    _code(
        "absent",
        "VA006",
        "no-such-stream",
        "`{stream}` does not exist",
        """
        A server of the region says that it has no stream of this name.

        ## What it means
        The stream was deleted, or never created: the region holds nothing of what it should hold, and nothing comes
        there. What the others hold was compared.

        ## What to do
        `vstream plan` says what is missing, `vstream apply` creates it. A read stream that is made anew takes what
        write streams still have.
        """,
    ),
    _code(
        "lost-prefix",
        "VA101",
        "lost-prefix",
        "`{stream}` lacks {n:message|messages} of `{origin}` from before the first that it has",
        """
        A read stream lacks the oldest messages of a write stream that still has them, or that another region has.

        ## What it means
        They were never taken, or were deleted in this region: no limit of the read stream explains it. Sources that
        were added with a start sequence or start time, or a read stream that was purged, look like this.

        ## What to do
        `vstream repair --kind replay` shows what the region lacks, and with `--yes` puts it in, from the write stream or
        from the read stream of another region (docs/repair.md says where it works). A source that is removed and added
        again takes everything that its write stream still has, and doubles what is there already.
        """,
    ),
    _code(
        "lost-middle",
        "VA102",
        "lost-middle",
        "`{stream}` lacks {n:message|messages} of `{origin}` between others",
        """
        A read stream has messages of a write stream from before and after some that it lacks.

        ## What it means
        The source has gone on behind them, and will never come back: they are lost in this region, although `lag` is
        0. Servers up to 2.14 do so after a write stream was deleted and made again, and after some restarts of
        sources with a filter and a stream-level transform; a message that was deleted in one region looks the same.

        ## What to do
        `vstream repair --kind replay` shows what the region lacks, and with `--yes` puts it in, from the write stream or
        from the read stream of another region (docs/repair.md says where it works). `vstream audit --tables DIR` leaves
        all sequences in the table `faults`. Then look for the cause: `vstream lint` knows the configurations that skip.
        """,
    ),
    _code(
        "lost-tail",
        "VA103",
        "lost-tail",
        "`{stream}` lacks {n:message|messages} of `{origin}` behind the last that it has, and has read past them",
        """
        A source's own cursor says that it has read messages which the read stream does not hold.

        ## What it means
        They will not come any more. A read stream that discards new messages at a limit, or that deduplicates what
        it sources, looks like this.

        ## What to do
        Compare the read stream's limits and `duplicate_window` with what `vstream render` writes. Then
        `vstream repair --kind replay` shows what is missing, and with `--yes` puts it in (docs/repair.md says where it
        works).
        """,
    ),
    _code(
        "expired",
        "VA104",
        "expired",
        "`{stream}` lacks {n:message|messages} of `{origin}` for good: removed there before being taken",
        """
        A write stream removed messages by its limits, or was deleted, before a region had read them.

        ## What it means
        The region was cut off for longer than the write stream keeps messages. Other regions may hold them; in this
        one they are lost, and `lag` is 0.

        ## What to do
        `vstream repair --kind replay` shows which of them other regions hold, and with `--yes` puts them in. Then make
        `write.max_age` longer than the longest outage that is to lose nothing.
        """,
    ),
    _code(
        "late",
        "VA105",
        "late",
        "`{stream}` has not yet taken {n:message|messages} of `{origin}`",
        """
        A region has not received messages that were written more than 30 seconds before the audit, or, in a capture,
        before its end.

        ## What it means
        The write stream still has them, so that they can arrive.

        ## What to do
        Audit again: after an outage sources rest for a while, which `vstream resync` ends. If the number does not
        shrink, the source is stalled: look at the gateway connections and at the leader of the read stream.
        """,
    ),
    _code(
        "pending",
        "VA106",
        "pending",
        "{n:message|messages} of `{origin}` on the way to `{stream}`",
        """
        Messages were written in the last 30 seconds before the audit and have not arrived in a region.

        ## What it means
        Nothing: regions were compared without them.
        """,
        _NOTE,
    ),
    _code(
        "removed",
        "VA107",
        "removed",
        "`{stream}` may have removed {n:message|messages} of `{origin}` by its limits",
        """
        A region lacks messages that its read stream's limits explain: older than `max_age`, beyond `max_msgs`, or
        with enough newer messages of their subject. Where roll-ups are allowed, a message that all regions lack may
        have been rolled up by a newer one of its subject, or of all subjects.

        ## What it means
        Nothing is wrong as far as can be seen. That they ever arrived cannot be proven any more.
        """,
        _NOTE,
    ),
    _code(
        "not-at-origin",
        "VA108",
        "not-at-origin",
        "`{stream}` lacks {n:message|messages} that regions have taken from it",
        """
        A write stream does not hold messages that read streams have, and no limit of it explains that.

        ## What it means
        They were deleted or purged there, or the stream was restored from something older. Regions that have not read
        them yet never will, and a region that is added later lacks them.
        """,
    ),
    _code(
        "acked-lost",
        "VA109",
        "acked-lost",
        "{n:acknowledged publish|acknowledged publishes} of `{origin}` in no region",
        """
        A client was told that its message is stored, and no stream of any region has it.

        ## What it means
        Acknowledged messages were lost, by a loss of power or a corrupted store, for example. `sync_interval: always`
        and replicas in several places guard against it.
        """,
    ),
    _code(
        "deleted-everywhere",
        "VA110",
        "deleted-everywhere",
        "`{stream}` has lost {n:message|messages} between others, and no region has them",
        """
        A write stream took messages that neither it nor any region holds any more, and it holds older and newer ones.

        ## What it means
        `max_age`, `max_msgs` and `max_bytes` remove the oldest messages of a stream first, so none of them did it: somebody
        deleted the messages, or purged a subject, in the write stream and in every region that could be read.

        ## What to do
        If nobody meant to, look for who may call `STREAM.MSG.DELETE` and `STREAM.PURGE` on the write stream. A backup of it
        is the only place where the messages can still be.
        """,
    ),
    _code(
        "duplicated",
        "VA201",
        "duplicated",
        "`{stream}` has {n:copy|copies} too many of messages of `{origin}`",
        """
        A read stream has messages of a write stream more than once.

        ## What it means
        Consumers of this region get them again. Whole ranges that repeat are a source that began anew: servers
        2.12 to 2.14 do so after each restart where a source has a `filter_subject` and the stream a
        `subject_transform`, as in the published recipe, and an upgrade from these to 2.15 does so once.

        ## What to do
        Use `subject_transforms` in each source, as `vstream render` does. `vstream repair --kind delete` shows the copies,
        and with `--yes` deletes them.
        """,
    ),
    _code(
        "foreign",
        "VA202",
        "unexpected",
        "`{stream}` has {n:message|messages} from none of its write streams",
        """
        A read stream has messages without a source, or of a source that it should not have.

        ## What it means
        Somebody publishes into the read stream, or a source was added by hand: other regions do not have these
        messages. Or the virtual stream has moved here from another routing profile: its history came from the former
        read stream of each region, as many messages in all of them, and says no more who wrote it.

        ## What to do
        After a move, audit what was written since it ended: `vstream audit --since 2h`.
        """,
    ),
    _code(
        "rolled-back",
        "VA203",
        "rolled-back",
        "`{stream}` has {n:message|messages} of `{origin}` ahead of its last sequence",
        """
        A region has messages with sequences that the write stream has not reached, or not any more.

        ## What it means
        The write stream lost its newest messages: restored from a backup, made again, or acknowledged without being
        on disk when power was lost. New messages get the same sequences again; servers up to 2.14 skip them in regions
        that have seen these sequences.

        ## What to do
        Stop publishing in that region, and run `vstream repair --kind refill`: it shows, and with `--yes` publishes, what
        is gone, as the read streams hold it.
        """,
    ),
    _code(
        "reused",
        "VA204",
        "reused",
        "`{stream}` has {n:message|messages} of `{origin}` whose sequence now belongs to another",
        """
        A region and the write stream hold different messages under one sequence, and the region's came before the
        other was written.

        ## What it means
        The write stream lost messages and gave their sequences to new ones. The region has what was lost, and lacks
        what is new.
        """,
    ),
    _code(
        "payload",
        "VA205",
        "payload-changed",
        "`{stream}` has {n:message|messages} of `{origin}` with another payload than elsewhere",
        """
        A message does not have the same payload in a region as in its write stream, or, where that no longer has it,
        as in most regions. Counters are not looked at here: each stream has a sum of its own.

        ## What it means
        A store was damaged, or somebody wrote into it.
        """,
    ),
    _code(
        "subject",
        "VA206",
        "subject-changed",
        "`{stream}` has {n:message|messages} of `{origin}` under another subject than elsewhere",
        """
        A message does not have the same subject in a region as in others, or its header names another subject than it
        has in its write stream.

        ## What it means
        Transforms of the regions' sources differ, or were changed: compare them with `vstream plan`.
        """,
    ),
    _code(
        "overwritten",
        "VA207",
        "overwritten",
        "{n:acknowledged publish|acknowledged publishes} of `{origin}` whose sequence now holds something else",
        """
        A client was told the sequence of its message, and the write stream holds another one there.

        ## What it means
        The write stream lost acknowledged messages and gave their sequences to new ones.
        """,
    ),
    _code(
        "unpublished",
        "VA208",
        "unpublished",
        "`{stream}` has {n:message|messages} that no client sent",
        """
        A capture says everything that its clients sent, and a write stream holds something else.

        ## What it means
        Somebody else published, such as a probe, or a payload was altered on its way.
        """,
    ),
    _code(
        "refused-stored",
        "VA209",
        "refused-stored",
        "`{stream}` has {n:message|messages} whose publish was refused",
        """
        A client was told that its message was not stored, and it is.

        ## What it means
        A client that sends it again doubles it, unless it has a `Nats-Msg-Id`.
        """,
        _WARNING,
    ),
    _code(
        "reordered",
        "VA301",
        "reordered",
        "`{stream}` has {n:message|messages} of `{origin}` behind later ones",
        """
        Messages of one write stream stand in another order in a region.

        ## What it means
        Order per origin is what a virtual stream promises; order between origins is not. Consumers of this region
        apply an older message over a newer one.

        ## What to do
        Audit what was written since: `vstream audit --since 1h`.
        """,
    ),
    _code(
        "misordered",
        "VA302",
        "misordered",
        "`{stream}` has {n:message|messages} at another sequence than other regions",
        """
        A virtual stream with one order everywhere (`ordered`, `stretch` or `homed`) has another message at a sequence
        in one region than in others.

        ## What it means
        The regions' read streams are no mirrors of one stream, or one of them was made anew.
        """,
    ),
    _code(
        "put-back",
        "VA303",
        "put-back",
        "`{stream}` has {n:message|messages} of `{origin}` behind later ones, where a repair has put them",
        """
        A region had lost messages, and `vstream repair --kind replay` has put them in again, at the end.

        ## What it means
        They are there. Their place is gone for good: consumers of this region get them later than messages that were written after
        them. This cannot be repaired, and is no error of the servers.

        ## What to do
        Nothing, if consumers can take an older message behind a newer one. `vstream audit --since 1h` leaves out what was
        written before.
        """,
        _WARNING,
    ),
    _code(
        "disputes",
        "VA401",
        "last-value",
        "regions disagree for good on the last message of {n:key|keys}",
        """
        The last message of a subject is not the same in every region, and nothing that is still on its way will
        change that.

        ## What it means
        Two regions wrote the subject without having seen each other's message, and each region keeps what arrived
        last. For events that is as it should be. For a key-value bucket or anything that is read by its last value,
        regions give different answers from now on; where streams keep one message of a subject, it is an error.

        Of a counter, the sums are compared, whichever message comes last. Where they differ, it is an error: a region has
        not counted what others have, or a write stream has forgotten what it had.

        ## What to do
        Write the key once more, in one region. To prevent it, let one region own a key, or use a `stretch` or `homed`
        stream.
        """,
        _WARNING,
    ),
    _code(
        "conflicts",
        "VA402",
        "concurrent-writes",
        "{n:key was|keys were} written in two regions without one having seen the other's message",
        """
        A subject was written in one region before the message in front of it, from another region, had arrived there.

        ## What it means
        Whether it matters depends on what the messages are; `last-value` says where it has left regions in
        disagreement.
        """,
        _NOTE,
    ),
    _code(
        "deduplicated",
        "VA403",
        "deduplicated",
        "`{stream}` dropped {n:message|messages} of `{origin}` for another with the same id and payload",
        """
        A read stream has another message with the same `Nats-Msg-Id` and payload instead of this one.

        ## What it means
        A client published again in another region. Servers up to 2.12 deduplicate what a stream sources: the content
        is there once. Later ones keep both unless the read stream has a `duplicate_window`. Without one, or where this
        message was written when the window of the other was over, it is reported as lost; captures do not say what
        the window was. What counts is the window that the read stream has now: where it was made smaller, or turned off
        after an upgrade from 2.12, what was dropped before that is reported as lost, too.
        """,
        _WARNING,
    ),
    _code(
        "displaced",
        "VA404",
        "displaced",
        "`{stream}` dropped {n:message|messages} of `{origin}` for another with the same id and another payload",
        """
        A read stream has a message with the same `Nats-Msg-Id` but another payload instead of this one.

        ## What it means
        Ids were not unique across regions, and servers up to 2.12 deduplicate what a stream sources: regions may keep
        different messages.

        ## What to do
        Put the region into the id, or set `duplicate_window` of read streams to what `vstream render` writes.
        """,
    ),
    _code(
        "twins-other",
        "VA405",
        "id-collision",
        "{n:message id has|message ids have} several messages with different payloads",
        """
        One `Nats-Msg-Id` was used for different payloads.

        ## What it means
        Inside of the deduplication window of one stream the second would have been dropped. Ids must be unique.
        """,
        _WARNING,
    ),
    _code(
        "twins-same",
        "VA406",
        "published-twice",
        "{n:message id was|message ids were} stored several times with one payload",
        """
        A message with a `Nats-Msg-Id` was stored in two regions, or twice in one after the deduplication window.

        ## What it means
        Deduplication works within one write stream. A client that goes on in another region after a timeout
        publishes again there; consumers must expect it.
        """,
        _NOTE,
    ),
    _code(
        "clocks",
        "VA501",
        "clocks",
        "{n:pair of regions has|pairs of regions have} messages that arrived before they were written",
        """
        A message has an earlier timestamp in a read stream than in its write stream.

        ## What it means
        The clocks of the regions' servers differ by at least as much; delays are wrong by it.
        """,
        _NOTE,
    ),
)  # fmt: skip

BY_KIND: Final = {code.kind: code for code in ALL}


CHAPTER: Final = Chapter(title="Audits", pages=tuple(code.page for code in ALL))
"""The manual of an audit."""


def findings_markdown() -> str:
    """The manual of an audit, as docs/findings.md has it."""
    return render_manual("Findings", "What `vstream audit` reports.", [CHAPTER])
