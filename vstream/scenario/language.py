"""What is worth saying about mistakes in the shape of a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vstream.scenario.document import ScenarioDocument
from vstream.syntax.schema import Language

if TYPE_CHECKING:
    from vstream.syntax.yaml import Path

STARTER: Final = "`vstream scenario show walkthrough` prints one"
_STEP = 3
_LISTS: Final = (("steps",), ("topology",))


def _is_needed(path: Path) -> bool:
    """What expectations and `heal` name hangs on `as`, and everything on the steps and the topology."""
    return path in _LISTS or (path[0] == "steps" and len(path) == _STEP and path[-1] == "as")


LANGUAGE: Final = Language(
    noun="scenario",
    model=ScenarioDocument,
    starter=STARTER,
    is_needed=_is_needed,
    missing={
        "scenario": "write `scenario: 1`, the version of the scenario language",
        "name": "name the scenario: its captures and reports carry the name",
        "topology": "name the file of the topology, or write the topology below it",
        "steps": "add a step, such as `- kill-region: west`",
        "by": "say how it reads: `consumer`, `direct` or `sequence`",
    },
)
