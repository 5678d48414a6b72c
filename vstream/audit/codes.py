"""The findings of an audit: codes, severities and manual pages. Does not import Spark."""

from __future__ import annotations

import inspect
from typing import Final

from vstream.audit.finding_kinds import FindingKind
from vstream.codes import Chapter, Page
from vstream.findings import Severity
from vstream.value_class import value_class


class Count(int):
    """A count that formats itself with its noun."""

    def __format__(self, spec: str) -> str:
        """The count with a singular or plural noun: `f"{Count(2):key|keys}"` is `2 keys`."""
        item, _, many = spec.partition("|")
        return f"{int(self):,} {item if self == 1 else many}"


@value_class
class FindingCode:
    """One kind of finding."""

    kind: FindingKind
    code: str
    name: str
    severity: Severity
    says: str
    """The message. Placeholders: `{n:one|many}` for a count (`Count`), `{stream}`, `{origin}` for physical streams."""
    manual: str
    leaves_open: bool = False
    """Whether the finding means that data was missing: then the audit neither passes nor fails because of it."""

    @property
    def page(self) -> Page:
        """The manual page of the finding."""
        return Page(code=self.code, name=self.name, severity=self.severity, text=inspect.cleandoc(self.manual))


def _code(
    kind: FindingKind,
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
        FindingKind.NOTHING,
        "VA001",
        "nothing-seen",
        "no message was read from any stream",
        """
        The streams of the virtual stream are empty, or their messages ended, as by `Nats-TTL`, before they were read.

        ## What it means
        Nothing was compared, so nothing is proven: the verdict is UNKNOWN, not PASS. Check the topology, the lab and the period (`--since`).

        ## What to do
        Publish a message in each region. If some streams of the topology are not in use yet, select the others with `--stream`.
        """,
        leaves_open=True,
    ),
    _code(
        FindingKind.UNREADABLE,
        "VA002",
        "unreadable",
        "`{stream}` could not be read",
        """
        An expected stream could not be read.

        ## What it means
        The other streams were compared, and their findings are valid. It is unknown whether this stream has every message. The finding contains the reason; audit a region that is cut off when it is back.
        """,
        leaves_open=True,
    ),
    _code(
        FindingKind.INCOMPLETE,
        "VA003",
        "incomplete",
        "`{stream}`: the table does not match the messages of the stream",
        """
        The number of rows of a stream in the table `messages` differs from the number of its messages.

        ## What it means
        A table was changed, or reading failed. Streams with limits may remove messages while they are read; this is not reported. Extract the tables again.
        """,
        leaves_open=True,
    ),
    _code(
        FindingKind.ROW_TWICE,
        "VA004",
        "row-twice",
        "`{stream}`: {n:row|rows} more than sequences",
        """
        The table `messages` has two rows for one sequence of a write stream.

        ## What it means
        A stream cannot contain a sequence twice: the table was changed, or two extractions were merged. Extract the tables again.
        """,
    ),
    _code(
        FindingKind.UNFINISHED,
        "VA005",
        "unfinished",
        "the recording of clients and streams is not complete",
        """
        The scenario of the capture did not run to its end.

        ## What it means
        The recorded part was compared, and its findings are valid. What happened afterwards is unknown, so the verdict cannot be PASS. The finding contains the reason.
        """,
        leaves_open=True,
    ),
    _code(
        FindingKind.ABSENT,
        "VA006",
        "no-such-stream",
        "`{stream}` does not exist",
        """
        A server of the region says that it has no stream of this name.

        ## What it means
        The stream was deleted or never created: the region has none of its messages and receives none. The other streams were compared.

        ## What to do
        `vstream plan` shows what is missing, `vstream apply` creates it. A new read stream sources everything that the write streams still have.
        """,
    ),
    _code(
        FindingKind.LOST_PREFIX,
        "VA101",
        "lost-prefix",
        "`{stream}` lacks {n:message|messages} of `{origin}` before its first one",
        """
        A read stream lacks the oldest messages of a write stream that still has them, or that another region has.

        ## What it means
        They were never sourced, or were deleted in this region: no limit that the topology gives the read stream explains it. Typical causes are a source that was added with a start sequence or start time, a purge of the read stream, and a limit that somebody gave it by hand (`vstream plan --drift`).

        ## What to do
        `vstream repair messages --kind replay` shows what the region lacks, and with `--yes` adds it, from the write stream or from the read stream of another region (docs/repair.md says when this works). In front of what a read stream with `max_msgs` or `max_bytes` has, it adds nothing: VA111 says what to do then. If you remove and add the source instead, it copies everything that its write stream still has, and duplicates the messages that are already there.
        """,
    ),
    _code(
        FindingKind.LOST_MIDDLE,
        "VA102",
        "lost-middle",
        "`{stream}` lacks {n:message|messages} of `{origin}` between others",
        """
        A read stream has older and newer messages of a write stream, but lacks some between them.

        ## What it means
        The source has skipped them and will never return to them: they are lost in this region, although `lag` is 0. Servers up to 2.14 skip messages after a write stream was deleted and created again, and after some restarts of sources with a filter and a stream-level transform. A message that was deleted in one region looks the same.

        ## What to do
        `vstream repair messages --kind replay` shows what the region lacks, and with `--yes` adds it, from the write stream or from the read stream of another region (docs/repair.md says when this works). `vstream audit --tables DIR` writes all sequences to the table `differences`. Then look for the cause: `vstream lint` reports configurations that skip messages.
        """,
    ),
    _code(
        FindingKind.LOST_TAIL,
        "VA103",
        "lost-tail",
        "`{stream}` lacks {n:message|messages} of `{origin}` after its last one, although it has read past them",
        """
        The cursor of a source is past messages that the read stream does not have.

        ## What it means
        They will not arrive any more. Typical causes are a read stream that discards new messages at a limit, or one that deduplicates sourced messages.

        ## What to do
        Compare the read stream's limits and `duplicate_window` with what `vstream render` writes. Then
        `vstream repair messages --kind replay` shows what is missing, and with `--yes` adds it (docs/repair.md says when this works).
        """,
    ),
    _code(
        FindingKind.EXPIRED,
        "VA104",
        "expired",
        "`{stream}` lacks {n:message|messages} of `{origin}`, which can no longer be sourced from there",
        """
        A region lacks messages that their write stream removed because of its limits; or it was purged, deleted or given up (`vstream region failover`).

        ## What it means
        The region was cut off for longer than the write stream keeps messages; or the write stream was purged (`nats stream purge`) or deleted while messages had still to arrive. Or the region had them, and its read stream was purged: servers keep nothing that would tell. Other regions may have them; `lag` is 0.

        ## What to do
        `vstream repair messages --kind replay` shows which of them other regions have, and with `--yes` adds them. Then make `write.max_age` longer than the longest outage that must not lose messages.
        """,
    ),
    _code(
        FindingKind.LATE,
        "VA105",
        "late",
        "`{stream}` has not yet sourced {n:message|messages} of `{origin}`",
        """
        A region has not received messages that were written more than 30 seconds before the audit, or, in a capture,
        before its end.

        ## What it means
        The write stream still has them, so they can arrive.

        ## What to do
        Audit again: after an outage, sources wait before they retry; `vstream repair sources` shortens that. If the number does not shrink, the source is stalled: check the gateway connections and the leader of the read stream.
        """,
    ),
    _code(
        FindingKind.PENDING,
        "VA106",
        "pending",
        "{n:message|messages} of `{origin}` on the way to `{stream}`",
        """
        Messages from the last 30 seconds before the audit have not arrived in a region yet.

        ## What it means
        This is normal: regions were compared without them.
        """,
        _NOTE,
    ),
    _code(
        FindingKind.REMOVED,
        "VA107",
        "removed",
        "`{stream}` may have removed {n:message|messages} of `{origin}` because of its limits",
        """
        A region lacks messages, and the limits of its read stream explain it: they are older than `max_age`, beyond `max_msgs`, or have enough newer messages on their subject. Or a later roll-up of its subject, or of all subjects, came to the region.

        ## What it means
        Probably nothing is wrong, but it cannot be proven any more that they arrived.
        """,
        _NOTE,
    ),
    _code(
        FindingKind.NOT_AT_ORIGIN,
        "VA108",
        "not-at-origin",
        "`{stream}` lacks {n:message|messages} that regions have sourced from it",
        """
        A write stream lacks messages that read streams have, and none of its limits explains it.

        ## What it means
        They were deleted or purged there, or the stream was restored from an older state. Regions that have not sourced them yet never will, and a region that is added later will lack them.
        """,
    ),
    _code(
        FindingKind.ACKED_LOST,
        "VA109",
        "acked-lost",
        "{n:acknowledged publish|acknowledged publishes} of `{origin}` in no region",
        """
        A publish was acknowledged, but no stream of any region has its message.

        ## What it means
        Acknowledged messages were lost, for example in a power failure or because of a corrupted store. `sync_interval: always` and replicas in several places prevent it.
        """,
    ),
    _code(
        FindingKind.DELETED_EVERYWHERE,
        "VA110",
        "deleted-everywhere",
        "`{stream}` has lost {n:message|messages} between others, and no region has them",
        """
        A write stream stored messages that neither it nor any region has any more, although it has older and newer ones.

        ## What it means
        `max_age`, `max_msgs` and `max_bytes` remove the oldest messages of a stream first, so they are not the cause: the messages were deleted, or a subject was purged, in the write stream and in every region that could be read.

        ## What to do
        If this was not intended, find out who may call `STREAM.MSG.DELETE` and `STREAM.PURGE` on the write stream. Only a backup of it can still contain the messages.
        """,
    ),
    _code(
        FindingKind.REMOVED_EARLY,
        "VA111",
        "removed-early",
        "`{stream}` has removed {n:message|messages} of `{origin}` that its `max_msgs` keeps: by a purge, or when that was smaller",
        """
        A stream has removed messages that its `max_msgs` leaves: with `max_msgs: 1000`, the 1,000 newest ones.

        ## What it means
        Somebody has purged the stream or deleted its first messages (`nats stream purge`); or its `max_msgs` was smaller before, and removed them then. Nothing in the stream tells which, so the verdict is UNKNOWN. If no `max_msgs` explains it, the messages are called lost: the read stream is empty, or it has never stored so many, and another region's read stream has lost none.

        ## What to do
        If somebody has just raised `max_msgs`, nothing is wrong: the finding goes when so many new messages have come. `vstream plan` shows whether the servers still have a smaller one than the topology.

        Else find out who may call `STREAM.PURGE` and `STREAM.MSG.DELETE` on the stream. Clients find the messages in the read streams of other regions. If you delete this read stream, `vstream apply` creates it again, and it copies everything that the write streams still have; its consumers are deleted with it.
        """,
        leaves_open=True,
    ),
    _code(
        FindingKind.CANARIES,
        "VA112",
        "canaries-removed",
        "`{stream}` lacks {n:message|messages} that no region has: as many as canaries leave behind",
        """
        A write stream has stored messages that neither it nor any region has any more, and the topology names a `canary` subject for it.

        ## What it means
        `vstream probe` publishes canaries, and deletes them where they have arrived. A region has stored and deleted as many messages as are gone between the same neighbours, those of all other regions included: none was lost before it was copied. Messages that somebody has deleted in every region, one by one, look the same.

        ## What to do
        Nothing, if `vstream probe` runs. If it never does, see VA110.
        """,
        _NOTE,
    ),
    _code(
        FindingKind.CANARIES_LATE,
        "VA113",
        "canaries-late",
        "`{stream}` differs from others by {n:canary|canaries} of `{origin}`, which came late to a region",
        """
        A region has a message on the `canary` subject that its write stream and other regions no longer have.

        ## What it means
        `vstream probe` deletes canaries where they have arrived. One that was held up on its way, such as to a server that was paused, arrives after that, and stays until limits of the read stream remove it.

        ## What to do
        Nothing.
        """,
        _NOTE,
    ),
    _code(
        FindingKind.CANARIES_OR_LOST,
        "VA114",
        "canaries-or-lost",
        "`{stream}` lacks {n:message|messages} that no region has: canaries, or messages that were lost before they were copied",
        """
        A write stream has stored messages that neither it nor any region has any more, the topology names a `canary` subject for it, and no region shows that it had all of them.

        ## What it means
        A region has deleted fewer messages there than are gone, or nothing tells: a mirror has the same gap whether a message was deleted there or never came, a read stream with `max_msgs_per_subject` or messages with a time to live has gaps of its own, and nobody knows what a region sent that was not read, was given up, or has a new write stream. So canaries that `vstream probe` has deleted look like lost messages, and the verdict is UNKNOWN.

        ## What to do
        Compare the number with how often `vstream probe` has run: it leaves one gap for each region and probe. If you need a verdict of such a stream, probe it without a `canary`.
        """,
        leaves_open=True,
    ),
    _code(
        FindingKind.DUPLICATED,
        "VA201",
        "duplicated",
        "`{stream}` has {n:extra copy|extra copies} of messages of `{origin}`",
        """
        A read stream has messages of a write stream more than once.

        ## What it means
        Consumers of this region get them again. If whole ranges repeat, a source has started over: servers 2.12 to 2.14 do so after each restart if a source has a `filter_subject` and the stream a `subject_transform`, as in the published recipe. An upgrade from these versions to 2.15 does so once.

        ## What to do
        Use `subject_transforms` in each source, as `vstream render` does. `vstream repair messages --kind delete` shows the copies, and deletes them with `--yes`.
        """,
    ),
    _code(
        FindingKind.FOREIGN,
        "VA202",
        "unexpected",
        "`{stream}` has {n:message|messages} that come from none of its write streams",
        """
        A read stream has messages without a source, or from an unexpected source.

        ## What it means
        A client publishes into the read stream, or a source was added by hand: other regions do not have these messages. Or the virtual stream moved here from another routing profile: each region copied the history from its former read stream, and the copies no longer name the region of origin.

        ## What to do
        After a move, audit only messages written since it ended: `vstream audit --since 2h`.
        """,
    ),
    _code(
        FindingKind.ROLLED_BACK,
        "VA203",
        "rolled-back",
        "`{stream}` has {n:message|messages} of `{origin}` ahead of its last sequence",
        """
        A region has messages with sequences beyond the end of the write stream.

        ## What it means
        The write stream lost its newest messages: it was restored from a backup or created again, or power failed before acknowledged messages were on disk. New messages get the same sequences again; servers up to 2.14 skip them in regions
        that have seen these sequences.

        ## What to do
        Stop publishing in that region, and run `vstream repair messages --kind refill`: it shows the lost messages, and with `--yes` publishes them again from the read streams.
        """,
    ),
    _code(
        FindingKind.REUSED,
        "VA204",
        "reused",
        "`{stream}` has {n:message|messages} of `{origin}` whose sequence now belongs to another message",
        """
        A region and the write stream have different messages with the same sequence, and the region's arrived before the other was written.

        ## What it means
        The write stream lost messages and reused their sequences for new ones. The region has the lost messages and lacks the new ones.

        ## What to do
        Publish again what only the write stream has, under other message ids, and delete it there: `vstream repair messages` names the sequences, and ends with 1 until then. After a loss of power, keep the region's publishers stopped until `vstream repair messages --kind refill` has ended (docs/runbooks.md).
        """,
    ),
    _code(
        FindingKind.PAYLOAD,
        "VA205",
        "payload-changed",
        "`{stream}` has {n:message|messages} of `{origin}` whose payload differs from elsewhere",
        """
        The payload of a message in a region differs from that in its write stream, or, if the write stream no longer has it, in most regions. Counters are not compared here: each stream has its own sum.

        ## What it means
        A store was damaged or changed.
        """,
    ),
    _code(
        FindingKind.SUBJECT,
        "VA206",
        "subject-changed",
        "`{stream}` has {n:message|messages} of `{origin}` whose subject differs from elsewhere",
        """
        The subject of a message in a region differs from that in others, or its header names a subject that differs from that in its write stream.

        ## What it means
        Transforms of the regions' sources differ, or were changed: compare them with `vstream plan`.
        """,
    ),
    _code(
        FindingKind.OVERWRITTEN,
        "VA207",
        "overwritten",
        "{n:acknowledged publish|acknowledged publishes} of `{origin}` whose sequence now belongs to another message",
        """
        A client got a sequence for its message, but the write stream has another message there.

        ## What it means
        The write stream lost acknowledged messages and reused their sequences for new ones.
        """,
    ),
    _code(
        FindingKind.UNPUBLISHED,
        "VA208",
        "unpublished",
        "`{stream}` has {n:message|messages} that no client sent",
        """
        A capture records everything that its clients sent, but a write stream has other messages.

        ## What it means
        Another client published, such as a probe, or a payload was altered in transit.
        """,
    ),
    _code(
        FindingKind.REFUSED_STORED,
        "VA209",
        "refused-stored",
        "`{stream}` has {n:message|messages} whose publish was refused",
        """
        A publish was refused, but its message was stored.

        ## What it means
        A client that retries creates a duplicate, unless the message has a `Nats-Msg-Id`.
        """,
        _WARNING,
    ),
    _code(
        FindingKind.REORDERED,
        "VA301",
        "reordered",
        "`{stream}` has {n:message|messages} of `{origin}` after later ones",
        """
        A region has messages of one write stream in a different order.

        ## What it means
        A virtual stream guarantees the order per origin, but not between origins. Consumers of this region apply an older message after a newer one.

        ## What to do
        Audit the messages written since then: `vstream audit --since 1h`.
        """,
    ),
    _code(
        FindingKind.MISORDERED,
        "VA302",
        "misordered",
        "`{stream}` has {n:message|messages} at a sequence that differs from other regions",
        """
        A virtual stream with one order everywhere (`ordered`, `stretch` or `homed`) has a different message at a sequence in one region.

        ## What it means
        The read streams are not mirrors of one stream, or one of them was created again.
        """,
    ),
    _code(
        FindingKind.PUT_BACK,
        "VA303",
        "put-back",
        "`{stream}` has {n:message|messages} of `{origin}` after later ones, where a repair added them",
        """
        A region had lost messages, and `vstream repair messages --kind replay` added them again at the end.

        ## What it means
        They are complete, but not in order: consumers of this region get them after messages that were written later. This cannot be repaired, and is not an error of the servers.

        ## What to do
        Nothing, if consumers accept an older message after a newer one. `vstream audit --since 1h` leaves out older messages.
        """,
        _WARNING,
    ),
    _code(
        FindingKind.DIVERGED_KEYS,
        "VA401",
        "last-value",
        "regions permanently disagree on the last message of {n:key|keys}",
        """
        The last message of a subject differs between regions, and no message in transit will change that.

        ## What it means
        Two regions wrote the subject before they received each other's message, and each region keeps what arrived last. For events that is normal. For a key/value bucket, or any stream that is read by last value, regions return different values from now on; it is an error if streams keep one message per subject.

        For counters, the sums are compared, whichever message is last. Different sums are an error: a region has not counted everything, or a write stream has lost a counter.

        ## What to do
        Write the key once more, in one region. To prevent it, let one region own a key, or use a `stretch` or `homed`
        stream.
        """,
        _WARNING,
    ),
    _code(
        FindingKind.CONFLICTS,
        "VA402",
        "concurrent-writes",
        "{n:key was|keys were} written in two regions before either received the other's message",
        """
        A subject was written in one region before the previous message, from another region, had arrived there.

        ## What it means
        Whether it matters depends on the messages; `last-value` reports subjects on which regions still disagree.
        """,
        _NOTE,
    ),
    _code(
        FindingKind.DEDUPLICATED,
        "VA403",
        "deduplicated",
        "`{stream}` dropped {n:message|messages} of `{origin}` as duplicates of another with the same id and payload",
        """
        A read stream has another message with the same `Nats-Msg-Id` and payload instead of this one.

        ## What it means
        A client published again in another region. Servers up to 2.12 deduplicate sourced messages: the content is stored once. Later versions keep both unless the read stream has a `duplicate_window`. Without one, or if this message was written after the window of the other, it is reported as lost; captures do not contain the window. If a read stream has stored as many messages as arrived, it dropped none: messages that it lacks were removed there, and are lost. The current window of the read stream counts: if it was reduced, or turned off after an upgrade from 2.12, messages dropped before that are also reported as lost.
        """,
        _WARNING,
    ),
    _code(
        FindingKind.DISPLACED,
        "VA404",
        "displaced",
        "`{stream}` dropped {n:message|messages} of `{origin}` because of another with the same id but a different payload",
        """
        A read stream has a message with the same `Nats-Msg-Id` but another payload instead of this one.

        ## What it means
        Ids were not unique across regions, and servers up to 2.12 deduplicate sourced messages: regions may keep different messages.

        ## What to do
        Add the region to the id, or set `duplicate_window` of read streams to what `vstream render` writes.
        """,
    ),
    _code(
        FindingKind.SHARED_ID_OTHER,
        "VA405",
        "id-collision",
        "{n:message id has|message ids have} several messages with different payloads",
        """
        One `Nats-Msg-Id` was used for different payloads.

        ## What it means
        Within the deduplication window of one stream, the second would have been dropped. Ids must be unique.
        """,
        _WARNING,
    ),
    _code(
        FindingKind.SHARED_ID_SAME,
        "VA406",
        "published-twice",
        "{n:message id was|message ids were} stored several times with the same payload",
        """
        A message with a `Nats-Msg-Id` was stored in two regions, or twice in one after the deduplication window.

        ## What it means
        Deduplication works only within one write stream. A client that retries in another region after a timeout publishes a second copy there; consumers must expect it.
        """,
        _NOTE,
    ),
    _code(
        FindingKind.CLOCKS,
        "VA501",
        "clocks",
        "{n:pair of regions has|pairs of regions have} messages that arrived before they were written",
        """
        A message has an earlier timestamp in a read stream than in its write stream.

        ## What it means
        The clocks of the regions' servers differ by at least that much, or the write stream's end was published again: `vstream repair messages` does that after a rollback. Delays are wrong by the same amount.
        """,
        _NOTE,
    ),
)  # fmt: skip

BY_KIND: Final = {code.kind: code for code in ALL}


CHAPTER: Final = Chapter(title="Audits", pages=tuple(code.page for code in ALL))
"""The manual of an audit."""
