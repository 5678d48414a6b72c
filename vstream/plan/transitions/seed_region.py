"""
A new region's read stream: a copy of one that has the whole history, which then sources for itself.

A stream that only sources gets what the write streams still hold. So the new one is a
mirror of another region's first. Then it takes no more (STOP), and once what was on its
way is stored, it sources (SOURCE): servers go on after the last message of each source that
they find in it. In one step, messages on their way would be stored and then sourced again.
Where a source has no message left in it, `opt_start_seq` says where to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.plan.plan import Create, FieldChange, Handover, Note, Update
from vstream.plan.risk import Risk
from vstream.topology.stream_config import StreamConfig, is_in_domain, source_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.syntax.json_types import Json
    from vstream.topology.bundle import RenderedStream
    from vstream.topology.model import ServerVersion
    from vstream.topology.stream_config import ObservedStream

SINCE: ServerVersion = (2, 12)
"""Servers before cannot remove a mirror from a stream (10055)."""
COPY_KEY = "vstream.copy"
"""Metadata of a copy: which read stream it is one of. Gone once it sources."""
FROM_KEY = "vstream.from."
"""Metadata of a copy that has stopped, followed by a source's name: the sequence there that it goes on with."""

_NOT_FOR_COPIES = frozenset(
    {
        "sources",
        "republish",
        "subject_transform",
        "allow_atomic",
        "allow_batched",
        "allow_msg_counter",
        "allow_msg_schedules",
        "subject_delete_marker_ttl",
    }
)
"""What a mirror cannot have, or what would tell clients of messages that are no news."""


def donor_of(
    stream: RenderedStream, siblings: Sequence[RenderedStream], observed: Mapping[str, ObservedStream]
) -> str | None:
    """The one of *siblings* that a missing *stream* can be made a copy of: the first that has messages and sources for itself."""
    # Servers do not turn a stream into a counter. Nor need it be one's copy: write streams keep every counter (VS147).
    if not stream.config.source_names or stream.config.fields.get("allow_msg_counter"):
        return None
    for other in siblings:
        found = observed.get(other.config.name)
        if (
            other.role is stream.role
            and found is not None
            and found.messages
            and found.config.source_names
            and found.config.owner == stream.config.owner
        ):
            return other.config.name
    return None


def short_history(stream: RenderedStream) -> Note:
    """What a new read stream lacks that no other can be copied for."""
    reason = (
        "servers before 2.12 cannot make it out of another read stream"
        if stream.account is None
        else "with `routing: domains` a domain does not reach another's read streams"
        if is_in_domain(stream.config.name)
        else "a read stream in an account does not reach another's read streams"
    )
    return Note(name=stream.config.name, text=f"will begin with what the write streams still hold: {reason}")


def is_copy(found: ObservedStream) -> bool:
    """Whether *found* is one that does not source for itself yet."""
    return COPY_KEY in found.config.metadata


def plan_copy(stream: RenderedStream, donor: str) -> Iterator[Create | Update]:
    """The changes that make *stream*, which does not exist, out of *donor*."""
    copy = _copy_config(stream, donor)
    yield Create(config=copy, region=stream.region, role=stream.role)
    yield _stop(stream, donor)
    yield _source(stream, ())


def resume_copy(stream: RenderedStream, found: ObservedStream, fields: Sequence[FieldChange]) -> Iterator[Update]:
    """What is left to do for a copy that exists; *fields* is how it differs from what *stream* shall be."""
    if found.config.mirror_name is not None:
        yield _stop(stream, found.config.mirror_name)
    yield _source(stream, [one for one in fields if not _is_of_copies(one)])


def positions(metadata: Mapping[str, str]) -> Mapping[str, int]:
    """Where each source goes on, as a stopped copy's *metadata* says."""
    return {
        key.removeprefix(FROM_KEY): int(value)
        for key, value in metadata.items()
        if key.startswith(FROM_KEY) and value.isdecimal()
    }


def with_recorded_positions(config: StreamConfig, starts: Mapping[str, int]) -> StreamConfig:
    """*config* of a copy that stops, with the sequences *starts* that each source goes on with."""
    written = {f"{FROM_KEY}{name}": str(seq) for name, seq in sorted(starts.items())}
    return StreamConfig(name=config.name, fields={**config.fields, "metadata": {**config.metadata, **written}})


def with_start_sequences(config: StreamConfig, starts: Mapping[str, int]) -> StreamConfig:
    """*config* with each source that *starts* names beginning there, unless its first message is meant."""
    sources = config.fields.get("sources")
    assert isinstance(sources, list)
    changed: list[Json] = []
    for source in sources:
        assert isinstance(source, dict)
        start = starts.get(source_name(source, config.name), 0)
        changed.append({**source, "opt_start_seq": start} if start > 1 else source)
    return StreamConfig(name=config.name, fields={**config.fields, "sources": changed})


def _copy_config(stream: RenderedStream, donor: str) -> StreamConfig:
    kept = {key: value for key, value in stream.config.fields.items() if key not in _NOT_FOR_COPIES}
    metadata: dict[str, Json] = {**stream.config.metadata, COPY_KEY: donor}
    return StreamConfig(name=stream.config.name, fields={**kept, "mirror": {"name": donor}, "metadata": metadata})


def _stop(stream: RenderedStream, donor: str) -> Update:
    copy = _copy_config(stream, donor)
    return Update(
        config=StreamConfig(
            name=copy.name, fields={key: value for key, value in copy.fields.items() if key != "mirror"}
        ),
        region=stream.region,
        role=stream.role,
        fields=(
            FieldChange(
                field="mirror",
                before={"name": donor},
                after=None,
                risk=Risk.SAFE,
                why="it takes no more from there, and keeps what it has",
            ),
        ),
        handover=Handover.STOP,
    )


def _source(stream: RenderedStream, others: Sequence[FieldChange]) -> Update:
    sources = stream.config.fields["sources"]
    assert isinstance(sources, list)
    fields = [
        FieldChange(
            field=f"sources.{source['name']}",
            before=None,
            after=source,
            risk=Risk.SAFE,
            why="it goes on where the copy ends",
        )
        for source in sources
        if isinstance(source, dict)
    ]
    return Update(
        config=stream.config,
        region=stream.region,
        role=stream.role,
        fields=(*fields, *others),
        handover=Handover.SOURCE,
    )


def _is_of_copies(change: FieldChange) -> bool:
    name = change.field
    return name in {"mirror", "mirror_direct", "subjects", *_NOT_FOR_COPIES} or name.startswith(
        ("sources.", f"metadata.{COPY_KEY}", f"metadata.{FROM_KEY}")
    )
