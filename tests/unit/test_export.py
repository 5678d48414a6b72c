"""What `vstream export` writes, read by Prometheus's own parsers: metrics, alert rules and dashboard agree."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import promql_parser
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.command import vstream
from tests.unit.test_doctor import TOPOLOGY, healthy
from vstream.picture.exposition import exposition
from vstream.picture.facts import Tail
from vstream.picture.judge import judge
from vstream.picture.report import State

NAME = re.compile(r"vstream_[a-z_]+")


def metrics(**more: Any) -> dict[str, list[Any]]:
    facts = replace(healthy(), **more)
    text = exposition('ac"me\\', judge(TOPOLOGY, facts))
    return {family.name: list(family.samples) for family in text_string_to_metric_families(text)}


def test_everything_is_read_back() -> None:
    found = metrics()
    assert {sample.labels["topology"] for samples in found.values() for sample in samples} == {'ac"me\\'}
    assert [sample.value for sample in found["vstream_up"]] == [1]
    assert len(found["vstream_server_up"]) == 3
    assert len(found["vstream_pair_pending_messages"]) == 9
    assert found["vstream_pair_state"] == []
    assert found["vstream_pair_lossy_in_seconds"] == []
    assert sum(sample.value for sample in found["vstream_stream_messages"]) == 30


def test_a_pair_that_is_not_well() -> None:
    pair = ("foo-write-west", "foo-read-east")
    found = metrics(tails={pair: Tail(last=3, first=1, cursor=5)})
    (sample,) = found["vstream_pair_state"]
    assert sample.labels | {"topology": ""} == {
        "topology": "",
        "stream": "foo",
        "origin": "west",
        "reader": "east",
        "state": State.ROLLED_BACK.value,
    }


def test_nothing_answers() -> None:
    (family,) = text_string_to_metric_families(exposition("acme", None))
    assert [(sample.name, sample.value) for sample in family.samples] == [("vstream_up", 0)]


def test_names_follow_the_rules() -> None:
    for name in metrics():
        assert NAME.fullmatch(name)
        # Units are whole words at the end, in base units; gauges are no totals.
        assert not name.endswith(("_total", "_ms", "_count", "_sum", "_bucket", "_kb"))


def expressions() -> list[str]:
    rules = yaml.safe_load(vstream("export", "--alerts").out)
    dashboard = json.loads(vstream("export", "--dashboard").out)
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    found += [target["expr"].replace("$topology", ".*") for panel in dashboard["panels"] for target in panel["targets"]]
    return found


def test_alerts_and_dashboard_ask_for_what_there_is() -> None:
    known = set(metrics())
    asked = expressions()
    assert len(asked) > 15
    for expression in asked:
        promql_parser.parse(expression)
        assert set(NAME.findall(expression)) <= known, expression


def test_the_dashboard_needs_no_editing() -> None:
    dashboard = json.loads(vstream("export", "--dashboard").out)
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    assert variables == {"datasource", "topology"}
    assert set(re.findall(r"\$\{?(\w+)\}?", json.dumps(dashboard))) == variables
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_alerts_are_whole() -> None:
    rules = yaml.safe_load(vstream("export", "--alerts").out)
    states = {state.value for state in State}
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
            assert set(rule["annotations"]) == {"summary", "description"}
            assert rule["labels"]["severity"] in {"warning", "critical"}
            assert set(re.findall(r'state="([^"]+)"', rule["expr"])) <= states


def test_wrong_addresses(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(
        'version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 1}}\n'
        "connect: {west: {urls: [nats://127.0.0.1:9]}}\nstreams: {}\n"
    )
    assert vstream("export", file, "--listen", "nowhere").code == 2
    assert vstream("export", file, "--deadline", "0.5", "--once").code == 3
