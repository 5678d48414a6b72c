"""Faults of links between regions: cut or shaped. Each is an overlay with its own name, so they can be combined."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, Self

from vstream.chaos import select
from vstream.chaos.connectivity import ConnectivityProbe, format_pairs, probe_connectivity
from vstream.chaos.faults.base import FaultRequest, LabFault, LastingInjection
from vstream.errors import LabError, RefusedError
from vstream.lab.links import control
from vstream.lab.links.choose import link_state
from vstream.lab.links.proxy_process import ProxyProcess
from vstream.lab.links.state import Cut, Direction, LinkState, decode_states, encode_states
from vstream.lab.server import SpawnedServers
from vstream.scenario import fault_types
from vstream.servers.target_servers import TargetServers
from vstream.topology.model import Link
from vstream.value_class import value_class

_MESSAGE_TIMEOUT = 0.5
"""Seconds that a message may take in addition to the link's own delay."""
_EFFECT_TIMEOUT = 20.0


@value_class
class LinkFault(LabFault):
    """What cut and shaped links share: *states* overlay the links while the fault is open."""

    states: Mapping[Direction, LinkState]

    @property
    def counted_as_lost(self) -> tuple[str, ...]:
        """None: servers on both sides of a link run."""
        return ()

    @property
    def cuts(self) -> frozenset[Direction]:
        """Links that no longer carry anything."""
        return frozenset(pair for pair, state in self.states.items() if state.cut is not None)

    @property
    def target_text(self) -> str:
        """The links that it affects."""
        return format_pairs(self.states)

    def journal_entry(self) -> dict[str, Any]:
        """The overlay."""
        return {"links": list(encode_states(self.states))}

    @classmethod
    def from_journal(cls, entry: Mapping[str, Any]) -> Self:
        """The reverse of `journal_entry`."""
        return cls(states=decode_states(entry["links"]))

    async def heal(self, target: TargetServers, fault_id: str) -> SpawnedServers:
        """Remove the overlay, and nothing else."""
        await control.remove_overlay(target.directory.name, fault_id)
        return SpawnedServers()

    def is_over(self, target: TargetServers, fault_id: str) -> bool:
        """Whether the overlay is gone: a lab that was taken down has no links."""
        has_overlay = fault_id in control.read_links(target.directory.name).overlays
        return not (has_overlay and ProxyProcess(target.directory).is_wanted)


@value_class
class Partition(LinkFault):
    """Cut links: nothing passes."""

    kind: ClassVar[str] = "partition"
    keeps_down: ClassVar[bool] = False

    async def inject(self, target: TargetServers, fault_id: str) -> str:
        """Cut the links. Confirmed when messages no longer pass them, and all other links still work."""
        lab = target.directory.name
        await control.read_traffic(lab)  # raises UnsupportedError before anything else, where links cannot be cut
        if self.cuts <= target.find_cut_links():
            raise RefusedError(
                f"nothing is left to cut: {self.target_text} is cut already",
                hint="`vstream chaos status` shows what is open",
            )
        async with probe_connectivity(target, patience=_choose_patience(target)) as probe:
            before = await _find_connected(probe, probe.pairs - target.find_cut_links())
            if not before & self.cuts:
                raise LabError(
                    f"nothing to cut: no message passes {self.target_text} now",
                    hint="`vstream chaos status` shows what is open, `vstream lab links` what is cut",
                )
            await control.put_overlay(lab, fault_id, self.states)
            await _wait_until_cut(probe, silent=self.cuts, connected=before - target.find_cut_links())
        connected = before - target.find_cut_links()
        remaining = f", and still over {format_pairs(connected)}" if connected else ""
        return f"messages went over {format_pairs(before & self.cuts)} and do not any more{remaining}"


@value_class
class LinkShape(LinkFault):
    """Links that are slower, have less bandwidth, or lose packets."""

    kind: ClassVar[str] = "link"
    keeps_down: ClassVar[bool] = False

    async def inject(self, target: TargetServers, fault_id: str) -> str:
        """Shape the links. Confirmed when measured latency, jitter, bandwidth and loss are as requested."""
        lab = target.directory.name
        await control.read_traffic(lab)
        async with probe_connectivity(target, patience=_choose_patience(target)) as probe:
            pairs = self.states.keys() & await _find_connected(probe, probe.pairs - target.find_cut_links())
            before = await probe.measure_latencies(pairs)
            await control.put_overlay(lab, fault_id, self.states)
        links = control.read_links(lab)
        async with probe_connectivity(target, patience=_choose_patience(target)) as probe:
            if not pairs:
                return f"lies over {self.target_text}, where no message gets through now: it has an effect once messages do"
            await probe.find_silent(pairs, within=_EFFECT_TIMEOUT)
            requested = {pair: self.states[pair] for pair in pairs}
            return await probe.verify_shaping(requested, {pair: links.state(pair) for pair in pairs}, before)


def _choose_patience(target: TargetServers) -> float:
    """How long a message may take over the slowest of the links."""
    links = control.read_links(target.directory.name)
    states = [links.state(pair) for pair in links.pairs]
    return _MESSAGE_TIMEOUT + 2 * max(((state.delay or 0) + (state.jitter or 0) for state in states), default=0.0)


async def _find_connected(probe: ConnectivityProbe, pairs: Collection[Direction]) -> frozenset[Direction]:
    """Those of *pairs* that messages get over, best of a few seconds."""
    return frozenset(pairs) - frozenset(await probe.find_silent(pairs, within=_EFFECT_TIMEOUT / 4))


async def _wait_until_cut(
    probe: ConnectivityProbe, *, silent: Collection[Direction], connected: Collection[Direction]
) -> None:
    """Return once nothing gets over *silent*, and everything over *connected*, twice in a row."""
    deadline = time.monotonic() + _EFFECT_TIMEOUT
    good_rounds = 0
    while good_rounds < 2:  # noqa: PLR2004 - what was on its way may arrive during the first
        arrived = set(await probe.send_round(probe.pairs))
        leaks, missing = arrived & set(silent), set(connected) - arrived
        good_rounds = 0 if leaks or missing else good_rounds + 1
        if time.monotonic() > deadline and not good_rounds:
            raise LabError(
                f"messages still get over {format_pairs(leaks)}"
                if leaks
                else f"more than that is cut: nothing gets over {format_pairs(missing)} either"
            )


def _make_partition(request: FaultRequest, pairs: Iterable[Direction]) -> Partition:
    how = Cut(request.spec.options.get("how", Cut.RESET.value))
    return Partition(states=dict.fromkeys(pairs, LinkState(cut=how)))


async def _resolve_partition(request: FaultRequest) -> LastingInjection:
    sides = select.parse_sides(request.target, request.spec.targets)
    pairs = select.list_links_between(sides, one_way=bool(request.spec.options.get("one_way")))
    return LastingInjection(
        fault=_make_partition(request, pairs), regions=tuple(region for side in sides for region in side)
    )


async def _resolve_isolate(request: FaultRequest) -> LastingInjection:
    regions = request.spec.targets
    return LastingInjection(
        fault=_make_partition(request, select.list_links_around(request.target, regions)), regions=regions
    )


async def _resolve_link(request: FaultRequest) -> LastingInjection:
    regions = request.spec.targets or request.target.regions
    if request.spec.targets:
        pairs: Collection[Direction] = select.find_link(request.target, *regions)
    else:
        pairs = select.list_links_between([(region,) for region in regions])
    # Both directions are shaped alike: which region comes first does not matter.
    link = Link(between=(regions[0], regions[-1]), **request.spec.options)  # type: ignore[arg-type]  # numbers all of them
    return LastingInjection(fault=LinkShape(states=dict.fromkeys(pairs, link_state(link))), regions=tuple(regions))


RESOLVERS = {
    fault_types.PARTITION: _resolve_partition,
    fault_types.ISOLATE: _resolve_isolate,
    fault_types.LINK: _resolve_link,
}
