"""What a status makes of snapshots: loaded mapping rules, servers that nobody could ask, a region that is down."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from tests.health.doctor.test_examine import BUNDLE, TOPOLOGY, healthy, with_stream
from tests.support.paths import ROOT
from vstream.cli.views.status import render_screen
from vstream.errors import VstreamError
from vstream.health.assess import assess
from vstream.health.pairs import has_taken_all
from vstream.health.prometheus import render_metrics
from vstream.health.snapshot import Lag, RegionSnapshot, ServerSnapshot, Snapshot, StreamSnapshot
from vstream.health.status import PairState, Share, Status, StatusVerdict
from vstream.lint import check_topology
from vstream.plan.rules import list_account_entries, list_rule_entries, spell_destinations
from vstream.render.pipeline import render_bundle, render_loaded

NOW = 1_800_000_000.0


def with_server(snapshot: Snapshot, name: str, **changes: object) -> Snapshot:
    servers = tuple(
        replace(server, **changes) if server.name == name else server  # type: ignore[arg-type]
        for server in snapshot.servers
    )
    return replace(snapshot, servers=servers)


def render_status(status: Status, before: Status | None = None) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(render_screen(status, width=200, before=before))
    return capture.get()


def metric(status: Status, name: str) -> dict[str, float]:
    for family in text_string_to_metric_families(render_metrics("acme", status)):
        if family.name == name:
            return {sample.labels["server"]: sample.value for sample in family.samples}
    raise KeyError(name)


def test_a_healthy_snapshot_is_well() -> None:
    status = assess(TOPOLOGY, healthy(), BUNDLE)
    assert (status.verdict, status.problems, status.unknown) == (StatusVerdict.OK, (), ())
    assert all(region.publish == Share(works=1, of=1) for region in status.regions)
    assert set(metric(status, "vstream_server_mapping_ok").values()) == {1}
    assert "OK: all checks passed" in render_status(status)


def test_a_second_look_says_what_has_come_since_and_whether_lag_grows() -> None:
    before = assess(TOPOLOGY, healthy(), BUNDLE)
    streams = tuple(
        replace(stream, last=(stream.last or 0) + 100) if stream.name == "foo-write-west" else stream
        for stream in before.streams
    )
    pairs = tuple(
        replace(pair, pending=7 if pair.origin == "foo-write-west" else pair.pending) for pair in before.pairs
    )
    text = render_status(replace(before, at=before.at + 2, streams=streams, pairs=pairs), before)
    (row,) = [line.split() for line in text.splitlines() if line.split()[:1] == ["foo-write-west"]]
    assert "50" in row
    (lag,) = [line for line in text.splitlines() if line.split()[:3] == ["west", "✓", "7"]]
    assert lag.count("↑") == len(TOPOLOGY.regions)
    assert "per s" not in render_status(before)


def test_a_second_look_says_what_regions_have_sent_each_other_and_where_that_is_not_known() -> None:
    before = assess(TOPOLOGY, with_server(healthy(), "west-1", gateways={"central": 1000, "east": 9000}), BUNDLE)
    now = with_server(healthy(), "west-1", gateways={"central": 5096, "east": 100})
    now = with_server(now, "east-1", version=None, gateways=None)
    status = assess(TOPOLOGY, replace(now, at=now.at + 2), BUNDLE)
    assert status.count_sent_bytes()["west", "central"] == 5096
    assert status.sent_per_second(before) == {
        ("west", "central"): 2048,
        ("west", "east"): None,  # it was connected anew
        ("central", "west"): 0,
        ("central", "east"): 0,
        ("east", "central"): None,
        ("east", "west"): None,
    }
    assert "2 KiB" in render_status(status, before)
    assert "not known" in render_status(status, before)


def test_status_names_a_server_that_lost_its_mapping_rules() -> None:
    status = assess(TOPOLOGY, with_server(healthy(), "west-1", rules={}), BUNDLE)
    west, central, east = status.regions
    assert status.verdict is StatusVerdict.DEGRADED
    assert (west.publish, west.direct_get, west.consumers) == (Share(works=0, of=1),) * 3
    assert central.publish == east.publish == Share(works=1, of=1)
    (problem,) = status.problems
    assert (problem.about, problem.code) == ("west-1", "VD402")
    assert metric(status, "vstream_server_mapping_ok") == {"west-1": 0, "central-1": 1, "east-1": 1}


def test_no_server_has_the_mapping_rules() -> None:
    snapshot = healthy()
    bare = replace(snapshot, servers=tuple(replace(server, rules={}) for server in snapshot.servers))
    status = assess(TOPOLOGY, bare, BUNDLE)
    assert [problem.code for problem in status.problems] == ["VD403"]
    assert all(region.publish.works == 0 for region in status.regions)


def test_rules_for_a_region_that_the_topology_does_not_have_break_nothing() -> None:
    rules = list_rule_entries(BUNDLE.mappings)
    more = {source: (*to, to[0].replace("central", "north")) for source, to in rules.items()}
    assert more["foo.>"] == (*rules["foo.>"], "north 100% _vs.foo.north.foo.>")
    snapshot = healthy()
    wider = replace(snapshot, servers=tuple(replace(server, rules=more) for server in snapshot.servers))
    status = assess(TOPOLOGY, wider, BUNDLE)
    assert (status.verdict, status.problems) == (StatusVerdict.OK, ())
    assert all(region.publish == Share(works=1, of=1) for region in status.regions)


def test_one_rule_of_two_streams_is_lost() -> None:
    topology = check_topology.check_topology(
        b'version: 1\nname: acme\nserver_version: "2.10"\nregions: {west: {servers: 1}}\n'
        b"defaults: {write: {max_age: 1h}}\nstreams: {foo: {subjects: [foo.>]}, bar: {subjects: [bar.>]}}\n",
        "acme.yaml",
    ).require()
    bundle = render_bundle(topology)
    rules = {mapping.source: spell_destinations(mapping) for mapping in bundle.mappings}
    snapshot = replace(
        healthy(),
        regions=(RegionSnapshot(name="west"),),
        servers=(
            replace(healthy().servers[0], rules={source: to for source, to in rules.items() if source != "foo.>"}),
        ),
        streams={
            name: replace(healthy().streams["foo-write-west"], name=name, sources=(), config=None)
            for name in ("foo-write-west", "foo-read-west", "bar-write-west", "bar-read-west")
        },
    )
    (west,) = assess(topology, snapshot, bundle).regions
    assert west.publish == Share(works=1, of=2)
    assert west.direct_get == Share(works=2, of=2)


@pytest.mark.parametrize(
    "unseen",
    [
        {"url": None, "version": None, "rules": None, "cluster": None},
        {"rules": None, "rules_problem": "no answer from `http://127.0.0.1:1/accountz` within 4 s"},
    ],
)
def test_what_nobody_could_read_is_not_known(unseen: dict[str, object]) -> None:
    status = assess(TOPOLOGY, with_server(healthy(), "west-1", **unseen), BUNDLE)
    assert status.verdict is StatusVerdict.UNKNOWN
    assert status.regions[0].publish == Share(works=0, of=1, unknown=1)
    assert status.regions[1].publish == Share(works=1, of=1)
    (unknown,) = status.unknown
    assert unknown.about == "west"
    assert "west-1" not in metric(status, "vstream_server_mapping_ok")
    text = render_status(status)
    assert "UNKNOWN: no problem was found, but not everything could be checked" in text
    working = [
        sample.labels["region"]
        for family in text_string_to_metric_families(render_metrics("acme", status))
        if family.name == "vstream_region_working_streams"
        for sample in family.samples
        if sample.labels["operation"] == "publish"
    ]
    assert working == ["central", "east"]


def test_a_server_that_is_down_has_no_clients() -> None:
    """Its rules do not matter, and one that never answered is not reported as up."""
    server = healthy().servers[0]
    two = replace(healthy(), servers=(*healthy().servers, replace(server, name="west-2", version=None, rules=None)))
    status = assess(TOPOLOGY, two, BUNDLE)
    assert status.regions[0].publish == Share(works=1, of=1)
    assert [problem.code for problem in status.problems] == ["VD404"]
    unwatched = with_server(healthy(), "west-1", url=None, version=None, rules=None)
    assert "west-1" not in metric(assess(TOPOLOGY, unwatched, BUNDLE), "vstream_server_up")
    assert "2 of 3 servers, 1 not known" in render_status(assess(TOPOLOGY, unwatched, BUNDLE))


def test_nobody_says_that_there_is_no_meta_leader_if_no_server_was_asked() -> None:
    silent = tuple(replace(server, meta_leader=None) for server in healthy().servers)
    unasked = tuple(replace(server, url=None, version=None, rules=None) for server in silent)
    headlines = [
        render_status(assess(TOPOLOGY, replace(healthy(), servers=servers), BUNDLE)) for servers in (silent, unasked)
    ]
    assert ["meta leader none" in headline for headline in headlines] == [True, False]
    assert "0 of 3 servers, 3 not known · meta leader ?" in headlines[1]


def test_a_dead_server_is_no_meta_leader_though_the_others_still_name_it() -> None:
    dead = with_server(healthy(), "west-1", version=None, rules=None)
    status = assess(TOPOLOGY, dead, BUNDLE)
    assert status.meta_leader is None
    assert "meta leader ?" in render_status(status)
    unwatched = with_server(healthy(), "west-1", url=None, version=None, rules=None)
    assert assess(TOPOLOGY, unwatched, BUNDLE).meta_leader == "west-1"


def test_without_keys_the_loaded_rules_are_unknown() -> None:
    status = assess(TOPOLOGY, healthy(), VstreamError("topology `acme` needs keys that are not here"))
    assert status.verdict is StatusVerdict.UNKNOWN
    assert [problem.text for problem in status.unknown] == [
        "the loaded mapping rules are not known: topology `acme` needs keys that are not here"
    ]


def test_a_region_that_is_down_is_one_problem() -> None:
    snapshot = healthy()
    west = ServerSnapshot(name="west-1", region="west", url="http://127.0.0.1:1", problem="no answer")
    status = assess(
        TOPOLOGY,
        replace(
            snapshot,
            regions=(RegionSnapshot(name="west", problem="cannot connect to region `west`"), *snapshot.regions[1:]),
            servers=(west, *snapshot.servers[1:]),
            streams={name: stream for name, stream in snapshot.streams.items() if not name.endswith("west")},
        ),
        BUNDLE,
    )
    (problem,) = status.problems
    assert problem.about == "west is down"
    assert problem.text.endswith("; its server does not answer")
    assert status.regions[0].publish == Share(works=0, of=1)


@pytest.mark.parametrize(
    ("written", "pending", "age"), [(200.0, 0, None), (94.0, None, 90.0), (86.0, None, 90.0), (10.0, None, 90.0)]
)
def test_a_region_that_is_down_lacks_what_was_written_since_it_was_last_heard(
    written: float, pending: int | None, age: float | None
) -> None:
    """It cannot say so itself: the other regions know when they last heard its streams."""
    snapshot = healthy()
    streams = {
        name: replace(
            stream,
            last_at=snapshot.at - written,
            sources=tuple(
                replace(source, heard=90.0 if source.stream.endswith("west") else 0.5) for source in stream.sources
            ),
        )
        for name, stream in snapshot.streams.items()
        if not name.endswith("west")
    }
    status = assess(TOPOLOGY, replace(snapshot, streams=streams), BUNDLE)
    (pair,) = (pair for pair in status.pairs if (pair.origin, pair.reader) == ("foo-write-east", "foo-read-west"))
    assert (pair.pending, pair.age, pair.state) == (pending, age, PairState.UNKNOWN)
    assert ("it was last heard 1.5 min ago" in pair.detail) is (age is not None), pair.detail


def test_a_region_without_a_meta_leader_takes_no_changes() -> None:
    snapshot = healthy()
    west = replace(snapshot.regions[0], control="no meta leader answers")
    status = assess(TOPOLOGY, replace(snapshot, regions=(west, *snapshot.regions[1:])), BUNDLE)
    assert [region.control for region in status.regions] == [False, True, True]


@pytest.mark.parametrize(("is_reached", "expected"), [(True, None), (False, False)])
def test_where_vstream_cannot_log_in_it_does_not_know_what_others_can_change(
    is_reached: bool, expected: bool | None
) -> None:
    """Servers that answer may well take changes from those who have the right password; those that are down do not."""
    snapshot = healthy()
    west = replace(snapshot.regions[0], problem="Authorization Violation")
    servers = tuple(
        server if server.region != "west" or is_reached else replace(server, version=None, problem="it does not answer")
        for server in snapshot.servers
    )
    picture = replace(snapshot, regions=(west, *snapshot.regions[1:]), servers=servers)
    status = assess(TOPOLOGY, picture, BUNDLE)
    assert [region.control for region in status.regions] == [expected, True, True]


def test_where_no_region_lets_vstream_in_nothing_is_said_of_streams() -> None:
    """Nobody has asked for them: the servers answer, and refuse a password."""
    snapshot = healthy()
    regions = tuple(replace(region, problem="Authorization Violation") for region in snapshot.regions)
    status = assess(TOPOLOGY, replace(snapshot, regions=regions, streams={}), BUNDLE)
    assert [problem.text for problem in status.problems] == []
    assert {problem.code for problem in status.unknown} >= {"VD415"}
    for region in status.regions:
        assert [(share.fails, share.unknown) for share in (region.publish, region.direct_get, region.consumers)] == [
            (0, region.publish.of)
        ] * 3


def test_the_rules_alone_are_those_of_the_whole_bundle() -> None:
    """What is compared without rendering streams is what rendering and reading back gives."""
    for file in sorted((ROOT / "tests" / "golden").glob("*.yaml")):
        topology = check_topology.check_topology(file.read_bytes(), file.name).require()
        whole, alone = render_bundle(topology), render_loaded(topology, None)
        assert list_rule_entries(alone.mappings) == list_rule_entries(whole.mappings), file.name
        assert list_account_entries(alone.accounts) == list_account_entries(whole.accounts), file.name
        names = {(stream.config.name, stream.role) for stream in whole.streams}
        assert {(stream.config.name, stream.role) for stream in alone.streams} == names, file.name


class CountedStreams(dict[str, StreamSnapshot]):
    """Streams of a snapshot, and how often all of their names were asked for."""

    asked = 0

    def keys(self) -> Any:
        self.asked += 1
        return super().keys()


def test_what_is_looked_up_in_all_streams_does_not_grow_with_their_number() -> None:
    asked = []
    for count in (1, 5):
        text = "".join(f"  s{number}: {{subjects: [s{number}.>]}}\n" for number in range(count))
        head = 'version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 1}}\n'
        content = f"{head}defaults: {{write: {{max_age: 1h}}}}\nstreams:\n{text}"
        topology = check_topology.check_topology(content.encode(), "acme.yaml").require()
        streams = CountedStreams(healthy(topology=topology).streams)
        status = assess(topology, replace(healthy(topology=topology), streams=streams), render_loaded(topology, None))
        assert [region.direct_get for region in status.regions] == [Share(works=count, of=count)]
        asked.append(streams.asked)
    assert asked[0] == asked[1]


@pytest.mark.parametrize(("taken", "expected"), [(0, True), (-1, False), (1, False)])
def test_a_reader_that_took_as_many_as_there_were_has_all(taken: int, expected: bool) -> None:
    """Whatever limits have removed since: servers before 2.15 say nothing else."""
    streams = healthy("2.14.6").streams
    reader = streams["foo-read-east"]
    sources = tuple(replace(source, seq=None) for source in reader.sources)
    total = sum(streams[source.stream].last_seq for source in sources)
    reader = replace(reader, sources=sources, messages=0, first_seq=total + 1, last_seq=total + taken)
    assert has_taken_all(reader, streams) is expected
    status = assess(TOPOLOGY, with_stream(healthy("2.14.6"), reader.name, reader), BUNDLE)
    assert status.verdict is (StatusVerdict.OK if expected else StatusVerdict.UNKNOWN)


@pytest.mark.parametrize(
    ("created", "seq", "state"),
    [
        (-8.0, 8, PairState.SILENT),
        (-60.0, 8, PairState.ROLLED_BACK),  # heard since: the same stream has lost its end
        (-10.0, 8, PairState.ROLLED_BACK),  # heard a second after it was made
        (-8.0, None, PairState.ROLLED_BACK),  # before 2.15 a reader cannot tell
    ],
)
def test_a_write_stream_made_again_is_not_rolled_back(created: float, seq: int | None, state: PairState) -> None:
    """Seen on 2.15.1: its messages arrive, from the first on, once readers hear it again."""
    snapshot = healthy()
    reader, origin = snapshot.streams["foo-read-east"], snapshot.streams["foo-write-west"]
    made = datetime.fromtimestamp(snapshot.at + created, UTC).isoformat()
    snapshot = with_stream(snapshot, origin.name, replace(origin, created=made))
    sources = tuple(replace(source, seq=seq, heard=9.0) for source in reader.sources)
    snapshot = with_stream(snapshot, reader.name, replace(reader, sources=sources))
    lag = Lag(last=5, first=1, cursor=8, max_age=3600.0)
    status = assess(TOPOLOGY, replace(snapshot, lags={(origin.name, reader.name): lag}), BUNDLE)
    (pair,) = (pair for pair in status.pairs if (pair.origin, pair.reader) == (origin.name, reader.name))
    assert pair.state is state


@pytest.mark.parametrize(
    ("start", "seq", "last", "state"),
    [
        (21, 15, 20, PairState.OK),  # nothing came since
        (21, None, 20, PairState.OK),
        (21, 15, 22, PairState.BEHIND),
        (17, 15, 22, PairState.LOSSY),
        (21, 23, 20, PairState.ROLLED_BACK),
    ],
)
def test_what_came_before_a_new_read_stream_begins_is_not_lost(
    start: int, seq: int | None, last: int, state: PairState
) -> None:
    """It was a copy of another, and the last messages of a source need not have been in that, such as canaries."""
    snapshot = healthy()
    reader, origin = snapshot.streams["foo-read-east"], snapshot.streams["foo-write-west"]
    config: Any = {**(reader.config or {}), "sources": [{"name": origin.name, "opt_start_seq": start}]}
    sources = tuple(replace(source, seq=seq) if source.stream == origin.name else source for source in reader.sources)
    snapshot = with_stream(snapshot, reader.name, replace(reader, config=config, sources=sources))
    snapshot = with_stream(snapshot, origin.name, replace(origin, first_seq=21, last_seq=last))
    lag = Lag(last=last, first=21, cursor=seq, max_age=3600.0, oldest_seq=21, oldest_at=snapshot.at - 90)
    status = assess(TOPOLOGY, replace(snapshot, lags={(origin.name, reader.name): lag}), BUNDLE)
    (pair,) = (pair for pair in status.pairs if (pair.origin, pair.reader) == (origin.name, reader.name))
    assert pair.state is state


@pytest.mark.parametrize(
    ("origin_keeps", "reader_keeps", "state"),
    [(1, 1, PairState.UNKNOWN), (2, 1, PairState.UNKNOWN), (1, 2, PairState.LOSSY), (0, 0, PairState.LOSSY)],
)
def test_what_an_origin_has_replaced_is_not_called_lost(origin_keeps: int, reader_keeps: int, state: PairState) -> None:
    """Seen with a key-value bucket whose reader was away for seconds. Age may have removed some of it, too."""
    snapshot = healthy()
    for name, number in (("foo-write-west", origin_keeps), ("foo-read-east", reader_keeps)):
        stream = snapshot.streams[name]
        config = {**(stream.config or {}), "max_msgs_per_subject": number or -1}
        snapshot = with_stream(snapshot, name, replace(stream, config=config))
    lag = Lag(last=22, first=21, cursor=15, max_age=3600.0)
    status = assess(TOPOLOGY, replace(snapshot, lags={("foo-write-west", "foo-read-east"): lag}), BUNDLE)
    (pair,) = (pair for pair in status.pairs if (pair.origin, pair.reader) == ("foo-write-west", "foo-read-east"))
    assert pair.state is state


@pytest.mark.parametrize(("lag", "state"), [
    (None, PairState.UNKNOWN),
    (Lag(last=5, first=1, cursor=2, max_age=3600.0, oldest_seq=3, oldest_at=NOW - 0.5), PairState.OK),
    (Lag(last=5, first=1, cursor=2, max_age=3600.0, oldest_seq=3, oldest_at=NOW - 90), PairState.BEHIND),
])  # fmt: skip
def test_what_a_reader_lacks_is_counted_and_its_age_is_known_only_if_measured(
    lag: Lag | None, state: PairState
) -> None:
    snapshot = replace(healthy(), at=NOW)
    reader, origin = snapshot.streams["foo-read-east"], snapshot.streams["foo-write-west"]
    sources = tuple(replace(source, seq=2 if source.stream == origin.name else 5) for source in reader.sources)
    snapshot = with_stream(snapshot, reader.name, replace(reader, sources=sources))
    lags = {(origin.name, reader.name): lag} if lag else {}
    status = assess(TOPOLOGY, replace(snapshot, lags=lags), BUNDLE)
    (pair,) = (pair for pair in status.pairs if (pair.origin, pair.reader) == (origin.name, reader.name))
    assert (pair.pending, pair.state) == (3, state)
    if lag is None:
        assert status.verdict is StatusVerdict.UNKNOWN
