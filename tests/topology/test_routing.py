"""Which routing profile a topology has that says none: what it asks for decides, and what could be live stays what it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.plans import topology
from vstream.topology.model import Routing

NEW = {"server_version": "2.12"}
FOO = {"subjects": ["v.foo.>"]}


@pytest.mark.parametrize(
    "asked",
    [
        {"roots": ["v.>"]},
        {"objects": {"files": {"writers": "one-per-key"}}},
        {"streams": {"foo": {**FOO, "core_subscribers": True}}},
        {"security": {"mode": "operator"}},
    ],
    ids=["roots", "object store", "core subscribers", "operator mode"],
)
def test_what_mapping_cannot_do_is_done_by_accounts(asked: dict[str, Any]) -> None:
    desired = topology(**{"streams": {"foo": FOO}, **NEW, **asked})
    assert desired.routing is Routing.ACCOUNTS
    assert {stream.routing for stream in desired.streams} == {Routing.ACCOUNTS}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"streams": {f"s{number}": {"subjects": [f"s{number}.>"]} for number in range(200)}},
        {"kv": {"users": {"writers": "one-per-key"}}},
        {"objects": {"files": {"consistency": "homed", "home": "east"}}},
        {"naming": "blog"},
    ],
    ids=["a stream", "many streams", "a bucket", "an object store with an origin", "the blog's names"],
)
def test_a_topology_that_could_be_live_with_mappings_keeps_them(asked: dict[str, Any]) -> None:
    assert topology(**{**NEW, **asked}).routing is Routing.MAPPED


def test_what_is_said_is_what_is_done() -> None:
    assert topology({"foo": FOO}, **NEW, roots=["v.>"], routing="regional").routing is Routing.REGIONAL
