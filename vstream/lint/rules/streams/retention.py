"""How long messages are kept, and what read streams must allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vstream.findings import Edit, Related, Severity
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.streams import values
from vstream.lint.workspace import StreamRole, Workspace
from vstream.timing import LONGEST_BACKOFF_SECONDS, SECOND_NS, SOURCE_ANSWER_SECONDS
from vstream.topology.model import POSITIONS_STORED_SINCE
from vstream.topology.units import spell_nanoseconds, spell_size

_BACK_OFF = int(LONGEST_BACKOFF_SECONDS + SOURCE_ANSWER_SECONDS) * SECOND_NS
"""After so many nanoseconds at most, a source is asked for again, and there."""


@rule("VS226", "shorter-than-back-off", Severity.ERROR)
def shorter_than_back_off(workspace: Workspace) -> Iterator[Violation]:
    """
    A write stream removes messages before other regions retry to source them.

    ## Why is this bad?
    A failed source is retried after 10 s times the number of failures, at most 2 minutes, and may take 30 s to be set
    up (server/stream.go, retryMaximum and srcConsumerWaitTime, all versions). Messages that expire within these 150 s
    are lost in an outage of any length; `lag` is 0.
    """
    for stream in workspace.streams:
        max_age = values.read_limit(stream, "max_age")
        if stream.role is StreamRole.WRITE and max_age is not None and max_age < _BACK_OFF:
            yield Violation(
                at=stream.locate("max_age"),
                message=f"messages expire after {spell_nanoseconds(max_age)}, but sources may need 2m30s to reconnect",
                hint="keep them for the longest outage that must not lose messages, and for at least 150 s",
            )


@rule("VS227", "shorter-than-topology", Severity.ERROR)
def shorter_than_topology(workspace: Workspace) -> Iterator[Violation]:
    """
    A write stream removes messages sooner than the topology says.

    ## Why is this bad?
    The topology's `write: {max_age: …}` is the longest outage that must not lose messages. A region that is cut off for
    longer than the `max_age` in this file never gets the messages that expired meanwhile. All versions.
    """
    stated = _find_stated_ages(workspace)
    for stream in workspace.streams:
        promised, max_age = stated.get((stream.virtual, stream.region)), values.read_limit(stream, "max_age")
        if stream.role is not StreamRole.WRITE or promised is None or max_age is None:
            continue
        if promised == 0 or max_age < promised:
            yield Violation(
                at=stream.locate("max_age"),
                message=f"messages expire after {spell_nanoseconds(max_age)}, but the topology says {spell_nanoseconds(promised)}",
                hint="render the stream again, or change the topology",
            )


@rule("VS228", "evicts-sooner", Severity.NOTE)
def evicts_sooner(workspace: Workspace) -> Iterator[Violation]:
    """
    A write stream has a limit besides `max_age` that removes messages.

    ## Why is this bad?
    With `max_bytes` or `max_msgs`, the longest outage without loss depends on the publish rate, which no file states.
    With a `max_msgs_per_subject` below that of a read stream, a message that is replaced during an outage never arrives
    there. `discard: new` refuses publishes instead, and loses nothing. All versions.
    """
    for stream in workspace.streams:
        max_age = values.read_limit(stream, "max_age")
        if stream.role is not StreamRole.WRITE or values.read_word(stream, "discard") == "new":
            continue
        for field in ("max_bytes", "max_msgs"):
            most = values.read_limit(stream, field)
            if most is None:
                continue
            shown = spell_size(most) if field == "max_bytes" else f"{most:,} messages"
            sooner = (
                f"`max_age` if more is published within {spell_nanoseconds(max_age)}" if max_age else "an outage ends"
            )
            yield Violation(
                at=stream.locate(field),
                message=f"`{field}` of {shown} removes messages before {sooner}",
                hint='compare it with your publish rate; `"discard": "new"` refuses publishes instead',
            )
    streams = values.StreamSet(workspace.streams)
    for stream in workspace.streams:
        if not stream.role.may_source:
            continue
        keeps = values.read_limit(stream, "max_msgs_per_subject")
        for _, write in streams.sourced_streams(stream):
            fewer = values.read_limit(write, "max_msgs_per_subject")
            if fewer is not None and (keeps is None or fewer < keeps) and write.role is StreamRole.WRITE:
                yield Violation(
                    at=values.locate_field(stream, "max_msgs_per_subject"),
                    message=f"keeps {keeps or 'all'} messages of a subject, its source `{write.config.name}` {fewer}: "
                    "messages replaced during an outage never arrive",
                    hint="let the write stream keep as many messages per subject as the read streams",
                    related=(Related(span=write.locate("max_msgs_per_subject"), message="the lower limit"),),
                )
                break


@rule("VS229", "read-stream-forgets-sources", Severity.WARNING)
def read_stream_forgets_sources(workspace: Workspace) -> Iterator[Violation]:
    """
    A read stream can remove the last message of a source, and with it the source's position.

    ## Why is this bad?
    Before 2.15, a server uses the last stored message of a source to find out where it stopped. If another region
    overwrote that message (`max_msgs_per_subject`, as in key/value buckets), or if it expired before the write stream
    removed it, the source starts over at the next restart: old values come back as the newest (seen on 2.11.11 and
    2.14.6; server/stream.go, startingSequenceForSources). Regular messages of each region on its own subject keep the
    position. The canaries of `vstream probe` do that, so a stream with a `canary` with a `*` in its topology is not
    reported. Neither is a stream that vstream rendered from a topology that was not given.
    """
    oldest = workspace.stated_version
    if oldest is not None and oldest >= POSITIONS_STORED_SINCE:
        return
    streams = values.StreamSet(workspace.streams)
    declared = workspace.topology.streams if workspace.topology else ()
    beacons = {virtual.name for virtual in declared if virtual.canary and "*" in virtual.canary.split(".")}
    single = {virtual.name for virtual in declared if virtual.is_bucket}
    for stream in workspace.streams:
        if not stream.role.may_source or stream.virtual in beacons:
            continue
        if workspace.topology is None and stream.config.owner is not None:
            continue  # Its topology may have a canary, and states the servers' version.
        per_subject, max_age = values.read_limit(stream, "max_msgs_per_subject"), values.read_limit(stream, "max_age")
        sourced = (source_stream for _, source_stream in streams.sourced_streams(stream))
        longer = next(
            (item for item in sourced if max_age and not 0 < values.read_number(item, "max_age") <= max_age), None
        )
        # Of a bucket, each key has one writer (VS142, VS143). What a counter takes again adds nothing.
        is_safe = stream.virtual in single or bool(stream.config.fields.get("allow_msg_counter"))
        if per_subject is not None and len(values.read_sources(stream)) > 1 and not is_safe:
            yield Violation(
                at=stream.locate("max_msgs_per_subject"),
                message="another region can overwrite the last message of a source: before nats-server 2.15, old values then come back after a restart",
                hint="upgrade to 2.15, or let each region publish regularly on its own subject",
            )
        elif longer is not None:
            yield Violation(
                at=stream.locate("max_age"),
                message=f"messages expire here before `{longer.config.name}` forgets them: "
                "before nats-server 2.15, they come back after a restart",
                hint="give the read stream a longer `max_age` than the write streams",
                related=(Related(span=values.locate_field(longer, "max_age"), message="kept longer here"),),
            )


@rule("VS230", "retention-not-limits", Severity.ERROR)
def retention_not_limits(workspace: Workspace) -> Iterator[Violation]:
    """
    A physical stream of a virtual stream has a retention other than `limits`.

    ## Why is this bad?
    With `workqueue` or `interest`, a message is removed once it is acknowledged, or if no consumer is interested. A
    write stream then loses messages that one region has sourced before the others, and messages published before the
    sources exist; a read stream loses messages that one consumer has read. Before 2.14, sourcing such streams is never
    safe; since then, it needs durable consumers (server/stream.go; ADR-60).
    """
    for stream in workspace.streams:
        retention = values.read_word(stream, "retention")
        if stream.role.is_of_virtual and retention not in {"", "limits"}:
            yield Violation(
                at=stream.locate("retention"),
                message=f"`{stream.config.name}` has retention `{retention}`: messages are removed before every region has them",
                hint='write `"retention": "limits"`',
            )


def _find_stated_ages(workspace: Workspace) -> Mapping[tuple[str | None, str | None], int]:
    """How long write streams keep messages according to the topology, in nanoseconds; 0 is for ever."""
    ages: dict[tuple[str | None, str | None], int] = {}
    for virtual in workspace.topology.streams if workspace.topology else ():
        for region, settings in virtual.write_settings.items():
            if isinstance(age := settings.get("max_age"), int):
                ages[(virtual.name, region)] = age
    return ages


@rule("VS231", "direct-get-off", Severity.WARNING)
def direct_get_off(workspace: Workspace) -> Iterator[Violation]:
    """
    A read stream does not allow Direct Get.

    ## Why is this bad?
    In a region that is cut off from the meta leader, `STREAM.MSG.GET` fails with 10008; Direct Get is the only way to
    read a message without an existing consumer, and key/value clients use it. The default is off. From 2.9 on
    (server/jetstream_api.go; seen on 2.14.6 and 2.15.1).
    """
    for stream in workspace.streams:
        if stream.role in {StreamRole.READ, StreamRole.ORIGIN} and not values.has_flag(stream, "allow_direct"):
            yield Violation(
                at=values.locate_field(stream, "allow_direct"),
                message=f"`{stream.config.name}` does not allow Direct Get, the only read that works in a region that is cut off",
                hint='write `"allow_direct": true`',
            )


@rule("VS232", "full-read-stream-refuses", Severity.ERROR)
def full_read_stream_refuses(workspace: Workspace) -> Iterator[Violation]:
    """
    A read stream refuses messages once it is full.

    ## Why is this bad?
    With `discard: new`, a full stream refuses messages of its sources. Servers retry for ever, and the region falls
    behind without an error. All versions (server/stream.go, processInboundSourceMsg).
    """
    for stream in workspace.streams:
        # A queue of its own may well wait until its consumers have made room.
        is_queue = not stream.role.is_of_virtual and values.read_word(stream, "retention") not in {"", "limits"}
        if stream.role.may_source and not is_queue and values.read_word(stream, "discard") == "new":
            yield Violation(
                at=stream.locate("discard"),
                message=f"`{stream.config.name}` refuses messages of its sources once it is full",
                hint='write `"discard": "old"`; on a write stream, `new` pushes back on publishers',
            )


@rule("VS233", "async-write-stream", Severity.ERROR)
def async_write_stream(workspace: Workspace) -> Iterator[Violation]:
    """
    A write stream acknowledges messages before they are written.

    ## Why is this bad?
    With `persist_mode: async`, a server that dies loses acknowledged messages, and there is no other copy until other
    regions have sourced them. The next messages reuse their sequence numbers, so the other regions skip them. The mode
    overrides `sync_interval: always`, and servers refuse it with more than one replica. From 2.12 on (server/stream.go,
    checkStreamCfg; ADR-56).
    """
    for stream in workspace.streams:
        if stream.role is StreamRole.WRITE and values.read_word(stream, "persist_mode") == "async":
            span = stream.locate("persist_mode")
            yield Violation(
                at=span,
                message=f"`{stream.config.name}` acknowledges messages before they are written",
                hint='write `"persist_mode": "default"`',
                fix=(Edit(span=span, text='"default"'),),
            )
