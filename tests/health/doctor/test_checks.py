"""Every check of the doctor is provoked, documented, and known to whoever names its code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.health.doctor.test_examine import BUNDLE, NOW, TEXT, TOPOLOGY, healthy, with_stream
from tests.support.paths import ROOT
from tests.support.plans import unused_consumer
from vstream.health.assess import assess
from vstream.health.doctor import CHECKS
from vstream.health.doctor.check import DoctorCheck, Drift, make_live_system
from vstream.health.doctor.configs import ConfigFile
from vstream.health.doctor.examine import Health, examine
from vstream.health.loaded_mappings import ForeignToken, LoadedMappings
from vstream.health.snapshot import Gap, Lag, Repeat, Snapshot, WriteError
from vstream.health.status import StatusVerdict
from vstream.health.stream_faults import find_consumer_faults
from vstream.lint import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.consumer_config import ConsumerConfig
from vstream.topology.model import Endpoint
from vstream.topology.replication import list_durables

PAIR = ("foo-write-west", "foo-read-east")
FILE = ConfigFile(path="west-1.conf", digest="sha256:2")


def server(**changes: object) -> Snapshot:
    snapshot = healthy()
    west, *rest = snapshot.servers
    return replace(snapshot, servers=(replace(west, **changes), *rest))  # type: ignore[arg-type]


def every_server(**changes: object) -> Snapshot:
    snapshot = healthy()
    servers = tuple(replace(server, **changes) for server in snapshot.servers)  # type: ignore[arg-type]
    return replace(snapshot, servers=servers)


def stream(name: str, **changes: object) -> Snapshot:
    snapshot = healthy()
    return with_stream(snapshot, name, replace(snapshot.streams[name], **changes))  # type: ignore[arg-type]


def config(name: str, **fields: object) -> Snapshot:
    return stream(name, config={**(healthy().streams[name].config or {}), **fields})


def lag(**changes: object) -> Snapshot:
    fields = {"last": 5, "first": 1, "cursor": 5, "max_age": 3600.0, **changes}
    return replace(healthy(), lags={PAIR: Lag(**fields)})  # type: ignore[arg-type]


def without(name: str) -> Snapshot:
    snapshot = healthy()
    streams = {key: value for key, value in snapshot.streams.items() if key != name}
    return replace(snapshot, streams=streams, absent=frozenset({name}))


def silent_source() -> Snapshot:
    sources = healthy().streams["foo-read-west"].sources
    return stream("foo-read-west", sources=tuple(replace(source, heard=60.0) for source in sources))


def make_unmeasured() -> Snapshot:
    """As servers before 2.15 say it, with nothing read from what the stream stores."""
    sources = healthy().streams["foo-read-east"].sources
    return stream("foo-read-east", sources=tuple(replace(source, seq=None) for source in sources))


def unreachable() -> Snapshot:
    snapshot = healthy()
    west, *rest = snapshot.regions
    return replace(snapshot, regions=(replace(west, problem="no connection"), *rest))


def without_api() -> Snapshot:
    """As of a region whose servers have no monitoring address: they name no leader."""
    snapshot = server(url=None, version=None, meta_leader=None, rules=None, gateways=None)
    west, *rest = snapshot.regions
    return replace(snapshot, regions=(replace(west, control="JetStream system temporarily unavailable"), *rest))


def down() -> Snapshot:
    """A region of which nothing answers, as others see it."""
    snapshot = server(version=None, gateways=None, rules=None, problem="no answer")
    streams = {name: seen for name, seen in snapshot.streams.items() if not name.endswith("west")}
    return replace(snapshot, streams=streams, regions=unreachable().regions)


PROVOKED: dict[str, Callable[[], Snapshot]] = {
    "VD101": lambda: config(
        "foo-read-west",
        subject_transform={"src": "foo.*.>", "dest": "foo.>"},
        sources=[{"name": "foo-write-east", "filter_subject": "foo.east.>"}],
    ),
    "VD102": lambda: replace(
        config("foo-read-west", max_msgs_per_subject=1), servers=every_server(version="2.14.6").servers
    ),
    "VD201": silent_source,
    "VD202": lambda: stream("foo-read-west", sources=()),
    "VD203": lambda: lag(cursor=4, oldest_seq=5, oldest_at=NOW - 60),
    "VD204": lambda: replace(healthy(), gaps=(Gap(reader=PAIR[1], origin=PAIR[0], first=2, last=3),)),
    "VD205": lambda: replace(healthy(), repeats=(Repeat(reader=PAIR[1], origin=PAIR[0], seq=1, later=5),)),
    "VD206": make_unmeasured,
    "VD301": lambda: lag(cursor=8),
    "VD302": lambda: lag(cursor=2, first=5, oldest_seq=5, oldest_at=NOW - 1),
    "VD303": lambda: lag(cursor=4, oldest_seq=5, oldest_at=NOW - 2400),
    "VD401": lambda: server(gateways={"east": 0}),
    "VD402": lambda: server(rules={}),
    "VD403": lambda: every_server(rules={}),
    "VD404": lambda: server(version=None, gateways=None, rules=None, problem="no answer"),
    "VD405": lambda: server(has_jetstream=False),
    "VD406": lambda: server(meta_leader="east-1"),
    "VD407": lambda: every_server(meta_size=4),
    "VD408": lambda: server(version="2.14.6"),
    "VD409": lambda: server(rules=None, rules_problem="no answer"),
    "VD410": lambda: server(config_digest="sha256:1"),
    "VD411": lambda: replace(
        every_server(flags={"a": False}),
        servers=(server(flags={"a": True}).servers[0], *every_server(flags={"a": False}).servers[1:]),
    ),
    "VD412": lambda: server(version="2.9.25"),
    "VD413": lambda: server(config_digest=None),
    "VD414": lambda: server(storage=80, storage_limit=100),
    "VD415": unreachable,
    "VD501": lambda: stream("foo-read-west", cluster="east"),
    "VD502": lambda: without("foo-read-west"),
    "VD503": lambda: stream("foo-read-west", leader=None),
    "VD504": lambda: stream("foo-read-west", replicas=3, current=2),
    "VD508": lambda: replace(
        healthy(), write_errors=(WriteError(server="west-1", about="foo-write-west", error="is not current: full"),)
    ),
    "VD509": lambda: config("foo-write-west", sealed=True),
    "VD512": lambda: stream("foo-write-west", unsubscribed=("_vs.foo.west.>",)),
    "VD513": lambda: stream("foo-read-west", messages=1002, first_seq=1, last_seq=103),
}
"""By code: a snapshot in which the check must find something."""
ELSEWHERE = {
    "VD505": "consumers", "VD506": "consumers", "VD507": "tokens", "VD510": "consumers", "VD511": "consumers",
}  # fmt: skip
"""Those that need another topology: each has a test of its own below."""
NOT_IN_STATUS = {
    "VD101": "all works until the next restart",
    "VD102": "all works until the next restart",
    "VD204": "it has happened, and all works now",
    "VD205": "it has happened, and all works now",
    "VD303": "the line of the pair says it, with VD203",
    "VD401": "of servers, `status` says what streams suffer from",
    "VD406": "all works; `status` says it where no server leads",
    "VD407": "all works until a region is lost",
    "VD408": "versions that differ work together",
    "VD410": "all works with what servers have loaded",
    "VD411": "all works with what servers have loaded",
    "VD412": "of servers, `status` says what streams suffer from",
    "VD413": "nothing is known to be wrong",
}
"""What `vstream status` leaves to the doctor, where it is as in PROVOKED, and why."""

DRIFT = {
    "VD206": Drift.UNSEEN,
    "VD404": Drift.UNKNOWN,
    "VD407": Drift.DIFFERENCE,
    "VD408": Drift.DIFFERENCE,
    "VD409": Drift.UNKNOWN,
    "VD410": Drift.DIFFERENCE,
    "VD411": Drift.DIFFERENCE,
    "VD412": Drift.DIFFERENCE,
    "VD413": Drift.UNKNOWN,
    "VD415": Drift.UNKNOWN,
    "VD501": Drift.DIFFERENCE,
    "VD507": Drift.DIFFERENCE,
}
"""What findings mean to `plan --drift`, unless it is nothing."""
PLANNED = {"VD101", "VD202", "VD402", "VD403", "VD502", "VD504", "VD505", "VD509", "VD511"}
"""Nothing: a plan shows it."""
RUNNING = {
    "VD102", "VD201", "VD203", "VD204", "VD205", "VD301", "VD302", "VD303", "VD401", "VD405", "VD406", "VD414", "VD503",
    "VD506", "VD508", "VD510", "VD512", "VD513",
}  # fmt: skip
"""Nothing: it is about how servers do, and no file says otherwise."""
MODULES = {
    "VD1": ("streams",),
    "VD2": ("sourcing",),
    "VD3": ("sourcing",),
    "VD4": ("servers", "configs"),
    "VD5": ("streams",),
}
"""By the hundred of a code: the modules of its checks."""


@pytest.mark.parametrize("code", sorted(PROVOKED))
def test_the_check_finds_what_it_is_for(code: str) -> None:
    every_finding = examine(TOPOLOGY, BUNDLE, PROVOKED[code](), {"west-1": FILE}).findings
    findings = [finding for finding in every_finding if finding.code == code]
    assert findings, "the check does not find what PROVOKED shows it"
    assert [finding.about for finding in findings if not finding.evidence] == [], "its `evidence` says what was seen"
    assert [finding.about for finding in findings if not finding.hint] == [], "its `hint` says what to do"


def test_consumers_that_differ_are_found() -> None:
    text = (
        b'version: 1\nname: acme\nserver_version: "2.10"\n'
        b"regions: {west: {servers: 1}, central: {servers: 1}, east: {servers: 1}}\n"
        b"streams: {foo: {subjects: [foo.>], write: {max_age: 1h}, consumers: {jobs: {regions: [west]}}}}\n"
    )
    topology = check_topology.check_topology(text, "acme.yaml").require()
    (durable,) = list_durables(topology)
    bundle = render_bundle(topology)
    unused = unused_consumer(ConsumerConfig(stream=durable.stream, durable=durable.name, fields={}), created="")
    paused = replace(unused, leader="west-1", is_paused=True)
    pushing = replace(unused, config=replace(unused.config, fields={"deliver_subject": "x"}))
    key = durable.stream, durable.name
    seen = {
        "VD505": replace(healthy(), consumers={key: None}),
        "VD506": healthy(),
        "VD510": replace(healthy(), consumers={key: paused}),
        "VD511": replace(healthy(), consumers={key: pushing}),
    }
    for code, snapshot in seen.items():
        assert [finding.code for finding in examine(topology, bundle, snapshot).findings] == [code]
        assert [problem.code for problem in assess(topology, snapshot, bundle).problems] == [code]


@pytest.mark.parametrize(
    ("fields", "evidence"),
    [
        ({"sealed": True}, "it is sealed: it stores nothing any more"),
        ({"subjects": ["_vs.foo.west.foo.only"]}, "it does not take `_vs.foo.west.>`"),
        ({"discard": "new", "max_msgs": 5}, "it is full (`max_msgs`), and refuses new messages (`discard: new`)"),
        ({"discard": "new", "max_msgs": 6}, None),
        ({"discard": "old", "max_msgs": 5}, None),
        ({"no_ack": True}, "it acknowledges nothing (`no_ack`): publishers wait in vain"),
        ({"max_msg_size": 1024}, "it refuses messages above 1 KiB (`max_msg_size`)"),
        ({"max_bytes": 1024}, "it keeps no message above 1 KiB (`max_bytes`)"),
        ({"max_bytes": 2**20}, None),
        (
            {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 1},
            "it refuses new messages of subjects that have 1 (`discard_new_per_subject`)",
        ),
        (
            {"subject_transform": {"src": "_vs.foo.west.>", "dest": "x.>"}},
            "it stores messages under other subjects: `_vs.foo.west.>` becomes `x.>`",
        ),
    ],
)
def test_a_stream_that_refuses_publishes_is_seen_by_status_and_doctor(
    fields: dict[str, object], evidence: str | None
) -> None:
    seen = config("foo-write-west", **fields)
    status = assess(TOPOLOGY, seen, BUNDLE)
    assert [problem.text for problem in status.problems] == ([evidence] if evidence else [])
    assert status.regions[0].publish.works == (0 if evidence else 1)
    reported = [finding.evidence for finding in examine(TOPOLOGY, BUNDLE, seen).findings]
    assert reported == ([evidence] if evidence else [])


def test_a_stream_that_apply_left_paused_is_called_so() -> None:
    """While it moves, its leader is not subscribed to what it listens on: nobody publishes there."""
    seen = config("foo-write-west", subjects=["_vs.paused.foo-write-west"])
    deaf = replace(seen.streams["foo-write-west"], unsubscribed=("_vs.paused.foo-write-west",))
    status = assess(TOPOLOGY, with_stream(seen, deaf.name, deaf), BUNDLE)
    ((problem, code),) = [(problem.text, problem.code) for problem in status.problems]
    assert (problem.startswith("it is paused"), code, status.regions[0].publish.works) == (True, "VD509", 0)


def test_a_region_that_cannot_be_asked_is_unknown_to_status_and_doctor() -> None:
    """Its servers and streams were seen: nothing of them is wrong."""
    status = assess(TOPOLOGY, unreachable(), BUNDLE)
    assert (status.verdict, status.problems) == (StatusVerdict.UNKNOWN, ())
    assert [(finding.about, finding.text, finding.code) for finding in status.unknown] == [
        ("west", "no connection", "VD415")
    ]
    assert examine(TOPOLOGY, BUNDLE, unreachable()).health is Health.UNKNOWN


@pytest.mark.parametrize(
    ("endpoint", "command"),
    [
        (None, "start it (`vstream lab up`"),
        (Endpoint(context="sc-west"), "`nats --server nats://HOST:4222 server check connection`"),
        (Endpoint(urls=("nats://west:4333", "nats://west:4334")), "`nats --server nats://west:4333 server check"),
        (Endpoint(urls=("tls://user:secret@west:4333",)), "`nats --server west:4333 server check"),
    ],
)
def test_what_to_type_has_the_address_of_the_region_and_no_login(endpoint: Endpoint | None, command: str) -> None:
    west, *rest = TOPOLOGY.regions
    topology = replace(TOPOLOGY, regions=(replace(west, endpoint=endpoint), *rest))
    (hint,) = {finding.hint for finding in examine(topology, BUNDLE, unreachable()).findings if finding.code == "VD415"}
    assert str(hint).startswith(command)


@pytest.mark.parametrize(
    ("fields", "evidence", "readable"),
    [
        ({"discard": "new", "max_msgs": 5}, "it is full (`max_msgs`), and refuses new messages (`discard: new`)", 1),
        ({"allow_direct": False}, "it does not answer Direct Get (`allow_direct` is off)", 0),
        (
            {"subject_transform": {"src": "foo.>", "dest": "bar.>"}},
            "it stores messages under other subjects: `foo.>` becomes `bar.>`",
            1,
        ),
    ],
)
def test_a_read_stream_that_refuses_is_seen(fields: dict[str, object], evidence: str, readable: int) -> None:
    status = assess(TOPOLOGY, config("foo-read-west", **fields), BUNDLE)
    assert [(problem.text, problem.code) for problem in status.problems] == [(evidence, "VD509")]
    west = status.regions[0]
    assert (west.publish.works, west.direct_get.works) == (1, readable)


@pytest.mark.parametrize(("most", "used", "is_seen"), [(1, 1, True), (2, 1, False), (-1, 1, False)])
def test_a_read_stream_that_takes_no_more_consumers_is_seen(most: int, used: int, is_seen: bool) -> None:
    observed = healthy().streams["foo-read-west"]
    limited = replace(observed, config={**(observed.config or {}), "max_consumers": most}, consumers=used)
    status = assess(TOPOLOGY, with_stream(healthy(), observed.name, limited), BUNDLE)
    evidence = "it has 1 consumer, and refuses more (`max_consumers`)"
    assert [(problem.text, problem.code) for problem in status.problems] == ([(evidence, "VD509")] if is_seen else [])
    assert (status.regions[0].publish.works, status.regions[0].direct_get.works) == (1, 1)


@pytest.mark.parametrize(
    ("name", "unsubscribed", "works"),
    [
        ("foo-write-west", ("_vs.foo.west.>", "$JS.API.DIRECT.GET.foo-write-west"), (0, 1)),
        ("foo-write-west", ("$JS.API.DIRECT.GET.foo-write-west",), (1, 1)),
        ("foo-read-west", ("$JS.API.DIRECT.GET.foo-read-west",), (1, 0)),
    ],
)
def test_a_stream_that_listens_to_nobody_is_seen(
    name: str, unsubscribed: tuple[str, ...], works: tuple[int, int]
) -> None:
    status = assess(TOPOLOGY, stream(name, unsubscribed=unsubscribed), BUNDLE)
    assert [(problem.about, problem.code) for problem in status.problems] == [(name, "VD512")]
    assert (status.regions[0].publish.works, status.regions[0].direct_get.works) == works


def test_what_an_operation_needs_is_off() -> None:
    topology = check_topology.check_topology(
        TEXT.replace(b"max_age: 1h", b"max_age: 1h, allow_rollup: true"), "a"
    ).require()
    seen = config("foo-write-west", allow_rollup_hdrs=False)
    texts = {(problem.about, problem.text) for problem in assess(topology, seen, BUNDLE).problems}
    assert ("foo-write-west", "it refuses messages that need `allow_rollup_hdrs`, which is off") in texts


def test_a_stream_that_is_not_where_it_survives_is_seen_by_status() -> None:
    moved = assess(TOPOLOGY, stream("foo-write-west", cluster="east"), BUNDLE)
    assert [(problem.about, problem.code) for problem in moved.problems] == [("foo-write-west", "VD501")]
    topology = check_topology.check_topology(TEXT.replace(b"servers: 1", b"servers: 3"), "acme.yaml").require()
    few = assess(topology, healthy(topology=topology), render_bundle(topology))
    assert [(problem.about, problem.code) for problem in few.problems] == [
        ("6 streams have 1 of 3 replicas", "VD504"),
    ]
    assert "VD504" in {finding.code for finding in examine(topology, BUNDLE, healthy(topology=topology)).findings}


@pytest.mark.parametrize(("quiet_for", "codes"), [(1, set()), (60, {"VD504"})])
def test_a_replica_may_be_a_little_behind_while_messages_come(quiet_for: float, codes: set[str]) -> None:
    last_at = healthy().at - quiet_for
    snapshot = stream("foo-read-west", replicas=3, current=2, following=1, last_at=last_at)
    assert {finding.code for finding in examine(TOPOLOGY, BUNDLE, snapshot).findings} == codes
    assert {problem.code for problem in assess(TOPOLOGY, snapshot, BUNDLE).problems} == codes


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("1 stream has 2 of 3 replicas up to date", "VD504")),
        ({"version": None, "rules": None}, ("west", "VD404")),
    ],
)
def test_status_says_once_why_a_replica_is_missing(changes: dict[str, object], expected: tuple[str, str]) -> None:
    snapshot = replace(stream("foo-read-west", replicas=3, current=2), servers=server(**changes).servers)
    problems = assess(TOPOLOGY, snapshot, BUNDLE).problems
    assert [(problem.about, problem.code) for problem in problems] == [expected]


@pytest.mark.parametrize(
    ("expected", "observed", "evidence"),
    [
        ({}, {"filter_subject": "foo.a"}, "it delivers `foo.a`, not every subject"),
        ({"filter_subjects": ["foo.a"]}, {"filter_subject": "foo.a"}, None),
        ({}, {"headers_only": True}, "it delivers headers without payloads (`headers_only`)"),
        ({}, {"ack_policy": "none"}, "it has `ack_policy: none`, not `explicit`"),
        ({"ack_policy": "all"}, {"ack_policy": "all"}, None),
        ({}, {"deliver_subject": "x"}, "it pushes to `x`, and answers no pull request"),
    ],
)
def test_a_consumer_that_delivers_something_else_is_seen(
    expected: dict[str, Any], observed: dict[str, Any], evidence: str | None
) -> None:
    topology = check_topology.check_topology(
        TEXT.replace(b"write:", b"consumers: {jobs: {regions: [west]}}, write:"), "a"
    ).require()
    (stream_of_topology,) = topology.streams
    (consumer,) = stream_of_topology.consumers
    planned = replace(consumer, fields={**consumer.fields, **expected})
    topology = replace(topology, streams=(replace(stream_of_topology, consumers=(planned,)),))
    (durable,) = list_durables(topology)
    observation = unused_consumer(
        ConsumerConfig(stream=durable.stream, durable=durable.name, fields=observed), created=""
    )
    seen = replace(healthy(), consumers={(durable.stream, durable.name): observation})
    assert [fault.evidence for fault in find_consumer_faults(topology, seen)] == ([evidence] if evidence else [])


def test_a_position_that_is_not_known_is_no_problem() -> None:
    """Nor is all well: both commands end with 3."""
    status, diagnosis = assess(TOPOLOGY, make_unmeasured(), BUNDLE), examine(TOPOLOGY, BUNDLE, make_unmeasured())
    assert (status.verdict, status.problems) == (StatusVerdict.UNKNOWN, ())
    assert [(problem.about, problem.code) for problem in status.unknown] == [(TOPOLOGY.name, "VD206")]
    assert re.fullmatch(
        r"how far `foo-read-east` is in `foo-write-\w+` was not found out: ask again( \(and .* more\))?",
        status.unknown[0].text,
    )
    assert diagnosis.health is Health.UNKNOWN
    assert diagnosis.select_drift(Drift.UNKNOWN) == ()


def test_a_position_that_no_message_shows_is_known_with_the_next_one() -> None:
    """What the reader took of the origin is deleted: to ask again does not help."""
    lag = Lag(last=7, first=8, cursor=None, is_exact=False, oldest_at=None, oldest_seq=None, max_age=0.0)
    seen = replace(make_unmeasured(), lags={("foo-write-west", "foo-read-east"): lag})
    texts = [pair.detail for pair in assess(TOPOLOGY, seen, BUNDLE).pairs if pair.reader == "foo-read-east"]
    assert (
        "how far `foo-read-east` is in `foo-write-west` is not known until `foo-write-west` stores a message" in texts
    )


def test_sources_that_give_other_subjects_are_seen() -> None:
    read: dict[str, Any] = dict(healthy().streams["foo-read-east"].config or {})
    wrong = [{"src": "_vs.foo.west.>", "dest": "bar.>"}]
    sources = [
        {**source, "subject_transforms": wrong} if source["name"] == "foo-write-west" else source
        for source in read["sources"]
    ]
    (problem,) = assess(TOPOLOGY, config("foo-read-east", sources=sources), BUNDLE).problems
    assert (problem.about, problem.code) == ("foo-read-east", "VD509")


def test_foreign_tokens_are_found() -> None:
    check = next(check for check in CHECKS if check.code == "VD507")
    token = ForeignToken(accounts=("APP",), evidence="signed by somebody")
    system = replace(
        make_live_system(TOPOLOGY, healthy(), BUNDLE, files={}), loaded=LoadedMappings(foreign_tokens=(token,))
    )
    assert [finding.about for finding in check.run(system)] == ["`APP`"]


def is_in_status(code: str) -> bool:
    """Whether `vstream status` shows by *code* what PROVOKED has of it."""
    status = assess(TOPOLOGY, PROVOKED[code](), BUNDLE)
    return code in {problem.code for problem in (*status.problems, *status.unknown)}


def missing(check: DoctorCheck) -> list[str]:
    """What somebody who added *check* has forgotten."""
    manual = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    page = check.page
    is_shown = check.code not in PROVOKED or is_in_status(check.code)
    lacks = {
        "a function that begins with its name": check.find_issues.__name__.startswith(check.name.replace("-", "_")),
        "a docstring that begins with a sentence": page.summary.endswith("."),
        "`## Why is this bad?` in its docstring": "## Why is this bad?" in page.text,
        "`## What to do` in its docstring": "## What to do" in page.text,
        "its page in docs/doctor.md: run scripts/docs": f"### {check.code} {check.name}\n" in manual,
        "a snapshot that provokes it in PROVOKED, or a test in ELSEWHERE": check.code in {**PROVOKED, **ELSEWHERE},
        "`is_in_status=True`, a line of `status` in `problems.py`, or a reason in NOT_IN_STATUS": is_shown
        or check.code in NOT_IN_STATUS,
        "its code in PLANNED, if its `drift` is UNRELATED since a plan shows it; in RUNNING, if no file says how it should "
        "be; else in DRIFT": check.drift is DRIFT.get(check.code, Drift.UNRELATED)
        and [check.code in codes for codes in (DRIFT, PLANNED, RUNNING)].count(True) == 1,
        "no reason in NOT_IN_STATUS: `status` shows it": check.code not in NOT_IN_STATUS or not is_shown,
    }
    return [lack for lack, is_there in lacks.items() if not is_there]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)
def test_every_doctor_check_is_whole(check: DoctorCheck) -> None:
    lacks = missing(check)
    assert not lacks, f"{check.code} lacks: {'; '.join(lacks)}"


def test_every_check_is_in_the_module_of_its_hundred() -> None:
    misplaced = []
    for check in CHECKS:
        module, modules = check.find_issues.__module__.rpartition(".")[2], MODULES[check.code[:3]]
        if module not in modules and check.code != "VD507":  # of servers: the code is older than this order
            misplaced.append(f"{check.code} is in {module}.py, and not in {' or '.join(modules)}")
    assert misplaced == [], "move the check, or take the next code of another hundred"


@pytest.mark.parametrize("seen", [*PROVOKED.values(), without_api, down], ids=[*PROVOKED, "no API", "down"])
def test_a_code_that_status_names_is_what_the_doctor_finds(seen: Callable[[], Snapshot]) -> None:
    status, diagnosis = assess(TOPOLOGY, seen(), BUNDLE), examine(TOPOLOGY, BUNDLE, seen())
    named = {problem.code for problem in (*status.problems, *status.unknown)}
    assert named - {None} <= {finding.code for finding in diagnosis.findings}


def test_codes_and_names_are_unique() -> None:
    for words in ([check.code for check in CHECKS], [check.name for check in CHECKS]):
        assert [word for word in dict.fromkeys(words) if words.count(word) > 1] == [], "another check has it"


def test_codes_that_are_named_exist() -> None:
    """In status, in alerts, and on other pages."""
    files = [
        *(ROOT / "vstream").rglob("*.py"),
        ROOT / "templates" / "export" / "alerts.yaml",
        *(ROOT / "docs").glob("*.md"),
    ]
    named = {code for file in files for code in re.findall(r"\bVD\d{3}\b", file.read_text(encoding="utf-8"))}
    assert named - {check.code for check in CHECKS} == set(), (
        "no check has it: name its module in `vstream/health/doctor/__init__.py`"
    )
