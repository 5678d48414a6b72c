"""Answers are decoded in one place: what it returns has the values that vstream relies on, or it is one error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.paths import ROOT
from vstream.errors import MalformedAnswerError
from vstream.jetstream.answers import (
    api_error,
    decode_large,
    decode_object,
    describe_error,
    parse_sequence,
    require_source_infos,
    require_state,
)
from vstream.jetstream.connection import Reply
from vstream.jetstream.source_header import origin_of, parse_provenance

READ_FILES = {
    "audit/tables/audit_tables.py",
    "audit/reconcile/bucket_digests.py",
    "audit/connector/login.py",
    "audit/connector/values.py",
    "chaos/faults/base.py",
    "chaos/journal.py",
    "lab/links/proxy_process.py",
    "jetstream/endpoints.py",
    "lab/links/state.py",
    "lab/server_records.py",
    "lab/state.py",
    "health/live/rescue.py",
    "audit/connector/options.py",
    "plan/consumer_failover.py",
    "plan/saved.py",
    "render/pipeline.py",
    "render/jwt.py",
    "render/stream_view.py",
}
"""Modules that decode files and tokens of vstream's own."""


def test_answers_are_decoded_in_one_place() -> None:
    """A new module calls `Connection.request_json`, `monitoring.get` or `answers.decode_object`."""
    package = ROOT / "vstream"
    modules = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"json\.loads?\(|JSONDecoder|import (?:orjson|ujson|simplejson)", path.read_text())
    }
    network = {name for name in modules if name.partition("/")[0] not in {"capture", "cli", "lint", "syntax"}}
    assert network - READ_FILES == {"jetstream/answers.py"}


def test_a_key_that_is_missing_is_an_error_of_whoever_sent_it_wherever_it_is_read() -> None:
    answer = decode_object(b'{"state": {"messages": 1}, "list": [{}]}', "west: subject")
    assert answer["state"].get("last_seq") is None
    readers: tuple[Callable[[], object], ...] = (
        lambda: answer["config"],
        lambda: answer["state"]["last_seq"],
        lambda: answer["list"][0]["name"],
    )
    for read in readers:
        with pytest.raises(MalformedAnswerError, match=r"`west: subject` cannot be used: no '(config|last_seq|name)'"):
            read()


@pytest.mark.parametrize(
    "number", ["18446744073709551616", "-9223372036854775809", "1e999", "-1e999", "Infinity", "NaN"]
)
def test_a_number_that_no_server_has_is_refused(number: str) -> None:
    with pytest.raises(MalformedAnswerError):
        decode_object(f'{{"a": [18446744073709551615, {number}]}}'.encode(), "subject")
    with pytest.raises(MalformedAnswerError):
        decode_large(f'{{"a": [18446744073709551615, {number}]}}'.encode(), "subject")
    assert decode_object(b'{"a": 18446744073709551615, "b": -9223372036854775808, "c": 1.5}', "subject")["c"] == 1.5


@pytest.mark.parametrize("leader", ["-0.5", "[]", "{}", "true"])
def test_a_leader_that_is_no_name_is_refused_wherever_it_stands(leader: str) -> None:
    with pytest.raises(MalformedAnswerError, match="is not a text"):
        decode_object(f'{{"meta_cluster": {{"leader": {leader}}}}}'.encode(), "http://127.0.0.1:8222/jsz")
    assert decode_object(b'{"meta_cluster": {"leader": null}}', "/jsz")["meta_cluster"]["leader"] is None


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "²", "9" * 5000, "1_0", " 1"])
def test_a_header_that_is_no_number_is_none(text: str) -> None:
    assert parse_sequence(text) is None
    assert Reply(data=b"", headers={"Status": text}).status is None
    source = {"Nats-Stream-Source": f"foo {text} > >"}
    assert parse_provenance(source) is None
    assert origin_of(source, ["foo"], reader="r") == (None, None)


def test_where_there_is_no_leader_the_hint_says_who_would_know() -> None:
    for code, hint in ((10008, True), (10059, False)):
        error = api_error({"error": {"code": 503, "err_code": code, "description": "no"}}, "$JS.API.STREAM.LIST")
        assert error is not None
        assert ("`vstream repair meta`" in (error.hint or "")) is hint


@pytest.mark.parametrize("key", ["description", "code", "err_code"])
def test_what_a_server_says_is_wrong_is_quoted_as_far_as_anybody_reads(key: str) -> None:
    answer = {"error": {"description": "no", "code": 500, "err_code": 10_000, key: "x" * 8_000_000}}
    assert len(describe_error(answer["error"])) < 1_200
    if key == "description":
        assert len(str(api_error(answer, "$JS.API.INFO"))) < 1_200


@pytest.mark.parametrize("last", ["x" * 100, None, 1.5, True, []])
def test_a_state_without_its_numbers_is_one_error(last: object) -> None:
    with pytest.raises(MalformedAnswerError):
        require_state({"messages": 1, "first_seq": 1, "last_seq": last}, "snapshot")
    with pytest.raises(MalformedAnswerError):
        require_state(last, "snapshot")


@pytest.mark.parametrize(
    "info", [{"sources": [1]}, {"sources": 1}, {"mirror": "foo"}, {"sources": [{"name": "a", "active": "now"}]}]
)
def test_what_is_said_of_sources_has_the_right_types(info: dict[str, Any]) -> None:
    with pytest.raises(MalformedAnswerError, match=r"`info\.(sources|mirror)"):
        require_source_infos(info, "west")
    assert require_source_infos({"sources": [{"name": "a", "seq": None}]}, "west") == {"sources": [{"name": "a"}]}
