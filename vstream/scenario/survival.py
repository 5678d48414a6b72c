"""
What a topology survives, as scenarios: each incident that a cell of the table is about happens, and clients try what it says.

A cell is shown if everything that the worst incident leaves is as the table says, for the clients of each region.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from vstream.scenario.model import ClientOperation, Measure
from vstream.topology import survival
from vstream.topology.model import Topology, VirtualStream
from vstream.topology.survival import Ability, Failure, Incident, Ruling, Survival, SurvivalCell
from vstream.value_class import value_class

CellKey = tuple[str, Failure, Ability]
"""The stream, what fails, and what clients do."""
QuestionKey = tuple[Measure, str | None, str | None, str | None]
"""How an expectation is found again in a verdict: its measure, window, stream and region."""

_SETTLE: Final = 12
"""Seconds in which a group elects a leader. It takes up to 9."""
_SETTLE_COPIES: Final = 60
"""Seconds in which a copy asks a stream again that has another leader since."""
_SETTLE_AT_ONCE: Final = 1
"""The same where neither happens."""
_STEADY_SECONDS: Final = 6
_POWER_SECONDS: Final = 8
"""Seconds of load before the power goes."""
_LOSE_SECONDS: Final = 3
AGAIN: Final = "-again"
"""Suffix of the name of an operation's second try."""
_BACK_SECONDS: Final = 240
_WORKS_BOUND: Final = ">= 95%"
"""Not all: on a busy machine one in a hundred is late."""


@value_class
class SurvivalScenario:
    """A scenario without its topology, and which cells each of its expectations is about."""

    data: dict[str, Any]
    cells: Mapping[QuestionKey, tuple[CellKey, ...]]
    incidents: tuple[str, ...]
    """What happens in it, such as `region west`."""


def compose_survival_scenarios(
    topology: Topology, cells: Sequence[SurvivalCell], *, rate: int
) -> tuple[SurvivalScenario, ...]:
    """
    The scenarios that show *cells*: one with everything that heals, and one for each loss of power, which leaves losses.

    *rate* is in messages per second, of each stream in each region. Cells that nothing can show are in none of them.
    """
    streams = {stream.name: stream for stream in topology.streams}
    testable = [cell for cell in cells if cell.incident is not None and is_testable(cell.ruling)]
    healing, power_losses = _SurvivalComposer(topology, streams), []
    for failure in Failure:
        chosen = [cell for cell in testable if cell.failure is failure]
        for incident in _choose_incidents(topology, streams, chosen):
            if failure is Failure.POWER:
                power_losses.append(_SurvivalComposer(topology, streams))
                power_losses[-1].add_power_loss(incident, chosen)
            else:
                healing.add_incident(incident, chosen)
    return tuple(composer.finish(rate) for composer in (healing, *power_losses) if composer.has_incidents)


def is_testable(ruling: Ruling) -> bool:
    """Whether a lab can show or refute it: it says something, and that does not depend on where replicas happen to be."""
    return ruling.is_certain and ruling.answer not in {Survival.NEVER, Survival.UNKNOWN}


def _choose_incidents(
    topology: Topology, streams: Mapping[str, VirtualStream], cells: Sequence[SurvivalCell]
) -> Iterator[Incident]:
    """Few incidents, so that for each of *cells* one is as bad as the worst."""
    left = {(cell.stream, cell.ability): cell for cell in cells}
    shows: dict[int, list[tuple[str, Ability]]] = {}
    candidates = survival.list_incidents(topology, cells[0].failure) if cells else ()
    for index, incident in enumerate(candidates):
        shows[index] = [key for key, cell in left.items() if _is_as_bad(topology, streams[cell.stream], cell, incident)]
    while left and shows:
        index = max(shows, key=lambda candidate: sum(key in left for key in shows[candidate]))
        if not any(key in left for key in shows[index]):
            return
        yield candidates[index]
        for key in shows.pop(index):
            left.pop(key, None)


def _is_as_bad(topology: Topology, stream: VirtualStream, cell: SurvivalCell, incident: Incident) -> bool:
    rulings = survival.judge_by_region(topology, stream, cell.ability, incident).values()
    return any(ruling.answer is cell.ruling.answer and ruling.is_certain for ruling in rulings)


class _SurvivalComposer:
    """Composes one scenario, incident by incident."""

    def __init__(self, topology: Topology, streams: Mapping[str, VirtualStream]) -> None:
        self._topology = topology
        self._streams = streams
        self._steps: list[dict[str, Any]] = []
        self._expect: list[dict[str, Any]] = []
        self._cells: dict[QuestionKey, tuple[CellKey, ...]] = {}
        self._incidents: list[str] = []

    @property
    def has_incidents(self) -> bool:
        """Whether anything happens in it."""
        return bool(self._incidents)

    def finish(self, rate: int) -> SurvivalScenario:
        """The scenario of all incidents, with *rate* publishes per second of each stream in each region."""
        data = {
            "scenario": 1,
            "name": "survive",
            "workload": {"rate": f"{rate}/s", "readers": [{"by": "direct"}]},
            "steps": self._steps,
            "expect": self._expect,
        }
        return SurvivalScenario(data=data, cells=self._cells, incidents=tuple(self._incidents))

    def _begin_incident(self, incident: Incident) -> str:
        """Note that *incident* happens next. Returns the name of its step."""
        self._incidents.append(f"{incident.failure.value} {incident.name}")
        return f"{incident.failure.value}-{len(self._incidents)}"

    def add_incident(self, incident: Incident, cells: Sequence[SurvivalCell]) -> None:
        """Let *incident* happen and heal it, and expect what *cells* and the table say of it."""
        name = self._begin_incident(incident)
        steady, tried = f"{name}-steady", f"{name}-tried"
        regions = [
            region for region in incident.clients if any(region in self._streams[cell.stream].regions for cell in cells)
        ]
        tries_consumers = any(cell.ability is Ability.CONSUMERS for cell in cells)
        self._steps += [
            {"wait": "2s"},
            {**_choose_fault(incident), "as": name},
            {"wait": f"{self._recovery_seconds(incident, cells)}s"},
            {"wait": f"{_STEADY_SECONDS}s", "as": steady},
            *(_try_twice(regions, tried) if regions and tries_consumers else []),
            {"heal": name},
            {"resync": None},
            {"converge": f"{_BACK_SECONDS}s", "as": f"{name}-back"},
        ]
        for cell in cells:
            for region, ruling in self._rulings(cell, incident):
                if is_testable(ruling):
                    self._expect_ability(cell, region, can=ruling.answer.is_survival, steady=steady, tried=tried)

    def _rulings(self, cell: SurvivalCell, incident: Incident) -> Collection[tuple[str, Ruling]]:
        return survival.judge_by_region(self._topology, self._streams[cell.stream], cell.ability, incident).items()

    def _recovery_seconds(self, incident: Incident, cells: Sequence[SurvivalCell]) -> int:
        """Seconds until everything that recovers has recovered, and everything that should fail has failed."""
        rulings = [(cell.ability, ruling) for cell in cells for _, ruling in self._rulings(cell, incident)]
        if (Ability.OWN_READS, Survival.PAUSE) in {(ability, ruling.answer) for ability, ruling in rulings}:
            return _SETTLE_COPIES
        return _SETTLE if any(ruling.answer is not Survival.YES for _, ruling in rulings) else _SETTLE_AT_ONCE

    def _expect_ability(self, cell: SurvivalCell, region: str, *, can: bool, steady: str, tried: str) -> None:
        stream, key = cell.stream, (cell.stream, cell.failure, cell.ability)
        if cell.ability is Ability.ORDER:
            self._expect_order(cell, holds=can)
            return
        share = {region: _WORKS_BOUND if can else "== 0%"}
        visible = {f"{region} -> {region}": ">= 1" if can else 0}
        works = {region: {ClientOperation.CREATE_CONSUMER.value: can}}
        expectations: dict[Ability, tuple[Measure, str, Mapping[str, Any]]] = {
            Ability.WRITES: (Measure.PUBLISHED, steady, share),
            Ability.READS: (Measure.READ, steady, share),
            Ability.OWN_READS: (Measure.VISIBLE, steady, visible),
            Ability.CONSUMERS: (Measure.WORKS, tried, works),
        }
        measure, first, expected = expectations[cell.ability]
        for window in (first, f"{first}{AGAIN}") if cell.ability is Ability.CONSUMERS else (first,):
            self._expect.append({"in": window, "stream": stream, measure.value: expected})
            self._ask((measure, window, stream, region), key)

    def _ask(self, expectation: QuestionKey, key: CellKey) -> None:
        self._cells[expectation] = (*self._cells.get(expectation, ()), key)

    def _expect_order(self, cell: SurvivalCell, *, holds: bool) -> None:
        question = (Measure.SAME_ORDER, None, cell.stream, None)
        if question not in self._cells:
            self._expect.append({"stream": cell.stream, "same-order": holds})
        key = (cell.stream, cell.failure, cell.ability)
        if key not in self._cells.get(question, ()):
            self._ask(question, key)

    def add_power_loss(self, incident: Incident, cells: Sequence[SurvivalCell]) -> None:
        """The same for *incident*, which takes what servers have stored last."""
        name = self._begin_incident(incident)
        steady, tried = f"{name}-steady", f"{name}-tried"
        regions = list(incident.clients)
        self._steps += [
            {"wait": f"{_POWER_SECONDS}s"},
            {"power-loss": list(incident.regions), "lose": f"{_LOSE_SECONDS}s", "as": name},
            {"resync": None},
            {"wait": f"{_SETTLE}s"},
            {"wait": f"{_STEADY_SECONDS}s", "as": steady},
            *_try_twice(regions, tried),
        ]
        keeping = set()
        for cell in cells:
            rulings = self._rulings(cell, incident)
            if cell.ability is Ability.WRITES:
                worst = max((ruling for _, ruling in rulings), key=lambda ruling: list(Survival).index(ruling.answer))
                self._expect_losses(cell, worst)
                keeping |= {cell.stream} if worst.answer.is_survival else set()
            elif cell.ability is Ability.ORDER:
                for _, ruling in rulings:
                    if is_testable(ruling):
                        self._expect_order(cell, holds=ruling.answer.is_survival)
            else:
                for region, ruling in rulings:
                    if is_testable(ruling):
                        self._expect_ability(cell, region, can=ruling.answer.is_survival, steady=steady, tried=tried)
        for stream in self._streams:
            if stream not in keeping:
                self._expect_anything(stream)

    def _expect_anything(self, stream: str) -> None:
        """What is lost takes numbers and places with it, until it is repaired. Nobody asked what of it is lost."""
        anything = {"reordered": "any", "diverged": "any"}
        if (Measure.LOST, None, stream, None) not in self._cells:
            anything["lost"] = "any"
        if (Measure.SAME_ORDER, None, stream, None) not in self._cells:
            anything["same-order"] = "any"
        self._expect.append({"stream": stream, **anything})

    def _expect_losses(self, cell: SurvivalCell, ruling: Ruling) -> None:
        if not is_testable(ruling):
            return
        bound = 0 if ruling.answer.is_survival else ">= 1"
        self._expect.append({"stream": cell.stream, "lost": bound})
        self._ask((Measure.LOST, None, cell.stream, None), (cell.stream, cell.failure, cell.ability))


def _try_twice(regions: Sequence[str], name: str) -> list[dict[str, Any]]:
    """A new consumer may be led by a server that is gone, or not be known at every gateway yet: clients ask again."""
    return [{"try": list(regions), "as": name}, {"wait": "9s"}, {"try": list(regions), "as": f"{name}{AGAIN}"}]


def _choose_fault(incident: Incident) -> dict[str, Any]:
    if incident.failure in {Failure.PARTITION, Failure.CUT_OFF}:
        return {"isolate": incident.regions[0]}
    if incident.failure in {Failure.REGION, Failure.TWO_REGIONS}:
        return {"kill-region": list(incident.regions)}
    return {"kill-server": sorted(incident.down)}
