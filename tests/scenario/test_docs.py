"""The reference of the scenario language is true and complete."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel

from tests.support.paths import ROOT
from tests.support.topologies import concise
from vstream.lint.check_scenario import check_scenario
from vstream.scenario.document import (
    ExpectDocument,
    LabDocument,
    PublishersDocument,
    ReadersDocument,
    ScenarioDocument,
    StepDocument,
    WorkloadDocument,
    yaml_key,
)
from vstream.scenario.model import ClientOperation

TEXT = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
TOPOLOGY, *BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_example_is_valid(block: str) -> None:
    assert concise(check_scenario(block.encode(), "s.yaml", lambda _: TOPOLOGY.encode()).findings) == ""


@pytest.mark.parametrize(
    "model",
    [
        ScenarioDocument,
        LabDocument,
        WorkloadDocument,
        PublishersDocument,
        ReadersDocument,
        StepDocument,
        ExpectDocument,
    ],
)
def test_the_scenario_reference_names_every_key(model: type[BaseModel]) -> None:
    missing = {key for name in model.model_fields if f"`{(key := yaml_key(name))}" not in TEXT}
    assert missing == set(), "run scripts/docs, or add it to docs/scenarios.md"


def test_the_scenario_reference_names_every_operation() -> None:
    assert [trial.value for trial in ClientOperation if f"`{trial.value}`" not in TEXT] == []
