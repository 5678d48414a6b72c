"""The inputs of a plan: the topology, what it renders to, and what the servers report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from functools import cache
from typing import TypeAlias

from vstream.plan.canonical import EqualityCache, to_canonical_stream
from vstream.plan.model import Blocked, Change, Note, RegionLoss, RuleChange
from vstream.plan.rules import LoadedEntries, OwnRules, diff_rules, list_account_entries, list_rule_entries
from vstream.syntax.document import Json
from vstream.topology.bundle import Bundle, RenderedStream
from vstream.topology.consumer_config import ObservedConsumer
from vstream.topology.model import Topology
from vstream.topology.stream_config import ObservedStream
from vstream.topology.units import Version, parse_version
from vstream.value_class import value_class

PlanItem: TypeAlias = Change | Blocked | Note
"""What a plan is made of: a change, a blocked change, or a note for the reader."""


@value_class
class Observed:
    """What the servers report: streams by name, names that no server answered for, loaded rules by server."""

    streams: Mapping[str, ObservedStream]
    unanswered: tuple[str, ...] = ()
    rules: Mapping[str, LoadedEntries] = field(default_factory=dict)
    """By server: its loaded mapping rules and account entries, by key (`vstream.plan.rules`)."""
    unread_servers: tuple[str, ...] = ()
    leaving_servers: tuple[str, ...] = ()
    """Servers that the topology does not list."""
    lost: tuple[str, ...] = ()
    """Regions that are given up. Of their servers, none is among the unread ones."""
    losses: tuple[RegionLoss, ...] = ()
    """What is lost for good with them."""
    consumers: Mapping[str, Mapping[str, ObservedConsumer]] = field(default_factory=dict)
    """By stream and name: the consumers of all streams with durables in the topology, now or before."""
    silent_consumers: tuple[str, ...] = ()
    """Existing consumers that no server answered for: `foo-read-west > reader`."""
    at: datetime | None = None
    """When the streams were listed; None if unknown."""
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By cluster and server, what those run that were connected to, or that monitoring asks."""


@value_class
class DiffContext:
    """Desired and observed state side by side, with everything that several steps of a comparison need."""

    topology: Topology
    bundle: Bundle
    observed: Observed
    adopt: frozenset[str]
    """Streams and consumers that vstream did not create and may take over; `all` means every one that is needed."""
    owned_streams: Mapping[str, ObservedStream]
    """Existing streams of this topology, whether or not it still lists them."""
    undesired_streams: Mapping[str, ObservedStream]
    """Those of *owned_streams* that the topology no longer lists."""
    canonical_form_of: Callable[[str], Mapping[str, Json]]
    """The canonical form of an observed stream: most are as desired, and nobody asks for theirs."""
    siblings: Mapping[str, Sequence[RenderedStream]]
    """Virtual stream → its desired physical streams."""
    readers: Mapping[str, Sequence[str]]
    """Stream → the desired streams that source or mirror it."""
    equality: EqualityCache
    rule_changes: tuple[RuleChange, ...]
    desired_rule_count: int
    """Number of mapping rules and account entries that every server should have loaded."""

    def list_versions(self, cluster: str) -> Sequence[Version]:
        """The versions of the servers of *cluster*, as far as they are known, the oldest first."""
        parsed = map(parse_version, self.observed.versions.get(cluster, {}).values())
        return sorted(version for version in parsed if version is not None)

    def are_versions_known(self, cluster: str) -> bool:
        """Whether `list_versions` has every server of *cluster*."""
        seats = [seat for seat in self.topology.seats if seat.cluster == cluster]
        heard = self.observed.versions.get(cluster, {})
        return len(self.list_versions(cluster)) == len(heard) >= max(1, len(seats))

    @property
    def desired_streams(self) -> tuple[RenderedStream, ...]:
        """The streams that should exist."""
        return self.bundle.streams

    @property
    def streams(self) -> Mapping[str, ObservedStream]:
        """The existing streams, of any topology."""
        return self.observed.streams

    @property
    def desired_names(self) -> frozenset[str]:
        """The names of the streams that should exist."""
        return frozenset(stream.config.name for stream in self.bundle.streams)

    @classmethod
    def of(
        cls, topology: Topology, bundle: Bundle, observed: Observed, *, adopt: frozenset[str] = frozenset()
    ) -> DiffContext:
        """The context of bringing *observed* to *bundle*, which *topology* renders to."""
        siblings: dict[str, list[RenderedStream]] = {}
        readers: dict[str, list[str]] = {}
        for stream in bundle.streams:
            siblings.setdefault(stream.virtual, []).append(stream)
            origins = (*stream.config.source_names, stream.config.mirror_name)
            for origin in dict.fromkeys(name for name in origins if name is not None):
                readers.setdefault(origin, []).append(stream.config.name)
        desired = {stream.config.name for stream in bundle.streams}
        # A plain stream that is taken over stays until the topology does not name it any more.
        staying = desired | {stream.takes_over for stream in bundle.streams if stream.takes_over is not None}
        owned = {name: stream for name, stream in observed.streams.items() if stream.config.owner == topology.name}
        canonical_form_of = cache(lambda name: to_canonical_stream(observed.streams[name].config.fields))
        desired_rules = {**list_rule_entries(bundle.mappings), **list_account_entries(bundle.accounts)}
        return cls(
            topology=topology,
            bundle=bundle,
            observed=observed,
            adopt=adopt,
            owned_streams=owned,
            undesired_streams={name: stream for name, stream in owned.items() if name not in staying},
            canonical_form_of=canonical_form_of,
            equality=EqualityCache(),
            siblings=siblings,
            readers=readers,
            desired_rule_count=len(desired_rules),
            rule_changes=tuple(diff_rules(desired_rules, observed.rules, OwnRules(bundle.streams, owned))),
        )
