"""Counters: streams of increments that add up to the same sums in every region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.wording import format_version
from vstream.topology.model import COUNTERS_SINCE, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject
    from vstream.syntax.yaml import Path

_FORGETS = ("max_age", "max_msgs", "max_bytes")


@rule("VS146", "counter-cannot", Severity.ERROR)
def counter_cannot(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream of counters is combined with something that counters cannot have.

    ## Why is this bad?
    Counters exist since nats-server 2.12: an older one stores increments as ordinary messages, and nothing adds up. Servers
    refuse counters with `discard: new` and with TTLs of single messages (server/stream.go, checkStreamCfg), and refuse
    any message that is no increment: a canary is none, and neither is what a plain stream held before.
    """
    for name, stream in subject.document.streams.items():
        if not stream.counters:
            continue
        at: Path = ("streams", name)
        if subject.topology.server_version < COUNTERS_SINCE:
            yield Violation(
                at=(*at, "counters"),
                message=f"counters need nats-server {format_version(COUNTERS_SINCE)}, the topology says "
                f"{format_version(subject.topology.server_version)}",
                hint=f'raise `server_version` to "{format_version(COUNTERS_SINCE)}" if all servers are that new',
                on_key=True,
            )
        for word, why in (
            ("canary", "servers refuse a message that is no increment, and would add one that is"),
            ("takes_over", "what a plain stream holds is no increment"),
        ):
            if getattr(stream, word) is not None:
                yield Violation(
                    at=(*at, word),
                    message=f"`{word}` does not go with the counters of `{name}`: {why}",
                    hint="remove it",
                    on_key=True,
                )
    seen: set[Path] = set()
    for physical in subject.physical:
        if not subject.document.streams[physical.stream].counters:
            continue
        for word, field, bad in (("discard", "discard", "new"), ("allow_msg_ttl", "allow_msg_ttl", True)):
            where = subject.place(physical, word)
            if physical.fields.get(field) == bad and where not in seen:
                seen.add(where)
                yield Violation(
                    at=where,
                    message=f"servers refuse the counters of `{physical.stream}` with `{word}`",
                    hint="remove it",
                )


@rule("VS147", "counter-forgets", Severity.ERROR)
def counter_forgets(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream that adds up counters of several regions forgets them after a while.

    ## Why is this bad?
    What a region has counted is the last message of its write stream, and other streams take the difference to the last
    that they saw. A write stream that has forgotten a counter begins again at 0, and everywhere its whole sum
    is subtracted. A read stream that has forgotten one shows only what regions have counted since. `max_msgs_per_subject: 1`
    is enough, and bounds such a stream: the last message of each counter is the whole sum.
    """
    seen: set[Path] = set()
    for physical in subject.physical:
        adds_up = physical.role in {Role.WRITE, Role.ORDER, Role.READ} and not physical.is_mirror
        if not adds_up or not subject.document.streams[physical.stream].counters:
            continue
        for word in _FORGETS:
            limit = physical.fields[word]
            places = subject.places(physical, word)
            if isinstance(limit, int) and limit > 0 and places and places[-1] not in seen:
                seen.add(places[-1])
                yield Violation(
                    at=places[-1],
                    message=f"the {physical.role.value} streams of `{physical.stream}` would forget counters, "
                    "and sums be wrong in every region from then on",
                    hint=f"write `{word}: unlimited` for this stream; `max_msgs_per_subject: 1` bounds it",
                )
