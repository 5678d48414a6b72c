"""
Generate a random scenario from a seed, never with more faults than virtual streams promise to survive.

Processes are killed and stopped, links cut and shaped, leaders moved, in any overlap: nothing that was acknowledged may
be lost or duplicated by that. Power losses and full disks are left out, and so is what cannot be said beforehand to
bite, such as a leader's kill in a region that may have no leader.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from vstream.scenario.timeline import index_servers
from vstream.syntax.document import Json
from vstream.topology.model import Topology
from vstream.topology.replication import physical_streams
from vstream.topology.units import parse_duration, spell_nanoseconds

ScenarioData = dict[str, Any]
"""A scenario as its file has it."""

_MS_NS: Final = 10**6
_MAX_OPEN = 3
_QUORUM_SERVERS = 3
"""With at least so many servers, another meta leader can be elected after a kill."""
_UNKNOWN = "?"
"""A server that is only known at run time."""


@dataclass(frozen=True, slots=True)
class _PlannedFault:
    """A fault that is open, the servers that it takes, by region, whether it cuts links, and whether in one direction."""

    name: str
    servers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    is_cut: bool = False
    is_one_way: bool = False


def generate(topology: Topology, written: Json, seed: int, *, has_links: bool = True) -> ScenarioData:
    """
    The scenario of *seed* for *topology*, which is *written* into it. The same seed gives the same scenario.

    Without *has_links* no link between regions is touched.
    """
    return {
        "scenario": 1,
        "name": f"explored-{seed}",
        "description": f"Generated at random from seed {seed}: whatever happens, nothing is lost or duplicated.",
        "seed": seed,
        "topology": written,
        **_ScenarioComposer(topology, random.Random(seed), has_links=has_links).compose(),  # noqa: S311 - it has to be repeatable
    }


def to_yaml(data: ScenarioData) -> str:
    """The text of a scenario's file."""
    # `- resync` says the same as `- resync: null`.
    steps = [next(iter(step)) if list(step.values()) == [None] else step for step in data["steps"]]
    return yaml.safe_dump({**data, "steps": steps}, sort_keys=False, allow_unicode=True, width=120)


class _ScenarioComposer:
    def __init__(self, topology: Topology, rng: random.Random, *, has_links: bool) -> None:
        self._topology = topology
        self._rng = rng
        self._servers = index_servers(topology)
        self._regions = list(self._servers)
        self._has_links = has_links and len(self._regions) > 1
        self._open: list[_PlannedFault] = []
        self._count = 0
        self._steps: list[ScenarioData] = []

    def compose(self) -> ScenarioData:
        workload = self._workload()
        self._wait(1_000, 3_000)
        for _ in range(self._rng.randint(2, 7)):
            self._open_or_heal_fault()
            self._wait(200, 5_000)
        if self._open:
            self._steps.append({"heal": "all"})
        if self._draw_chance(0.8):  # else regions agree much later, by themselves
            self._steps.append({"resync": None})
        self._steps.append({"converge": "3m", "as": "back"})
        return {"workload": workload, "steps": self._steps, "expect": [{"in": "back", "converged": "<= 3m"}]}

    def _workload(self) -> ScenarioData:
        rng = self._rng
        return {
            "rate": f"{rng.choice((20, 50, 100, 200))}/s",
            "size": rng.choice(("64B", "128B..1KiB", "16B..8KiB")),
            "keys": rng.choice((1, 10, 100)),
            "retry": rng.choice(("none", "same-id")),
            "readers": [{"by": "consumer"}, {"by": "direct"}][: rng.randint(0, 2)],
        }

    def _wait(self, least: int, most: int) -> None:
        time = self._rng.randrange(least, most, 100) * _MS_NS
        if self._steps and "wait" in self._steps[-1]:
            # Nothing could be done in between.
            time += parse_duration(self._steps.pop()["wait"])
        self._steps.append({"wait": spell_nanoseconds(time)})

    def _draw_chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _open_or_heal_fault(self) -> None:
        """Open a fault, or heal one."""
        if self._open and (len(self._open) >= _MAX_OPEN or self._draw_chance(0.35)):
            # Servers that come back are healthy when they have all links, but for those that are cut both ways.
            first = [fault for fault in self._open if fault.is_one_way]
            healed = self._rng.choice(first or self._open)
            self._open.remove(healed)
            self._steps.append({"heal": healed.name})
            return
        moves: list[Callable[[], bool]] = [
            self._kill_region, self._kill_server, self._kill_server, self._kill_leader, self._kill_meta_leader,
            self._restart_region, self._pause, self._partition, self._isolate, self._isolate, self._link,
            self._step_down, self._step_down_meta, self._rolling_restart,
        ]  # fmt: skip
        self._rng.shuffle(moves)
        for move in moves:
            if move():
                return

    # What each fault needs

    def _servers_down(self, region: str) -> frozenset[str]:
        return frozenset(server for fault in self._open for server in fault.servers.get(region, ()))

    def _intact_regions(self) -> list[str]:
        """Regions without a server that an open fault stops."""
        return [region for region in self._regions if not self._servers_down(region)]

    def _running_servers(self) -> list[str]:
        """Servers that are known to run."""
        servers = []
        for region, members in self._servers.items():
            if _UNKNOWN not in self._servers_down(region):
                for server in members:
                    if server not in self._servers_down(region):
                        servers.append(server)
        return servers

    def _inject(
        self, step: ScenarioData, servers: Mapping[str, frozenset[str]] | None = None, *, is_cut: bool = False
    ) -> bool:
        self._count += 1
        name = f"fault-{self._count}"
        self._open.append(_PlannedFault(name, servers or {}, is_cut, "one-way" in step))
        self._steps.append({**step, "as": name})
        return True

    def _region_of(self, server: str) -> str:
        return next(region for region, members in self._servers.items() if server in members)

    def _kill_region(self) -> bool:
        untouched = self._intact_regions()
        if not untouched:
            return False
        region = self._rng.choice(untouched)
        return self._inject({"kill-region": region}, {region: frozenset(self._servers[region])})

    def _kill_server(self) -> bool:
        running = self._running_servers()
        if not running:
            return False
        server = self._rng.choice(running)
        return self._inject({"kill-server": server}, {self._region_of(server): frozenset({server})})

    def _pause(self) -> bool:
        running, untouched = self._running_servers(), self._intact_regions()
        if untouched and self._draw_chance(0.3):
            region = self._rng.choice(untouched)
            return self._inject({"pause": region}, {region: frozenset(self._servers[region])})
        if not running:
            return False
        server = self._rng.choice(running)
        return self._inject({"pause": server}, {self._region_of(server): frozenset({server})})

    def _streams_with_leader(self) -> list[tuple[str, str]]:
        """Physical streams that certainly have a leader, and would have another: their places and names."""
        regions = set(self._intact_regions())
        # Where the members of the stretch cluster stand, any open fault may have taken one.
        places = regions if self._open else {*regions, *self._topology.clusters}
        streams = []
        for stream in self._topology.streams:
            for part in physical_streams(stream):
                if part.place in places and part.fields.get("num_replicas") != 1:
                    streams.append((part.place, part.name))
        return streams

    def _kill_leader(self) -> bool:
        led = self._streams_with_leader()
        if not led:
            return False
        place, name = self._rng.choice(led)
        regions = [place] if place in self._regions else self._regions
        return self._inject({"kill-leader": name}, {region: frozenset({_UNKNOWN}) for region in regions})

    def _step_down(self) -> bool:
        led = self._streams_with_leader()
        if led:
            self._steps.append({"step-down": self._rng.choice(led)[1]})
        return bool(led)

    def _has_meta_quorum_to_lose(self) -> bool:
        # In domains there is a meta leader for each region: none is the one that is meant.
        return (
            self._topology.hubs is None and not self._open and sum(map(len, self._servers.values())) >= _QUORUM_SERVERS
        )

    def _kill_meta_leader(self) -> bool:
        if not self._has_meta_quorum_to_lose():
            return False
        return self._inject({"kill-meta-leader": None}, {region: frozenset({_UNKNOWN}) for region in self._regions})

    def _step_down_meta(self) -> bool:
        if self._has_meta_quorum_to_lose():
            self._steps.append({"step-down-meta": None})
            return True
        return False

    def _restart_region(self) -> bool:
        untouched = self._intact_regions()
        if untouched:
            self._steps.append({"restart-region": self._rng.choice(untouched)})
        return bool(untouched)

    def _rolling_restart(self) -> bool:
        # The next server waits until all are healthy: with anything open it would wait for ever.
        if self._open:
            return False
        self._steps.append({"rolling-restart": self._rng.choice(self._regions)})
        return True

    def _can_touch_links(self) -> bool:
        """Whether all links carry messages: what is done to one is seen by those."""
        return (
            self._has_links
            and not any(len(self._servers_down(region)) >= len(members) for region, members in self._servers.items())
            and not any(fault.is_cut for fault in self._open)
        )

    def _partition(self) -> bool:
        if not self._can_touch_links():
            return False
        shuffled = self._rng.sample(self._regions, len(self._regions))
        border = self._rng.randint(1, len(shuffled) - 1)
        sides = [",".join(shuffled[:border]), ",".join(shuffled[border:])]
        step: ScenarioData = {"partition": " | ".join(sides), "how": self._rng.choice(("reset", "drop"))}
        if self._draw_chance(0.25):
            step["one-way"] = True
        return self._inject(step, is_cut=True)

    def _isolate(self) -> bool:
        if not self._can_touch_links():
            return False
        region = self._rng.choice(self._regions)
        return self._inject({"isolate": region, "how": self._rng.choice(("reset", "drop"))}, is_cut=True)

    def _link(self) -> bool:
        if not self._can_touch_links():
            return False
        ends = self._rng.sample(self._regions, 2)
        step: ScenarioData = {"link": ends, "rtt": f"{self._rng.choice((5, 40, 150, 400))}ms"}
        if self._draw_chance(0.5):
            step["jitter"] = f"{self._rng.choice((1, 10, 50))}ms"
        if self._draw_chance(0.3):
            step["loss"] = f"{self._rng.choice((0.5, 2, 5))}%"
        return self._inject(step)
