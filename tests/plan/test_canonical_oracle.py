"""The canonical form is the servers' own: whatever is created reads back as no drift, on every version."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import vstream
from tests.support.night import repetitions, with_night
from tests.support.plans import make_plan
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.plan.context import Observed
from vstream.render.pipeline import render_bundle
from vstream.topology.bundle import Bundle
from vstream.topology.model import Role, Topology

pytestmark = [pytest.mark.server, pytest.mark.versions]
BETWEEN = ("2.11.11", "2.12.8", "2.14.6")
STREAMS = repetitions(40, night=300)
MIRRORED = 12
"""Streams of each consistency model that has mirrors."""

SETTINGS: dict[str, list[Any]] = {
    "storage": ["file", "memory"],
    "max_bytes": ["1MiB", "3GB", "unlimited"],
    "max_msgs": [1, 1000, "unlimited"],
    "max_msgs_per_subject": [1, 5],
    "max_msg_size": ["1KiB", 4096],
    "max_consumers": [3, "unlimited"],
    "compression": ["none", "s2"],
    "allow_rollup": [True, False],
    "deny_delete": [True, False],
    "deny_purge": [False],
    "description": ["", "a text with ünicode"],
    "metadata": [{"team": "a"}, {"b": "", "a": "x y"}],
    "placement_tags": [[]],
}
BY_ROLE: dict[str, dict[str, list[Any]]] = {
    "write": {
        "max_age": ["1h", "90s", "1d", "unlimited"],
        "duplicate_window": ["100ms", "30s"],
        "discard": ["old", "new"],
    },
    "read": {"max_age": ["30d", "unlimited", "1h"], "duplicate_window": ["100ms", "2m"]},
}
NEWER: dict[str, tuple[int, dict[str, Any]]] = {
    "allow_msg_ttl": (11, {"allow_msg_ttl": True}),
    "subject_delete_marker_ttl": (
        11,
        {"allow_msg_ttl": True, "allow_rollup": True, "write": {"config": {"subject_delete_marker_ttl": 10**9}}},
    ),
    "allow_atomic": (12, {"write": {"config": {"allow_atomic": True}}}),
    "consumer_limits": (10, {"config": {"consumer_limits": {"max_ack_pending": 10}}}),
    "first_seq": (10, {"write": {"config": {"first_seq": 100}}}),
    "no_ack": (10, {"config": {"no_ack": True}}),
    "allow_batched": (14, {"write": {"config": {"allow_batched": True}}}),
    "allow_msg_schedules": (12, {"write": {"config": {"allow_msg_schedules": True}}}),
    "allow_msg_schedules-no-rollup": (12, {"write": {"allow_rollup": False, "config": {"allow_msg_schedules": True}}}),
    "marker-alone": (11, {"write": {"config": {"subject_delete_marker_ttl": 10**9}}}),
    "marker-and-ttl": (11, {"write": {"allow_msg_ttl": True, "config": {"subject_delete_marker_ttl": 10**9}}}),
    "marker-deny-purge": (11, {"deny_purge": True, "write": {"config": {"subject_delete_marker_ttl": 10**9}}}),
    "schedules-deny-purge": (12, {"deny_purge": True, "write": {"config": {"allow_msg_schedules": True}}}),
    "persist_mode": (12, {"write": {"config": {"persist_mode": "async"}}}),
    "persist_mode-default": (12, {"config": {"persist_mode": "default"}}),
    "discard_new_per_subject": (
        10,
        {"write": {"discard": "new", "max_msgs_per_subject": 5, "config": {"discard_new_per_subject": True}}},
    ),
    "discard_new_per_subject-unset": (10, {"config": {"discard_new_per_subject": False}}),
    "republish": (10, {"read": {"config": {"republish": {"src": ">", "dest": "again.>"}}}}),
    "republish-headers": (10, {"read": {"config": {"republish": {"src": "", "dest": "more.>", "headers_only": True}}}}),
    "deny_purge": (10, {"deny_purge": True}),
    "counters": (12, {"counters": True, "write": {"max_age": "unlimited"}}),
    "consumer_limits-empty": (10, {"config": {"consumer_limits": {}}}),
    "consumer_limits-both": (
        10,
        {"config": {"consumer_limits": {"inactive_threshold": 10**10, "max_ack_pending": 0}}},
    ),
    "first_seq-zero": (10, {"write": {"config": {"first_seq": 0}}}),
    "allow_atomic-unset": (12, {"config": {"allow_atomic": False}}),
    "window-longer-than-age": (10, {"write": {"max_age": "1s"}}),
}


def pick(chance: random.Random, table: dict[str, list[Any]]) -> dict[str, Any]:
    return {key: chance.choice(values) for key, values in table.items() if chance.random() < 0.4}


def document(version: str, naming: str) -> dict[str, Any]:
    chance = random.Random(7)
    minor = int(version.split(".")[1])
    streams: dict[str, Any] = {}
    for number in range(STREAMS):
        name = f"s{number}"
        roles = {role: pick(chance, table) for role, table in BY_ROLE.items()}
        roles["write"].setdefault("max_age", "1h")
        streams[name] = {"subjects": [f"{name}.>", f"{name}x.*.y", f"{name}z"], **pick(chance, SETTINGS), **roles}
    for name, (since, settings) in NEWER.items():
        if minor >= since:
            merged = {"write": {"max_age": "1h"}, "subjects": [f"{name}.>"], **settings}
            merged["write"] = {"max_age": "1h", **settings.get("write", {})}
            streams[name] = merged
    return {
        "version": 1,
        "name": "oracle",
        "server_version": f"2.{minor}",
        "naming": naming,
        "jetstream": {"max_file": "1TiB", "max_memory": "1TiB"},
        "regions": {"west": {"servers": 1}},
        "streams": streams,
    }


def make_mirrored(version: str) -> dict[str, Any]:
    """A topology of two regions and a stretch server, in which most read streams are mirrors."""
    chance = random.Random(7)
    streams: dict[str, Any] = {}
    for consistency in ("homed", "stretch", "ordered"):
        for number in range(MIRRORED):
            name = f"{consistency}{number}"
            roles = {role: pick(chance, table) for role, table in BY_ROLE.items()}
            roles["write"].setdefault("max_age", "1h")
            roles["read"].pop("duplicate_window", None)
            order = {"order": pick(chance, BY_ROLE["read"])} if consistency == "ordered" else {}
            home = {"home": "east"} if consistency == "homed" else {}
            streams[name] = {"subjects": [f"{name}.>", f"{name}z"], "consistency": consistency, **home}
            streams[name] |= {**pick(chance, SETTINGS), **roles, **order}
    minor = int(version.split(".")[1])
    return {
        "version": 1,
        "name": "oracle",
        "server_version": f"2.{minor}",
        "jetstream": {"max_file": "1TiB", "max_memory": "1TiB"},
        "regions": {"west": {"servers": 1}, "east": {"servers": 1}},
        "stretch": {"members": ["west"]},
        "streams": streams,
    }


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "state"))
    yield tmp_path
    assert vstream("lab", "down", "oracle", "--purge").code == 0


def load_checked(content: dict[str, Any]) -> Topology:
    return check_topology(json.dumps(content).encode(), "oracle.yaml").require()


async def create_and_list(of: Bundle) -> Observed:
    """Create every stream of *of* and read all back."""
    async with connect(list_endpoints("oracle")["west"], "west") as connection:
        admin = JetStreamAdmin(connection)
        # As a plan does it: what is sourced or mirrored is there before.
        for stream in sorted(of.streams, key=lambda one: list(Role).index(one.role)):
            await admin.create(stream.config)
        async with asyncio.timeout(120):
            # One that was just created may have no leader yet on a busy machine, and is listed without its configuration.
            while (answer := await admin.streams())[1]:
                await asyncio.sleep(0.2)
    return Observed(streams=answer[0])


@pytest.mark.parametrize(
    ("naming", "version"),
    with_night(
        [("isolated", "2.15.1"), ("blog", "2.10.26")],
        [
            ("isolated", "2.10.26"),
            ("blog", "2.15.1"),
            *((naming, version) for naming in ("isolated", "blog") for version in BETWEEN),
        ],
    ),
)
async def test_what_is_created_is_no_drift(own_state: Path, naming: str, version: str) -> None:
    file = own_state / "oracle.yaml"
    topology = load_checked(document(version, naming))
    file.write_text(json.dumps(document(version, naming)))
    up = vstream("lab", "up", file, "--server-version", version)
    assert up.code == 0, up.err
    bundle = render_bundle(topology, addresses=list_addresses("oracle"))
    observed = await create_and_list(bundle)
    assert len(observed.streams) == len(bundle.streams) > 2 * STREAMS
    plan = make_plan("oracle", bundle, observed)
    assert [(change.config.name, getattr(change, "fields", ())) for change in plan.changes] == []
    assert plan.blocked == ()
    assert plan.notes == ()
    # The same again changes nothing: an apply that was cut off can repeat its requests.
    assert {name: stream.created for name, stream in (await create_and_list(bundle)).streams.items()} == {
        name: stream.created for name, stream in observed.streams.items()
    }


@pytest.mark.parametrize("version", with_night(["2.15.1"], ["2.10.26", *BETWEEN]))
async def test_what_is_mirrored_is_no_drift(own_state: Path, version: str) -> None:
    file = own_state / "oracle.yaml"
    content = make_mirrored(version)
    file.write_text(json.dumps(content))
    up = vstream("lab", "up", file, "--server-version", version)
    assert up.code == 0, up.err
    bundle = render_bundle(load_checked(content), addresses=list_addresses("oracle"))
    observed = await create_and_list(bundle)
    assert sum(bool(stream.config.mirror_name) for stream in observed.streams.values()) == 5 * MIRRORED
    plan = make_plan("oracle", bundle, observed)
    assert [(change.config.name, getattr(change, "fields", ())) for change in plan.changes] == []
    assert (plan.blocked, plan.notes) == ((), ())
