"""The JSON Schema of scenario files says what the decoder says, as far as a schema can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.paths import ROOT
from tests.support.scenarios import load_text
from vstream.scenario.document import json_schema

SHIPPED = sorted((ROOT / "scenarios").glob("*.yaml"))
FIXTURES = sorted((ROOT / "tests" / "rules").glob("VS5*/*.yaml"))
HEAD: dict[str, Any] = {"scenario": 1, "name": "s", "topology": "acme.yaml", "steps": [{"wait": "5s"}]}


@pytest.fixture(scope="module")
def validator() -> Any:
    """Made once, and not when the tests are collected: that takes a second."""
    return jsonschema.Draft202012Validator(json_schema())


def test_the_scenario_schema_is_valid_for_its_draft(validator: Any) -> None:
    schema = validator.schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize("path", [*SHIPPED, *FIXTURES], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_is_shipped_and_what_only_the_rules_refuse_is_accepted(path: Path, validator: Any) -> None:
    validator.validate(yaml.safe_load(path.read_bytes()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"scenario": 2}, {"name": "a b"}, {"topology": 5}, {"topology": ""}, {"steps": []}, {"steps": {}}, {"steps": ["wait"]},
        {"steps": [{"wat": "5s"}]}, {"steps": [{"wait": 5}]}, {"steps": [{"wait": None}]}, {"steps": [{"kill-region": []}]},
        {"steps": [{"kill-region": None}]}, {"steps": [{"kill-meta-leader": "west"}]}, {"steps": [{"partition": ["west"]}]},
        {"steps": [{"link": ["west"]}]}, {"steps": [{"run": "failover west --undo"}]}, {"steps": [{"run": "apply"}]}, {"steps": [{"heal": 5}]}, {"steps": [{"wait": "5s", "as": "a b"}]},
        {"steps": [{"isolate": "west", "how": "stall"}]}, {"steps": [{"link": "all", "loss": 5}]}, {"seed": -1}, {"seed": "1"},
        {"lab": {"versions": "2.15"}}, {"lab": {"links": "tc"}}, {"workload": {"rate": 100}}, {"workload": {"keys": 0}},
        {"workload": {"publishers": {}}}, {"workload": {"readers": [{}]}}, {"workload": {"publishers": None}},
        {"expect": {}}, {"expect": [{"publishd": "100%"}]}, {"expect": [{"visible": 0}]}, {"expect": [{"works": {"publish": "yes"}}]},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_has_a_wrong_shape_is_refused_by_both(wrong: dict[str, Any], validator: Any) -> None:
    value = HEAD | wrong
    assert any(finding.code.startswith("VS00") for finding in load_text(json.dumps(value)).findings)
    assert not validator.is_valid(value)


@pytest.mark.parametrize("key", ["scenario", "name", "topology", "steps"])
def test_what_must_be_there_is_required_by_both(key: str, validator: Any) -> None:
    value = {name: part for name, part in HEAD.items() if name != key}
    assert load_text(json.dumps(value)).scenario is None
    assert not validator.is_valid(value)
