"""Settings that must match in the streams of one virtual stream: duplicate windows, headers, message sizes."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from vstream.findings import Related, Severity
from vstream.lint.rule import Violation, choose_usual, rule
from vstream.lint.rules.streams import values
from vstream.lint.workspace import StreamFile, Workspace
from vstream.timing import SECOND_NS
from vstream.topology.model import DEDUPE_OFF_SINCE
from vstream.topology.units import spell_nanoseconds

_SMALLEST = SECOND_NS // 10
"""100 ms: the shortest duplicate window that servers accept."""


@rule("VS215", "duplicate-window-not-stated", Severity.WARNING)
def duplicate_window_not_stated(workspace: Workspace) -> Iterator[Violation]:
    """
    A read stream does not set its `duplicate_window`.

    ## Why is this bad?
    Without it, servers before 2.14 remember message ids for 2 minutes, and drop the second of two messages with the
    same `Nats-Msg-Id` from two regions. From 2.14 on, they remember none (server/stream.go, checkStreamCfg). So an
    upgrade, or a mix of versions, changes which messages are stored.
    """
    for stream in workspace.streams:
        is_stated = stream.config.fields.get("duplicate_window") is not None
        if _is_read_stream(stream) and not is_stated and values.read_sources(stream):
            yield Violation(
                at=stream.key_at("sources"),
                message=f"`{stream.config.name}` sets no `duplicate_window`: the default is 2 minutes before nats-server 2.14, and 0 since",
                hint="write `0` if all servers are 2.14 or newer, else `100000000` (100 ms)",
            )


@rule("VS216", "refused-duplicate-window", Severity.ERROR)
def refused_duplicate_window(workspace: Workspace) -> Iterator[Violation]:
    """
    A duplicate window has a value that servers refuse.

    ## Why is this bad?
    A window may not be longer than `max_age` nor shorter than 100 ms: `duplicates
    window can not be larger then max age` (500, 10052). All versions
    (server/stream.go, checkStreamCfg).
    """
    for stream in workspace.streams:
        window, max_age = values.read_number(stream, "duplicate_window"), values.read_number(stream, "max_age")
        if window < 0:
            message = "a duplicate window cannot be negative"
        elif 0 < max_age < window:
            message = f"the duplicate window of {spell_nanoseconds(window)} is longer than `max_age`, {spell_nanoseconds(max_age)}"
        elif 0 < window < _SMALLEST:
            message = f"the duplicate window of {spell_nanoseconds(window)} is shorter than 100ms"
        else:
            continue
        yield Violation(
            at=stream.locate("duplicate_window"),
            message=f"{message}: servers refuse it",
            hint="choose a window between 100 ms and `max_age`, in nanoseconds",
        )


@rule("VS217", "window-drops-other-regions", Severity.WARNING)
def window_drops_other_regions(workspace: Workspace) -> Iterator[Violation]:
    """
    A read stream remembers the message ids of several regions.

    ## Why is this bad?
    If two regions store messages with the same `Nats-Msg-Id` within the window, each read stream keeps the one that it
    sees first: regions end up with different messages, and `lag` is 0. Write streams deduplicate the retries of
    publishers; a read stream must not. From 2.14 on, 0 turns it off; before, 0 means 2 minutes and 100 ms is the
    minimum (server/stream.go; seen on 2.10 to 2.14). Ids that are unique to each region are safe.
    """
    oldest = workspace.stated_version
    means_two_minutes = oldest is not None and oldest < DEDUPE_OFF_SINCE
    for stream in workspace.streams:
        if not _is_read_stream(stream) or stream.config.fields.get("duplicate_window") is None:
            continue
        window = values.read_number(stream, "duplicate_window")
        is_default = window == 0 and means_two_minutes
        if len(values.read_sources(stream)) > 1 and (window > _SMALLEST or is_default):
            shown = "0, which is 2m before nats-server 2.14," if is_default else spell_nanoseconds(window)
            yield Violation(
                at=stream.locate("duplicate_window"),
                message=f"a window of {shown} drops messages with the same `Nats-Msg-Id` as a message of another region",
                hint="write `0` if all servers are 2.14 or newer, else `100000000` (100 ms)",
            )


@rule("VS218", "duplicate-windows-differ", Severity.WARNING)
def duplicate_windows_differ(workspace: Workspace) -> Iterator[Violation]:
    """
    The read streams of one virtual stream have different duplicate windows.

    ## Why is this bad?
    One region drops a message as a duplicate and another one stores it: the regions never converge again. All versions.
    """
    for group in values.StreamSet(workspace.streams).group_read_streams():
        stated = [stream for stream in group if stream.config.fields.get("duplicate_window") is not None]
        windows = [(stream, values.read_number(stream, "duplicate_window")) for stream in stated]
        if not windows:
            continue
        example, usual = choose_usual(windows, itemgetter(1))
        for stream, window in windows:
            if window != usual:
                yield Violation(
                    at=stream.locate("duplicate_window"),
                    message=f"a window of {_format_window(window)}, `{example.config.name}` has {_format_window(usual)}",
                    hint="give all read streams of a virtual stream the same window",
                    related=(Related(span=example.locate("duplicate_window"), message="the other window"),),
                )


@rule("VS219", "flags-differ", Severity.WARNING)
def flags_differ(workspace: Workspace) -> Iterator[Violation]:
    """
    A read stream and a write stream that it sources treat headers differently.

    ## Why is this bad?
    Streams store sourced messages unchanged. Without `allow_msg_ttl`, a region keeps messages that expire elsewhere
    (2.11 on); without `allow_msg_counter`, it shows increments instead of sums (2.12 on). If a read stream does not
    allow `Nats-Rollup`, such a message stops its source before 2.14, and takes effect anyway since. If only the read
    streams have a flag, they advertise a feature that publishers cannot use (server/stream.go, processJetStreamMsg).
    Delete markers imply TTLs and rollups.
    """
    streams = values.StreamSet(workspace.streams)
    for stream in workspace.streams:
        if not _is_read_stream(stream):
            continue
        seen: set[str] = set()
        for _, write in streams.sourced_streams(stream):
            for field in ("allow_msg_ttl", "allow_rollup_hdrs", "allow_msg_counter"):
                has, wants = _allows(stream, field), _allows(write, field)
                implied = (
                    has
                    and bool(values.read_limit(stream, "subject_delete_marker_ttl"))
                    and field != "allow_msg_counter"
                )
                if has != wants and not implied and field not in seen:
                    seen.add(field)
                    yield Violation(
                        at=values.locate_field(stream, field),
                        message=f"`{field}` is {'on' if has else 'off'}, but {'on' if wants else 'off'} "
                        f"in `{write.config.name}`, which it sources",
                        hint=f"give the write and the read streams the same `{field}`",
                        related=(
                            Related(span=values.locate_field(write, field), message=f"`{field}` of the write stream"),
                        ),
                    )


@rule("VS220", "smaller-messages-on-read", Severity.ERROR)
def smaller_messages_on_read(workspace: Workspace) -> Iterator[Violation]:
    """
    The maximum message size of a stream is smaller than that of a stream that it sources or mirrors.

    ## Why is this bad?
    Servers refuse it if they know both streams: `stream source must have max message size >= target` (400, 10046). If
    the other stream is changed later, the first message that is too large stops the source for ever. All versions
    (server/stream.go).
    """
    streams = values.StreamSet(workspace.streams)
    for stream in workspace.streams:
        max_size = values.read_limit(stream, "max_msg_size")
        if max_size is None:
            continue
        for _, source_stream in streams.sourced_streams(stream):
            source_size = values.read_limit(source_stream, "max_msg_size")
            if source_size is None or max_size < source_size:
                sent = "any size" if source_size is None else f"{source_size:,} bytes"
                yield Violation(
                    at=stream.locate("max_msg_size"),
                    message=f"messages of up to {max_size:,} bytes, but `{source_stream.config.name}`, which it sources, takes {sent}",
                    hint="raise or remove the limit of the read stream",
                    # Servers compare two limits; no limit at all is found out by the first big message.
                    severity=None if source_size else Severity.WARNING,
                    related=(
                        Related(span=values.locate_field(source_stream, "max_msg_size"), message="the other limit"),
                    ),
                )
                break


def _is_read_stream(stream: StreamFile) -> bool:
    # Of any other stream that only sources, these settings are a matter of choice.
    return stream.role.may_source and stream.role.is_of_virtual


def _allows(stream: StreamFile, field: str) -> bool:
    brought = bool(values.read_limit(stream, "subject_delete_marker_ttl")) and field != "allow_msg_counter"
    return values.has_flag(stream, field) or brought


def _format_window(window: int) -> str:
    return spell_nanoseconds(window) if window else "0"
