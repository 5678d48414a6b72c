"""The JSON Schema that editors use says what the decoder says, as far as a schema can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given

from tests.support import shapes
from tests.support.paths import ROOT
from vstream.lint.check_topology import check_topology
from vstream.topology.document import json_schema

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
FIXTURES = sorted((ROOT / "tests" / "rules").glob("VS1*/*.yaml"))
HEAD = {"version": 1, "name": "acme", "server_version": "2.12", "regions": {"west": {"servers": 1}}}

BEYOND_A_SCHEMA = [
    {"defaults": {"max_age": "0s"}},
    {"defaults": {"max_age": "99ms"}},
    {"defaults": {"max_age": "300000d"}},
    {"defaults": {"max_age": "0.5ns"}},
    {"defaults": {"max_bytes": "0B"}},
    {"defaults": {"max_msg_size": "2GiB"}},
    {"links": {"default": {"rate": "0mbit"}}},
    {"links": {"default": {"rtt": "61s"}}},
    {"regions": {"west": {"servers": ["a", "A"]}}},
    {"regions": {"west": {"servers": ["[1.2.3.4]"]}}},
    {"regions": {"west": {"servers": 1, "tags": ["\u200b"]}}},
]
"""What the decoder refuses and the schema accepts: sums, magnitudes, addresses, and what is equal but for case."""


@pytest.fixture(scope="module")
def validator() -> Any:
    """Made once, and not when the tests are collected: that takes a second."""
    return jsonschema.Draft202012Validator(json_schema())


def parse_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_bytes())


def is_refused_by_shape(value: Any) -> bool:
    return any(finding.code.startswith("VS00") for finding in check_topology(shapes.as_file(value), "t.yaml").findings)


def test_the_topology_schema_is_valid_for_its_draft(validator: Any) -> None:
    schema = validator.schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(json.dumps(schema)) == schema


def test_every_setting_is_explained_where_its_name_does_not(validator: Any) -> None:
    schema = validator.schema
    properties = schema["$defs"]["SettingsDocument"]["properties"]
    assert properties["max_age"]["description"].startswith("How long messages are kept.")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_accepted_by_both(path: Path, validator: Any) -> None:
    assert check_topology(path.read_bytes(), path.name).findings == ()
    validator.validate(parse_yaml(path))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_only_the_rules_refuse_is_accepted_by_the_schema(path: Path, validator: Any) -> None:
    validator.validate(parse_yaml(path))


@given(value=shapes.topologies)
def test_whatever_has_the_right_shape_is_accepted_by_the_schema(value: Any, validator: Any) -> None:
    if not is_refused_by_shape(value):
        validator.validate(value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"versio": 1}, {"version": 2}, {"version": "1"}, {"name": "a b"}, {"name": "x" * 65}, {"server_version": 2.12},
        {"server_version": "2.9"}, {"naming": "block"}, {"regions": {}}, {"regions": {"a b": {"servers": 1}}}, {"regions": {"a": {}}},
        {"regions": {"a": {"servers": 0}}}, {"regions": {"a": {"servers": 100}}}, {"regions": {"a": {"servers": []}}},
        {"regions": {"a": {"servers": ["x", "x"]}}}, {"regions": {"a": {"servers": ["x:4222"]}}},
        {"regions": {"a": {"servers": 1, "tags": "ssd"}}}, {"regions": {"a": {"servers": 1, "tags": ["a b"]}}},
        {"regions": {"a": {"servers": 1, "ports": {"client": 0}}}}, {"regions": {"a": {"servers": 1, "ports": {"client": 65536}}}},
        {"defaults": {"replicas": 0}}, {"defaults": {"replicas": 6}}, {"defaults": {"replicas": "3"}}, {"defaults": {"max_age": 5}},
        {"defaults": {"max_age": "1 hour"}}, {"defaults": {"duplicate_window": "unlimited"}}, {"defaults": {"max_bytes": "1G"}},
        {"defaults": {"max_bytes": 0}}, {"defaults": {"max_bytes": -1}}, {"defaults": {"max_msgs": 0}}, {"defaults": {"max_msgs": 2**63}},
        {"defaults": {"max_msg_size": 2**31}}, {"defaults": {"storage": "disk"}}, {"defaults": {"allow_rollup": "yes"}},
        {"defaults": {"metadata": {"a": 1}}}, {"defaults": {"description": 5}}, {"defaults": {"write": {"max_ag": "1h"}}},
        {"jetstream": {"sync_interval": "1d"}}, {"jetstream": {"store_dir": ""}}, {"connect": {"west": {"password": "x"}}},
        {"connect": {"west": {"password_env": "a b"}}}, {"streams": {"a.b": {"subjects": "x"}}}, {"streams": {"a": {}}},
        {"streams": {"a": {"subjects": {}}}}, {"streams": {"a": {"subjects": [1]}}}, {"streams": {"a": {"subjects": "x", "regions": "west"}}},
        {"streams": {"a": {"subjects": "x", "regions": []}}}, {"streams": {"a": {"subjects": "x", "regions": ["b", "b"]}}},
        {"streams": {"a": {"subjects": "x", "consistency": "order"}}}, {"streams": {"a": None}}, {"streams": []}, {"presets": {"": {}}},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_has_a_wrong_shape_is_refused_by_both(wrong: dict[str, Any], validator: Any) -> None:
    assert is_refused_by_shape(HEAD | wrong)
    assert not validator.is_valid(HEAD | wrong)


@pytest.mark.parametrize("key", ["version", "name", "server_version", "regions"])
def test_what_must_be_there_is_required_by_both(key: str, validator: Any) -> None:
    value = {name: part for name, part in HEAD.items() if name != key}
    assert is_refused_by_shape(value)
    assert not validator.is_valid(value)


@pytest.mark.parametrize("value", BEYOND_A_SCHEMA, ids=json.dumps)
def test_what_a_schema_cannot_say_is_refused_by_the_decoder_alone(value: dict[str, Any], validator: Any) -> None:
    assert is_refused_by_shape(HEAD | value)
    assert validator.is_valid(HEAD | value)
