"""When a stream that stands still is resynced, and when that could do harm, so that it is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.health.doctor.test_examine import TOPOLOGY, healthy
from tests.support.command import check_output
from tests.support.paths import ROOT
from vstream.cli.views.repair import ResyncPrinter
from vstream.health.live.resync_watch import ResyncCheck
from vstream.health.resync_policy import META_GROUP, ResyncAction, ResyncPolicy
from vstream.health.snapshot import Lag, ServerSnapshot, Snapshot
from vstream.lint.check_topology import check_topology
from vstream.topology.replication import list_physical_streams

READER, ORIGIN = "foo-read-east", "foo-write-west"


def _well() -> Snapshot:
    snapshot = healthy()
    streams = {name: replace(stream, replicas=3, current=3) for name, stream in snapshot.streams.items()}
    return replace(snapshot, streams=streams)


def _with(snapshot: Snapshot, name: str, **changes: object) -> Snapshot:
    changed = replace(snapshot.streams[name], **changes)  # type: ignore[arg-type]
    return replace(snapshot, streams={**snapshot.streams, name: changed})


def _silent(snapshot: Snapshot, seconds: float | None = 12.0) -> Snapshot:
    """The same, but the reader has not heard one origin for so long."""
    sources = tuple(
        replace(source, heard=seconds) if source.stream == ORIGIN else source
        for source in snapshot.streams[READER].sources
    )
    return _with(snapshot, READER, sources=sources)


def _decisions(*looks: Snapshot) -> list[list[tuple[str, str]]]:
    policy = ResyncPolicy(TOPOLOGY)
    return [[(decision.action.value, decision.stream) for decision in policy.decide(look)] for look in looks]


def _later(snapshot: Snapshot, seconds: float) -> Snapshot:
    return replace(snapshot, at=snapshot.at + seconds)


def test_a_stream_that_hears_an_origin_is_left_alone() -> None:
    assert _decisions(_well(), _later(_well(), 1)) == [[], []]


@pytest.mark.parametrize("seconds", [12.0, None])
def test_a_stream_that_does_not_is_resynced_at_the_second_look(seconds: float | None) -> None:
    stuck = _silent(_well(), seconds)
    assert _decisions(stuck, _later(stuck, 1)) == [[], [("resync", READER)]]


def test_a_stream_is_resynced_again_later_and_later() -> None:
    stuck = _silent(_well())
    seconds = (0, 1, 2, 6, 8, 18, 21, 43, 46)
    decisions = _decisions(*(_later(stuck, at) for at in seconds))
    resynced = [at for at, look in zip(seconds, decisions, strict=True) if ("resync", READER) in look]
    assert resynced == [1, 8, 21, 46]


def test_what_was_well_in_between_is_resynced_at_once() -> None:
    stuck, well = _silent(_well()), _well()
    decisions = _decisions(stuck, _later(stuck, 1), _later(well, 2), _later(stuck, 8), _later(stuck, 9))
    assert decisions[-1] == [("resync", READER)]


def test_a_message_that_waits_while_the_reader_stands_still() -> None:
    lag = Lag(last=200, first=1, cursor=100, oldest_at=_well().at - 30, oldest_seq=101)
    stuck = replace(_well(), lags={(ORIGIN, READER): lag})
    assert _decisions(stuck, _later(stuck, 1), _later(stuck, 2))[-1] == [("resync", READER)]
    # One that catches up is slow, and moves.
    moves = [replace(_later(stuck, at), lags={(ORIGIN, READER): replace(lag, cursor=100 + at)}) for at in range(4)]
    assert _decisions(*moves) == [[], [], [], []]


def _without_origin_leader(snapshot: Snapshot) -> Snapshot:
    return _with(snapshot, ORIGIN, leader=None)


def _without_origin(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, streams={name: item for name, item in snapshot.streams.items() if name != ORIGIN})


def _without_reader_leader(snapshot: Snapshot) -> Snapshot:
    return _with(snapshot, READER, leader=None)


def _one_replica(snapshot: Snapshot) -> Snapshot:
    return _with(snapshot, READER, replicas=1, current=1)


def _no_follower(snapshot: Snapshot) -> Snapshot:
    return _with(snapshot, READER, current=1)


def _rolled_back(snapshot: Snapshot) -> Snapshot:
    lag = Lag(last=100, first=1, cursor=150)
    return replace(snapshot, lags={("foo-write-central", READER): lag})


def _with_servers(change: Callable[[ServerSnapshot], ServerSnapshot]) -> Callable[[Snapshot], Snapshot]:
    return lambda snapshot: replace(snapshot, servers=tuple(map(change, snapshot.servers)))


def _no_gateway(server: ServerSnapshot) -> ServerSnapshot:
    return replace(server, gateways=dict.fromkeys({"central"} - {str(server.cluster)}, 0))


def _no_meta_leader(server: ServerSnapshot) -> ServerSnapshot:
    return replace(server, has_jetstream=True, meta_size=9, meta_leader=None)


@pytest.mark.parametrize(
    ("hinder", "reason"),
    [
        (_without_origin_leader, "`foo-write-west` has no leader"),
        (_without_reader_leader, "it has no leader"),
        (_one_replica, "one replica: no other server can lead it"),
        (_no_follower, "1 of its 3 replicas are current: nobody can take over"),
        (_with_servers(_no_gateway), "`west-1` has no gateway to east"),
        (_with_servers(_no_meta_leader), "`west-1` knows no JetStream meta leader"),
    ],
)
def test_a_resync_waits_while_the_next_leader_would_not_be_answered(
    hinder: Callable[[Snapshot], Snapshot], reason: str
) -> None:
    stuck = hinder(_silent(_well()))
    policy = ResyncPolicy(TOPOLOGY)
    policy.decide(stuck)
    decisions = {decision.stream: decision for decision in policy.decide(_later(stuck, 1))}
    assert (decisions[READER].action, decisions[READER].reason) == (ResyncAction.WAIT, reason)


def test_an_origin_that_was_rolled_back_is_repaired_first() -> None:
    stuck = _rolled_back(_silent(_well()))
    policy = ResyncPolicy(TOPOLOGY)
    policy.decide(stuck)
    (decision,) = policy.decide(_later(stuck, 1))
    assert decision.action is ResyncAction.WAIT
    assert decision.reason.endswith("`vstream repair messages --kind refill` comes first")


def test_nothing_is_done_for_a_region_that_is_gone_but_to_say_what_is_waited_for() -> None:
    gone = _without_origin(_silent(_well()))
    waiting = [("wait", f"foo-read-{region}") for region in ("west", "central", "east")]
    assert _decisions(gone, _later(gone, 1), _later(gone, 30)) == [waiting] * 3
    assert {decision.reason for decision in ResyncPolicy(TOPOLOGY).decide(gone)} == {"`foo-write-west` has no leader"}


def test_each_look_that_says_something_else_is_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    gone = _without_origin(_silent(_well()))
    printer = ResyncPrinter(is_json=True)
    for problem in ("no answer", "no answer", None):
        printer.show(ResyncCheck(decisions=ResyncPolicy(TOPOLOGY).decide(gone), problem=problem))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line in lines:
        check_output(line)
    assert [(line["problem"], len(line["streams"])) for line in lines] == [("no answer", 3), (None, 3)]


def test_an_order_is_resynced_before_its_mirrors() -> None:
    topology = check_topology((ROOT / "scenarios/topologies/stretch.yaml").read_bytes(), "stretch.yaml").require()
    snapshot = healthy(topology=topology)
    streams = {}
    for name, stream in snapshot.streams.items():
        sources = tuple(replace(source, heard=30.0) for source in stream.sources)
        streams[name] = replace(stream, replicas=3, current=3, sources=sources)
    stuck = replace(snapshot, streams=streams)
    policy = ResyncPolicy(topology)
    policy.decide(stuck)
    verbs = {decision.stream: decision.action for decision in policy.decide(_later(stuck, 1))}
    assert verbs["ledger-order-stretch"] is ResyncAction.RESYNC
    assert verbs["ledger-read-west"] is ResyncAction.WAIT
    assert verbs["stock-read-west"] is ResyncAction.RESYNC


def test_leaders_of_the_stretch_cluster_are_asked_to_be_where_the_topology_wants_them() -> None:
    text = (
        (ROOT / "scenarios/topologies/stretch.yaml")
        .read_text()
        .replace("{members: all}", "{members: all, leader: east}")
    )
    topology = check_topology(text.encode(), "stretch.yaml").require()
    assert topology.stretch is not None
    preferred = topology.stretch.members["east"].name
    snapshot = healthy(topology=topology)
    names = {part.name for part in list_physical_streams(topology) if part.place == topology.stretch.cluster}
    streams = {name: replace(stream, replicas=3, current=3) for name, stream in snapshot.streams.items()}
    streams |= {name: replace(streams[name], leader=topology.stretch.members["west"].name) for name in names}
    looks = [replace(snapshot, streams=streams, at=snapshot.at + seconds) for seconds in (0, 5, 25)]
    policy = ResyncPolicy(topology, can_move_meta=True)
    asked = [{(decision.stream, decision.new_leader) for decision in policy.decide(look)} for look in looks]
    assert names
    expected = {(name, preferred) for name in (*names, META_GROUP)}
    assert asked == [expected, set(), expected]
    lagging = replace(snapshot, streams={name: replace(stream, current=2) for name, stream in streams.items()})
    assert [decision.stream for decision in ResyncPolicy(topology).decide(lagging)] == []
    away = _with_servers(lambda server: replace(server, has_jetstream=server.name != preferred))(looks[0])
    assert ResyncPolicy(topology, can_move_meta=True).decide(away) == ()


@pytest.mark.parametrize(
    ("stretch", "text"),
    [
        ("{members: all, leader: north}", "the stretch cluster is to be led from unknown region `north`"),
        (
            "{members: [west, central, north], leader: east}",
            "region `east` has no member of the stretch cluster, so it cannot lead",
        ),
    ],
)
def test_a_leader_that_cannot_be_is_found(stretch: str, text: str) -> None:
    document = (ROOT / "scenarios/topologies/stretch.yaml").read_text().replace("{members: all}", stretch)
    document = document.replace(
        "  east: {servers: 1}",
        "  east: {servers: 1}\n  north: {servers: 1}" * ("[" in stretch) or "  east: {servers: 1}",
    )
    messages = [finding.message for finding in check_topology(document.encode(), "stretch.yaml").findings]
    assert text in messages
