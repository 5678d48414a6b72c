"""What keeps streams from storing what they are sent, and consumers from delivering it, by their own configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vstream.formatting import format_count, format_size, summarize_names
from vstream.health.snapshot import Snapshot, StreamSnapshot
from vstream.subjects.algebra import is_subset
from vstream.topology import naming, physical
from vstream.topology.model import Role, Topology, VirtualStream
from vstream.topology.replication import PhysicalStream, list_durables, physical_streams
from vstream.topology.stream_config import StreamConfig
from vstream.topology.stream_limits import MAX_BYTES, MAX_MESSAGES, PER_SUBJECT, read_limit
from vstream.value_class import value_class

_DEFAULT_PAYLOAD_BYTES = 2**20
"""Bytes that a message may have where servers have no limit of their own."""
_DIRECT = ("allow_direct", "mirror_direct")
_TAKES_PUBLISHES = frozenset({Role.WRITE, Role.ORIGIN})


@value_class
class StreamFault:
    """Why *stream* refuses messages, or stores them where nobody looks for them."""

    stream: str
    evidence: str
    code: str = "VD509"
    stops_storing: bool = True
    stops_direct_get: bool = False


def find_stream_faults(topology: Topology, snapshot: Snapshot) -> Iterator[StreamFault]:
    """Each fault that a stream's own configuration shows, or its server; none of streams whose configuration is not known."""
    for stream in topology.streams:
        for part in physical_streams(stream):
            observed = snapshot.streams.get(part.name)
            if observed is not None and observed.config is not None:
                for evidence in _list_evidence(topology, stream, part, observed, observed.config):
                    yield StreamFault(stream=part.name, evidence=evidence)
                for field in _DIRECT:
                    if part.fields.get(field) is True and not observed.config.get(field):
                        text = f"it does not answer Direct Get (`{field}` is off)"
                        yield StreamFault(stream=part.name, evidence=text, stops_storing=False, stops_direct_get=True)
                if 0 < _tighter_limit(part, observed.config, "max_consumers") <= observed.consumers:
                    text = f"it has {format_count(observed.consumers, 'consumer')}, and refuses more (`max_consumers`)"
                    yield StreamFault(stream=part.name, evidence=text, stops_storing=False)
                if deaf := [subject for subject in observed.unsubscribed if subject != naming.pause_subject(part.name)]:
                    yield _describe_deafness(observed, deaf)
            if observed is not None and observed.messages > max(0, observed.last_seq + 1 - observed.first_seq):
                held = f"it holds {format_count(observed.messages, 'message')}, and says that its last sequence is {observed.last_seq:,}"
                yield StreamFault(stream=part.name, evidence=held, code="VD513", stops_storing=False)


def _describe_deafness(observed: StreamSnapshot, unsubscribed: Sequence[str]) -> StreamFault:
    is_direct_get = [subject.startswith(naming.api_subject("DIRECT.GET", "")) for subject in unsubscribed]
    return StreamFault(
        stream=observed.name,
        code="VD512",
        evidence=f"its leader `{observed.leader}` is not subscribed to {summarize_names(unsubscribed)}",
        stops_storing=not all(is_direct_get),
        stops_direct_get=any(is_direct_get),
    )


def _list_evidence(
    topology: Topology, stream: VirtualStream, part: PhysicalStream, observed: StreamSnapshot, fields: Mapping[str, Any]
) -> Iterator[str]:
    config = StreamConfig(name=part.name, fields=fields)
    if fields.get("sealed"):
        yield "it is sealed: it stores nothing any more"
    yield from _list_refusals(part, observed, fields)
    if part.role in _TAKES_PUBLISHES:
        if fields.get("no_ack") and not part.fields.get("no_ack"):
            yield "it acknowledges nothing (`no_ack`): publishers wait in vain"
        expected = physical.write_subjects(topology, stream, part.place)
        absent = [
            subject for subject in expected if not any(is_subset(subject, listened) for listened in config.subjects)
        ]
        if naming.is_paused(config):
            yield "it is paused, because it moves or is scaled up, and takes no publishes until `vstream apply` has seen that it is there"
        elif absent:
            yield f"it does not take {summarize_names(absent)}"
    yield from _list_changed_subjects(topology, stream, part, config)


def _list_refusals(part: PhysicalStream, observed: StreamSnapshot, fields: Mapping[str, Any]) -> Iterator[str]:
    """Which messages it refuses, published or sourced, that it should take."""
    if fields.get("discard") == "new":
        yield from _find_full(observed, fields)
        keeps = read_limit(fields, PER_SUBJECT)
        refuses_more = fields.get("discard_new_per_subject") and not part.fields.get("discard_new_per_subject")
        if refuses_more and keeps:
            yield f"it refuses new messages of subjects that have {keeps:,} (`discard_new_per_subject`)"
    if largest := _tighter_limit(part, fields, "max_msg_size"):
        yield f"it refuses messages above {format_size(largest)} (`max_msg_size`)"
    if 0 < (room := _tighter_limit(part, fields, "max_bytes")) < _DEFAULT_PAYLOAD_BYTES:
        yield f"it keeps no message above {format_size(room)} (`max_bytes`)"
    for field, value in part.fields.items():
        if value is True and field.startswith("allow_") and field not in _DIRECT and not fields.get(field):
            yield f"it refuses messages that need `{field}`, which is off"


def _tighter_limit(part: PhysicalStream, fields: Mapping[str, Any], name: str) -> int:
    """The limit *name* if it is below that of the topology; else 0."""
    limit, expected = read_limit(fields, name), read_limit(part.fields, name)
    return 0 if 0 < expected <= limit else limit


def _list_changed_subjects(
    topology: Topology, stream: VirtualStream, part: PhysicalStream, config: StreamConfig
) -> Iterator[str]:
    """Settings that give its messages subjects which nobody reads, or that leave messages out."""
    faulty, is_ours = [], part.role in _TAKES_PUBLISHES
    sources = config.sources
    regions = stream.regions if sources else ()
    origins = {physical.physical_name(stream, Role.WRITE, region): region for region in regions}
    for source in sources:
        origin = origins.get(source.stream)
        if origin is not None:
            missing = {*physical.source_transforms(topology, stream, origin)} - {*source.transforms}
            is_ours = is_ours or not missing
            if missing:
                faulty.append(f"messages from `{source.stream}` get other subjects, or are left out")
    if config.subject_transform is None:
        yield from faulty
    elif is_ours:  # and not another layout, which turns subjects back by itself (VD101)
        yield "it stores messages under other subjects: `{}` becomes `{}`".format(*config.subject_transform)


def _find_full(observed: StreamSnapshot, fields: Mapping[str, Any]) -> Iterator[str]:
    for limit, used in ((MAX_MESSAGES, observed.messages), (MAX_BYTES, observed.bytes)):
        if 0 < read_limit(fields, limit) <= used:
            yield f"it is full (`{limit}`), and refuses new messages (`discard: new`)"


@value_class
class ConsumerFault:
    """Why *consumer*, by its stream and name, does not deliver what it should."""

    consumer: str
    evidence: str


def find_consumer_faults(topology: Topology, snapshot: Snapshot) -> Iterator[ConsumerFault]:
    """Each fault that the configuration of a consumer shows; none of consumers that nobody answered for."""
    for durable in list_durables(topology):
        observed = snapshot.consumers.get((durable.stream, durable.name))
        if observed is not None:
            for evidence in _list_consumer_evidence(observed.config.fields, durable.fields):
                yield ConsumerFault(consumer=observed.config.name, evidence=evidence)


def _list_consumer_evidence(fields: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    if fields.get("deliver_subject"):
        yield f"it pushes to `{fields['deliver_subject']}`, and answers no pull request"
    if (policy := fields.get("ack_policy")) not in {None, expected["ack_policy"]}:
        yield f"it has `ack_policy: {policy}`, not `{expected['ack_policy']}`"
    if fields.get("headers_only") and not expected.get("headers_only"):
        yield "it delivers headers without payloads (`headers_only`)"
    if _list_filters(fields) != _list_filters(expected):
        yield f"it delivers {_describe_filters(fields)}, not {_describe_filters(expected)}"


def _list_filters(fields: Mapping[str, Any]) -> set[str]:
    single = fields.get("filter_subject")
    return {single} if single else {*(fields.get("filter_subjects") or ())}


def _describe_filters(fields: Mapping[str, Any]) -> str:
    return summarize_names(sorted(_list_filters(fields))) or "every subject"
