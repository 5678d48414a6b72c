"""What a doctor makes of facts that are hard to have on real servers: versions, shapes of the meta group, margins."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from scripts.docs import doctor_markdown
from tests.support.paths import ROOT
from tests.support.topologies import begin_topology
from vstream.health.doctor.check import Drift
from vstream.health.doctor.configs import ConfigFile
from vstream.health.doctor.examine import CHAPTER, examine
from vstream.health.snapshot import (
    AccountUsage,
    Lag,
    RegionSnapshot,
    Repeat,
    ServerSnapshot,
    Snapshot,
    SourceSnapshot,
    StreamSnapshot,
    WriteError,
)
from vstream.lint import check_topology
from vstream.plan.rules import spell_destinations
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Topology
from vstream.topology.replication import list_physical_streams, replication_pairs

TEXT = (
    begin_topology("acme", "2.10", west=1, central=1, east=1)
    + """\
streams:
  foo: {subjects: [foo.>], write: {max_age: 1h}}
"""
).encode()
NOW = time.time()
TOPOLOGY: Topology = check_topology.check_topology(TEXT, "acme.yaml").require()
BUNDLE = render_bundle(TOPOLOGY)


def healthy(version: str = "2.15.1", topology: Topology = TOPOLOGY) -> Snapshot:
    bundle = render_bundle(topology)
    configs = {stream.config.name: stream.config.fields for stream in bundle.streams}
    origins: dict[str, list[str]] = {}
    for stream in topology.streams:
        for feed in replication_pairs(stream):
            origins.setdefault(feed.reader.name, []).append(feed.origin.name)
    rules = {mapping.source: spell_destinations(mapping) for mapping in bundle.mappings}
    return Snapshot(
        at=NOW,
        took=0.1,
        account="$G",
        regions=tuple(RegionSnapshot(name=region.name) for region in topology.regions),
        servers=tuple(
            ServerSnapshot(
                name=seat.server.name,
                region=seat.region,
                url="http://127.0.0.1:1",
                cluster=seat.cluster,
                version=version,
                gateways=dict.fromkeys(set(topology.clusters) - {seat.cluster}, 0),
                has_jetstream=True,
                meta_leader="west-1",
                meta_size=len(topology.seats),
                rules=rules,
            )
            for seat in topology.seats
        ),
        streams={
            part.name: StreamSnapshot(
                name=part.name,
                leader=f"{part.place}-1",
                cluster=part.place,
                created="",
                messages=5,
                bytes=50,
                first_seq=1,
                last_seq=5,
                last_at=NOW,
                replicas=1,
                current=1,
                sources=tuple(
                    SourceSnapshot(stream=origin, seq=5, lag=0, heard=0.5, error=None)
                    for origin in origins.get(part.name, ())
                ),
                config=configs[part.name],
            )
            for part in list_physical_streams(topology)
        },
    )


def find_codes(facts: Snapshot) -> set[str]:
    return {finding.code for finding in examine(TOPOLOGY, BUNDLE, facts).findings}


def with_stream(facts: Snapshot, name: str, stream: StreamSnapshot) -> Snapshot:
    return replace(facts, streams={**facts.streams, name: stream})


@pytest.mark.parametrize("version", ["2.10.26", "2.11.11", "2.12.8", "2.14.6", "2.15.1"])
def test_healthy_on_every_version(version: str) -> None:
    assert find_codes(healthy(version)) == set()


@pytest.mark.parametrize(
    ("version", "is_found"),
    [
        ("2.10.26", False),
        ("2.11.11", False),
        ("2.11.12", True),
        ("2.12.2", False),
        ("2.12.3", True),
        ("2.14.6", True),
        ("2.15.1", True),
        ("2.16.0-dev", True),
    ],
)
def test_doctor_finds_the_layout_that_doubles(version: str, is_found: bool) -> None:
    facts = healthy(version)
    stream = facts.streams["foo-read-west"]
    blog = {
        **(stream.config or {}),
        "subject_transform": {"src": "foo.*.>", "dest": "foo.>"},
        "sources": [{"name": "foo-write-east", "filter_subject": "foo.east.>"}],
    }
    assert find_codes(with_stream(facts, stream.name, replace(stream, config=blog))) == (
        {"VD101"} if is_found else set()
    )


@pytest.mark.parametrize(("version", "is_found"), [("2.14.6", True), ("2.15.1", False)])
def test_a_limit_per_subject_can_go_back_before_2_15_only(version: str, is_found: bool) -> None:
    facts = healthy(version)
    stream = facts.streams["foo-read-west"]
    latest = {**(stream.config or {}), "max_msgs_per_subject": 1}
    assert find_codes(with_stream(facts, stream.name, replace(stream, config=latest))) == (
        {"VD102"} if is_found else set()
    )


def test_tails_of_readers_that_are_behind_are_found() -> None:
    pair = ("foo-write-west", "foo-read-east")

    def tail(**more: object) -> set[str]:
        fields = {"last": 5, "first": 1, "cursor": 5, "max_age": 3600.0, **more}
        return find_codes(replace(healthy(), lags={pair: Lag(**fields)}))  # type: ignore[arg-type]

    assert tail() == set()
    assert tail(cursor=8) == {"VD301"}
    assert tail(cursor=2, first=5, oldest_seq=5, oldest_at=NOW - 1) == {"VD302"}
    assert tail(cursor=2, first=5, oldest_seq=5, oldest_at=NOW - 1, is_exact=False) == set()
    assert tail(cursor=4, oldest_seq=5, oldest_at=NOW - 60) == {"VD203"}
    assert tail(cursor=4, oldest_seq=5, oldest_at=NOW - 2400) == {"VD203", "VD303"}
    # A stream that was made anew begins behind what was taken of the one before.
    assert tail(cursor=0, first=5, begins=5, oldest_seq=5, oldest_at=NOW - 1) == set()
    assert tail(cursor=0, first=5, begins=4, oldest_seq=5, oldest_at=NOW - 1) == {"VD302"}
    # What was removed before it was taken is not missed.
    assert tail(cursor=3) == set()


@pytest.mark.parametrize(("version", "expected"), [("2.10.26", set()), ("2.11.11", {"VD201"}), ("2.15.1", {"VD201"})])
def test_doctor_finds_a_source_that_is_not_heard(version: str, expected: set[str]) -> None:
    """Servers before 2.11 count the time since the last message: a quiet source looks like a dead one."""
    facts = healthy(version)
    reader = facts.streams["foo-read-west"]
    for heard in (60.0, None):
        sources = tuple(replace(source, heard=heard) for source in reader.sources)
        assert find_codes(with_stream(facts, reader.name, replace(reader, sources=sources))) == expected


def test_servers_with_wrong_settings_are_found() -> None:
    facts = healthy()
    west, *rest = facts.servers

    def examine_changed(**more: object) -> set[str]:
        return find_codes(replace(facts, servers=(replace(west, **more), *rest)))  # type: ignore[arg-type]

    assert examine_changed(version="2.14.6") == {"VD408"}
    assert examine_changed(meta_leader="east-1") == {"VD406"}
    assert examine_changed(has_jetstream=False) == {"VD405"}
    assert examine_changed(gateways={"east": 0}) == {"VD401"}
    assert examine_changed(rules={}) == {"VD402"}
    assert examine_changed(url=None, version=None, gateways=None, rules=None) == {"VD409"}
    assert examine_changed(version=None, gateways=None, rules=None, problem="no answer") == {"VD404"}
    assert find_codes(replace(facts, servers=tuple(replace(server, rules={}) for server in facts.servers))) == {"VD403"}
    assert find_codes(replace(facts, servers=tuple(replace(server, meta_size=4) for server in facts.servers))) == {
        "VD407"
    }
    # Seen on 2.10: it counts one less than it has, which changes no majority where the number of servers is odd.
    assert find_codes(replace(facts, servers=tuple(replace(server, meta_size=2) for server in facts.servers))) == set()
    few = replace(facts.streams["foo-read-west"], replicas=3, current=2)
    assert find_codes(with_stream(facts, few.name, few)) == {"VD504"}
    headless = replace(facts.streams["foo-read-west"], leader=None)
    assert find_codes(with_stream(facts, headless.name, headless)) == {"VD503"}


def test_two_regions_without_stretch_are_no_drift() -> None:
    """That one of them can stop the meta group is how the topology has it; another size of the group is not."""
    text = TEXT.replace(b" central: {servers: 1},", b"")
    topology = check_topology.check_topology(text, "acme.yaml").require()
    facts = healthy(topology=topology)

    def drifts(facts: Snapshot) -> set[tuple[str, Drift]]:
        diagnosis = examine(topology, render_bundle(topology), facts)
        return {(finding.code, finding.drift) for finding in diagnosis.findings}

    by_design = ("VD407", Drift.UNRELATED)
    assert drifts(facts) == {by_design}
    larger = replace(facts, servers=tuple(replace(server, meta_size=3) for server in facts.servers))
    # One of three members is no majority.
    assert drifts(larger) == {("VD407", Drift.DIFFERENCE)}


def test_configurations_that_are_not_loaded_are_found() -> None:
    facts = healthy()
    west, *rest = facts.servers

    def examine_changed(files: dict[str, ConfigFile] | None = None, **more: object) -> list[tuple[str, str]]:
        seen = replace(facts, servers=(replace(west, **more), *rest))  # type: ignore[arg-type]
        return [(finding.code, finding.evidence) for finding in examine(TOPOLOGY, BUNDLE, seen, files).findings]

    same, differing = (
        ConfigFile(path="west-1.conf", digest="sha256:1"),
        ConfigFile(path="west-1.conf", digest="sha256:2"),
    )
    assert examine_changed({"west-1": same}, config_digest="sha256:1") == []
    ((code, text),) = examine_changed({"west-1": differing}, config_digest="sha256:1", config_loaded="yesterday")
    assert code == "VD410"
    assert "the loaded digest is sha256:1… (loaded at yesterday), but that of `west-1.conf` is sha256:2…" in text
    ((code, text),) = examine_changed({"west-1": same})
    assert code == "VD413"
    assert "servers do from 2.12 on" in text
    assert examine_changed({"west-1": replace(same, is_asked_for=False)}) == []
    absent = ConfigFile(path="", problem="it is not there")
    assert examine_changed({"west-1": absent}, config_digest="sha256:1") == [("VD413", "it is not there")]

    assert [code for code, _ in examine_changed(version="2.9.25")] == ["VD412", "VD408"]
    assert examine_changed(storage=79, storage_limit=100) == []
    assert examine_changed(storage=80, storage_limit=100) == [("VD414", "its streams use 80 B of the 100 B allowed")]


def test_an_account_that_is_nearly_full_is_told_once_for_all_regions() -> None:
    facts = healthy()
    used = {"west": (79, 1), "central": (80, 1), "east": (82, 1)}
    regions = tuple(
        replace(
            region,
            account_usage=tuple(
                AccountUsage(storage=storage, used=bytes_, limit=100)
                for storage, bytes_ in zip(("file", "memory"), used[region.name], strict=True)
            ),
        )
        for region in facts.regions
    )
    (finding,) = examine(TOPOLOGY, BUNDLE, replace(facts, regions=regions)).findings
    assert (finding.code, finding.about) == ("VD414", "`central`, `east`")
    assert finding.evidence == "streams of the account use 82 B of the 100 B allowed"
    assert (
        finding.hint == "raise `max_file` under `jetstream` of the account and reload, or lower the limits of streams"
    )


def test_feature_flags_of_servers_are_reported() -> None:
    def of(*servers: tuple[str, str, dict[str, bool]]) -> list[str]:
        """Servers by version, cluster and flags."""
        facts = healthy()
        mixed = tuple(
            replace(server, version=version, cluster=cluster, flags=flags, gateways=None)
            for server, (version, cluster, flags) in zip(facts.servers, servers, strict=True)
        )
        findings = examine(TOPOLOGY, BUNDLE, replace(facts, servers=mixed)).findings
        return [f"{finding.about}: {finding.evidence}" for finding in findings if finding.code == "VD411"]

    on, off = {"a": True, "b": False}, {"a": False, "b": False}
    assert of(("2.15.1", "west", on), ("2.15.1", "central", on), ("2.15.1", "east", on)) == []
    assert of(("2.15.1", "west", on), ("2.15.1", "central", off), ("2.15.1", "east", off)) == [
        "west-1: `a` is on there, and off on `central-1`, `east-1`, which run the same version"
    ]
    # Versions may have other defaults; but a cluster has to understand itself.
    assert of(("2.15.1", "west", on), ("2.14.6", "central", off), ("2.12.8", "east", {})) == []
    assert of(("2.15.1", "west", on), ("2.12.8", "west", {}), ("2.15.1", "east", on)) == [
        "west-1: `a` is on there, and not known to `central-1` in the same cluster, which run older versions"
    ]


def test_doctor_finds_what_servers_cannot_write_to() -> None:
    stopped = 'JetStream stream \'$G > foo\' is not current: stream write error: last msgid mismatch: "a" vs "b"'
    full = "JetStream stream '$G > foo' is not current: stream write error: file too large"
    refusals = tuple(
        WriteError(server=server, about="foo-write-west", error=error)
        for server, error in (("west-1", stopped), ("west-2", stopped), ("west-3", full))
    )
    header_error, disk_error = examine(TOPOLOGY, BUNDLE, replace(healthy(), write_errors=refusals)).findings
    assert (header_error.code, header_error.about) == ("VD508", "foo-write-west")
    assert header_error.evidence == (
        '`west-1`, `west-2` cannot write to it: stream write error: last msgid mismatch: "a" vs "b"'
    )
    assert "`Nats-Expected-Last-Msg-Id`" in str(header_error.hint)
    assert disk_error.evidence == "`west-3` cannot write to it: stream write error: file too large"
    assert "free disk space" in str(disk_error.hint)


def test_a_stream_that_has_begun_again_is_named_once() -> None:
    repeats = tuple(Repeat(reader="foo-read-east", origin="foo-write-west", seq=1, later=last) for last in (5, 4))
    (finding,) = examine(TOPOLOGY, BUNDLE, replace(healthy(), repeats=repeats)).findings
    assert (finding.code, finding.about) == ("VD205", "foo-read-east")
    assert finding.evidence == "after sequence 5 of `foo-write-west` it took sequence 1 again"


def test_the_manual_is_current_and_says_what_to_do() -> None:
    text = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert text == doctor_markdown(), "run scripts/docs"
    assert all("## What to do" in page.text for page in CHAPTER.pages)
