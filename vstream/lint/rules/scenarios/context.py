"""What the rules of a scenario look at."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.scenario.actions import ACTIONS, ActionType, list_action_fields
from vstream.scenario.document import ScenarioDocument, StepDocument
from vstream.scenario.timeline import StepContext, index_servers, step_contexts
from vstream.topology.model import Topology, VirtualStream
from vstream.value_class import value_class


@value_class
class ScenarioSubject:
    """A scenario as written, and its topology; None if that is not known."""

    document: ScenarioDocument
    topology: Topology | None

    def actions(self) -> Iterator[tuple[int, StepDocument, str, ActionType]]:
        """Every step with exactly one action: its index, the step, the field of the action, and the action."""
        for index, step in enumerate(self.document.steps):
            fields = list_action_fields(step)
            if len(fields) == 1:
                yield index, step, fields[0], ACTIONS[fields[0]]

    def moments(self) -> Iterator[StepContext]:
        """These steps with the faults that are open; empty if a step is unclear or the topology is missing."""
        is_clear = len(list(self.actions())) == len(self.document.steps)
        return step_contexts(self.document, self.topology) if self.topology and is_clear else iter(())

    @property
    def regions(self) -> list[str]:
        """The names of all regions."""
        return [region.name for region in self.topology.regions] if self.topology else []

    @property
    def servers(self) -> list[str]:
        """The names of all servers."""
        return (
            [server for region_servers in index_servers(self.topology).values() for server in region_servers]
            if self.topology
            else []
        )

    @property
    def streams(self) -> dict[str, VirtualStream]:
        """The virtual streams, by name."""
        return {stream.name: stream for stream in self.topology.streams} if self.topology else {}

    @property
    def windows(self) -> dict[str, str]:
        """The named steps, and the field of the action of each; empty where it has none."""
        named = {}
        for step in reversed(self.document.steps):
            if step.as_:
                named[step.as_] = fields[0] if len(fields := list_action_fields(step)) == 1 else ""
        return named
