"""Plain streams that virtual ones take over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.topology import physical
from vstream.topology.profiles import profile_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.rules.topology.context import TopologySubject


@rule("VS141", "takeover-cannot", Severity.ERROR)
def takeover_cannot(subject: TopologySubject) -> Iterator[Violation]:
    """
    A stream takes over a plain one in a way that cannot work.

    ## Why is this bad?
    The read streams source the plain stream beside the write streams. Only `virtual` streams have read streams that
    source, hidden accounts do not reach the plain stream, and nothing can take over one of its own physical streams, or what
    another takes over.
    """
    own = {
        physical.physical_name(stream, part.role, part.place): stream.name
        for stream in subject.topology.streams
        for part in stream.physical
    }
    takers: dict[str, str] = {}
    for name, stream in subject.document.streams.items():
        plain, at = stream.takes_over, ("streams", name, "takes_over")
        if plain is None:
            continue
        if stream.consistency != "virtual":
            yield Violation(
                at=at,
                message=f"`{name}` is `{stream.consistency}`: its read streams cannot source a plain stream",
                hint="write `consistency: virtual`, or remove `takes_over`",
                on_key=True,
            )
        elif not profile_of(subject.topology).has_physical_names:
            yield Violation(
                at=at,
                message=f"with `routing: {subject.topology.routing.value}`, read streams do not reach a plain stream",
                hint="write `routing: mapped`, or copy the messages by other means",
                on_key=True,
            )
        elif plain in own:
            yield Violation(
                at=at,
                message=f"`{plain}` is a physical stream of `{own[plain]}`",
                hint="name the stream that clients use now",
            )
        elif plain in takers:
            yield Violation(
                at=at, message=f"`{takers[plain]}` takes over `{plain}` already", hint="one of the two is enough"
            )
        takers.setdefault(plain, name)
