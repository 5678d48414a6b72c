"""
Start sequences (`first_seq`, `opt_start_seq`): computed when a stream is created, and preserved afterwards.

A write stream that is deleted and created again begins with sequence 1. Its readers ask for what comes after the last
message that they took: until the stream gets there, they receive nothing, and servers before 2.15 do not notice. So the
new stream begins after that (`first_seq`). The same holds for a region that comes back: the others still have what they
took from it, and positions of consumers name its sequences, none of which may come twice. Once a reader has dropped a
dead write stream, how far it was is noted in its metadata, until it sources that again: nobody has to read back what
others have published since. A note is made after the last message was taken, and goes with the update after which more
can come, so that one that exists is right.

An origin or an ordering stream that is made again begins after what its mirrors have, which have its very sequences. An
ordering stream sources each write stream from where the furthest of them ends: from the first message on, all would come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from vstream.formatting import quote_names
from vstream.plan.context import DiffContext, PlanItem
from vstream.plan.model import Create, Note
from vstream.topology.model import Role
from vstream.topology.stream_config import UNTIL_KEY, StreamConfig, parse_positions, with_recorded_positions

_MIRRORED = frozenset({Role.ORIGIN, Role.ORDER})


def attach_readers(planned: Sequence[PlanItem], context: DiffContext) -> Iterable[PlanItem]:
    """
    Name in each creation of a stream the readers that may have taken from an earlier stream of that name.

    These are the streams that source or mirror it, and those that will source it.
    """
    if not any(isinstance(item, Create) for item in planned):
        return (yield from planned)
    desired = {stream.config.name: stream.config.source_names for stream in context.desired_streams}
    readers: dict[str, set[str]] = {}
    mirrors: dict[str, set[str]] = {}
    for reader in context.streams.values():
        name, sources = reader.config.name, reader.config.source_names
        if (reader.messages or reader.last_seq) and sources:
            for source in {*sources, *desired.get(name, ())}:
                readers.setdefault(source, set()).add(name)
        elif reader.last_seq and (mirrored := reader.config.mirror_name) is not None:
            mirrors.setdefault(mirrored, set()).add(name)
    for item in planned:
        if isinstance(item, Create):
            name = item.config.name
            is_mirrored = item.role in _MIRRORED and item.config.mirror is None
            following = mirrors.get(name, set()) if is_mirrored else readers.get(name, set())
            yield replace(item, readers=tuple(sorted(following)))
            if is_mirrored and following:
                text = f"begins empty, after the end of {quote_names(sorted(following))}: what copies hold does not come back into it"
                yield Note(name=name, text=text)
        else:
            yield item


def with_first_seq(config: StreamConfig, first_seq: int) -> StreamConfig:
    """*config* of a stream whose first message gets *first_seq*."""
    return config.with_first_seq(first_seq if first_seq > 1 else None)


def preserve_start_sequences(desired: StreamConfig, observed: StreamConfig) -> StreamConfig:
    """
    *desired*, beginning where *observed* says that it began: the stream itself, and each source that it still has.

    A source's start counts only while the stream holds nothing of it. What was noted of streams that it does not source stays.
    """
    noted = parse_positions(observed.metadata, UNTIL_KEY)
    ends = {origin: seq for origin, seq in noted.items() if origin not in desired.source_names}
    if ends:
        desired = with_recorded_positions(desired, ends, UNTIL_KEY)
    starts = {source.stream: source.start_seq for source in observed.sources if source.start_seq is not None}
    config = desired if desired.first_seq is not None else desired.with_first_seq(observed.first_seq)
    if not starts or not desired.sources:
        return config
    sources = []
    for source in desired.sources:
        start_seq = starts.get(source.stream) if source.start_seq is None else source.start_seq
        sources.append(source.with_start_seq(start_seq))
    return config.with_sources(sources)
