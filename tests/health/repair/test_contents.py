"""Sets of sequences, and what of them is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vstream.cli.views import repair as view
from vstream.cli.views.progress import progress_bar
from vstream.errors import VstreamError
from vstream.health.live.resync_readers import ResyncedStream, ResyncResult
from vstream.health.repair.contents import (
    ContentRepairs,
    DuplicatePair,
    DuplicateTally,
    ExpectedRange,
    OriginHoldings,
    Replay,
    ReusedSequences,
    find_missing_sequences,
)
from vstream.health.repair.live.duplicates import _difference
from vstream.health.repair.pipeline import (
    RepairEnd,
    RepairKind,
    RepairRequest,
    RepairResult,
    choose_repairs,
    select_resynced,
)
from vstream.health.repair.sequence_set import SequenceSet
from vstream.health.repair.sourcing import RepairedSourcing, SourcingRepairs, find_standstills
from vstream.health.status import AssessedPair, PairState
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.source_header import new_replay_name, parse_provenance, parse_replay
from vstream.lint import check_topology
from vstream.servers.target_servers import TargetServers

numbers = st.lists(st.integers(0, 40))


def runs(some: list[int]) -> SequenceSet:
    sequences = SequenceSet()
    for seq in some:
        sequences.add(seq)
    return sequences


@given(numbers, numbers, st.integers(0, 40), st.integers(0, 40))
def test_a_sequence_set_behaves_as_a_set(one: list[int], other: list[int], first: int, last: int) -> None:
    a, b = runs(one), runs(other)
    assert list(a) == sorted(set(one))
    assert len(a) == len(set(one))
    assert list(a | b) == sorted({*one, *other})
    assert list(a - b) == sorted(set(one) - set(other))
    assert list(a & b) == sorted(set(one) & set(other))
    assert list(a.restrict_to(first, last)) == sorted(n for n in set(one) if first <= n <= last)
    assert all(n in a for n in one)
    assert [n for n in range(41) if n in a] == list(a)
    assert a == SequenceSet(a.runs())
    assert all(after[0] > before[1] + 1 for before, after in zip(a.runs(), a.runs()[1:], strict=False))


def test_a_number_is_added_once() -> None:
    sequences = SequenceSet([(1, 3)])
    assert sequences.add(4)
    assert not sequences.add(2)
    assert sequences.runs() == [(1, 4)]


def test_what_rises_takes_one_run() -> None:
    assert runs(list(range(100_000))).runs() == [(0, 99_999)]


def test_the_last_one_up_to_a_number() -> None:
    sequences = SequenceSet([(3, 5), (8, 8)])
    assert [sequences.find_last(most) for most in (2, 3, 4, 7, 9)] == [None, 3, 4, 5, 8]


def test_runs_in_words() -> None:
    assert SequenceSet([(1, 1), (5, 1200)]).describe() == "1, 5-1,200"
    assert SequenceSet((n, n) for n in range(1, 20, 2)).describe(2) == "1, 3 and 8 more runs"


def make_held(*seqs: int, replayed: tuple[int, ...] = ()) -> OriginHoldings:
    contents = OriginHoldings()
    for at, seq in enumerate(seqs, 1):
        contents.add(reader_seq=at, seq=seq, arrived_at=at, is_replayed=seq in replayed, is_current=True, identity="")
    return contents


EVERYWHERE = SequenceSet([(1, 10)])


def test_what_was_passed_is_missing_and_what_may_come_is_not() -> None:
    assert list(
        find_missing_sequences(make_held(1, 2, 5, 6), ExpectedRange(position=None, is_whole=True), EVERYWHERE)
    ) == [
        3,
        4,
    ]
    assert list(
        find_missing_sequences(make_held(1, 2, 5, 6), ExpectedRange(position=8, is_whole=True), EVERYWHERE)
    ) == [
        3,
        4,
        7,
        8,
    ]


def test_what_its_origin_has_no_more_does_not_come() -> None:
    gone = SequenceSet([(1, 8)])
    for position in (None, 2):
        reach = ExpectedRange(position=position, is_whole=True)
        assert list(find_missing_sequences(make_held(1, 2, 7), reach, EVERYWHERE, gone)) == [3, 4, 5, 6, 8]
    assert list(find_missing_sequences(make_held(5), ExpectedRange(position=5, is_whole=False), EVERYWHERE, gone)) == [
        6,
        7,
        8,
    ]


def test_what_limits_have_dropped_is_not_missing() -> None:
    assert list(find_missing_sequences(make_held(3, 5), ExpectedRange(position=6, is_whole=False), EVERYWHERE)) == [
        4,
        6,
    ]
    assert list(find_missing_sequences(make_held(3, 5), ExpectedRange(position=6, is_whole=True), EVERYWHERE)) == [
        1,
        2,
        4,
        6,
    ]
    assert not find_missing_sequences(make_held(), ExpectedRange(position=6, is_whole=False), EVERYWHERE)


def test_what_was_replayed_is_held_and_says_nothing_of_how_far_a_reader_is() -> None:
    contents = make_held(1, 4, 2, 9, replayed=(2, 9))
    assert (contents.lowest, contents.highest_sourced, contents.newest_reader_seq) == (1, 4, 2)
    assert list(find_missing_sequences(contents, ExpectedRange(position=None, is_whole=True), EVERYWHERE)) == [3]


@pytest.mark.parametrize(("newest_reader_seq", "stays"), [(0, 3), (3, 3), (8, 8), (9, 3)])
def test_of_the_copies_of_a_message_the_first_stays_unless_its_source_goes_on_behind_another(
    newest_reader_seq: int, stays: int
) -> None:
    assert OriginHoldings(newest_reader_seq=newest_reader_seq).choose_copy_to_keep([3, 8]) == stays


def test_an_origin_that_was_made_again_behind_what_it_had_can_be_told_apart() -> None:
    contents = OriginHoldings()
    for seq, identity in ((1, "a"), (2, "a"), (3, "b"), (1, ""), (4, "b")):
        contents.add(
            reader_seq=seq, seq=seq, arrived_at=seq, is_replayed=not identity, is_current=True, identity=identity
        )
    assert not contents.was_recreated
    contents.add(reader_seq=5, seq=1, arrived_at=5, is_replayed=False, is_current=True, identity="c")
    assert contents.was_recreated


def test_what_comes_last_before_a_pause_is_remembered() -> None:
    contents = OriginHoldings()
    for seq, came in ((1, 10.0), (2, 10.4), (3, 10.8), (5, 12.0), (4, 14.0), (6, 15.0)):
        contents.add(reader_seq=seq, seq=seq, arrived_at=came, is_replayed=seq == 4, is_current=True, identity="")
    assert (contents.before_silences, contents.newest_sourced) == ({3: 10.8, 5: 12.0}, (6, 15.0))


def test_what_nobody_holds_is_not_missing() -> None:
    assert list(
        find_missing_sequences(make_held(1, 4), ExpectedRange(position=4, is_whole=True), SequenceSet([(1, 1), (3, 4)]))
    ) == [3]


def test_messages_held_twice_are_found() -> None:
    contents = make_held(1, 2, 3, 1, 2, 2)
    assert (list(contents.sequences), list(contents.duplicated)) == ([1, 2, 3], [1, 2])


def test_what_differs_is_not_counted_as_a_copy_to_delete() -> None:
    tally = DuplicateTally()
    for seq in range(20):
        tally.add(
            DuplicatePair(
                origin="w",
                origin_seq=seq,
                kept_seq=seq,
                deleted_seq=seq + 20,
                difference="its payload" if seq % 2 else None,
            )
        )
    duplicates = tally.make_duplicates("foo", "r", "west")
    assert (
        duplicates.count,
        dict(duplicates.differing),
        len(duplicates.examples),
        len(duplicates.differing_examples),
    ) == (
        10,
        {"its payload": 10},
        10,
        10,
    )
    assert duplicates.as_dict()["copies"] == 10


def test_provenance_is_read_from_source_headers() -> None:
    provenance = parse_provenance(
        {"Nats-Stream-Source": "foo-write-west 7 _vs.foo.west.> > _vs.foo.west.foo.a abcdefgh"}
    )
    assert provenance is not None
    assert (provenance.origin, provenance.seq, provenance.is_replayed, provenance.identity) == (
        "foo-write-west",
        7,
        False,
        "abcdefgh",
    )
    assert provenance.definition == ("_vs.foo.west.>", ">")
    replayed = parse_provenance(
        {"Nats-Stream-Source": "foo-write-west:RplABC12 7 _vs.foo.west.> > _vs.foo.west.foo.a abcd"}
    )
    assert replayed is not None
    assert (replayed.origin, replayed.seq, replayed.is_replayed, replayed.identity) == ("foo-write-west", 7, True, "")
    assert parse_provenance({}) is None
    assert parse_provenance({"Nats-Stream-Source": "$JS.ACK.x"}) is None
    of_another_account = parse_provenance({"Nats-Stream-Source": "foo:ABCDEFGH 7"})
    assert of_another_account is not None
    assert of_another_account.origin == "foo:ABCDEFGH"


def test_names_of_replays_are_new_each_time_and_are_found_again() -> None:
    (name, token), second = new_replay_name("foo-write-west"), new_replay_name("foo-write-west")
    assert name != second[0]
    assert parse_replay(name) == ("foo-write-west", token)
    assert parse_replay("foo-write-west") is None
    # As servers write a stream of another account: eight letters, which an audit takes off.
    assert len(name.rpartition(":")[2]) == 8


def make_stored(source: str, *, subject: str = "foo.a", data: bytes = b"1", more: bytes = b"") -> DirectMessage:
    block = b"NATS/1.0\r\n" + more + b"Nats-Stream-Source: " + source.encode() + b"\r\n\r\n"
    return DirectMessage(
        stream="foo-read-west", seq=1, subject=subject, stored_at="", headers={}, data=data, header_block=block
    )


def test_only_what_is_the_same_in_everything_is_a_copy() -> None:
    message = make_stored("w 7 a > s id000001")
    assert _difference(message, message, 7) is None
    assert (
        _difference(message, make_stored("w 7 b foo.> s id000001"), 7) is None
    )  # by another source of the same stream
    assert _difference(message, make_stored("w:RplABC12 7 a > s id000009"), 7) is None
    assert (
        _difference(message, make_stored("w 7 a > s id000002"), 7)
        == "the write stream was made again or restored between them"
    )
    assert _difference(message, make_stored("w 7 a > s", subject="foo.b"), 7) == "their subjects differ"
    assert _difference(message, make_stored("w 7 a > s", data=b"2"), 7) == "their payloads differ"
    assert _difference(message, make_stored("w 7 a > s", more=b"X: y\r\n"), 7) == "their headers differ"
    assert (
        _difference(make_stored("w 7", more=b"X: y\r\nX: z\r\n"), make_stored("w 7", more=b"X: z\r\nX: y\r\n"), 7)
        is None
    )
    # By now others may be there.
    assert _difference(message, None, 7) == "one of the two is gone"
    assert _difference(message, message, 8) == "one of the two is gone"


def pair(reader: str, state: PairState, age: float | None = None) -> AssessedPair:
    return AssessedPair(
        virtual="foo",
        origin="foo-write-west",
        origin_place="west",
        reader=reader,
        reader_place="east",
        state=state,
        detail="why",
        age=age,
    )


def test_what_stands_still_is_resumed_where_somebody_can_take_over() -> None:
    pairs = [
        pair("a", PairState.SILENT),
        pair("b", PairState.BEHIND, 31),
        pair("c", PairState.BEHIND, 29),
        pair("d", PairState.OK),
        pair("e", PairState.SILENT),
    ]
    replays = {
        standstill.reader: standstill
        for standstill in find_standstills(pairs, {"a": 3, "b": 3, "c": 3, "d": 3, "e": 1})
    }
    assert sorted(replays) == ["a", "b", "e"]
    assert replays["a"].obstacle is None
    assert "one replica" in str(replays["e"].obstacle)


def test_a_reader_is_resynced_although_one_whose_name_begins_with_its_own_is_not() -> None:
    names = ("foo-read-us", "foo-read-us-east")
    stopped = find_standstills([pair(name, PairState.SILENT) for name in names], dict.fromkeys(names, 3))
    caught_up = ResyncedStream(stream=names[0], region="us", is_stepped_down=True, active=1.0, caught_up=1.0, note=None)
    behind = replace(caught_up, stream=names[1], active=None, caught_up=None, note="nothing heard")
    resynced = select_resynced(stopped, ResyncResult(waited=0.0, streams=(caught_up, behind)))
    repaired = RepairedSourcing(resynced=resynced)
    assert repaired.streams == ("foo-read-us",)
    lines = [line.plain for line in view.render_repaired_sourcing(repaired)]
    assert lines == ["resynced foo-read-us: it sources `foo-write-west` again"]


def test_what_a_repair_would_do_in_words() -> None:
    replay = Replay(
        virtual="foo",
        reader="foo-read-east",
        place="east",
        origin="foo-write-west",
        by_holder={"foo-write-west": SequenceSet([(5, 6)]), "foo-read-west": SequenceSet([(8, 8)])},
        irreparable={"it is a schedule": SequenceSet([(9, 9)])},
    )
    assert (replay.count, replay.sequences.runs()) == (3, [(5, 6), (8, 8)])
    tally = DuplicateTally()
    tally.add(DuplicatePair(origin="foo-write-west", origin_seq=1, kept_seq=1, deleted_seq=9, difference=None))
    tally.add(
        DuplicatePair(
            origin="foo-write-west", origin_seq=2, kept_seq=2, deleted_seq=10, difference="their payloads differ"
        )
    )
    copies = tally.make_duplicates("foo", "foo-read-east", "east")
    reused = ReusedSequences(
        virtual="foo", reader="a", place="west", origin="foo-write-east", sequences=SequenceSet([(3, 4), (7, 7)])
    )
    repairs = ContentRepairs(replays=(replay,), reused=(reused,), duplicates=(copies,), unread={"x": "no answer"})
    assert reused.as_dict()["runs"] == [[3, 4], [7, 7]]
    lines = [line.plain for line in view.render_contents(repairs)]
    assert lines == [
        "replay  foo-read-east in east: it lacks 3 messages of foo-write-west, 5-6, 8",
        "        add them at its end, from `foo-read-west`, `foo-write-west`",
        "stays   foo-read-east lacks 9 of foo-write-west: it is a schedule",
        "blocked a in west: foo-write-east has stored other messages than it took, at 3-4, 7",
        "        foo-write-east used these sequences again after a loss: neither has what the other has there. Publish what only foo-write-east has again, under other message ids; then delete it there",
        "delete  foo-read-east in east: it holds copies of 1 message",
        "        as foo-write-west 1, at 1 and again at 9: one stays",
        "stays   foo-read-east: 1 message with the origin and sequence of another, as at 2 and 10, but their payloads differ",
        "unread  x: no answer",
    ]


def test_where_it_is_not_known_whether_servers_are_down_nobody_says_that_they_are() -> None:
    lines = [line.plain for line in view.render_sourcing(SourcingRepairs(unknown=(pair("a", PairState.UNKNOWN),)))]
    assert [line.rpartition("; ")[2] for line in lines] == ["bring back servers that are down, then check again"]


def test_progress_begins_again_with_each_stage() -> None:
    progress = progress_bar()
    shown = view.RepairView(progress, is_text=False)
    shown.show_progress("foo", 0, 0)
    assert [(task.description, task.total) for task in progress.tasks] == [("foo", None)]
    shown.show_progress("foo", 5, 10)
    assert [(task.completed, task.total) for task in progress.tasks] == [(5, 10)]
    shown.found_contents(ContentRepairs())
    assert progress.tasks == []


MAPPED = 'version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 1}, east: {servers: 1}}\n'
STREAMS = "streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}\n"


def read_refusal(routing: str, *kinds: RepairKind) -> str:
    topology = check_topology.check_topology(f"{MAPPED}routing: {routing}\n{STREAMS}".encode(), "acme.yaml").require()
    with pytest.raises(VstreamError) as caught:
        choose_repairs(topology, kinds)
    return caught.value.message


def test_what_was_never_tried_is_refused() -> None:
    assert (
        read_refusal("accounts", RepairKind.REPLAY)
        == "`acme` has `routing: accounts`, for which `--kind replay` has not been tested yet"
    )
    assert "`routing: domains`" in read_refusal("domains")


def test_where_some_were_never_tried_the_others_are_looked_for() -> None:
    topology = check_topology.check_topology(f"{MAPPED}routing: accounts\n{STREAMS}".encode(), "acme.yaml").require()
    assert choose_repairs(topology, []) == {RepairKind.RESYNC, RepairKind.REFILL}


@pytest.mark.parametrize("is_approved", [False, True])
def test_what_is_left_to_do_is_told_from_what_is_not_known(is_approved: bool) -> None:
    request = RepairRequest(
        topology=check_topology.check_topology(f"{MAPPED}{STREAMS}".encode(), "acme.yaml").require(),
        target=cast("TargetServers", None),
        kinds=frozenset(),
        streams=frozenset(),
        timeout=1,
        is_approved=is_approved,
    )
    unknown = SourcingRepairs(unknown=(pair("a", PairState.UNKNOWN),))
    silent = replace(unknown, silent=(pair("b", PairState.SILENT),))
    unread = ContentRepairs(unread={"foo-read-west": "no answer"})
    (resyncable,), (blocked,) = (find_standstills([pair("a", PairState.SILENT)], {"a": count}) for count in (3, 1))
    replay = Replay(virtual="foo", reader="a", place="west", origin="b", by_holder={"b": SequenceSet([(1, 1)])})
    reused = ReusedSequences(virtual="foo", reader="a", place="west", origin="b", sequences=SequenceSet([(1, 1)]))
    done = RepairEnd.REPAIRED if is_approved else RepairEnd.OPEN
    outcomes = {
        RepairEnd.HEALTHY: [RepairResult(request=request)],
        RepairEnd.UNKNOWN: [
            RepairResult(request=request, sourcing=unknown),
            RepairResult(request=request, contents=unread),
        ],
        RepairEnd.OPEN: [
            RepairResult(request=request, sourcing=silent),
            RepairResult(request=request, contents=replace(unread, reused=(reused,))),
            RepairResult(request=request, contents=unread, still_open=("foo-read-west",)),
            RepairResult(request=request, sourcing=replace(unknown, standstills=(blocked,))),
        ],
    }
    for outcome, results in outcomes.items():
        assert [result.outcome for result in results] == [outcome] * len(results)
    assert RepairResult(request=request, sourcing=SourcingRepairs(standstills=(resyncable,))).outcome is done
    assert RepairResult(request=request, contents=ContentRepairs(replays=(replay,))).outcome is done
    also_unknown = RepairResult(request=request, sourcing=replace(unknown, standstills=(resyncable,)))
    assert also_unknown.outcome is (RepairEnd.UNKNOWN if is_approved else RepairEnd.OPEN)
