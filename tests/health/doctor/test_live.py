"""`vstream doctor` on real servers: each fault that `lag: 0` hides is made, found and named; a healthy lab has none."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support import probe_lab
from tests.support.chaos_lab import background, wait_until_copied
from tests.support.command import vstream
from tests.support.probe_lab import LAB, REGIONS, World, topology, until
from vstream.cli import server_configs
from vstream.errors import VstreamError
from vstream.findings import Finding
from vstream.health.doctor import CHECKS
from vstream.health.doctor.examine import Diagnosis, Health, examine
from vstream.health.live.collect import collect_snapshot
from vstream.health.repair.live import refill
from vstream.health.repair.sourcing import HeldMessage, LostEnd, Refill
from vstream.jetstream import direct
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.source_header import origin_of
from vstream.lab.endpoints import list_endpoints
from vstream.lab.state import lab_directory
from vstream.servers.find_servers import find_and_trust_servers

KEPT = 40
"""Seconds that a write stream keeps messages which no other region can take."""

pytestmark = pytest.mark.lab


async def look(world: World) -> Diagnosis:
    facts = await collect_snapshot(topology(), list_endpoints(LAB), timeout=15, is_deep=True)
    return examine(
        topology(),
        world.bundle,
        facts,
        server_configs.read_configs(topology(), find_and_trust_servers(topology(), LAB), None),
    )


async def until_found(
    world: World, *codes: str, perhaps: frozenset[str] = frozenset(), within: float = 90
) -> dict[str, list[Finding]]:
    """The findings by code, once they are of *codes* and no others: what is young may be silent for a moment."""
    deadline = time.monotonic() + within
    while True:
        result: dict[str, list[Finding]] = {}
        for finding in (await look(world)).findings:
            result.setdefault(finding.code, []).append(finding)
        if set(result) - perhaps == set(codes) - perhaps:
            return result
        assert time.monotonic() < deadline, [
            (code, result[code][0].message, result[code][0].evidence) for code in result
        ]
        await asyncio.sleep(0.5)


async def fill_regions(world: World, number: int = 3) -> None:
    for region in REGIONS:
        for _ in range(number):
            await world.publish(region, f"foo.{region}")


async def wait_until_arrived(world: World, number: int, *regions: str) -> None:
    """Return once the read streams of *regions*, or of all, hold *number* messages."""

    async def missing() -> str | None:
        counts = await world.messages()
        return None if all(counts[f"foo-read-{region}"] >= number for region in regions or REGIONS) else str(counts)

    await until(missing, within=90)


def sources(world: World, name: str) -> list[dict[str, Any]]:
    return [dict(source) for source in world.config(name)["sources"]]


async def test_a_healthy_lab_has_no_findings(world: World) -> None:
    await world.create_all()
    await fill_regions(world)
    await wait_until_arrived(world, 9)
    await until_found(world)
    seen = await look(world)
    assert seen.health is Health.HEALTHY
    assert (seen.servers, seen.streams) == (3, 6)


@pytest.mark.night
async def test_the_layout_that_doubles(world: World) -> None:
    blog = {
        "subject_transform": {"src": "_vs.foo.*.>", "dest": ">"},
        "sources": [{"name": f"foo-write-{region}", "filter_subject": f"_vs.foo.{region}.>"} for region in REGIONS],
    }
    await world.create_all(changes={"foo-read-east": blog})
    findings = await until_found(world, "VD101")
    assert [finding.about for finding in findings["VD101"]] == ["foo-read-east"]
    assert "2.15.1" in findings["VD101"][0].evidence


async def test_messages_that_were_skipped(world: World) -> None:
    """Whatever the cause, here a source that leaves out a subject: servers go on, and say `lag: 0`."""
    narrow = [
        source | {"subject_transforms": [{"src": "_vs.foo.west.foo.>", "dest": "foo.>"}]}
        if source["name"] == "foo-write-west"
        else source
        for source in sources(world, "foo-read-east")
    ]
    await world.create_all(changes={"foo-read-east": {"sources": narrow}})
    await world.publish("west", "foo.a")
    await world.publish("west", "bar.left-out.baz")
    await world.publish("west", "bar.left-out.baz")
    await world.publish("west", "foo.b")
    findings = await until_found(world, "VD204", "VD509")
    (finding,) = findings["VD204"]
    assert finding.about == "foo-read-east"
    assert "sequences 2 to 3 of `foo-write-west`" in finding.evidence
    assert "`lag: 0`" in finding.evidence


@pytest.mark.night
async def test_doctor_finds_a_write_stream_that_has_lost_its_end(world: World, tmp_path: Path) -> None:
    """Power was lost where it was written; the other regions have taken what is gone."""
    await world.create_all()
    await fill_regions(world, 2)
    await wait_until_arrived(world, 6)
    file = tmp_path / "topology.yaml"
    file.write_bytes(probe_lab.TOPOLOGY)
    with background(file, "power-loss", "west", "--lose", "10s", "--yes-really", "--lab", LAB) as tool:
        await wait_until_copied(tool, LAB)
        for number in range(3):
            await world.connections["west"].request(
                f"foo.lost.{number}", b"%d" % number, headers={"Nats-Msg-Id": f"id-{number}"}
            )
        await wait_until_arrived(world, 9, "central", "east")
        assert tool.wait(120) == 0
    healed = vstream("chaos", "heal", "--lab", LAB)
    assert healed.code == 0, healed.err
    findings = await until_found(world, "VD301", within=120)
    assert {finding.about for finding in findings["VD301"]} == {"foo-write-west"}
    evidence = " ".join(finding.evidence for finding in findings["VD301"])
    assert "`foo-read-east` has taken sequence 5 of `foo-write-west`, which ends at 2" in evidence
    assert "`lag: 0`" in evidence
    await repair_messages(world, file)


async def repair_messages(world: World, file: Path) -> None:
    """Of the three messages, one is with nobody any more, as if it had been a canary."""
    for region in ("central", "east"):
        (seq,) = [seq for seq, origin in (await read_lost(world, region)).items() if origin[:2] == ("foo.lost.1", b"1")]
        await world.api(f"STREAM.MSG.DELETE.foo-read-{region}", {"seq": seq})
    shown = vstream("repair", "messages", file, "--lab", LAB)
    assert shown.code == 1, shown.err
    assert (
        "refill  foo-write-west in west: it ends at 2, and foo-read-central, foo-read-east have sourced up to 5"
        in shown.out
    )
    assert "publish 2 messages again, from foo-read-central" in shown.out
    assert "and an empty one on `foo._canary.west` for sequence 4" in shown.out
    assert (await world.api("STREAM.INFO.foo-write-west"))["state"]["last_seq"] == 2
    asked = vstream("repair", "messages", file, "--lab", LAB, "--format", "json").json()
    assert [(refill["origin"], refill["copies"], refill["absent"]) for refill in asked["refills"]] == [
        ("foo-write-west", 2, [4])
    ]

    done = vstream("repair", "messages", file, "--lab", LAB, "--yes")
    assert done.code == 0, done.err
    assert (await world.api("STREAM.INFO.foo-write-west"))["state"]["last_seq"] == 5
    # What is published now arrives everywhere, and where they were lost, the lost ones are back as they were.
    await world.connections["west"].request("foo.lost.3", b"3")
    expected = {("foo.lost.0", b"0", 3, "id-0"), ("foo.lost.2", b"2", 5, "id-2"), ("foo.lost.3", b"3", 6, None)}

    async def missing() -> str | None:
        stored = {region: set((await read_lost(world, region)).values()) for region in REGIONS}
        return None if all(each == expected for each in stored.values()) else str(stored)

    await until(missing, within=90)
    again = vstream("repair", "messages", file, "--lab", LAB)
    assert (again.code, again.out) == (
        0,
        "Nothing to repair (checked: clear, resync, refill, replay, delete).\n",
    )


async def test_what_was_published_after_an_end_was_lost_is_seen(world: World) -> None:
    """What readers took stands here in their place; on the servers, it takes a power loss to come to this."""
    await world.create_all()
    began = datetime.now(UTC).isoformat()
    for number, data in ((1, b"1"), (2, b"2"), (3, b"another"), (4, b"one more")):
        await world.connections["west"].request(f"foo.{number}", data)
    end = LostEnd(
        virtual="foo", origin="foo-write-west", place="west", last=4, last_taken=5, readers=("foo-read-east",)
    )
    held = {
        number: HeldMessage(
            seq=number,
            reader="foo-read-east",
            message=DirectMessage(
                stream="foo-read-east",
                seq=number,
                subject=f"foo.{number}",
                stored_at=began,
                headers={},
                data=b"%d" % number,
            ),
        )
        for number in range(1, 6)
    }
    assert await refill._find_rewritten(topology(), end, held, world.connections) == 3
    # Readers that keep the last of each subject hold nothing to compare it with; but they took 5 before 4 was published.
    last_held = {number: held[number] for number in (1, 5)}
    assert await refill._find_rewritten(topology(), end, last_held, world.connections) == 4
    later = replace(held[5].message, stored_at=datetime.now(UTC).isoformat())
    last_held[5] = replace(held[5], message=later)
    assert await refill._find_rewritten(topology(), end, last_held, world.connections) is None
    blocked = Refill(lost=end, messages=(held[5],), absent=(), filler=None, first_conflict=3).obstacle
    assert blocked is not None
    assert "from sequence 3 to 4 it holds other messages than its readers took" in blocked
    # Nor is anything published where it does not belong.
    wrong = Refill(
        lost=replace(end, last=2), messages=tuple(held.values()), absent=(), filler=None, first_conflict=None
    )
    with pytest.raises(VstreamError, match="did not take sequence 3: wrong last sequence: 4; 0 of 3 lost messages"):
        await refill.publish_lost_end(wrong, world.connections["west"], lambda *_: None)
    assert (await world.messages())["foo-write-west"] == 4


async def read_lost(world: World, region: str) -> dict[int, tuple[str, bytes, int, str | None]]:
    """By its sequence there, what a region holds on `foo.lost.>`: subject, payload, sequence at its origin, message id."""
    result: dict[int, tuple[str, bytes, int, str | None]] = {}
    connection, seq = world.connections[region], 1
    while (message := await direct.get_next(connection, f"foo-read-{region}", "foo.lost.>", seq)) is not None:
        origin = origin_of(message.headers, ("foo-write-west",), reader=f"foo-read-{region}")[1]
        assert origin is not None
        result[message.seq] = (message.subject, message.data, origin, message.headers.get("Nats-Msg-Id"))
        seq = message.seq + 1
    return result


@pytest.mark.night
async def test_doctor_finds_a_source_that_begins_again(world: World) -> None:
    """It is changed without `opt_start_seq`, and takes everything once more: only the origin knows that nothing is new."""
    await world.create_all()
    await fill_regions(world)
    await wait_until_arrived(world, 9)
    config = world.config("foo-read-east")
    narrow = [
        source | {"subject_transforms": [{"src": "_vs.foo.west.foo.>", "dest": "foo.>"}]}
        if source["name"] == "foo-write-west"
        else source
        for source in config["sources"]
    ]
    await world.api("STREAM.UPDATE.foo-read-east", {**config, "sources": narrow})
    await wait_until_arrived(world, 12, "east")
    (finding,) = (await until_found(world, "VD205", "VD509"))["VD205"]
    assert finding.about == "foo-read-east"
    assert finding.evidence == "after sequence 3 of `foo-write-west` it took sequence 1 again"


@pytest.mark.night
async def test_an_origin_that_was_made_anew_is_no_repeat(world: World) -> None:
    await world.create_all()
    await fill_regions(world)
    await wait_until_arrived(world, 9)
    await world.api("STREAM.DELETE.foo-write-west")
    await world.api("STREAM.CREATE.foo-write-west", world.config("foo-write-west"))
    for number in range(4):
        await world.connections["west"].request(f"foo.new.{number}", b"%d" % number)
    await wait_until_arrived(world, 13)
    # Readers took sequence 1 of it twice, of two streams: what they hold is looked at, and nothing is said.
    assert (await world.messages())["foo-write-west"] == 4
    assert await until_found(world) == {}
    assert [finding.code for finding in (await look(world)).findings if finding.code == "VD205"] == []


async def test_doctor_finds_a_server_with_other_rules(world: World) -> None:
    await world.create_all()
    await world.load_mappings("central", lambda text: text.replace("_vs.foo.east.foo.>", "_vs.fooo.east.foo.>"))
    findings = await until_found(world, "VD402")
    (finding,) = findings["VD402"]
    assert finding.about == "`central-1`"
    assert "`foo.>`" in finding.evidence
    await world.restore_mappings()
    await until_found(world)


@pytest.mark.night
async def test_doctor_finds_a_stream_in_the_wrong_cluster(world: World) -> None:
    await world.create_all(changes={"foo-read-east": {"placement": {"cluster": "west"}}})
    findings = await until_found(world, "VD501")
    (finding,) = findings["VD501"]
    assert finding.about == "foo-read-east"
    assert "`west`" in finding.evidence


async def test_doctor_finds_a_dead_source_and_a_stream_that_is_gone(world: World) -> None:
    dead = [
        source | {"name": "foo-write-wst"} if source["name"].endswith("west") else source
        for source in sources(world, "foo-read-east")
    ]
    await world.create_all(without=["foo-read-west"], changes={"foo-read-east": {"sources": dead}})
    findings = await until_found(world, "VD202", "VD502")
    assert findings["VD502"][0].about == "`foo-read-west`"


@pytest.mark.night
async def test_doctor_finds_a_region_that_is_cut_off(world: World, tmp_path: Path) -> None:
    """Every server answers, and every stream has a leader. What is published waits, and is dropped when it is too old."""
    await world.create_all(changes={"foo-write-west": dict.fromkeys(("max_age", "duplicate_window"), KEPT * 10**9)})
    await fill_regions(world, 1)
    await wait_until_arrived(world, 3)
    file = tmp_path / "topology.yaml"
    file.write_bytes(probe_lab.TOPOLOGY)
    cut = vstream("chaos", "isolate", "west", "--topology", file, "--lab", LAB)
    assert cut.code == 0, cut.err
    try:
        await world.publish("west", "foo.late")
        late = await until_found(world, "VD303", perhaps=frozenset({"VD201", "VD401", "VD406"}), within=KEPT)
        thin = vstream("status", file, "--lab", LAB, "--format", "json").json()["margin"]
        findings = await until_found(world, "VD201", "VD302", "VD401", "VD406", within=KEPT + 60)
    finally:
        healed = vstream("chaos", "heal", "--lab", LAB)
    assert healed.code == 0, healed.err
    # West hears nothing of the others; they have lost what they did not hear in time.
    assert {finding.about for finding in findings["VD201"]} == {"foo-read-west"}
    assert any("takes nothing from `foo-write-east`" in finding.evidence for finding in findings["VD201"])
    assert {finding.about for finding in findings["VD302"]} == {"foo-read-central", "foo-read-east"}
    assert all("`foo-write-west` has dropped 1 sequences" in finding.evidence for finding in findings["VD302"])
    assert {finding.about for finding in findings["VD401"]} == {"west-1", "central-1", "east-1"}
    assert {finding.about for finding in late["VD303"]} == {"foo-write-west"}
    assert (thin["origin"], thin["kept_s"]) == ("foo-write-west", KEPT)
    assert thin["margin_s"] < KEPT / 2
    # What was dropped is gone in both; then they are past it.
    await until_found(world, perhaps=frozenset({"VD302"}), within=180)
    await world.publish("west", "foo.after")
    await until_found(world, within=180)


async def test_drift_reports_what_was_changed_by_hand(world: World, tmp_path: Path) -> None:
    await world.create_all()
    file = tmp_path / "topology.yaml"
    file.write_bytes(probe_lab.TOPOLOGY)
    none = vstream("plan", "--drift", file, "--lab", LAB)
    assert none.code == 0, none.out + none.err
    assert "NO DRIFT: 6 streams and the rules of 3 servers compared, 3 configuration files with what" in none.out
    # Files that were deployed elsewhere are compared, too; what cannot be is said, and is no drift.
    conf = lab_directory(LAB).conf
    with_configs = vstream("plan", "--drift", file, "--lab", LAB, "--configs", conf)
    assert with_configs.code == 0, with_configs.out + with_configs.err
    (tmp_path / "servers").mkdir()
    for name in ("west-1", "central-1"):
        (tmp_path / "servers" / f"{name}.conf").write_text((conf / "servers" / f"{name}.conf").read_text())
    for file_of_all in conf.glob("*.cfg"):
        (tmp_path / file_of_all.name).write_text(file_of_all.read_text())
    lacking = vstream("plan", "--drift", file, "--lab", LAB, "--configs", tmp_path)
    assert lacking.code == 3, lacking.out + lacking.err
    assert "UNKNOWN: no difference was found, but not everything could be compared" in lacking.out
    assert "east-1.conf" in lacking.out
    (tmp_path / "mappings.cfg").write_text("mappings {}")
    edited = vstream("plan", "--drift", file, "--lab", LAB, "--configs", tmp_path, "--format", "json")
    assert edited.code == 1
    answer = edited.json()
    assert {finding["about"] for finding in answer["findings"]} == {"west-1", "central-1"}
    assert {finding["code"] for finding in answer["findings"]} == {"VD410"}
    assert answer["configs_compared"] == 2
    assert [unread["server"] for unread in answer["configs_unread"]] == ["east-1"]
    nothing = vstream("doctor", file, "--lab", LAB, "--configs", conf / "streams")
    assert nothing.code == 3
    assert "west-1.conf, or servers/west-1.conf" in nothing.err
    await world.api("STREAM.UPDATE.foo-write-west", {**world.config("foo-write-west"), "max_age": 1800 * 10**9})
    await world.load_mappings("central", lambda text: text.replace("_vs.foo.east.foo.>", "_vs.fooo.east.foo.>"))
    ran = vstream("plan", "--drift", file, "--lab", LAB, "--format", "json")
    assert ran.code == 1, ran.err
    answer = ran.json()
    assert answer["drift"]
    assert [change["name"] for change in answer["plan"]["changes"]] == ["foo-write-west"]
    assert [mapping["servers"] for mapping in answer["plan"]["mappings"]] == [["central-1"]]
    shown = vstream("plan", "--drift", file, "--lab", LAB)
    assert shown.code == 1
    assert "max_age" in shown.out
    assert "central-1" in shown.out


async def test_beacons_show_how_late_readers_are(world: World, tmp_path: Path) -> None:
    await world.create_all()
    file = tmp_path / "topology.yaml"
    file.write_bytes(probe_lab.TOPOLOGY)

    def beacon() -> dict[str, Any]:
        ran = vstream("probe", "--beacons", file, "--lab", LAB, "--format", "json")
        assert ran.code == 0, ran.err
        answer: dict[str, Any] = ran.json()
        assert answer["problems"] == []
        return answer

    first = beacon()["beacons"]
    assert len(first) == 9
    assert {entry["problem"] for entry in first} == {"there is none"}
    await wait_until_arrived(world, 3)
    again = beacon()["beacons"]
    assert all(0 <= entry["age_s"] < 120 for entry in again), again
    assert {(entry["origin"], entry["reader"]) for entry in again} == {(a, b) for a in REGIONS for b in REGIONS}
    shown = vstream("status", file, "--lab", LAB)
    assert "newest beacon: published in → found in" in shown.out
    assert "outage margin 1 h" in shown.out
    seen = vstream("status", file, "--lab", LAB, "--format", "json").json()["beacons"]
    assert {(entry["origin"], entry["reader"]) for entry in seen if entry["age_s"] is not None} == {
        (a, b) for a in REGIONS for b in REGIONS
    }
    exported = vstream("export", file, "--lab", LAB, "--once").out
    assert exported.count("\nvstream_beacon_age_seconds{") == 9
    assert exported.count("\nvstream_pair_kept_seconds{") == 9
    # They stay, and are no users' messages that went missing.
    await wait_until_arrived(world, 6)
    await until_found(world)
    # Where a region's mapping leads elsewhere, none is published there.
    await world.load_mappings("central", lambda text: text.replace("_vs.foo.central.foo.>", "_vs.fooo.central.foo.>"))
    refused = vstream("probe", "--beacons", file, "--lab", LAB)
    assert refused.code == 1
    assert "foo in central" in refused.err


def test_codes_are_unique_and_in_order() -> None:
    codes = [page.code for page in CHECKS]
    assert codes == sorted(set(codes))
