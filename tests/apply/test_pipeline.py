"""What the pipeline refuses to apply, and what it says of how a run ended."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.lost_region import document
from tests.support.plans import as_server_plan
from vstream.apply.pipeline import AppliedPlan, ApplyEnd, apply_and_replan
from vstream.apply.result import ApplyResult, GateTimeout
from vstream.apply.shipping import ShippingOptions
from vstream.errors import RefusedError
from vstream.lint.check_topology import check_topology
from vstream.plan.model import AllowOption, Blocked, Delete, Gate, GateKind, Plan
from vstream.topology.model import Role
from vstream.topology.stream_config import StreamConfig

TOPOLOGY = check_topology(document("lost", 1).encode(), "lost.yaml").require()
DELETION = Delete(config=StreamConfig(name="foo-read-east", fields={}), region="east", role=Role.READ, messages=9)
EMPTY = Plan(topology="lost", observed_digest="")
DELETING = Plan(topology="lost", observed_digest="", changes=(DELETION,))
SILENT = Blocked(name="foo", region="east", reason="", hint="", is_unanswered=True)


def test_a_plan_that_loses_messages_is_refused_where_nobody_has_allowed_it() -> None:
    for allowed in ((), (AllowOption.MANY,)):
        with pytest.raises(
            RefusedError, match=r"needs --allow-destructive \(1 change can lose or duplicate messages\)"
        ):
            asyncio.run(apply_and_replan(as_server_plan(DELETING, TOPOLOGY), ShippingOptions(), allowed=allowed))
    assert not DELETING.unmet_demands([AllowOption.DESTRUCTIVE])
    assert not EMPTY.unmet_demands(())


@pytest.mark.parametrize(
    ("remaining", "end"),
    [
        (EMPTY, ApplyEnd.DONE),
        (
            Plan(topology="lost", observed_digest="", unread_servers=("east-1",), desired_rule_count=1),
            ApplyEnd.RULES_UNKNOWN,
        ),
        (DELETING, ApplyEnd.OPEN),
        (Plan(topology="lost", observed_digest="", blocked=(SILENT,)), ApplyEnd.UNANSWERED),
        (Plan(topology="lost", observed_digest="", blocked=(SILENT,), changes=(DELETION,)), ApplyEnd.OPEN),
        (None, ApplyEnd.FAILED),
    ],
)
def test_what_is_left_says_how_a_run_ended(remaining: Plan | None, end: ApplyEnd) -> None:
    applied = AppliedPlan(planned=as_server_plan(EMPTY, TOPOLOGY), result=ApplyResult(), remaining=remaining)
    assert applied.outcome is end
    assert applied.is_done is (end in {ApplyEnd.DONE, ApplyEnd.RULES_UNKNOWN})


def test_a_gate_that_did_not_hold_leaves_something_to_do() -> None:
    timeout = GateTimeout(
        gate=Gate(kind=GateKind.HAS_ALL_OF_SOURCES, stream="foo-read-east"), missing="it lacks 1 message"
    )
    applied = AppliedPlan(
        planned=as_server_plan(EMPTY, TOPOLOGY), result=ApplyResult(done=(), gate_timeouts=(timeout,)), remaining=None
    )
    assert applied.outcome is ApplyEnd.OPEN
