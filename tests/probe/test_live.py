"""Probes of a real super-cluster: all green where all is well, and each fault named where it is."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.support import probe_lab
from tests.support.probe_lab import REGIONS, World, bad, of, physical, until
from vstream.errors import VstreamError
from vstream.lint import check_topology
from vstream.probe.pipeline import ProbeOptions, run_probe
from vstream.probe.report import CheckKind, CheckStatus, Progress
from vstream.topology.model import Role

pytestmark = pytest.mark.lab

API = "$JS.API"


def rule(source: str, change: Callable[[str], str]) -> Callable[[str], str]:
    """Change the rule of *source* in the text of a mappings.cfg."""
    block = re.compile(rf"  \"{re.escape(source)}\": \[\n.*?\n  \]\n", re.DOTALL)
    return lambda text: block.sub(lambda found: change(found[0]), text)


def without(source: str) -> Callable[[str], str]:
    return rule(source, lambda _: "")


def cross_rule(source: str) -> Callable[[str], str]:
    """The rule's destinations of west and east, swapped."""
    swap = {"west": "east", "east": "west"}
    return rule(source, lambda text: re.sub(r'cluster: "(west|east)"', lambda m: f'cluster: "{swap[m[1]]}"', text))


async def test_a_healthy_lab_passes_and_canaries_are_removed(world: World) -> None:
    await world.create_all()
    steps: list[Progress] = []
    report = await world.probe(on_progress=steps.append)

    assert bad(report) == {}
    assert report.is_pass
    assert {check.status for check in report.checks} == {CheckStatus.OK}
    assert [step.done for step in steps] == list(range(1, len(report.checks) + 1))
    assert {step.total for step in steps} == {len(report.checks)}
    assert [(check.region, check.subject, check.answered_by) for check in of(report, CheckKind.MAPPING)] == [
        (region, subject, f"foo-write-{region}")
        for region in REGIONS
        for subject in ("foo._vstream_probe", "bar._vstream_probe.baz")
    ]
    assert [check.answered_by for check in of(report, CheckKind.STREAM_INFO)] == [
        f"foo-read-{region}" for region in REGIONS
    ]
    assert {check.detail for check in of(report, CheckKind.DIRECT_GET)} == {"empty stream: the answer names nobody"}
    pairs = [(check.origin, check.region, check.answered_by) for check in of(report, CheckKind.CANARY)]
    assert pairs == [(origin, reader, f"foo-read-{reader}") for origin in REGIONS for reader in REGIONS]
    matrix = report.matrix("foo")
    assert {origin: set(row) for origin, row in matrix.items()} == {origin: set(REGIONS) for origin in REGIONS}
    assert all(ms is not None and ms >= 0 for row in matrix.values() for ms in row.values())
    assert set((await world.messages()).values()) == {0}


async def test_every_form_is_tried_and_nothing_is_left(world: World) -> None:
    await world.create_all()
    subjects = 1030
    for number in range(subjects):
        await world.publish("west", f"foo.{number}")

    async def missing() -> str | None:
        counts = await world.messages()
        return None if all(counts[physical(Role.READ, region)] == subjects for region in REGIONS) else str(counts)

    await until(missing)
    steps: list[Progress] = []
    report = await world.probe(all_forms=True, on_progress=steps.append)
    assert bad(report) == {}
    assert {step.total for step in steps} == {len(report.checks)}
    assert {check.status for check in report.checks} == {CheckStatus.OK}
    for kind in (CheckKind.FORM, CheckKind.PULL, CheckKind.OWN_READ):
        answered = {(check.region, check.answered_by) for check in of(report, kind) if check.answered_by}
        assert answered == {(region, f"foo-read-{region}") for region in REGIONS}
    details = {check.form: check.detail for check in report.checks if check.form}
    assert details["more than 1024 subjects"] == "413"
    assert details["consumer deleted meanwhile"] == "409"
    for region in REGIONS:
        assert (await world.api(f"CONSUMER.NAMES.foo-read-{region}"))["consumers"] == []

    # A form that has a rule of its own, and only that, leads elsewhere.
    await world.load_mappings("west", cross_rule(f"{API}.DIRECT.GET.foo.>"))
    report = await world.probe(all_forms=True)
    failed = {(check.form, check.region): check for check in report.checks if check.status is CheckStatus.FAILED}
    assert set(failed) == {("subject appended", "west")}
    assert "the read stream of region `east`" in failed["subject appended", "west"].detail


@pytest.mark.night
async def test_messages_of_users_stay_and_name_who_answers(world: World) -> None:
    await world.create_all()
    for region in REGIONS:
        await world.publish(region, "foo.data")

    async def missing() -> str | None:
        counts = await world.messages()
        return None if all(counts[physical(Role.READ, region)] == 3 for region in REGIONS) else str(counts)

    await until(missing)
    before = await world.messages()
    report = await world.probe()
    assert bad(report) == {}
    assert [check.answered_by for check in of(report, CheckKind.DIRECT_GET)] == [
        f"foo-read-{region}" for region in REGIONS
    ]
    assert await world.messages() == before


async def test_streams_that_keep_one_message_per_subject(world: World) -> None:
    await world.create_all(changes={f"foo-read-{region}": {"max_msgs_per_subject": 1} for region in REGIONS})
    assert bad(await world.probe()) == {}
    assert bad(await world.probe()) == {}
    assert set((await world.messages()).values()) == {0}


async def test_the_probe_finds_a_mapping_that_one_server_misses(world: World) -> None:
    await world.create_all()
    await world.load_mappings("west", without("foo.>"))
    report = await world.probe()

    assert not report.is_pass
    assert set(bad(report)) == {("mapping", None, "west"), ("canary_publish", "west", "west")}
    check = bad(report)["mapping", None, "west"]
    assert check.subject == "foo._vstream_probe"
    assert check.detail == (
        "no stream listens, although `foo-write-west` exists: "
        "the mapping of `foo.>` is missing on server west-1, or leads nowhere"
    )
    assert "mappings.cfg" in str(check.hint)
    assert report.matrix()["west"] == dict.fromkeys(REGIONS)
    assert None not in report.matrix()["east"].values()
    assert set((await world.messages()).values()) == {0}


async def test_the_probe_finds_a_mapping_that_leads_to_another_region(world: World) -> None:
    await world.create_all()
    await world.load_mappings("west", cross_rule("foo.>"))
    report = await world.probe()

    assert set(bad(report)) == {("mapping", None, "west"), ("canary_publish", "west", "west")}
    check = bad(report)["mapping", None, "west"]
    assert check.answered_by == "foo-write-east"
    assert check.detail == "leads to `foo-write-east`, the write stream of region `east`, not to `foo-write-west`"
    refused = bad(report)["canary_publish", "west", "west"]
    assert refused.detail == ("refused by `foo-write-east`, the write stream of region `east`: nothing was stored")
    assert set((await world.messages()).values()) == {0}


@pytest.mark.night
async def test_the_probe_finds_api_mappings_that_one_server_misses(world: World) -> None:
    await world.create_all()
    await world.load_mappings("central", without(f"{API}.STREAM.INFO.foo"))
    report = await world.probe()
    info = bad(report)["stream_info", None, "central"]
    assert info.detail == (
        "no stream, although `foo-read-central` exists: "
        "the mapping of `$JS.API.STREAM.INFO.foo` is missing on server central-1"
    )
    assert set(bad(report)) == {
        ("stream_info", None, "central"),
        *(("canary", region, "central") for region in REGIONS),
    }

    await world.load_mappings("central", without(f"{API}.DIRECT.GET.foo"))
    report = await world.probe(timeout=6.0)
    get = bad(report)["direct_get", None, "central"]
    assert "the mapping of `$JS.API.DIRECT.GET.foo` is missing on server central-1" in get.detail
    assert set(bad(report)) == {("direct_get", None, "central"), *(("canary", region, "central") for region in REGIONS)}
    assert set((await world.messages()).values()) == {0}


async def test_the_probe_finds_api_mappings_that_lead_to_another_region(world: World) -> None:
    await world.create_all()
    await world.publish("west", "foo.data")

    async def missing() -> str | None:
        counts = await world.messages()
        return None if all(counts[physical(Role.READ, region)] == 1 for region in REGIONS) else str(counts)

    await until(missing)
    before = await world.messages()
    await world.load_mappings("west", cross_rule(f"{API}.DIRECT.GET.foo"))
    report = await world.probe()
    assert bad(report)["direct_get", None, "west"].detail == (
        "answered by `foo-read-east`, the read stream of region `east`, not by `foo-read-west`"
    )
    assert bad(report)["canary", "central", "west"].answered_by == "foo-read-east"

    await world.load_mappings("west", cross_rule(f"{API}.STREAM.INFO.foo"))
    report = await world.probe()
    assert set(bad(report)) == {("stream_info", None, "west"), *(("canary", region, "west") for region in REGIONS)}
    assert bad(report)["stream_info", None, "west"].answered_by == "foo-read-east"
    assert await world.messages() == before


async def test_the_probe_finds_a_write_stream_that_is_gone(world: World) -> None:
    await world.create_all(without=["foo-write-west"])
    report = await world.probe()
    assert set(bad(report)) == {("mapping", None, "west"), ("canary_publish", "west", "west")}
    check = bad(report)["mapping", None, "west"]
    assert check.detail == "no stream listens: `foo-write-west` does not exist"
    assert "vstream apply" in str(check.hint)


async def test_the_probe_finds_a_write_stream_that_does_not_listen(world: World) -> None:
    await world.create_all(changes={"foo-write-west": {"subjects": ["_vs.elsewhere.>"]}})
    check = bad(await world.probe())["mapping", None, "west"]
    assert check.detail == (
        "no stream listens: `foo-write-west` exists, but does not listen on `_vs.foo.west.bar._vstream_probe.baz`"
    )


async def test_the_probe_finds_a_read_stream_that_is_gone(world: World) -> None:
    await world.create_all(without=["foo-read-east"])
    report = await world.probe()
    assert set(bad(report)) == {
        ("stream_info", None, "east"),
        ("direct_get", None, "east"),
        *(("canary", region, "east") for region in REGIONS),
    }
    assert bad(report)["stream_info", None, "east"].detail == "no stream: `foo-read-east` does not exist"
    assert bad(report)["direct_get", None, "east"].detail == "nobody answers: `foo-read-east` does not exist"
    assert "`foo-read-east` cannot be read: no stream" in bad(report)["canary", "west", "east"].detail
    assert set((await world.messages()).values()) == {0}


async def test_the_probe_finds_a_read_stream_that_refuses_direct_get(world: World) -> None:
    await world.create_all(changes={"foo-read-east": {"allow_direct": False}})
    await world.sourcing()
    report = await world.probe(timeout=6.0, all_forms=True)
    assert set(bad(report)) == {("direct_get", None, "east"), *(("canary", region, "east") for region in REGIONS)}
    skipped = {check.detail for check in of(report, CheckKind.FORM) if check.region == "east"}
    assert skipped == {"no stream answers Direct Get: see the direct_get check of this region"}
    check = bad(report)["direct_get", None, "east"]
    assert check.detail == "no answer: `allow_direct` of `foo-read-east` is off"
    assert "creates" not in (check.hint or "")
    # They did arrive there, and were removed although the probe never saw them.
    removed = [check.detail for check in of(report, CheckKind.CLEANUP) if check.answered_by == "foo-read-east"]
    assert removed == ["removed sequence 1, 2, 3"]
    assert set((await world.messages()).values()) == {0}


async def test_the_probe_finds_a_source_that_one_read_stream_misses(world: World) -> None:
    sources = [source for source in world.config("foo-read-east")["sources"] if source["name"] != "foo-write-west"]
    await world.create_all(changes={"foo-read-east": {"sources": sources}})
    await world.sourcing()
    report = await world.probe(timeout=6.0)
    assert set(bad(report)) == {("canary", "west", "east")}
    check = bad(report)["canary", "west", "east"]
    assert check.detail == (
        "sequence 1 of `foo-write-west` did not arrive in `foo-read-east`, which does not source `foo-write-west`"
    )
    assert report.matrix()["west"]["east"] is None
    assert sum(ms is not None for row in report.matrix().values() for ms in row.values()) == 8
    assert set((await world.messages()).values()) == {0}


async def test_what_cannot_be_removed_is_named(world: World) -> None:
    await world.create_all(changes={"foo-read-east": {"deny_delete": True}})
    report = await world.probe()
    assert set(bad(report)) == {("cleanup", None, "east")}
    check = bad(report)["cleanup", None, "east"]
    assert check.status is CheckStatus.FAILED
    assert check.detail == (
        "canaries at sequence 1, 2, 3 of `foo-read-east` could not be removed: message delete not permitted (500/10057) "
        "on `$JS.API.STREAM.MSG.DELETE.foo-read-east`"
    )
    assert "nats stream rmm foo-read-east 2" in str(check.hint)
    assert {name: count for name, count in (await world.messages()).items() if count} == {"foo-read-east": 3}


async def test_only_the_chosen_regions_publish_and_all_are_cleaned(world: World) -> None:
    await world.create_all()
    report = await world.probe(regions=["west"])
    assert bad(report) == {}
    assert report.regions == ("west",)
    assert list(report.matrix()) == ["west"]
    assert {check.answered_by for check in of(report, CheckKind.CLEANUP)} == {
        "foo-write-west",
        *(f"foo-read-{region}" for region in REGIONS),
    }
    assert set((await world.messages()).values()) == {0}
    with pytest.raises(VstreamError, match="the topology has no region `wst`"):
        await world.probe(regions=["wst"])


async def test_canaries_are_removed_in_a_region_that_the_topology_leaves_out(world: World) -> None:
    await world.create_all()
    without_east = probe_lab.TOPOLOGY.replace(b", east: {servers: 1}", b"")
    fewer = check_topology.check_topology(without_east, "fewer.yaml").require()
    report = await run_probe(fewer, world.connections, ProbeOptions(timeout=45.0))
    assert bad(report) == {}
    assert ("east", "foo-read-east") in {(check.region, check.answered_by) for check in of(report, CheckKind.CLEANUP)}
    assert set((await world.messages()).values()) == {0}
