"""What carrying out a plan needs of a lab: its servers load the mappings when they are told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.errors import LabError
from vstream.lab import lab

if TYPE_CHECKING:
    from collections.abc import Collection

    from vstream.model.artifacts import Bundle


class LabMappings:
    """MappingAdmin for the lab *name*: writes the mappings of *bundle* and reloads every server but those of *lost* regions."""

    def __init__(self, name: str, bundle: Bundle, *, lost: Collection[str] = ()) -> None:
        self._name = name
        self._bundle = bundle
        self._lost = lost

    async def load(self) -> None:
        """See MappingAdmin."""
        outcome = await lab.reload_mappings(self._name, self._bundle)
        gone = {one.server.name for one in lab.addresses(self._name) if one.region in self._lost}
        refused = {server: reason for server, reason in outcome.refused.items() if server not in gone}
        if refused:
            reasons = "; ".join(f"{server}: {reason}" for server, reason in sorted(refused.items()))
            raise LabError(f"the mappings were not loaded on every server: {reasons}")
