"""
Streams and consumers through `vstream lint` and through the API of a server: both refuse the same ones.

Fields have values that are right, wrong, or at the edge of what is allowed. Set aside is what depends on the server and
not on the file: replicas without a cluster (10074), and more bytes than there are (10047).

VSTREAM_ORACLE_EXAMPLES is the number of streams, and of consumers, that are compared.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.jetstream import JetStreamServer
from tests.support.lint_inputs import make_context
from vstream.lint.engine import lint
from vstream.lint.parse_files import Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from nats.aio.client import Client
    from nats.js.client import JetStreamContext

EXAMPLES: Final = int(os.environ.get("VSTREAM_ORACLE_EXAMPLES", "200"))
ASIDE: Final = {10074, 10047}
WORKS: Final = {"VS205", "VS230", "VS232"}
"""Errors of what servers take, and should not."""
MS, SECOND = 10**6, 10**9
LONG: Final = "x" * 4097
VERSIONS: Final = {"2.10.26": (2, 10), "2.12.8": (2, 12), "2.15.1": (2, 14)}

pytestmark = [pytest.mark.server, pytest.mark.timeout(300 + EXAMPLES // 5)]

TRANSFORMS: Final = tuple(
    {"src": source, "dest": destination}
    for source, destination in (
        ("o.*", "p.{{wildcard(1)}}"),
        ("o.*", "p.$1"),
        ("o.>", "p.>"),
        ("", "p.>"),
        ("o.*", "p.{{wildcard(2)}}"),
        ("o.*", "p"),
        ("o..x", "p"),
        ("o.x", ""),
        ("o.*", ""),
        ("o.*", "p.*"),
        ("o.>", "p"),
        ("o.*.*", "p.{{partition(3,1,2)}}"),
        ("o.*.*", "p.{{partition(3,1,4)}}"),
    )
)
SUBJECTS: Final = (
    "o.a",
    "o.*",
    "o.>",
    "o.*.x",
    "o.a.*",
    "p.>",
    ">",
    "o..a",
    "o.>.a",
    "",
    "$JS.API.x",
    "$JS.EVENT.x",
    "$SYS.x",
    "*",
    "*.*",
)
SOURCES: Final = (
    {"name": "s"},
    {"name": "t"},
    {"name": "s", "filter_subject": "o.a"},
    {"name": "s", "filter_subject": "o..a"},
    {"name": "s.t"},
    {"name": ""},
    {"name": "s", "external": {"api": "$JS.hub.API", "deliver": "d.hub"}},
    {"name": "s", "external": {"api": "$JS.API", "deliver": ""}},
    {"name": "s", "external": {"api": "$JS.API.>", "deliver": ""}},
    {"name": "s", "external": {"api": "$JS.*.API", "deliver": ""}},
    {"name": "s", "external": {"api": "$JS.hub.API", "deliver": "d.*"}},
    {"name": "s", "external": {"api": "$JS.hub.API", "deliver": "d..x"}},
    {"name": "s.t", "external": {"api": "$JS.hub.API", "deliver": ""}},
    {"name": "s", "opt_start_seq": 5},
    {"name": "s", "subject_transforms": [{"src": "o.a", "dest": "p"}, {"src": "o.b", "dest": "q"}]},
    {"name": "s", "subject_transforms": [{"src": "o.>", "dest": "p.>"}, {"src": "o.b", "dest": "q"}]},
    {"name": "s", "subject_transforms": [{"src": "o.*.b", "dest": "p"}, {"src": "o.b.*", "dest": "q"}]},
    {"name": "s", "subject_transforms": [{"src": "o.*", "dest": ""}]},
    {"name": "s", "filter_subject": "o.a", "subject_transforms": [{"src": "o.b", "dest": "q"}]},
    *({"name": "s", "subject_transforms": [transform]} for transform in TRANSFORMS),
)
DURABLE: Final = (
    {"name": "s", "consumer": {"name": "c", "deliver_subject": "d"}},
    {"name": "s", "consumer": {"name": "c.d", "deliver_subject": "d"}},
    {"name": "s", "consumer": {"name": "c", "deliver_subject": "d.*"}},
    {"name": "s", "consumer": {"name": "c"}},
    {"name": "s", "consumer": {"deliver_subject": "d"}},
    {"name": "s", "consumer": {"name": "c", "deliver_subject": "d"}, "opt_start_seq": 1},
    {"name": "s", "consumer": {"name": "c", "deliver_subject": "d"}, "filter_subject": "o.a"},
)
STREAM_VALUES: Final[Mapping[str, tuple[tuple[int, int], Sequence[Any]]]] = {
    "description": ((2, 10), ("x", LONG, LONG[1:])),
    "metadata": ((2, 10), ({"a": "b"}, {"a": "x" * (128 * 1024)}, {"a": "x" * (128 * 1024 - 100)})),
    "retention": ((2, 10), ("limits", "interest", "workqueue")),
    "discard": ((2, 10), ("old", "new")),
    "discard_new_per_subject": ((2, 10), (True, True, False)),
    "storage": ((2, 10), ("file", "memory")),
    "num_replicas": ((2, 10), (0, 1, -1, 6)),
    "max_msgs": ((2, 10), (0, -1, -5, 100)),
    "max_msgs_per_subject": ((2, 10), (0, -1, -5, 1, 100)),
    "max_bytes": ((2, 10), (0, -1, -5, 100_000)),
    "max_msg_size": ((2, 10), (0, -1, -5, 1_000)),
    "max_consumers": ((2, 10), (0, -1, -5, 1)),
    "max_age": ((2, 10), (0, -1, 50 * MS, 100 * MS, SECOND, 3600 * SECOND)),
    "duplicate_window": ((2, 10), (0, -1, 50 * MS, 100 * MS, SECOND, 7200 * SECOND)),
    "deny_purge": ((2, 10), (True, False)),
    "deny_delete": ((2, 10), (True, False)),
    "allow_rollup_hdrs": ((2, 10), (True, False)),
    "allow_direct": ((2, 10), (True, False)),
    "mirror_direct": ((2, 10), (True, False)),
    "sealed": ((2, 10), (True, False)),
    "no_ack": ((2, 10), (True, False)),
    "compression": ((2, 10), ("none", "s2")),
    "first_seq": ((2, 10), (0, 5)),
    "subject_transform": ((2, 10), TRANSFORMS),
    "republish": (
        (2, 10),
        (
            {"src": "o.*", "dest": "r.{{wildcard(1)}}"},
            {"src": ">", "dest": "o.x"},
            {"src": "o.*", "dest": "r.>"},
            {"dest": "r.>"},
            {"src": ">", "dest": ">"},
            {"src": "o.>", "dest": ""},
            {"src": "o..x", "dest": "r"},
        ),
    ),
    "placement": ((2, 10), ({}, {"cluster": ""}, {"tags": []})),
    "consumer_limits": (
        (2, 10),
        ({"max_ack_pending": 5}, {"inactive_threshold": SECOND}, {"max_ack_pending": -1}, {"inactive_threshold": -1}),
    ),
    "template_owner": ((2, 14), ("",)),
    "allow_msg_ttl": ((2, 11), (True, False)),
    "subject_delete_marker_ttl": ((2, 11), (0, -1, 1, SECOND, 60 * SECOND)),
    "allow_msg_counter": ((2, 12), (True, True, False)),
    "allow_atomic": ((2, 12), (True, False)),
    "allow_msg_schedules": ((2, 12), (True, True, False)),
    "persist_mode": ((2, 12), ("default", "async", "async", "")),
    "allow_batched": ((2, 14), (True, False)),
}
CONSUMER_VALUES: Final[Mapping[str, tuple[tuple[int, int], Sequence[Any]]]] = {
    "description": ((2, 10), ("x", LONG, LONG[1:])),
    "metadata": ((2, 10), ({"a": "b"}, {"a": "x" * (128 * 1024)})),
    "ack_policy": ((2, 10), ("none", "all", "explicit", "explicit")),
    "ack_wait": ((2, 10), (0, -1, SECOND, 30 * SECOND)),
    "backoff": ((2, 10), ([], [SECOND], [SECOND, 2 * SECOND, 3 * SECOND], [SECOND, -1])),
    "deliver_group": ((2, 10), ("g", "")),
    "deliver_policy": ((2, 10), ("all", "last", "last_per_subject", "new", "by_start_sequence", "by_start_time")),
    "deliver_subject": ((2, 10), ("d", "d.x", "d.*", "d..x", "o.a", "")),
    "direct": ((2, 10), (False,)),
    "filter_subject": ((2, 10), ("o.a", "o.*", "", "o..a", "o.>.a")),
    "filter_subjects": (
        (2, 10),
        ([], ["o.a"], ["o.a", "o.b"], ["o.*", "o.b"], ["o.*.b", "o.b.*"], [""], ["o.a", ""], ["o..a"]),
    ),
    "flow_control": ((2, 10), (True, False)),
    "headers_only": ((2, 10), (True, False)),
    "idle_heartbeat": ((2, 10), (0, -1, 50 * MS, 100 * MS, 5 * SECOND)),
    "inactive_threshold": ((2, 10), (0, -1, SECOND, 7200 * SECOND)),
    "max_ack_pending": ((2, 10), (0, -1, -5, 5, 50)),
    "max_batch": ((2, 10), (0, -1, 10)),
    "max_bytes": ((2, 10), (0, -1, 10_000)),
    "max_deliver": ((2, 10), (0, -1, -5, 2, 3, 10)),
    "max_expires": ((2, 10), (0, -1, 100, MS, SECOND)),
    "max_waiting": ((2, 10), (0, -1, 100)),
    "mem_storage": ((2, 10), (True, False)),
    "num_replicas": ((2, 10), (0, 1, -1)),
    "opt_start_seq": ((2, 10), (0, 5)),
    "opt_start_time": ((2, 10), ("2026-01-31T00:00:00Z",)),
    "rate_limit_bps": ((2, 10), (0, 1000)),
    "replay_policy": ((2, 10), ("instant", "original")),
    "sample_freq": ((2, 10), ("", "10%", "10", "-5", "+5", "x", "%", "5.5", "10%%")),
    "pause_until": ((2, 11), ("2026-01-31T00:00:00Z",)),
    "priority_groups": ((2, 11), ([], ["a"], ["a", "b"], [""], ["a b"], ["a.b"], ["x" * 20])),
    "priority_policy": ((2, 11), ("none", "overflow", "pinned_client")),
    "priority_timeout": ((2, 11), (0, -1, SECOND, 60 * SECOND)),
}
NEWER: Final[Mapping[str, tuple[tuple[int, int], Sequence[Any]]]] = {
    "priority_policy": ((2, 12), ("prioritized",)),
    "ack_policy": ((2, 14), ("flow_control", "flow_control")),
    "idle_heartbeat": ((2, 14), (SECOND,)),
}
NEWER_REFUSALS: Final = (
    "is negative",
    "flow control needs heartbeats",
    "captures the servers' own messages",
    "message schedules",
)
HOLDERS: Final[Sequence[Mapping[str, Any]]] = (
    {"name": "limits", "subjects": ["o.>"]},
    {"name": "queue", "subjects": ["q.>"], "retention": "workqueue"},
    {"name": "interest", "subjects": ["i.>"], "retention": "interest"},
    {
        "name": "narrow",
        "subjects": ["n.>"],
        "consumer_limits": {"max_ack_pending": 20, "inactive_threshold": 60 * SECOND},
    },
)


def draw_stream(source: random.Random, version: tuple[int, int]) -> dict[str, Any]:
    fields: dict[str, Any] = {"subjects": ["o.>"]}
    for name, (since, values) in source.sample(sorted(STREAM_VALUES.items()), source.randint(0, 4)):
        if since <= version:
            fields[name] = source.choice(values)
    choice = source.random()
    if choice < 0.15:
        fields["subjects"] = source.choices(SUBJECTS, k=source.randint(1, 2))
    elif choice < 0.5:
        candidates = [*SOURCES, *(DURABLE if version >= (2, 14) else ())]
        if source.random() < 0.8:
            del fields["subjects"]
        if choice < 0.35:
            fields["sources"] = source.choices(candidates, k=source.randint(1, 2))
        else:
            fields["mirror"] = source.choice(candidates)
    return fields


def draw_consumer(source: random.Random, version: tuple[int, int]) -> dict[str, Any]:
    fields: dict[str, Any] = {"durable_name": "made", "ack_policy": "explicit"}
    drawn = source.sample(sorted(CONSUMER_VALUES.items()), source.randint(0, 5))
    if version >= (2, 12) and source.random() < 0.3:
        drawn += source.sample(sorted(NEWER.items()), 2)
        fields |= {"deliver_subject": "d"}
    for name, (since, values) in drawn:
        if since <= version:
            fields[name] = source.choice(values)
    if source.random() < 0.1:
        del fields["durable_name"]
        fields |= {"name": "made", "direct": source.random() < 0.5}
    return fields


def refusals(files: Mapping[str, Any], version: tuple[int, int]) -> list[str]:
    """Why servers refuse what is in *files*, as we say."""
    texts = {name: json.dumps(value).encode() for name, value in files.items()}
    sources = [Source(name=name, content=content) for name, content in texts.items()]
    report = lint(sources, make_context(texts), server_version=version)
    errors = [finding for finding in report.findings if finding.is_error and "stored twice" not in finding.message]
    return [f"{finding.code} {finding.message}" for finding in errors if finding.code not in WORKS]


class Answers:
    """Counts what a server and we say, and keeps where we disagree."""

    def __init__(self, version: tuple[int, int]) -> None:
        self.version = version
        self.counts: Counter[bool] = Counter()
        self.wrong: list[str] = []

    def compare(self, answer: dict[str, Any], files: Mapping[str, Any]) -> None:
        error = answer.get("error")
        if error and error["err_code"] in ASIDE:
            return
        ours = refusals(files, self.version)
        self.counts[bool(error)] += 1
        # What newer servers refuse is an error for all.
        is_refused_later = ours and not error and all(any(text in our for text in NEWER_REFUSALS) for our in ours)
        if bool(error) != bool(ours) and not (is_refused_later and self.version < (2, 14)):
            text = json.dumps(files)
            self.wrong.append(f"{text[:600]}\n  server: {error}\n  we: {ours}")

    def check(self) -> None:
        shown = "\n\n".join(self.wrong[:20])
        assert not self.wrong, f"{shown}\n{len(self.wrong)} of {self.counts.total()}"
        assert min(self.counts[True], self.counts[False]) > EXAMPLES // 10


@pytest.fixture(params=["2.15.1", *(pytest.param(name, marks=pytest.mark.night) for name in ("2.10.26", "2.12.8"))])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    server = JetStreamServer(tmp_path, version=request.param)
    server.start()
    yield server
    server.stop()


def test_we_refuse_the_streams_and_consumers_that_the_server_refuses(server: JetStreamServer) -> None:
    assert server.version
    version = VERSIONS[server.version]
    streams, consumers = Answers(version), Answers(version)
    source = random.Random(7)

    async def work(client: Client, _: JetStreamContext) -> None:
        async def ask(subject: str, body: Any = None) -> Any:
            payload = json.dumps(body).encode() if body is not None else b""
            return json.loads((await client.request(f"$JS.API.{subject}", payload, timeout=60)).data)

        # Without a stream that stays, servers remove the directory of all streams, now and then too late.
        await ask("STREAM.CREATE.stays", {"name": "stays", "sources": [{"name": "nothing"}]})
        for number in range(EXAMPLES):
            # Another name each time: a server may still be removing the last one's files.
            fields = {**draw_stream(source, version), "name": f"made-{number}"}
            answer = await ask(f"STREAM.CREATE.made-{number}", fields)
            streams.compare(answer, {"made.json": fields})
            if "error" not in answer:
                await ask(f"STREAM.DELETE.made-{number}")
        for holder in HOLDERS:
            assert "error" not in await ask(f"STREAM.CREATE.{holder['name']}", holder)
        for _number in range(EXAMPLES):
            fields, holder = draw_consumer(source, version), source.choice(HOLDERS)
            fields = json.loads(json.dumps(fields).replace('"o.', f'"{holder["name"][0]}.').replace('"l.', '"o.'))
            request = {"stream_name": holder["name"], "config": fields}
            answer = await ask(f"CONSUMER.CREATE.{holder['name']}.made", request)
            consumers.compare(answer, {"stream.json": holder, "made.json": request})
            if "error" not in answer:
                await ask(f"CONSUMER.DELETE.{holder['name']}.made")

    server.run(work)
    streams.check()
    consumers.check()
