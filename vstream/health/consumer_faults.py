"""What keeps a consumer of the topology from delivering what the topology says, by its own configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vstream.formatting import list_names
from vstream.health.snapshot import Snapshot
from vstream.topology.model import Topology
from vstream.topology.replication import durables


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFault:
    """Why *consumer*, by its stream and name, does not deliver what it should."""

    consumer: str
    evidence: str


def find_consumer_faults(topology: Topology, snapshot: Snapshot) -> Iterator[ConsumerFault]:
    """Each fault that the configuration of a consumer shows; none of consumers that nobody answered for."""
    for durable in durables(topology):
        observed = snapshot.consumers.get((durable.stream, durable.name))
        if observed is not None:
            for evidence in _evidence(observed.config.fields, durable.fields):
                yield ConsumerFault(consumer=observed.config.name, evidence=evidence)


def _evidence(fields: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    if fields.get("deliver_subject"):
        yield f"it pushes to `{fields['deliver_subject']}`, and answers no pull request"
    if (policy := fields.get("ack_policy")) not in {None, expected["ack_policy"]}:
        yield f"it has `ack_policy: {policy}`, not `{expected['ack_policy']}`"
    if fields.get("headers_only") and not expected.get("headers_only"):
        yield "it delivers headers without payloads (`headers_only`)"
    if _filters(fields) != _filters(expected):
        yield f"it delivers {_describe_filters(fields)}, not {_describe_filters(expected)}"


def _filters(fields: Mapping[str, Any]) -> set[str]:
    single = fields.get("filter_subject")
    return {single} if single else {*(fields.get("filter_subjects") or ())}


def _describe_filters(fields: Mapping[str, Any]) -> str:
    return list_names(sorted(_filters(fields))) or "every subject"
