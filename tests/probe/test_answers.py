"""Answers that no healthy server gives, and that a probe must not take for a pass."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, cast

import pytest

from tests.support.probe_lab import topology
from vstream.errors import NoRespondersError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import direct
from vstream.jetstream.connection import Connection, Reply
from vstream.probe import hops
from vstream.probe.pipeline import ProbeOptions, run_probe
from vstream.probe.report import Check, CheckKind, CheckStatus
from vstream.probe.target import ProbeTarget

STORED = {
    "Nats-Stream": "foo-read-west",
    "Nats-Sequence": "7",
    "Nats-Subject": "foo.a",
    "Nats-Time-Stamp": "2026-01-02T03:04:05.000000006Z",
    "Own": "value",
}


class FakeConnection:
    """Answers each subject with the same reply, and nobody else listens."""

    region = "west"
    server_name = "west-1"
    is_connected = True

    def __init__(self, answers: Mapping[str, Reply | Exception | Mapping[str, Any]]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, bytes]] = []
        self.headers: dict[str, str] = {}

    async def request(
        self, subject: str, payload: bytes = b"", *, headers: Mapping[str, str] | None = None, timeout: float
    ) -> Reply:
        assert timeout > 0
        self.asked.append((subject, payload))
        self.headers = dict(headers or {})
        answer = self.answers.get(subject, NoRespondersError(f"nobody listens on `{subject}`"))
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Reply) else Reply(data=json.dumps(answer).encode(), headers={})

    async def request_json(self, subject: str, body: object = None, *, timeout: float) -> dict[str, Any]:
        reply = await self.request(subject, json.dumps(body).encode(), timeout=timeout)
        return cast("dict[str, Any]", json.loads(reply.data))


def connection(answers: Mapping[str, Reply | Exception | Mapping[str, Any]]) -> Connection:
    return cast("Connection", FakeConnection(answers))


async def mapping(answer: Reply | Exception | Mapping[str, Any], *, seconds: float = 5.0) -> Check:
    desired = topology()
    target = ProbeTarget(
        topology=desired,
        stream=desired.streams[0],
        region="west",
        connection=connection({"foo._vstream_probe": answer}),
        deadline=time.monotonic() + seconds,
    )
    return await hops.probe_mapping(target, "foo.>")


async def test_a_stream_that_stores_the_probe_is_named_with_the_sequence() -> None:
    check = await mapping({"stream": "legacy", "seq": 12})
    assert check.status is CheckStatus.FAILED
    assert check.detail == (
        "MESSAGE STORED: `legacy`, which is no stream of `foo` ignored the expectation and stored the probe "
        "as sequence 12"
    )
    assert "nats stream rmm legacy 12" in str(check.hint)


@pytest.mark.parametrize(
    ("answer", "status", "detail"),
    [
        (
            {"error": {"code": 503, "err_code": 10077, "description": "maximum messages exceeded"}, "stream": "s"},
            CheckStatus.FAILED,
            "`s` answers: maximum messages exceeded (503/10077)",
        ),
        ({"error": {"code": 400, "err_code": 10060}}, CheckStatus.UNKNOWN, "a stream answered without its name"),
        (
            {"error": {"code": 400, "err_code": 10060}, "stream": -1},
            CheckStatus.UNKNOWN,
            "a stream answered without its name",
        ),
        ({}, CheckStatus.FAILED, "the answer is not from a stream"),
        (Reply(data=b"hello", headers={}), CheckStatus.FAILED, "the answer is not from a stream"),
        (Reply(data=b"[1]", headers={}), CheckStatus.FAILED, "the answer is not from a stream"),
        (NotReachableError("no answer"), CheckStatus.FAILED, "no answer"),
    ],
)
async def test_other_answers_are_no_pass(
    answer: Reply | Exception | Mapping[str, Any], status: CheckStatus, detail: str
) -> None:
    check = await mapping(answer)
    assert (check.status, check.detail) == (status, detail)


async def test_silence_proves_nothing_where_there_was_no_time() -> None:
    assert (await mapping(NotReachableError("no answer"), seconds=0.5)).status is CheckStatus.UNKNOWN
    assert (await mapping({"stream": "s", "seq": 1}, seconds=-1.0)).status is CheckStatus.UNKNOWN


async def test_a_topology_without_canaries_says_how_to_agree_on_one() -> None:
    desired = topology()
    silent = type(desired)(
        name=desired.name,
        server_version=desired.server_version,
        naming=desired.naming,
        regions=desired.regions,
        streams=tuple(
            type(stream)(
                name=stream.name,
                subjects=stream.subjects,
                regions=stream.regions,
                write_settings=stream.write_settings,
                read_settings=stream.read_settings,
            )
            for stream in desired.streams
        ),
    )
    report = await run_probe(silent, {}, ProbeOptions(timeout=1.0))
    (canary,) = [check for check in report.checks if check.kind is CheckKind.CANARY]
    assert (canary.status, canary.region) == (CheckStatus.SKIPPED, None)
    assert canary.hint is not None
    assert "`canary: foo._canary.*`" in canary.hint
    assert [check.kind for check in report.checks if check.status is CheckStatus.FAILED] == [CheckKind.CONNECTION] * 3
    assert not report.is_pass


async def test_a_direct_get_answer_is_decoded() -> None:
    fake = FakeConnection({"$JS.API.DIRECT.GET.foo": Reply(data=b"x", headers=STORED)})
    asked = cast("Connection", fake)
    message = await direct.get_next(asked, "foo", "foo.a", 3)
    assert message == direct.DirectMessage(
        stream="foo-read-west",
        seq=7,
        subject="foo.a",
        stored_at="2026-01-02T03:04:05.000000006Z",
        headers={"Own": "value"},
        data=b"x",
    )
    await direct.get_newest(asked, "foo", "foo.a")
    await direct.get_by_seq(asked, "foo", 7)
    assert [json.loads(payload) for _, payload in fake.asked] == [
        {"seq": 3, "next_by_subj": "foo.a"},
        {"last_by_subj": "foo.a"},
        {"seq": 7},
    ]


async def test_a_direct_get_status_but_404_is_an_error() -> None:
    def status(number: int) -> Connection:
        headers = {"Status": str(number), "Description": "Told So"}
        return connection({"$JS.API.DIRECT.GET.foo": Reply(data=b"", headers=headers)})

    assert await direct.get_by_seq(status(404), "foo", 1) is None
    with pytest.raises(ServerError, match="Told So") as caught:
        await direct.get_by_seq(status(408), "foo", 1)
    assert caught.value.code == 408
    with pytest.raises(NoRespondersError):
        await direct.get_by_seq(connection({}), "foo", 1)
    with pytest.raises(VstreamError, match="cannot be used"):
        await direct.get_by_seq(connection({"$JS.API.DIRECT.GET.foo": Reply(data=b"", headers={})}), "foo", 1)


async def test_a_message_that_the_leader_was_asked_for() -> None:
    stored = {
        "subject": "foo.a",
        "seq": 7,
        "hdrs": "TkFUUy8xLjANClZzdHJlYW0tQ2FuYXJ5OiAxLndlc3QNCg0K",
        "data": "eA==",
        "time": "2026-01-02T03:04:05Z",
    }
    message = await direct.get_by_seq_from_leader(connection({"$JS.API.STREAM.MSG.GET.s": {"message": stored}}), "s", 7)
    assert message is not None
    assert (message.stream, message.seq, message.data) == ("s", 7, b"x")
    assert message.headers == {"Vstream-Canary": "1.west"}

    def error(number: int) -> Connection:
        answer = {"error": {"code": 404, "err_code": number, "description": "told so"}}
        return connection({"$JS.API.STREAM.MSG.GET.s": answer})

    assert await direct.get_next_from_leader(error(10037), "s", "foo.a", 1) is None
    with pytest.raises(ServerError, match="told so"):
        await direct.get_next_from_leader(error(10059), "s", "foo.a", 1)
