"""Faults of the links between regions: cut, or shaped. Each is an overlay of its own name, so several compose."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vstream.chaos.connectivity import probe_connectivity
from vstream.chaos.measure_links import measure_latency, verify_shaping
from vstream.errors import LabError, RefusedError
from vstream.lab.links import control
from vstream.lab.links.proxy_process import ProxyProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from vstream.chaos.connectivity import ConnectivityProbe
    from vstream.chaos.target_servers import TargetServers
    from vstream.lab.links.state import LinkState, Pair

_PATIENCE = 0.5
"""Seconds that a message may take, on top of what its link takes."""
_BITES_WITHIN = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnLinks:
    """What both have in common: *states* lie over the links while the fault is open."""

    states: Mapping[Pair, LinkState]
    servers: ClassVar[tuple[str, ...]] = ()

    @property
    def losses(self) -> tuple[str, ...]:
        """What will be gone for good."""
        return ()

    @property
    def cuts(self) -> frozenset[Pair]:
        """Links that carry nothing any more."""
        return frozenset(pair for pair, state in self.states.items() if state.cut is not None)

    @property
    def where(self) -> str:
        """Which links."""
        return format_pairs(self.states)

    async def heal(self, site: TargetServers, name: str) -> Callable[[], None]:
        """Take away what lies over the links, and nothing else."""
        await control.remove_overlay(site.directory.name, name)
        return lambda: None

    def is_open(self, site: TargetServers, name: str) -> bool:
        """Whether it still lies there: a lab that was taken down has no links."""
        return name in control.read(site.directory.name).overlays and ProxyProcess(site.directory).is_wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(_OnLinks):
    """Links are cut: nothing gets through."""

    kind: ClassVar[str] = "partition"

    async def inject(self, site: TargetServers, name: str) -> str:
        """Cut them. Then no message gets through that did before, and all others still do."""
        lab = site.directory.name
        await control.traffic(lab)  # raises UnsupportedError before anything else, where links cannot be cut
        if self.cuts <= site.cuts():
            raise RefusedError(
                f"nothing is left to cut: {self.where} is cut already", hint="`vstream chaos status` shows what is open"
            )
        async with probe_connectivity(site, patience=_patience(site)) as ears:
            before = await _heard(ears, ears.pairs - site.cuts())
            if not before & self.cuts:
                raise LabError(
                    f"nothing to cut: no message gets from region to region over {self.where} as it is",
                    hint="`vstream chaos status` shows what is open, `vstream lab links` what is cut",
                )
            await control.put_overlay(lab, name, self.states)
            await _bites(ears, silent=self.cuts, heard=before - site.cuts())
        kept = before - site.cuts()
        others = f", and still over {format_pairs(kept)}" if kept else ""
        return f"messages went over {format_pairs(before & self.cuts)} and do not any more{others}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkShape(_OnLinks):
    """Links are slower, narrower, or lose packets."""

    kind: ClassVar[str] = "link"

    async def inject(self, site: TargetServers, name: str) -> str:
        """Shape them. Then messages are as late, as uneven, as slow and as often lost as they shall be."""
        lab = site.directory.name
        await control.traffic(lab)
        async with probe_connectivity(site, patience=_patience(site)) as ears:
            pairs = self.states.keys() & await _heard(ears, ears.pairs - site.cuts())
            before = await measure_latency(ears, pairs)
            await control.put_overlay(lab, name, self.states)
        known = control.read(lab)
        async with probe_connectivity(site, patience=_patience(site)) as ears:
            if not pairs:
                return f"lies over {self.where}, where no message gets through as it is: felt when one does"
            await ears.until(pairs, within=_BITES_WITHIN)
            asked = {pair: self.states[pair] for pair in pairs}
            return await verify_shaping(ears, asked, {pair: known.state(pair) for pair in pairs}, before)


def format_pairs(pairs: Iterable[Pair]) -> str:
    """Links, as people write them: `west → east`, and `west ↔ east` for both directions."""
    left = sorted(set(pairs))
    both = [pair for pair in left if pair[::-1] in left]
    shown = [f"{one} ↔ {other}" for one, other in both if one < other]
    return ", ".join([*shown, *(f"{one} → {other}" for one, other in left if (one, other) not in both)])


def _patience(site: TargetServers) -> float:
    """How long a message may take over the slowest of the links."""
    known = control.read(site.directory.name)
    states = [known.state(pair) for pair in known.pairs]
    return _PATIENCE + 2 * max(((state.delay or 0) + (state.jitter or 0) for state in states), default=0.0)


async def _heard(ears: ConnectivityProbe, wanted: Collection[Pair]) -> frozenset[Pair]:
    """The ways that messages get through, best of a few seconds."""
    return frozenset(wanted) - frozenset(await ears.until(wanted, within=_BITES_WITHIN / 4))


async def _bites(ears: ConnectivityProbe, *, silent: Collection[Pair], heard: Collection[Pair]) -> None:
    """Return once nothing gets over *silent*, and everything over *heard*, twice in a row."""
    deadline = time.monotonic() + _BITES_WITHIN
    good = 0
    while good < 2:  # noqa: PLR2004 - what was on its way may arrive during the first
        through = set(await ears.once(ears.pairs))
        leaks, missing = through & set(silent), set(heard) - through
        good = 0 if leaks or missing else good + 1
        if time.monotonic() > deadline and not good:
            raise LabError(
                f"messages still get over {format_pairs(leaks)}"
                if leaks
                else f"more than that is cut: nothing gets over {format_pairs(missing)} either"
            )
