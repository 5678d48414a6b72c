"""The straight line on real servers: lab up, plan, apply, plan again, probe, change, remove."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.command import environment, vstream
from tests.support.labs import processes_in
from tests.support.night import with_night
from tests.support.paths import ROOT
from tests.support.topologies import begin_topology
from vstream.lab.state import lab_directory

pytestmark = pytest.mark.lab

SETUPS = with_night(
    [("blog", "2.10.26")],
    [
        ("isolated", "2.15.1"),
        ("isolated", "2.10.26"),
        ("blog", "2.15.1"),
        *((naming, version) for naming in ("isolated", "blog") for version in ("2.11.11", "2.12.8", "2.14.6")),
    ],
)
EXAMPLES = ROOT / "examples"

SHARED_TOPOLOGY = (
    begin_topology("small", "2.10", west=1, central=1, east=1)
    + """\
defaults: {write: {max_age: 1h}}
streams:
  foo: {subjects: [foo.>], canary: foo._canary.*}
  orders:
    subjects: [orders.*, invoices.>]
    canary: invoices.canary
    description: two roots
    read: {max_age: 30d, max_msgs_per_subject: 5, compression: s2}
    overrides: {east: {read: {max_msgs: 1000}, storage: memory}}
"""
)


@pytest.fixture
def work(state: Path, tmp_path: Path) -> Iterator[Path]:
    """A directory to work in; every lab that was started is taken down at the end."""
    yield tmp_path
    for lab in vstream("lab", "status", "--format", "json").json()["labs"]:
        assert vstream("lab", "down", lab["name"], "--purge").code == 0
    assert processes_in(state) == []


def plan_of(file: Path) -> dict[str, object]:
    plan: dict[str, object] = vstream("plan", file, "--format", "json").json()
    return plan


@pytest.mark.versions
@pytest.mark.parametrize(("naming", "version"), SETUPS)
def test_apply_empty_plan_and_probe_on_every_version(work: Path, naming: str, version: str) -> None:
    file = work / "small.yaml"
    promised = ".".join(version.split(".")[:2])
    file.write_text(SHARED_TOPOLOGY.replace('"2.10"', f'"{promised}"\nnaming: {naming}'))
    up = vstream("lab", "up", file, "--server-version", version)
    assert up.code == 0, up.err
    assert up.out.count(version) == 3
    assert vstream("plan", file, "--detailed-exitcode").code == 2
    applied = vstream("apply", file, "--yes")
    assert applied.code == 0, applied.out + applied.err
    again = vstream("plan", file, "--detailed-exitcode")
    assert again.code == 0, again.out
    probed = vstream("probe", file, "--forms", "--format", "json")
    report = probed.json()
    assert probed.code == 0, probed.out
    older = {check["form"] for check in report["checks"] if check["detail"].startswith("not on this server")}
    assert ({"batch", "multi_last, up_to_time", "start time"} <= older) is (promised == "2.10")
    assert (older == set()) is (promised != "2.10")
    for stream in ("foo", "orders"):
        pairs = {
            (check["origin"], check["region"])
            for check in report["checks"]
            if check["hop"] == "canary" and check["stream"] == stream and check["status"] == "ok"
        }
        assert len(pairs) == 9


def test_the_example_of_the_blog_is_brought_up_applied_and_probed(work: Path) -> None:
    """Nine servers, six streams, a matrix of three by three."""
    file = EXAMPLES / "three-regions.yaml"
    up = vstream("lab", "up", file)
    assert up.code == 0, up.err
    assert up.out.count("running") == 9
    assert "Plan: 6 to create, 0 to update, 0 to delete." in vstream("plan", file).out
    assert "Applied: 6 streams." in vstream("apply", file, "--yes").out
    probed = vstream("probe", file)
    assert probed.code == 0, probed.out
    assert probed.out.count(" ms") == 9 + 2 * 3  # each pair, and each region's own writes in two ways
    assert "PASS" in probed.out
    assert vstream("plan", file, "--detailed-exitcode").code == 0


def test_a_saved_plan_is_carried_out_once(shared_file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert vstream("plan", shared_file, "--output", plan).code == 0
    shared_file.unlink()  # the plan says everything itself
    assert vstream("apply", plan, "--yes").code == 0
    stale = vstream("apply", plan, "--yes")
    assert stale.code == 3
    assert "the servers have changed since the plan was made" in stale.err


def test_a_topology_changes_and_the_servers_follow(shared_file: Path) -> None:
    # Nobody to ask: without --yes nothing happens.
    assert vstream("apply", shared_file).code == 1
    assert "12 to create" in vstream("plan", shared_file).out
    assert vstream("apply", shared_file, "--yes").code == 0

    # A new stream needs new rules on every running server.
    shared_file.write_text(SHARED_TOPOLOGY + "  bar: {subjects: [bar.>], canary: bar._canary.*}\n")
    grown = vstream("apply", shared_file, "--yes")
    assert grown.code == 0, grown.out + grown.err
    assert "mappings.cfg loaded on every server" in grown.out
    assert vstream("probe", shared_file, "-s", "bar").code == 0

    # A limit that removes messages needs to be allowed by name.
    shared_file.write_text(
        SHARED_TOPOLOGY.replace("max_msgs: 1000", "max_msgs: 10")
        + "  bar: {subjects: [bar.>], canary: bar._canary.*}\n"
    )
    refused = vstream("apply", shared_file, "--yes")
    assert refused.code == 1
    assert "--allow-destructive" in refused.err
    assert vstream("apply", shared_file, "--yes", "--allow-destructive").code == 0

    # A storage that servers cannot change is blocked, and nothing else is done meanwhile.
    shared_file.write_text(
        SHARED_TOPOLOGY.replace("storage: memory", "storage: file").replace("two roots", "still two")
    )
    blocked = vstream("apply", shared_file, "--yes", "--allow-destructive", "--allow-many")
    assert blocked.code == 1
    assert "servers cannot change the storage of a stream" in blocked.out
    assert vstream("plan", shared_file).code == 1

    # A stream is removed: rules first, then readers, then what they read.
    shared_file.write_text(SHARED_TOPOLOGY.replace("max_msgs: 1000", "max_msgs: 10"))
    assert vstream("apply", shared_file, "--yes").code == 1
    many = vstream("apply", shared_file, "--yes", "--allow-destructive")
    assert "--allow-many" in many.err
    removed = vstream("apply", shared_file, "--yes", "--allow-destructive", "--allow-many")
    assert removed.code == 0, removed.out + removed.err
    assert vstream("plan", shared_file, "--detailed-exitcode").code == 0


def test_streams_of_others_are_blocked_until_they_are_adopted(shared_file: Path, tmp_path: Path) -> None:
    assert vstream("apply", shared_file, "--yes").code == 0
    other_file = tmp_path / "other.yaml"
    other_file.write_text(SHARED_TOPOLOGY.replace("name: small", "name: other"))
    blocked = vstream("apply", other_file, "--yes", "--lab", "small")
    assert blocked.code == 1
    assert "belongs to the topology `small`" in blocked.out
    misspelt = vstream("plan", other_file, "--lab", "small", "--adopt", "foo")
    assert misspelt.code == 3
    assert "no stream `foo` to adopt" in misspelt.err
    adopted = vstream("apply", other_file, "--yes", "--lab", "small", "--adopt", "all", "--allow-many")
    assert adopted.code == 0, adopted.out + adopted.err
    assert vstream("plan", other_file, "--lab", "small", "--detailed-exitcode").code == 0
    # What was adopted is no longer the first topology's to delete.
    shared_file.write_text(SHARED_TOPOLOGY.partition("streams:")[0])
    assert plan_of(shared_file)["changes"] == []


def test_servers_that_are_older_than_promised_are_refused(work: Path) -> None:
    file = work / "small.yaml"
    file.write_text(SHARED_TOPOLOGY.replace('"2.10"', '"2.12"'))
    assert vstream("lab", "up", file, "--server-version", "2.11.11").code == 0
    ran = vstream("plan", file)
    assert ran.code == 3
    assert "runs 2.11.11" in ran.err


@pytest.mark.night
def test_a_region_that_is_down_is_said_and_nothing_is_created_twice(shared_file: Path) -> None:
    assert vstream("apply", shared_file, "--yes").code == 0
    import psutil  # noqa: PLC0415

    (lab,) = vstream("lab", "status", "--format", "json").json()["labs"]
    east = next(server for server in lab["servers"] if server["name"] == "east-1")
    psutil.Process(east["pid"]).kill()
    for command in ("plan", "apply"):
        ran = vstream(command, shared_file)
        assert ran.code == 3, ran.out + ran.err
        assert "no server answered for it" in ran.out
        assert "0 to create, 0 to update, 0 to delete, 4 blocked" in ran.out
    probed = vstream("probe", shared_file, "--timeout", "6")
    assert probed.code == 1
    assert "east" in probed.out


def test_a_lab_that_has_other_servers_than_the_topology_is_said(shared_file: Path) -> None:
    plain = SHARED_TOPOLOGY.partition("    overrides:")[0]
    regions = "{west: {servers: 1}, central: {servers: 1}, east: {servers: 1}}"
    fewer = plain.replace(regions, "{west: {servers: 1}, east: {servers: 1}}")
    for text, message in (
        (fewer.replace("name: small", "name: other"), "it also has central-1"),
        (plain.replace(regions, regions.replace("1", "2", 1)), "it lacks west-2"),
    ):
        shared_file.write_text(text)
        for command in ("plan", "apply", "probe"):
            ran = vstream(command, shared_file, "--lab", "small", *(["--yes"] if command == "apply" else []))
            assert ran.code == 3, ran.out + ran.err
            assert message in ran.err
    # A region that the lab's own topology has lost: its servers would stop, which has to be allowed.
    shared_file.write_text(fewer)
    assert "server central-1  stops" in vstream("plan", shared_file).out
    ran = vstream("apply", shared_file, "--yes")
    assert ran.code == 1
    assert "--allow-destructive" in ran.err


@pytest.mark.night
def test_apply_waits_for_streams_that_it_has_moved_or_scaled(work: Path) -> None:
    file = work / "scaled.yaml"
    text = """\
version: 1
name: scaled
server_version: "2.12"
regions: {west: {servers: 3, tags: [a, a, a]}}
streams:
  foo: {subjects: [foo.>], canary: foo._canary, replicas: 1, write: {max_age: 1h}}
"""
    file.write_text(text)
    assert vstream("lab", "up", file).code == 0
    assert vstream("apply", file, "--yes").code == 0
    # Servers refuse to scale and to move in one step: that is known before anything is tried.
    file.write_text(text.replace("replicas: 1", "replicas: 3, placement_tags: [a]"))
    both = vstream("apply", file, "--yes")
    assert both.code == 1
    assert "servers refuse to scale and move a stream in one step" in both.out
    for settings in ("replicas: 3", "replicas: 3, placement_tags: [a]", "replicas: 3", "replicas: 1"):
        file.write_text(text.replace("replicas: 1", settings))
        ran = vstream("apply", file, "--yes")
        assert ran.code == 0, ran.out + ran.err
        assert "Applied: 2 streams." in ran.out
        # Not probed: a source whose stream has moved is tried again after 10 s, and then more and more seldom.
        assert vstream("plan", file, "--detailed-exitcode").code == 0


def test_ctrl_c_at_the_question_changes_nothing_and_says_that_it_was_interrupted(shared_file: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "vstream", "apply", shared_file],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stderr is not None
        output = b""
        while b"Apply this plan?" not in output:
            byte = process.stderr.read(1)
            assert byte, output
            output += byte
        # Not in the instant between the question and the reading of the answer: no program that reads then ends by it.
        reader, deadline = psutil.Process(process.pid), time.monotonic() + 60
        while reader.status() != psutil.STATUS_SLEEPING:
            assert time.monotonic() < deadline, reader.status()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    os.close(ours)
    os.close(theirs)
    assert "12 to create" in vstream("plan", shared_file).out


def test_templates_are_used_from_end_to_end_and_apply_changes_no_server_configuration(work: Path) -> None:
    file, templates = work / "small.yaml", work / "my templates"
    file.write_text(SHARED_TOPOLOGY)
    shutil.copytree(ROOT / "templates", templates)
    with (templates / "server.conf.j2").open("a") as server:
        server.write("max_payload: 2MB\n")
    write = templates / "streams" / "write.json.j2"
    write.write_text(write.read_text().replace('"metadata":', '"description": "of a template",\n  "metadata":', 1))
    assert vstream("lab", "up", file, "--templates", templates).code == 0
    saved = work / "plan.json"
    assert vstream("plan", file, "--templates", templates, "--output", saved).code == 0
    assert "`--templates` must be the same" in vstream("apply", saved, "--yes").err
    applied = vstream("apply", saved, "--yes", "--templates", templates)
    assert applied.code == 0, applied.out + applied.err
    assert vstream("plan", file, "--templates", templates, "--detailed-exitcode").code == 0

    # Without the templates other streams are meant, and new mappings; the servers are what they are.
    file.write_text(SHARED_TOPOLOGY.replace("invoices.>]", "invoices.>, bills.*]"))
    changed = vstream("apply", file, "--yes", "--allow-many")
    assert changed.code == 0, changed.out + changed.err
    assert "mappings.cfg loaded on every server" in changed.out
    (lab,) = vstream("lab", "status", "--format", "json").json()["labs"]
    for server in lab["servers"]:
        conf = Path(lab["directory"]) / "conf" / "servers" / f"{server['name']}.conf"
        assert "max_payload: 2MB" in conf.read_text()


@pytest.mark.night
def test_a_lab_that_was_started_again_can_be_planned_at_once(work: Path) -> None:
    file = work / "again.yaml"
    file.write_text(
        """\
version: 1
name: again
server_version: "2.12"
regions: {west: {servers: 3}}
defaults: {write: {max_age: 1h}}
streams:
"""
        + "".join(f"  s{number}: {{subjects: [s{number}.>]}}\n" for number in range(20))
    )
    assert vstream("lab", "up", file).code == 0
    assert vstream("apply", file, "--yes").code == 0
    for _ in range(2):
        assert vstream("lab", "down", "again").code == 0
        assert vstream("lab", "up", file).code == 0
        # Streams of three replicas elect their leaders only after the lab is up.
        planned = vstream("plan", file, "--detailed-exitcode")
        assert planned.code == 0, planned.out


def test_a_lab_whose_record_is_broken_is_in_nobodys_way_and_can_be_removed(shared_file: Path) -> None:
    broken = lab_directory("small").path.parent / "broken"
    broken.mkdir()
    (broken / "lab.json").write_text("{")
    assert vstream("plan", shared_file).code == 0
    ran = vstream("lab", "status")
    assert ran.code == 3
    assert "`vstream lab down broken --purge`" in ran.err
    assert vstream("lab", "down", "broken", "--purge").code == 0
    assert not broken.exists()
    assert vstream("lab", "status").code == 0
