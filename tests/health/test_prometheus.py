"""What `vstream export` writes, read by Prometheus's own parsers: metrics, alert rules and dashboard agree."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from tests.health.doctor.test_examine import TOPOLOGY, healthy
from tests.support.command import vstream
from vstream.cli.views.status import render_screen
from vstream.health.assess import assess
from vstream.health.prometheus import render_metrics
from vstream.health.snapshot import BeaconSighting, Lag
from vstream.health.status import PairState, Share, Status
from vstream.timing import SECOND_NS

NAME = re.compile(r"vstream_[a-z_]+")


def metrics(**more: Any) -> dict[str, list[Any]]:
    facts = replace(healthy(), **more)
    text = render_metrics('ac"me\\', assess(TOPOLOGY, facts))
    return {family.name: list(family.samples) for family in text_string_to_metric_families(text)}


def test_the_parser_of_prometheus_reads_every_metric_back() -> None:
    families = metrics()
    assert {sample.labels["topology"] for samples in families.values() for sample in samples} == {'ac"me\\'}
    assert [sample.value for sample in families["vstream_up"]] == [1]
    assert len(families["vstream_server_up"]) == 3
    assert len(families["vstream_pair_pending_messages"]) == 9
    assert families["vstream_pair_state"] == []
    assert families["vstream_pair_lossy_in_seconds"] == []
    assert sum(sample.value for sample in families["vstream_stream_messages"]) == 30


def test_what_is_not_known_of_a_stream_is_not_counted_as_working() -> None:
    status = assess(TOPOLOGY, healthy())
    west = replace(status.regions[0], publish=Share(works=1, of=4, unknown=2))
    text = render_metrics("acme", replace(status, regions=(west,)))
    assert 'vstream_region_working_streams{topology="acme",region="west",operation="publish"} 1\n' in text


def test_what_a_server_calls_itself_cannot_move_the_cursor() -> None:
    text = render_metrics("ac\x1b[31m\x00me\r\n\u202e", assess(TOPOLOGY, healthy()))
    assert set(filter(lambda char: not char.isprintable(), text)) == {"\n"}
    labels = {sample.labels["topology"] for family in text_string_to_metric_families(text) for sample in family.samples}
    assert labels == {"ac\\x1b[31m\\x00me\\r\n\\u202e"}


def test_metrics_show_a_pair_that_is_not_well() -> None:
    pair = ("foo-write-west", "foo-read-east")
    samples = metrics(lags={pair: Lag(last=3, first=1, cursor=5)})
    (sample,) = samples["vstream_pair_state"]
    assert sample.labels | {"topology": ""} == {
        "topology": "",
        "stream": "foo",
        "origin": "west",
        "reader": "east",
        "state": PairState.ROLLED_BACK.value,
    }


def test_nobody_is_alarmed_by_what_is_on_its_way() -> None:
    pair, at = ("foo-write-west", "foo-read-east"), healthy().at
    for waited, alarms in ((0.5, 0), (90, 1)):
        lag = Lag(last=12, first=1, cursor=10, max_age=3600.0, oldest_seq=11, oldest_at=at - waited)
        samples = metrics(at=at, lags={pair: lag})
        assert len(samples["vstream_pair_lossy_in_seconds"]) == alarms


def test_what_gateways_have_sent_is_a_counter() -> None:
    servers = tuple(replace(server, gateways={"elsewhere": 512}) for server in healthy().servers)
    text = render_metrics("acme", assess(TOPOLOGY, replace(healthy(), servers=servers)))
    (sent,) = [
        text_string_to_metric_family
        for text_string_to_metric_family in text_string_to_metric_families(text)
        if text_string_to_metric_family.name == "vstream_gateway_sent_bytes"
    ]
    assert (sent.type, {sample.value for sample in sent.samples}) == ("counter", {512})
    assert {sample.labels["to"] for sample in sent.samples} == {"elsewhere"}


def test_metrics_have_margins_and_beacons() -> None:
    facts = healthy()
    samples = metrics()
    assert {sample.value for sample in samples["vstream_pair_kept_seconds"]} == {3600}
    assert samples["vstream_beacon_age_seconds"] == []
    seen = (
        BeaconSighting(stream="foo", origin="west", reader="east", sent=1.0, age=7.0),
        BeaconSighting(stream="foo", origin="west", reader="west", problem="there is none", is_absent=True),
        BeaconSighting(
            stream="foo", origin="west", reader="central", problem="region `central` cannot be reached: why"
        ),
    )
    (sample,) = metrics(beacons=seen)["vstream_beacon_age_seconds"]
    assert (sample.labels["origin"], sample.labels["reader"], sample.value) == ("west", "east", 7)

    pair = ("foo-write-west", "foo-read-east")
    late = Lag(last=5, first=1, cursor=4, oldest_seq=5, oldest_at=facts.at - 2400, max_age=3600.0)
    picture = assess(TOPOLOGY, replace(facts, lags={pair: late}))
    thin = picture.thinnest
    assert thin is not None
    assert (thin.origin, thin.reader, thin.retention) == (*pair, 3600)
    assert thin.margin == pytest.approx(1200)
    assert picture.as_dict()["margin"] == thin.as_dict()
    assert "outage margin 20 min  (west → east, `foo-write-west` keeps 1 h, 40 min of it used up)" in render_status(
        picture
    )
    assert "outage margin 1 h  (" in render_status(assess(TOPOLOGY, facts))
    assert "newest beacon" not in render_status(picture)
    seen_now = render_status(assess(TOPOLOGY, replace(facts, beacons=seen)))
    assert re.search(r"west +there is none +\? no answer +7 s", seen_now), seen_now
    # What is lost already has no margin left.
    lossy = replace(late, cursor=1, first=5)
    (worst,) = [
        pair for pair in assess(TOPOLOGY, replace(facts, lags={pair: lossy})).pairs if pair.state is PairState.LOSSY
    ]
    assert worst.margin == 0


def test_a_stream_keeps_what_its_limits_of_now_let_it() -> None:
    """Somebody may have changed them by hand. One that is full keeps less than its age."""
    facts = healthy()
    origin = replace(facts.streams["foo-write-west"], bytes=500, first_at=facts.at - 60)

    def margin(**config: Any) -> float | None:
        changed = replace(origin, config={**(origin.config or {}), **config})
        thin = assess(TOPOLOGY, replace(facts, streams={**facts.streams, origin.name: changed})).thinnest
        assert thin is not None
        return thin.margin

    assert margin(max_age=3600 * SECOND_NS) == 3600
    assert margin(max_age=10 * SECOND_NS) == 10
    assert margin(max_age=3600 * SECOND_NS, max_bytes=1000) == 3600
    assert margin(max_age=3600 * SECOND_NS, max_bytes=505) == 60
    assert margin(max_age=3600 * SECOND_NS, max_bytes=500, discard="new") == 3600


def render_status(picture: Status) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(render_screen(picture, width=120))
    return capture.get()


def test_metrics_of_servers_that_do_not_answer() -> None:
    (family,) = text_string_to_metric_families(render_metrics("acme", None))
    assert [(sample.name, sample.value) for sample in family.samples] == [("vstream_up", 0)]


def test_metric_names_follow_the_rules_of_prometheus() -> None:
    for name in metrics():
        assert NAME.fullmatch(name)
        # Units are whole words at the end, in base units; gauges are no totals.
        assert not name.endswith(("_total", "_ms", "_count", "_sum", "_bucket", "_kb"))


def expressions() -> list[str]:
    rules = yaml.safe_load(vstream("export", "--alerts").out)
    dashboard = vstream("export", "--dashboard").json()
    result = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    result += [
        target["expr"].replace("$topology", ".*") for panel in dashboard["panels"] for target in panel["targets"]
    ]
    return result


def test_alerts_and_dashboard_ask_for_what_there_is() -> None:
    families = metrics()
    names = {*families, *(sample.name for samples in families.values() for sample in samples)}
    asked = expressions()
    assert len(asked) > 15
    for expression in asked:
        promql_parser.parse(expression)
        assert set(NAME.findall(expression)) <= names, expression


def test_the_dashboard_needs_no_editing() -> None:
    dashboard = vstream("export", "--dashboard").json()
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert variables == {"datasource", "topology"}
    assert set(re.findall(r"\$\{?(\w+)\}?", json.dumps(dashboard))) == variables
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_every_alert_has_its_texts_a_severity_and_known_states() -> None:
    rules = yaml.safe_load(vstream("export", "--alerts").out)
    states = {state.value for state in PairState}
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
            assert set(rule["annotations"]) == {"summary", "description"}
            assert rule["labels"]["severity"] in {"warning", "critical"}
            assert set(re.findall(r'state="([^"]+)"', rule["expr"])) <= states


def test_a_thin_margin_is_what_was_late_against_what_is_kept() -> None:
    rules = yaml.safe_load(vstream("export", "--alerts").out)
    by_name = {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    late, _, limit = by_name["VstreamThinMargin"].partition(" > ")
    assert re.fullmatch(r"max_over_time\(vstream_pair_oldest_pending_seconds\[7d\]\)", late)
    assert limit == "0.5 * vstream_pair_kept_seconds"
    # They are compared pair by pair: the labels of both are the same.
    samples = metrics()
    assert {
        frozenset(vstream_pair_oldest_pending_second.labels.items())
        for vstream_pair_oldest_pending_second in samples["vstream_pair_oldest_pending_seconds"]
    } == {
        frozenset(vstream_pair_kept_second.labels.items())
        for vstream_pair_kept_second in samples["vstream_pair_kept_seconds"]
    }


def test_export_to_a_wrong_address_is_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(
        'version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 1}}\n'
        "connect: {west: {urls: [nats://127.0.0.1:9]}}\nstreams: {}\n"
    )
    assert vstream("export", file, "--listen", "nowhere").code == 2
    assert vstream("export", file, "--timeout", "0.5", "--once").code == 3
