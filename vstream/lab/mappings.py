"""What carrying out a plan needs of a lab: its servers load the mappings when they are told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.errors import LabError
from vstream.lab import lab

if TYPE_CHECKING:
    from vstream.model.artifacts import Bundle


class LabMappings:
    """MappingAdmin for the lab *name*: writes the mappings of *bundle* and reloads every server."""

    def __init__(self, name: str, bundle: Bundle) -> None:
        self._name = name
        self._bundle = bundle

    async def load(self) -> None:
        """See MappingAdmin."""
        outcome = await lab.reload_mappings(self._name, self._bundle)
        if outcome.refused:
            reasons = "; ".join(f"{server}: {reason}" for server, reason in sorted(outcome.refused.items()))
            raise LabError(f"the mappings were not loaded on every server: {reasons}")
