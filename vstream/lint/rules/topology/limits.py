"""Limits and guarantees of the physical streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.wording import count
from vstream.topology.fields import SMALLEST_AGE
from vstream.topology.model import DEDUPE_OFF_SINCE, Role
from vstream.topology.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import PhysicalSettings, TopologySubject
    from vstream.syntax.yaml import Path


@rule("VS104", "too-many-replicas", Severity.ERROR)
def too_many_replicas(subject: TopologySubject) -> Iterator[Violation]:
    """
    A physical stream wants more replicas than its region has servers.

    ## Why is this bad?
    The servers answer `no suitable peers for placement`, and `apply` stops there.
    """
    seen: set[tuple[Path, str]] = set()
    for physical in subject.physical:
        servers = len(subject.topology.servers_at(physical.region))
        replicas = physical.fields["num_replicas"]
        if replicas <= servers:
            continue
        at = subject.place(physical, "replicas")
        if (at, physical.region) not in seen:
            seen.add((at, physical.region))
            yield Violation(
                at=at,
                message=f"stream `{physical.stream}` wants {replicas} replicas, "
                f"{subject.name_of_cluster(physical.region)} has {count(servers, 'server')}",
                hint=_fewer_replicas(subject, physical),
            )


def _fewer_replicas(subject: TopologySubject, physical: PhysicalSettings) -> str:
    if physical.region not in subject.document.regions:
        return "lower `replicas`, or give the stretch cluster more members"
    if physical.stream not in subject.written:
        return "lower `replicas`"
    return f"lower `replicas`, or set it for this region under `overrides: {{{physical.region}: …}}`"


@rule("VS107", "outage-not-stated", Severity.ERROR)
def outage_not_stated(subject: TopologySubject) -> Iterator[Violation]:
    """
    Nothing says how long a write stream keeps its messages.

    ## Why is this bad?
    The write stream's `max_age` is the longest outage that loses nothing: a region
    that is cut off for longer never receives what expired meanwhile. Without a
    limit the write streams grow for ever. Only you know the right number.
    """
    seen: set[str] = set()
    for physical in subject.physical:
        if physical.role is not Role.WRITE or physical.stream in seen or subject.places(physical, "max_age"):
            continue
        seen.add(physical.stream)
        yield Violation(
            at=("streams", physical.stream),
            message=f"stream `{physical.stream}` does not say how long an outage may last without loss",
            hint="set `write: {max_age: 24h}` here or under `defaults` (`unlimited` keeps everything)",
            on_key=True,
        )


@rule("VS113", "bad-duplicate-window", Severity.ERROR)
def bad_duplicate_window(subject: TopologySubject) -> Iterator[Violation]:
    """
    A duplicate window that the servers refuse, or read as something else.

    ## Why is this bad?
    A window may not be longer than `max_age` nor shorter than 100 ms
    (server/stream.go, checkStreamCfg). Before 2.14 a window of 0 meant 2 minutes,
    in which a read stream drops the second of two messages with the same
    `Nats-Msg-Id` from two regions, and regions keep different ones.
    """
    seen: set[Path] = set()
    for physical in subject.physical:
        message = None if physical.is_mirror else _window_problem(subject, physical)
        if message and (at := subject.place(physical, "duplicate_window")) not in seen:
            seen.add(at)
            window = physical.fields["duplicate_window"]
            yield Violation(
                at=at,
                message=f"the {physical.role.value} stream's duplicate_window of "
                f"{format_duration(window) if window else '0s'} {message}",
                hint="set `duplicate_window` between 100ms and `max_age`",
            )


def _window_problem(subject: TopologySubject, physical: PhysicalSettings) -> str | None:
    window, max_age = physical.fields["duplicate_window"], physical.fields["max_age"]
    if max_age and window > max_age:
        return f"is longer than its max_age of {format_duration(max_age)}"
    if 0 < window < SMALLEST_AGE:
        return "is shorter than the 100ms that servers accept"
    if window == 0 and (
        physical.role in {Role.WRITE, Role.ORIGIN} or subject.topology.server_version < DEDUPE_OFF_SINCE
    ):
        return "means 2 minutes to a server"
    return None


@rule("VS116", "read-stream-refuses", Severity.ERROR)
def read_stream_refuses(subject: TopologySubject) -> Iterator[Violation]:
    """
    A read stream that refuses messages once it is full.

    ## Why is this bad?
    With `discard: new` a full read stream refuses what it sources. Its source is
    retried for ever, and the region falls behind without an error.
    """
    seen: set[Path] = set()
    for physical in subject.physical:
        refuses = physical.role in {Role.READ, Role.ORDER} and physical.fields["discard"] == "new"
        if refuses and (at := subject.place(physical, "discard")) not in seen:
            seen.add(at)
            yield Violation(
                at=at,
                message=f"the {physical.role.value} stream of `{physical.stream}` would refuse what it takes once it is full",
                hint="use `discard: old` on it; `write: {discard: new}` pushes back on publishers",
            )


@rule("VS127", "rollup-without-purge", Severity.ERROR)
def rollup_without_purge(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream allows roll-ups and denies purging.

    ## Why is this bad?
    A roll-up purges what came before it. Servers refuse the stream: "roll-ups
    require the purge permission".
    """
    seen: set[Path] = set()
    for physical in subject.physical:
        contradicts = physical.fields["allow_rollup_hdrs"] and physical.fields["deny_purge"]
        if contradicts and (at := subject.place(physical, "deny_purge")) not in seen:
            seen.add(at)
            yield Violation(
                at=at,
                message=f"the {physical.role.value} stream of `{physical.stream}` allows roll-ups, which purge",
                hint="remove `deny_purge` or `allow_rollup`",
            )
