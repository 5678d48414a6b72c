"""
Where streams and sources begin, if not with their first message: filled in once, and kept ever after.

A write stream that is gone and made again begins with sequence 1, and its readers ask for what
comes after the last one that they took: until it gets there, they get nothing, and servers before 2.15 do not
notice. So the new one begins after that (`first_seq`). So it is, too, where a region comes again that had left:
the others still hold what they took of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vstream.plan.plan import Create
from vstream.topology.stream_config import StreamConfig, source_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vstream.plan.plan import Change
    from vstream.syntax.json_types import Json
    from vstream.topology.bundle import RenderedStream
    from vstream.topology.model import ServerVersion
    from vstream.topology.stream_config import ObservedStream


_NOTICE: ServerVersion = (2, 15)
"""From here on servers notice that a source is not the stream that it was."""


def attach_readers(
    changes: Sequence[Change],
    desired: Sequence[RenderedStream],
    observed: Mapping[str, ObservedStream],
    oldest: ServerVersion,
) -> list[Change]:
    """
    *changes*; those that make a stream name the streams that may have taken something of an earlier one of its name.

    Those that source it and, where a server can be as old as *oldest*, those that will.
    """
    holding = [one for one in observed.values() if one.messages and one.config.source_names]
    takes = {one.config.name: one.config.source_names for one in holding}
    will = {one.config.name: one.config.source_names for one in desired if oldest < _NOTICE}
    readers: dict[str, set[str]] = {}
    for reader, sources in takes.items():
        for source in {*sources, *will.get(reader, ())}:
            readers.setdefault(source, set()).add(reader)
    return [
        replace(one, readers=tuple(sorted(readers.get(one.config.name, ())))) if isinstance(one, Create) else one
        for one in changes
    ]


def with_first_seq(config: StreamConfig, first_seq: int) -> StreamConfig:
    """*config* of a stream whose first message gets *first_seq*."""
    return StreamConfig(name=config.name, fields={**config.fields, "first_seq": first_seq}) if first_seq > 1 else config


def preserve_start_sequences(desired: StreamConfig, before: Mapping[str, Json]) -> StreamConfig:
    """
    *desired*, beginning where the stream *before* says that it began, itself and each source of that name.

    That was filled in once. For a source it counts only while the stream holds nothing of it.
    """
    fields = dict(desired.fields)
    if before.get("first_seq") and "first_seq" not in fields:
        fields["first_seq"] = before["first_seq"]
    found, wanted = before.get("sources"), fields.get("sources")
    if isinstance(found, list) and isinstance(wanted, list):
        starts = {
            source_name(one, desired.name): one["opt_start_seq"]
            for one in found
            if isinstance(one, dict) and "opt_start_seq" in one
        }
        fields["sources"] = [
            {"opt_start_seq": starts[source_name(one, desired.name)], **one}
            if isinstance(one, dict) and source_name(one, desired.name) in starts
            else one
            for one in wanted
        ]
    return StreamConfig(name=desired.name, fields=fields)
