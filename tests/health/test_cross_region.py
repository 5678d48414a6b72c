"""Who uses another region's stream, by advisories of servers: what was seen on 2.12.8 and 2.15.1, and anything else."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.health.doctor.test_examine import TOPOLOGY, healthy
from vstream.health.assess import assess
from vstream.health.cross_region import AdvisoryReader, CrossRegionUse
from vstream.health.live.cross_region_listener import CrossRegionListener
from vstream.health.prometheus import render_metrics
from vstream.lint import check_topology

CLIENT = {
    "start": "2026-11-29T09:16:51.385545906Z",
    "host": "10.0.0.7",
    "id": 40,
    "acc": "APP_east",
    "user": "app",
    "name": "orders",
    "lang": "python3",
    "server": "west-1",
    "cluster": "west",
    "kind": "Client",
    "client_type": "nats",
}
READER = AdvisoryReader(TOPOLOGY)
USE = CrossRegionUse(client="orders", user="app", host="10.0.0.7", place="west", stream="foo-read-east", region="east")


def advisory(request: Any = "CONSUMER.INFO.foo-read-east.billing", **client: Any) -> bytes:
    subject = f"$JS.API.{request}" if isinstance(request, str) else request
    return json.dumps({"type": "…", "client": {**CLIENT, **client}, "subject": subject, "request": ""}).encode()


@pytest.mark.parametrize(
    "request_",
    [
        "CONSUMER.INFO.foo-read-east.billing",
        "CONSUMER.CREATE.foo-read-east",
        "CONSUMER.CREATE.foo-read-east.billing.foo.a",
        "CONSUMER.DURABLE.CREATE.foo-read-east.billing",
        "STREAM.INFO.foo-read-east",
        "STREAM.MSG.GET.foo-read-east",
    ],
)
def test_whoever_asks_for_a_stream_of_another_region_is_named(request_: str) -> None:
    assert READER.read(advisory(request_), None) == USE


@pytest.mark.parametrize(
    "payload",
    [
        advisory("CONSUMER.INFO.foo-read-west.billing"),  # its own region's
        advisory(cluster="east"),
        advisory(cluster="elsewhere"),
        advisory(cluster=None),
        advisory(cluster=["west"]),
        advisory("CONSUMER.INFO.unheard-of.billing"),
        advisory("STREAM.LIST"),
        advisory("CONSUMER.INFO"),
        advisory(name="vstream"),
        advisory(kind="JetStream"),  # a stream that sources
        advisory(kind=7),
        advisory(svc="APP_east"),  # vstream, from another account
        advisory(name=7),
        advisory(user={}),
        advisory(request=None),
        advisory(request=["$JS.API"]),
        b"",
        b"\xff",
        b"7",
        b"[]",
        b"{}",
        b'{"client": 7, "subject": "$JS.API.STREAM.INFO.foo-read-east"}',
        b'{"client": {}, "subject": "$JS.API.STREAM.INFO.foo-read-east"}',
        b"[" * 100_000,
    ],
    ids=lambda payload: repr(payload[-60:]),
)
def test_nobody_else_is_named_whatever_servers_say(payload: bytes) -> None:
    assert READER.read(payload, None) is None


def test_where_each_region_has_an_account_its_streams_are_told_apart_by_it() -> None:
    text = (
        'version: 1\nname: acme\nserver_version: "2.12"\nrouting: regional\nroots: [v.>]\n'
        "regions: {west: {servers: 1}, east: {servers: 1}}\nstreams: {foo: {subjects: [v.foo.>], write: {max_age: 1h}}}\n"
    )
    reader = AdvisoryReader(check_topology.check_topology(text.encode(), "acme.yaml").require())
    assert reader.read(advisory("STREAM.INFO.foo"), "APP_east") == replace(USE, stream="APP_east/foo")
    assert reader.read(advisory("STREAM.INFO.foo"), "APP_west") is None


def test_a_line_says_what_is_known() -> None:
    assert USE.describe() == "client `orders` (user `app`, 10.0.0.7) in west uses `foo-read-east` of east"
    nameless = replace(USE, client="", user="", host="")
    assert nameless.describe() == "a client without a name in west uses `foo-read-east` of east"


def test_each_is_told_once_and_no_more_are_kept_than_1000_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    listener = CrossRegionListener(told.append)
    for number in range(1_200):
        listener.note(USE)
        listener.note(replace(USE, client=f"client-{number}"))
    assert len(listener.uses()) == len(told) == 1_000
    assert (told[0], told.count(told[0])) == (USE.describe(), 1)
    assert USE in listener.uses()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3_601)
    assert listener.uses() == {}


def test_the_metric_says_who_and_when() -> None:
    text = render_metrics("acme", assess(TOPOLOGY, healthy()), {USE: 1_700_000_000.5})
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    (sample,) = families["vstream_client_of_other_region"]
    labels = {"client": "orders", "user": "app", "host": "10.0.0.7", "from": "west"}
    assert sample.labels == {"topology": "acme", **labels, "stream": "foo-read-east", "region": "east"}
    assert sample.value == 1_700_000_000.5
