"""
Read streams that mirror, and are to source the write streams: a topology leaves `ordered`, `homed` or `stretch` for `virtual`.

It goes as with a copy (`vstream.plan.transitions.seed_region`): the mirror takes no more, and once what was on its way is stored, it sources from
there. What it mirrored is the stream that decided on the order, whose sources are the write streams; or an origin, which
goes on as a plain stream that is taken over (`vstream.plan.transitions.takeover`). Servers cannot turn a stream into a mirror,
so there is no way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.plan.plan import Blocked
from vstream.plan.transitions.seed_region import SINCE
from vstream.topology.model import Role
from vstream.topology.stream_config import REGION_KEY, ROLE_KEY, STREAM_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.plan.plan import FieldChange
    from vstream.topology.bundle import RenderedStream
    from vstream.topology.model import ServerVersion
    from vstream.topology.stream_config import ObservedStream


def can_become_sourced(
    stream: RenderedStream, found: ObservedStream, observed: Mapping[str, ObservedStream], oldest: ServerVersion
) -> bool:
    """Whether *found*, a mirror, can become *stream*, which sources, without losing its place."""
    mirrored = observed.get(found.config.mirror_name or "")
    if mirrored is None or not stream.config.source_names or stream.account is not None or oldest < SINCE:
        return False
    if found.config.owner != stream.config.owner or mirrored.config.owner != stream.config.owner:
        return False
    decided = mirrored.config.source_names
    return mirrored.config.name == stream.takes_over or bool(decided and {*decided} <= {*stream.config.source_names})


def is_own_origin(stream: RenderedStream, plain: ObservedStream) -> bool:
    """Whether *plain*, which *stream* takes over, is the origin that its virtual stream had until now."""
    metadata = plain.config.metadata
    return (
        plain.config.owner == stream.config.owner
        and metadata.get(STREAM_KEY) == stream.virtual
        and metadata.get(ROLE_KEY) == Role.ORIGIN.value
    )


def hint_for_mirror(
    stream: RenderedStream,
    fields: Sequence[FieldChange],
    observed: Mapping[str, ObservedStream],
    oldest: ServerVersion,
) -> str | None:
    """What to do about a read stream that mirrors an order or an origin, and is to do so no more; None for others."""
    mirror = next((one for one in fields if one.field == "mirror"), None)
    if mirror is None or mirror.after is not None or stream.account is not None:
        return None  # in hidden accounts a plain stream is out of reach
    name = mirror.before.get("name") if isinstance(mirror.before, dict) else None
    mirrored = observed.get(str(name))
    is_order = mirrored is not None and bool(mirrored.config.source_names)
    if oldest < SINCE and (is_order or name == stream.virtual):
        return (
            "servers of 2.12 and later can: update all of them, and say so in `server_version`; "
            "or give the virtual stream another name and move over"
        )
    if name == stream.virtual and not is_order:
        return f"add `takes_over: {stream.virtual}` to the stream, apply it, and then take that out again"
    return None


def block_abandoned_streams(
    gone: Mapping[str, ObservedStream], desired: Sequence[RenderedStream], observed: Mapping[str, ObservedStream]
) -> Iterator[Blocked]:
    """
    Streams that go because their virtual stream gets another model, in which nothing takes over what they hold.

    Where it has several regions, a mirror that would have to source says so, or the other way round; where it has one, nothing
    of it stays.
    """
    wanted: dict[str, set[str]] = {}
    for stream in desired:
        wanted.setdefault(stream.virtual, set()).add(stream.role.value)
    kept = {stream.virtual for stream in desired if stream.config.name in observed}
    for name, one in sorted(gone.items()):
        metadata = one.config.metadata
        virtual, role = metadata.get(STREAM_KEY, ""), metadata.get(ROLE_KEY)
        if role in _TAKES_PUBLISHES and virtual in wanted.keys() - kept and role not in wanted[virtual]:
            yield Blocked(
                name=name,
                region=metadata.get(REGION_KEY),
                reason=f"`{virtual}` is to have another consistency model, and what is stored here would be lost",
                hint="change the topology back, or give the virtual stream another name and move over",
            )


_TAKES_PUBLISHES = frozenset({Role.WRITE.value, Role.ORIGIN.value})
