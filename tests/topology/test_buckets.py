"""Key-value buckets and object stores: the streams that they become, and where mistakes in them are shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plan.test_diff import plan, world
from tests.support import workspaces
from tests.support.plans import render_streams, topology
from tests.support.topologies import HEAD, concise
from tests.support.workspaces import codes
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology import naming
from vstream.topology.model import Role
from vstream.topology.profiles import profile_of
from vstream.topology.profiles.hidden_accounts import accounts

WIDE = {"stretch": {"members": "all"}, "routing": "accounts", "server_version": "2.12"}
HOUR = 3600 * 10**9
MODELS = {
    "virtual": {"writers": "one-per-key"},
    "ordered": {"consistency": "ordered", "writers": "one-per-key"},
    "stretch": {"consistency": "stretch"},
    "homed": {"consistency": "homed", "home": "east"},
}
MADE_BY_CLIENTS = {
    "kv": {
        "subjects": ["$KV.one.>"],
        "max_msgs_per_subject": 5,
        "max_msg_size": 1024,
        "max_age": 2 * HOUR,
        "max_bytes": 2**20,
        "max_msgs": -1,
        "max_consumers": -1,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "deny_delete": True,
        "deny_purge": False,
        "discard": "new",
        "retention": "limits",
        "duplicate_window": 120 * 10**9,
    },
    "objects": {
        "subjects": ["$O.one.C.>", "$O.one.M.>"],
        "max_age": 2 * HOUR,
        "max_bytes": 2**20,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_consumers": -1,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "deny_delete": False,
        "deny_purge": False,
        "discard": "new",
        "retention": "limits",
    },
}
"""What nats.py and nats.js send for a bucket with these settings."""
SAID: dict[str, dict[str, Any]] = {
    "kv": {"history": 5, "max_value_size": 1024, "ttl": "2h", "max_bytes": "1MiB"},
    "objects": {"ttl": "2h", "max_bytes": "1MiB"},
}
DEFAULTS = {"max_msgs": 7, "max_age": "1m", "deny_purge": True, "max_msgs_per_subject": 2, "write": {"max_age": "3m"}}


@pytest.mark.parametrize("section", ["kv", "objects"])
@pytest.mark.parametrize("model", MODELS)
def test_what_takes_the_writes_of_a_bucket_is_as_clients_make_it_whatever_the_defaults(
    model: str, section: str
) -> None:
    bucket = {**MODELS[model], **SAID[section]}
    bundle = render_streams({}, **WIDE, defaults=DEFAULTS, **{section: {"one": bucket}})
    name = {"kv": "KV_one", "objects": "OBJ_one"}[section]
    assert {naming.local_name(stream.config.name) for stream in bundle.streams} == {name}
    written = [stream for stream in bundle.streams if stream.role.value in {"write", "origin"}]
    assert written
    for write_stream in written:
        assert {field: write_stream.config.fields[field] for field in MADE_BY_CLIENTS[section]} == MADE_BY_CLIENTS[
            section
        ]


@pytest.mark.parametrize("model", MODELS)
def test_copies_of_a_bucket_keep_what_it_keeps_and_never_refuse(model: str) -> None:
    bundle = render_streams({}, **WIDE, kv={"one": {**MODELS[model], **SAID["kv"]}})
    copies = [stream for stream in bundle.streams if stream.role.value in {"read", "order"}]
    assert copies
    for copy in copies:
        fields = copy.config.fields
        assert (fields["discard"], fields["max_bytes"], fields["max_msgs_per_subject"]) == ("old", -1, 5)
        assert (fields["max_age"], fields["allow_rollup_hdrs"]) == (2 * HOUR, True)


def test_markers_are_left_where_values_are_written_and_are_stored_everywhere() -> None:
    bundle = render_streams({}, **WIDE, kv={"one": {**MODELS["stretch"], "marker_ttl": "1m"}})
    fields = {stream.role.value: stream.config.fields for stream in bundle.streams}
    assert fields["origin"]["subject_delete_marker_ttl"] == 60 * 10**9
    assert "subject_delete_marker_ttl" not in fields["read"]
    assert fields["origin"]["allow_msg_ttl"] is fields["read"]["allow_msg_ttl"] is True


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kv: {a: {consistency: homed, home: wset}}",
         ("6:36: error VS101: stream `KV_a` has its home in unknown region `wset`\n    hint: did you mean `west`?\n")),
        ("kv: {a: {consistency: homed}}",
         "6:6: error VS130: stream `KV_a` is homed, but has no `home`\n    hint: add `home: west`\n"),
        ("objects: {a: {consistency: stretch}}", ("6:28: error VS129: consistency `stretch` needs a stretch cluster\n"
         "    hint: add `stretch: {members: all}` to the topology, or choose `virtual` or `homed`\n")),
        ("kv: {a: {consistency: homed, home: west, replicas: 5}}",
         ("6:52: error VS104: stream `KV_a` wants 5 replicas, region `east` has 3 servers\n    hint: lower `replicas`\n"
         "6:52: error VS104: stream `KV_a` wants 5 replicas, region `west` has 3 servers\n    hint: lower `replicas`\n")),
        ("kv: {a: {history: 65, writers: one-per-key}}", "6:19: error VS005: `kv.a.history` must be a whole number from 1 to 64\n"),
        ("kv: {a: {marker_ttl: 10ms, writers: one-per-key}}",
         "6:22: error VS005: `kv.a.marker_ttl`: servers refuse a delete marker TTL below 1s\n"),
        ("kv: {a: {historie: 5}}", "6:10: error VS006: unknown key `historie`\n    hint: did you mean `history`?\n"),
        ("objects: {a: {history: 5, writers: one-per-key}}",
         ("6:15: error VS006: unknown key `history`\n    hint: known here: `compression`, `consistency`, `description`, `home`, `max_bytes`, "
         "`metadata`, `placement_tags`, `regions`, `replicas`, `storage`, `ttl`, `virtual_name`, `writers`\n")),
        ("kv: {a.b: {}}", ("6:6: error VS005: `a.b` is not a valid name\n    hint: letters, digits, `-` and `_` only\n")),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_bucket_is_shown_where_it_is_written(line: str, expected: str) -> None:
    start = f"{HEAD}routing: accounts\nregions: {{west: {{servers: 3}}, east: {{servers: 3}}}}\n"
    assert concise(check_topology(f"{start}{line}\n".encode(), "t.yaml").findings) == expected


@pytest.mark.parametrize(
    ("model", "counting"),
    [
        ({}, {"write", "read"}),
        ({"consistency": "ordered"}, {"write", "order"}),
        ({"consistency": "stretch"}, {"origin"}),
        ({"consistency": "homed", "home": "west"}, {"origin"}),
    ],
)
def test_whatever_adds_up_is_a_counter_and_mirrors_are_none(model: dict[str, str], counting: set[str]) -> None:
    hits = {"subjects": ["hits.>"], "counters": True, "max_age": "unlimited", **model}
    bundle = render_streams({"hits": hits}, **WIDE, defaults={})
    assert {stream.role.value for stream in bundle.streams if stream.config.fields.get("allow_msg_counter")} == counting


def test_subscribers_without_jetstream_hear_write_streams_and_may_hear_nothing_else() -> None:
    news = {"subjects": ["news.>"], "core_subscribers": True}
    bundle = render_streams({"news": news, "foo": {"subjects": ["foo.>"]}}, **WIDE)
    heard = {stream.config.name for stream in bundle.streams if "republish" in stream.config.fields}
    assert heard == {"W_west/news", "W_central/news", "W_east/news"}
    app = bundle.accounts[0]
    assert [share.to for share in app.imports if share.subject.startswith(naming.REPUBLISH_PREFIX)] == ["news.>"] * 3


@pytest.mark.parametrize(("routing", "hearing"), [("domains", "APP"), ("regional", "APP_west")])
def test_where_writes_stand_aside_read_streams_are_heard_and_store_nothing_of_it_again(
    routing: str, hearing: str
) -> None:
    news = {"subjects": ["news.>"], "core_subscribers": True, "regions": ["west"]}
    desired = topology({"news": news, "foo": {"subjects": ["foo.>"]}}, routing=routing, server_version="2.12")
    bundle = render_bundle(desired)
    read = [stream for stream in bundle.streams if stream.role is Role.READ]
    heard = [stream.config.fields for stream in read if "republish" in stream.config.fields]
    assert [(fields["name"], fields["republish"], "subjects" in fields) for fields in heard] == [
        ("news", {"src": ">", "dest": ">"}, False)
    ]
    assert len([stream for stream in read if "subjects" in stream.config.fields]) == 3
    users = [(account.name, user) for account in profile_of(desired).accounts(desired) for user in account.users]
    assert [name for name, user in users if "news.>" in user.subscribe] == [hearing]
    assert "VS210" not in codes(workspaces.list_files(bundle))


def test_which_streams_are_buckets_is_known() -> None:
    desired = topology({"foo": {"subjects": ["foo.>"]}}, **WIDE, kv={"one": MODELS["homed"]})
    assert {stream.name: stream.is_bucket for stream in desired.streams} == {"foo": False, "KV_one": True}


@pytest.mark.parametrize(
    ("model", "holders"),
    [
        ("virtual", {"W_west", "W_central", "W_east", "R_west", "R_central", "R_east"}),
        ("ordered", {"W_west", "W_central", "W_east", "R_west", "R_central", "R_east", "S_stretch"}),
        ("stretch", {"R_west", "R_central", "R_east", "S_stretch"}),
        ("homed", {"R_west", "R_central", "R_east"}),
    ],
)
def test_what_clients_delete_of_a_bucket_is_purged_wherever_it_is_and_nothing_else_can_be(
    model: str, holders: set[str]
) -> None:
    app = accounts(topology({"foo": {"subjects": ["foo.>"]}}, **WIDE, objects={"one": MODELS[model]}))[0]
    purges = [share for share in app.imports if "STREAM.PURGE" in share.subject]
    assert {purge.subject for purge in purges} == {"$JS.API.STREAM.PURGE.OBJ_one"}
    for region in ("west", "central", "east"):
        to = f"{naming.REGION_PREFIX}.{region}.$JS.API.STREAM.PURGE.OBJ_one"
        assert {purge.account for purge in purges if purge.to == to} == holders
    assert [subject for subject in app.users[0].publish if "STREAM.PURGE" in subject] == [
        f"{naming.REGION_PREFIX}.*.$JS.API.STREAM.PURGE.OBJ_one"
    ]


@pytest.mark.parametrize(("model", "catalogs"), [("virtual", 0), ("ordered", 0), ("stretch", 3), ("homed", 3)])
def test_every_write_account_knows_every_stream_by_its_subjects(model: str, catalogs: int) -> None:
    bundle = render_streams({}, **WIDE, kv={"one": MODELS[model]})
    asked = [share for share in bundle.accounts[0].imports if share.subject == "$JS.API.STREAM.NAMES"]
    assert [share.account for share in asked] == ["W_west", "W_central", "W_east"]
    listed = {
        stream.config.name: stream.config.fields["subjects"] for stream in bundle.streams if stream.account == "W_west"
    }
    assert listed == {"W_west/KV_one": ["$KV.one.>"]}
    assert sum(stream.role.value == "catalog" for stream in bundle.streams) == catalogs


@pytest.mark.asyncio
async def test_a_write_stream_never_becomes_a_catalog_which_would_delete_its_messages() -> None:
    before = render_streams({}, **WIDE, kv={"one": MODELS["virtual"]})
    after = render_streams({}, **WIDE, kv={"one": MODELS["homed"]})
    change_plan = plan(after, (await world(before)).observe())
    reasons = {blocker.name: blocker.reason for blocker in change_plan.blocked}
    assert {"W_west/KV_one", "W_central/KV_one", "W_east/KV_one"} <= reasons.keys()
    assert reasons["W_west/KV_one"].startswith("its role is `write`, and would become `catalog`: ")
    assert "W_west/KV_one" not in {change.config.name for change in change_plan.changes}
