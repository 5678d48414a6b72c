"""What readers and publishers can rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Edit, Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.streams.values import flag, place, word
from vstream.lint.workspace import StreamRole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.workspace import Workspace


@rule("VS231", "direct-get-off", Severity.WARNING)
def direct_get_off(workspace: Workspace) -> Iterator[Violation]:
    """
    A read stream does not allow Direct Get.

    ## Why is this bad?
    In a region that is cut off from the meta leader, `STREAM.MSG.GET` fails with
    10008; Direct Get is the only way to read a message without a consumer that
    exists already, and what key-value clients use. Left out means off. From 2.9 on
    (server/jetstream_api.go; seen on 2.14.6 and 2.15.1).
    """
    for stream in workspace.streams:
        if stream.role in {StreamRole.READ, StreamRole.ORIGIN} and not flag(stream, "allow_direct"):
            yield Violation(
                at=place(stream, "allow_direct"),
                message=f"`{stream.config.name}` does not allow Direct Get, the only read that works in a cut-off region",
                hint='write `"allow_direct": true`',
            )


@rule("VS232", "full-read-stream-refuses", Severity.ERROR)
def read_stream_refuses(workspace: Workspace) -> Iterator[Violation]:
    """
    A read stream refuses messages once it is full.

    ## Why is this bad?
    With `discard: new`, a full stream refuses what it sources. The source is tried
    again for ever, and the region falls behind without an error. All versions
    (server/stream.go, processInboundSourceMsg).
    """
    for stream in workspace.streams:
        if stream.role.may_source and word(stream, "discard") == "new":
            yield Violation(
                at=stream.at("discard"),
                message=f"`{stream.config.name}` refuses what it sources once it is full",
                hint='write `"discard": "old"`; on a write stream `new` pushes back on publishers',
            )


@rule("VS233", "async-write-stream", Severity.ERROR)
def asynchronous(workspace: Workspace) -> Iterator[Violation]:
    """
    A write stream acknowledges messages before they are written.

    ## Why is this bad?
    With `persist_mode: async`, a server that dies takes acknowledged messages with it,
    and there is no other copy until the regions have sourced them. What is stored
    next has their sequence numbers, and the other regions skip it. It overrides
    `sync_interval: always`, and is refused with more than one replica. From 2.12 on
    (server/stream.go, checkStreamCfg; ADR-56).
    """
    for stream in workspace.streams:
        if stream.role is StreamRole.WRITE and word(stream, "persist_mode") == "async":
            span = stream.at("persist_mode")
            yield Violation(
                at=span,
                message=f"`{stream.config.name}` acknowledges messages before they are written",
                hint='write `"persist_mode": "default"`',
                fix=(Edit(span=span, text='"default"'),),
            )
