"""`vstream region failback` that is killed before the lab has started the region's servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import typer

from tests.support.command import vstream
from tests.support.lost_region import document
from tests.support.plans import as_server_plan
from vstream.apply import region_change
from vstream.apply.pipeline import AppliedPlan, ApplyEnd
from vstream.apply.region_change import PlannedChange
from vstream.apply.result import ApplyResult
from vstream.cli import apply, region_failback, region_steps, shared_steps
from vstream.cli.failures import report_failure
from vstream.errors import LabError, RefusedError, VstreamError
from vstream.lab import lifecycle
from vstream.lab.status import LabStatus
from vstream.lint.check_topology import check_topology
from vstream.plan import pipeline
from vstream.plan.model import Blocked, Delete, FieldChange, Plan, Update
from vstream.plan.risk import Risk
from vstream.plan.topology_edit import TopologyEdit
from vstream.servers.find_servers import Servers
from vstream.servers.server_plan import ServerPlan
from vstream.topology.model import Role, Topology
from vstream.topology.stream_config import STREAM_KEY, StreamConfig

TOPOLOGY = check_topology(document("lost", 1).encode(), "lost.yaml").require()


def test_the_file_says_lost_until_the_lab_has_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lost.yaml"
    lost = document("lost", 1).replace("  west:\n", "  west:\n    lost: {prices: central}\n")
    file.write_text(lost)
    started: list[str] = []

    async def die(_lab: str, topology: Topology, *_: object, **__: object) -> None:
        started.extend(region.name for region in topology.regions)
        raise LabError("killed")

    monkeypatch.setattr(lifecycle, "up", die)
    stopped = LabStatus(name="lost", topology="lost", directory=tmp_path, servers=(), links=None)
    plans = [_plan_deletion("foo"), _plan_deletion("prices"), _plan_deletion("prices")]

    async def plan(*_: object, **__: object) -> ServerPlan:
        return as_server_plan(plans.pop(0), TOPOLOGY)

    monkeypatch.setattr(
        region_change, "find_and_trust_servers", lambda *_: Servers(endpoints={}, lab="lost", description="lab lost")
    )
    monkeypatch.setattr(region_change, "make_server_plan", plan)
    monkeypatch.setattr(region_change, "read_lab_status", lambda *_: stopped)
    # What is refused is refused before a server starts.
    for error, problem in ((RefusedError, "foo-read-east"), (LabError, "killed"), (LabError, "killed")):
        with pytest.raises(error, match=problem):
            region_failback.command(
                "west", file, yes=True, gate_timeout=1, ship_with=None, output_format="text", lab=None, templates=None
            )
        assert file.read_text() == lost
        assert started == (["west", "central", "east"] if error is LabError else [])
        started.clear()


def test_a_rehearsal_of_what_cannot_be_tried_shows_nothing(tmp_path: Path) -> None:
    file = tmp_path / "lost.yaml"
    file.write_text(document("lost", 1))
    assert vstream("survive", file, "--failure", "zone", "--rehearse", cwd=tmp_path).code == 3
    refused = vstream("survive", file, "--failure", "zone", "--rate", "50", cwd=tmp_path)
    assert (refused.code, "add `--rehearse`" in " ".join(refused.err.split())) == (2, True)


def test_what_nobody_answered_for_is_not_said_to_differ(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silent = Blocked(name="foo", region="east", reason="", hint="", is_unanswered=True)
    plan = Plan(topology="lost", observed_digest="", blocked=(silent,))
    with pytest.raises(VstreamError, match="nobody answered for `foo`") as caught:
        pipeline.require_nothing_else(plan)
    assert report_failure(caught.value) == 3
    for blocked, code in ((silent,), 3), ((silent, replace(silent, name="bar", is_unanswered=False)), 1):
        with pytest.raises(typer.Exit) as ended:
            region_steps.report_end_or_exit(_as_change(replace(plan, blocked=blocked)), "in again")
        assert ended.value.exit_code == code
    planned = as_server_plan(plan, TOPOLOGY)

    async def make_plan(*_: object, **__: object) -> ServerPlan:
        return planned

    monkeypatch.setattr(apply, "_plan", make_plan)
    with pytest.raises(typer.Exit) as ended:
        apply.command(tmp_path / "lost.yaml")
    assert ended.value.exit_code == 3
    assert _as_applied(plan).outcome is ApplyEnd.UNANSWERED
    shared_steps.report_applied(_as_applied(plan), is_verbose=False)
    assert "differ" not in capsys.readouterr().err
    with pytest.raises(RefusedError):
        pipeline.require_nothing_else(replace(plan, blocked=(silent, replace(silent, name="bar", is_unanswered=False))))


def test_what_left_the_topology_is_not_deleted_when_a_region_rests_or_returns() -> None:
    pipeline.require_no_other_losses(_plan_deletion("prices"), TOPOLOGY)  # a copy where the home moves to
    for virtual in ("foo", "bar"):
        with pytest.raises(RefusedError, match=f"`{virtual}-read-east` would lose messages"):
            pipeline.require_no_other_losses(_plan_deletion(virtual), TOPOLOGY)


def _as_applied(remaining: Plan) -> AppliedPlan:
    return AppliedPlan(planned=as_server_plan(remaining, TOPOLOGY), result=ApplyResult(), remaining=remaining)


def _as_change(plan: Plan) -> PlannedChange:
    edit = TopologyEdit(file="lost.yaml", text="", original="", topology=TOPOLOGY)
    return PlannedChange(edit=edit, planned=as_server_plan(plan, TOPOLOGY), report=None)


def _plan_deletion(virtual: str) -> Plan:
    config = StreamConfig(name=f"{virtual}-read-east", fields={"metadata": {STREAM_KEY: virtual}})
    return Plan(
        topology="lost", observed_digest="", changes=(Delete(config=config, region="east", role=Role.READ, messages=9),)
    )


def test_only_sources_that_died_with_the_region_are_dropped() -> None:
    lost = check_topology(
        document("lost", 1).replace("  west:\n", "  west:\n    lost: {prices: central}\n").encode(), "lost.yaml"
    )

    def plan_drop(origin: str) -> Plan:
        dropped = FieldChange(path=f"sources.{origin}", before={}, after=None, risk=Risk.DATA_LOSS, why="")
        config = StreamConfig(name="foo-read-east", fields={})
        change = Update(config=config, region="east", role=Role.READ, fields=(dropped,))
        return Plan(topology="lost", observed_digest="", changes=(change,))

    pipeline.require_no_other_losses(plan_drop("foo-write-west"), lost.require())
    with pytest.raises(RefusedError, match="`foo-read-east` would lose messages"):
        pipeline.require_no_other_losses(plan_drop("foo-write-central"), lost.require())


def test_a_region_is_not_said_to_be_in_again_where_nobody_knows_what_servers_have_loaded() -> None:
    plan = Plan(topology="lost", observed_digest="", unread_servers=("east-1",), desired_rule_count=1)
    with pytest.raises(typer.Exit) as ended:
        region_steps.report_end_or_exit(replace(_as_change(plan), applied=_as_applied(plan)), "in again")
    assert ended.value.exit_code == 3
