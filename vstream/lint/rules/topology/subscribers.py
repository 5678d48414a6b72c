"""Subscribers that know nothing of JetStream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.topology.decode import levels
from vstream.topology.model import Role
from vstream.topology.profiles import profile_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject


@rule("VS149", "core-subscribers-unfit", Severity.ERROR)
def core_subscribers_unfit(subject: TopologySubject) -> Iterator[Violation]:
    """
    Core subscribers are asked for where they cannot hear what is published.

    ## Why is this bad?
    A publish to a virtual stream is renamed on its way to the write stream, and a subscriber of the virtual subject
    hears nothing. With `routing: accounts`, write streams publish what they stored once more, and the account of clients
    takes it from theirs. With `domains` and `regional`, read streams do, in the account of clients: each region hears
    its own. With `mapped` all regions share one account, and subscribers would hear every read stream. Streams with
    one origin have mirrors elsewhere, which would publish to the origin again.
    Consume from the stream: an ordered consumer gets every message, in every region.
    """
    routing, profile = subject.topology.routing, profile_of(subject.topology)
    for stream in subject.topology.streams:
        if not stream.core_subscribers:
            continue
        if profile.has_physical_names or (profile.has_write_beside_read and stream.consistency.has_origin):
            is_heard = profile.has_physical_names and stream.consistency.has_origin
            yield Violation(
                at=("streams", stream.name, "core_subscribers"),
                message=f"core subscribers hear `{stream.name}` anyway: nothing is between them and its subjects"
                if is_heard
                else f"with `routing: {routing.value}`, core subscribers cannot hear `{stream.name}`: "
                + (
                    "a mirror that published again would publish to the origin"
                    if stream.consistency.has_origin
                    else "publishes are renamed on their way to its write streams, and nothing names them back"
                ),
                hint="remove it" if is_heard else "consume from the stream, or use `routing: accounts`",
                on_key=True,
            )
            continue
        role, places = (Role.READ, stream.read) if profile.has_write_beside_read else (Role.WRITE, stream.write)
        for region in places:
            for path, level in levels(subject.document, stream.name, region, role):
                if "republish" in (level.config or {}):
                    yield Violation(
                        at=(*path, "config", "republish"),
                        message=f"`core_subscribers` of `{stream.name}` needs `republish` for itself",
                        hint="remove one of the two",
                        on_key=True,
                    )
            break
