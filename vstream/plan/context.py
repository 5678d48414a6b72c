"""What a plan is made from: the topology, what it renders to, and what the servers say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from vstream.plan.canonical import canonical
from vstream.plan.plan import Blocked, Change, Note
from vstream.plan.rules import OwnRules, account_entries, diff_rules, rule_entries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from vstream.plan.plan import RuleChange
    from vstream.syntax.json_types import Json
    from vstream.topology.bundle import Bundle, RenderedStream
    from vstream.topology.consumer_config import ObservedConsumer
    from vstream.topology.model import Topology
    from vstream.topology.stream_config import ObservedStream

Outcome: TypeAlias = Change | Blocked | Note
"""What comparing gives: something to do, something that cannot be done, or something that a reader must know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the servers say: streams by name, names that no server answered for, loaded rules by server."""

    streams: Mapping[str, ObservedStream]
    missing: tuple[str, ...] = ()
    rules: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Server → what it has loaded: mapping rules and account entries by their key (`vstream.plan.rules`)."""
    unread_servers: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    """Servers that the topology does not have."""
    consumers: Mapping[str, Mapping[str, ObservedConsumer]] = field(default_factory=dict)
    """Stream → name, of the streams that durables of the topology are on, or were."""
    silent_consumers: tuple[str, ...] = ()
    """Consumers that exist, and that no server answered for: `foo-read-west > reader`."""
    at: datetime | None = None
    """When the streams were listed; None if nobody says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffContext:
    """Desired and observed state side by side, with everything that several steps of a comparison need."""

    topology: Topology
    bundle: Bundle
    observed: Observed
    adopt: frozenset[str]
    """Streams and consumers that vstream did not create and may take over; `all` means every one that is needed."""
    owned: Mapping[str, ObservedStream]
    """The streams of this topology that exist, whether it still has them or not."""
    gone: Mapping[str, ObservedStream]
    """Those of *owned* that the topology no longer has."""
    forms: Mapping[str, Mapping[str, Json]]
    """Canonical form of each observed stream that is desired or owned."""
    siblings: Mapping[str, Sequence[RenderedStream]]
    """Virtual stream → its desired physical streams."""
    rules: tuple[RuleChange, ...]
    rule_count: int
    """How many mapping rules and account entries every server is to have loaded."""

    @property
    def desired_streams(self) -> tuple[RenderedStream, ...]:
        """The streams that are to exist."""
        return self.bundle.streams

    @property
    def streams(self) -> Mapping[str, ObservedStream]:
        """The streams that exist, of whichever topology."""
        return self.observed.streams

    @property
    def desired_names(self) -> frozenset[str]:
        """The names of the streams that are to exist."""
        return frozenset(stream.config.name for stream in self.bundle.streams)

    @classmethod
    def of(
        cls, topology: Topology, bundle: Bundle, observed: Observed, *, adopt: frozenset[str] = frozenset()
    ) -> DiffContext:
        """The context of bringing *observed* to *bundle*, which *topology* renders to."""
        siblings: dict[str, list[RenderedStream]] = {}
        for stream in bundle.streams:
            siblings.setdefault(stream.virtual, []).append(stream)
        desired = {stream.config.name for stream in bundle.streams}
        # A plain stream that is taken over stays until the topology does not name it any more.
        staying = desired | {stream.takes_over for stream in bundle.streams if stream.takes_over is not None}
        owned = {name: stream for name, stream in observed.streams.items() if stream.config.owner == topology.name}
        compared = [name for name in observed.streams if name in desired or name in owned]
        forms = {name: canonical(observed.streams[name].config.fields) for name in compared}
        desired_rules = {**rule_entries(bundle.mappings), **account_entries(bundle.accounts)}
        return cls(
            topology=topology,
            bundle=bundle,
            observed=observed,
            adopt=adopt,
            owned=owned,
            gone={name: stream for name, stream in owned.items() if name not in staying},
            forms=forms,
            siblings=siblings,
            rule_count=len(desired_rules),
            rules=tuple(diff_rules(desired_rules, observed.rules, OwnRules(bundle.streams, owned, forms))),
        )
