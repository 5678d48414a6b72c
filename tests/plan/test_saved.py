from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.plans import make_plan, read_back, render_streams
from vstream.errors import PlanError, StalePlanError
from vstream.plan import saved
from vstream.plan.context import Observed
from vstream.plan.model import Delete, Plan, Update
from vstream.plan.risk import Risk
from vstream.syntax.document import Json
from vstream.topology.stream_config import ObservedStream, StreamConfig


def rich_plan() -> Plan:
    """Creates, an update, a delete, something blocked, notes and rules."""
    bundle = render_streams()

    def make_observed(name: str, **fields: Json) -> ObservedStream:
        config = next(stream.config for stream in bundle.streams if stream.config.name == "foo-read-west")
        return ObservedStream(
            config=StreamConfig(name=name, fields={**config.fields, "name": name, **fields}),
            created="t",
            cluster="west",
        )

    world = Observed(
        streams={
            "foo-read-west": make_observed("foo-read-west", max_age=5, brand_new=1),
            "old-read-west": make_observed("old-read-west"),
            "foo-read-east": make_observed("foo-read-east", metadata={}),
        },
        rules={"west-1": {}},
        unread_servers=("east-1",),
    )
    return make_plan("acme", bundle, world)


def dump_plan() -> str:
    return saved.dump(
        saved.SavedPlan(
            plan=saved.to_dict(rich_plan()),
            topology_file="t.yaml",
            topology_text="version: 1\n",
            lab="acme",
            adopt=("x",),
        )
    )


def test_a_saved_plan_reads_back_as_it_was() -> None:
    loaded = saved.parse(dump_plan(), "plan.json")
    saved.require_same(rich_plan(), loaded.plan)
    assert (loaded.lab, loaded.adopt, loaded.topology_file) == ("acme", ("x",), "t.yaml")


def test_a_plan_is_saved_as_the_same_text_each_time() -> None:
    assert dump_plan() == dump_plan()


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "version: 1", '{"format": 1}', "[" * 100_000])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="is not a plan file"):
        saved.parse(text, "plan.json")


def test_what_is_blocked_is_saved_as_in_earlier_versions() -> None:
    (blocked,) = saved.to_dict(rich_plan())["blocked"]
    assert list(blocked) == ["name", "region", "reason", "hint"]


def test_an_edited_plan_is_refused() -> None:
    data = json.loads(dump_plan())
    data["plan"]["changes"][0]["config"]["max_msgs"] = 1
    with pytest.raises(PlanError, match="was changed after it was written"):
        saved.parse(json.dumps(data), "plan.json")


def test_another_format_is_refused() -> None:
    data = json.loads(dump_plan())
    data["format"] = 99
    with pytest.raises(PlanError, match="has format 99"):
        saved.parse(json.dumps(data), "plan.json")


OTHER_FIELDS: list[dict[str, Any]] = [{"risk": Risk.DATA_LOSS}, {"why": "for another reason"}, {"after": 6}]


@pytest.mark.parametrize("other", OTHER_FIELDS, ids=str)
def test_another_change_of_a_field_is_not_what_was_reviewed(other: dict[str, Any]) -> None:
    plan = rich_plan()
    update = next(change for change in plan.changes if isinstance(change, Update))
    changed = replace(update, fields=(replace(update.fields[0], **other), *update.fields[1:]))
    changes = tuple(changed if change is update else change for change in plan.changes)
    with pytest.raises(StalePlanError, match="plans other changes"):
        saved.require_same(replace(plan, changes=changes), read_back(plan))


def test_what_is_measured_each_time_may_be_another() -> None:
    plan = rich_plan()
    changes = []
    for change in plan.changes:
        changes.append(replace(change, messages=7, consumers=7) if isinstance(change, Delete) else change)
    assert changes != [*plan.changes]
    saved.require_same(replace(plan, changes=tuple(changes), answering_region="east"), read_back(plan))


def test_a_plan_against_other_servers_is_stale() -> None:
    with pytest.raises(StalePlanError, match="the servers have changed"):
        saved.require_same(replace(rich_plan(), observed_digest="another"), read_back(rich_plan()))
