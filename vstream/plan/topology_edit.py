"""What a change of a whole region writes into the topology file: every command reads it from then on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from vstream.errors import RefusedError, UnknownNameError, VstreamError
from vstream.files import save_output
from vstream.lint.load_topology import load
from vstream.topology.model import Region, Topology
from vstream.topology.region_keys import DRAINED, LOST, add_region_key, remove_region_key


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyEdit:
    """
    A topology file, and what it will say.

    Each change returns the edit itself where an earlier run has written it. It raises VstreamError if it must be written by
    hand, and UnknownNameError for an unknown region.
    """

    file: str
    text: str
    topology: Topology
    overlays: Mapping[str, bytes] = field(default_factory=dict)

    def save(self) -> None:
        """Write it: from then on the file says what is so, and every command continues from there."""
        save_output(Path(self.file), self.text)

    def drain(self, region: str, taker: str | None = None) -> TopologyEdit:
        """*region* is drained, and *taker*, by default the next region, takes its publishes."""
        drained = self._find_takers()
        if region in drained and taker in {None, drained[region]}:
            return self
        names = [candidate.name for candidate in self.topology.regions]
        left = [name for name in names if name not in {region, *drained}]
        if not left:
            raise RefusedError(f"there is no region besides `{region}`", hint="nothing could take its publishes")
        if taker is not None and taker not in left:
            raise UnknownNameError(f"`{taker}` cannot take its publishes", hint=f"choose one of {', '.join(left)}")
        before = self.remove_key(region, DRAINED) if region in drained else self
        return before.add_key(region, DRAINED, taker or left[0])

    def undo_drain(self, region: str) -> TopologyEdit:
        """*region* is not drained."""
        return self.remove_key(region, DRAINED) if region in self._find_takers() else self

    def give_up(self, region: str, homes: Mapping[str, str]) -> TopologyEdit:
        """*region* is lost, and each stream of *homes* has its home in the region there."""
        is_lost = any(lost.name == region for lost in self.topology.lost)
        return self if is_lost else self.add_key(region, LOST, homes)

    def take_in(self, region: str) -> TopologyEdit:
        """*region* is not lost."""
        find_region(self.topology, region)
        is_lost = any(lost.name == region for lost in self.topology.lost)
        return self.remove_key(region, LOST) if is_lost else self

    def _find_takers(self) -> Mapping[str, str]:
        return {name: by for stream in self.topology.streams for name, by in stream.takers.items()}

    def add_key(self, region: str, key: str, value: str | Mapping[str, str]) -> TopologyEdit:
        """*region* has *key*."""
        spelled: object = value
        if not isinstance(value, str):
            spelled = f"{{{', '.join(f'{name}: {home}' for name, home in sorted(value.items()))}}}"
        edited = add_region_key(self.text, region, key, value)
        return self._edit(edited, f"write `{key}: {spelled}` into region `{region}` yourself")

    def remove_key(self, region: str, key: str) -> TopologyEdit:
        """*region* has no *key* any more."""
        edited = remove_region_key(self.text, region, key)
        return self._edit(edited, f"take `{key}` out of region `{region}` yourself")

    def _edit(self, edited: str | None, hint: str) -> TopologyEdit:
        if edited is None:
            raise VstreamError(f"{self.file} cannot be changed by vstream", hint=f"{hint}, and run this again")
        return replace(self, text=edited, topology=load(edited.encode(), self.file, self.overlays).require())


def find_region(topology: Topology, name: str) -> Region:
    """The region called *name*, lost or not. Raises UnknownNameError."""
    regions = {region.name: region for region in (*topology.regions, *(lost.region for lost in topology.lost))}
    if name not in regions:
        raise UnknownNameError(f"there is no region `{name}`", hint=f"there are {', '.join(regions)}")
    return regions[name]
