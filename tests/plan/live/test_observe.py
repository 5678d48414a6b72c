"""What can be checked without a network is checked before any server is dialled, and all of it is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.plans import render_streams, topology
from vstream.errors import MalformedAnswerError, NoRespondersError, NotReachableError, VstreamError
from vstream.jetstream.endpoints import list_endpoint_problems
from vstream.jetstream.region_connections import connect_all, read_account_name
from vstream.plan.live.observe import _find_silent_accounts
from vstream.plan.pipeline import PlanRequest, make_plan
from vstream.topology.model import Endpoint

if TYPE_CHECKING:
    from vstream.jetstream.connection import Connection


async def test_every_missing_file_context_and_variable_is_named_before_anything_is_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("VSTREAM_NOPE", raising=False)
    # Nobody answers at that address: it would take seconds.
    urls = ("tls://10.255.255.1:4222",)
    endpoints = {
        "west": Endpoint(urls=urls, creds=str(tmp_path / "west.creds"), tls_ca=str(tmp_path / "ca.pem")),
        "central": Endpoint(urls=urls, user="vstream", password_env="VSTREAM_NOPE"),
        "east": Endpoint(urls=(), context="nowhere"),
    }
    with pytest.raises(VstreamError) as failure:
        async with connect_all(topology(), endpoints):
            raise AssertionError("nothing was checked")
    for part in ("west.creds", "ca.pem", "variable VSTREAM_NOPE is not set", "no nats CLI context `nowhere`"):
        assert part in failure.value.message
    assert failure.value.message.count("region `") == 4


async def test_one_missing_thing_is_said_alone(tmp_path: Path) -> None:
    endpoints = {"west": Endpoint(urls=("tls://10.255.255.1:4222",), creds=str(tmp_path / "west.creds"))}
    with pytest.raises(VstreamError, match=r"^region `west`: the credentials file .* does not exist$"):
        async with connect_all(topology(), endpoints):
            raise AssertionError("nothing was checked")


def test_a_context_that_is_there_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "nats" / "context"
    directory.mkdir(parents=True)
    (directory / "prod.json").write_text(json.dumps({"url": "nats://127.0.0.1:1", "creds": "/nowhere.creds"}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (problem,) = list_endpoint_problems(Endpoint(urls=(), context="prod"), "west")
    assert "/nowhere.creds" in problem.message


async def test_what_is_waited_for_is_told() -> None:
    texts: list[str] = []
    endpoints = {region: Endpoint(urls=("nats://127.0.0.1:1",)) for region in ("west", "central", "east")}
    request = PlanRequest(topology=topology(), bundle=render_streams(), endpoints=endpoints)
    with pytest.raises(NotReachableError, match="no region can be reached"):
        await make_plan(request, on_progress=texts.append)
    assert texts[0] == "connecting to west, central, east"
    assert [text.count(",") for text in texts[1:]] == [1, 0]
    assert all(text.startswith("waiting for ") for text in texts[1:])


async def test_a_new_account_that_not_every_server_has_is_empty_until_it_answers() -> None:
    class Admin:
        """JetStream of an account answers once the meta leader's server has it."""

        async def streams(self, accounts: Sequence[str]) -> None:
            if accounts == ["W_north"]:
                raise NotReachableError("no answer")

    assert await _find_silent_accounts(Admin(), ["R_north", "W_north"]) == {"W_north"}  # type: ignore[arg-type]


class NamesLongAccount:
    """A connection whose server names an account that can be none."""

    async def request_json(self, subject: str) -> dict[str, Any]:
        """The answer to who one is."""
        assert subject == "$SYS.REQ.USER.INFO"
        return {"data": {"account": "x" * 8_000_000}}


async def test_a_text_that_can_be_no_account_is_not_repeated() -> None:
    with pytest.raises(MalformedAnswerError) as failure:
        await read_account_name(cast("Connection", NamesLongAccount()))
    assert len(failure.value.message) < 200


class Reloads:
    """A connection whose server reloads its accounts while it is asked for the first time."""

    def __init__(self) -> None:
        self._asked = 0

    async def request_json(self, subject: str) -> dict[str, Any]:
        """The answer to who one is."""
        self._asked += 1
        if self._asked == 1:
            raise NoRespondersError(f"nothing listens on {subject}")
        return {"data": {"account": "APP"}}


async def test_a_server_that_reloads_its_accounts_is_asked_again_who_one_is() -> None:
    assert await read_account_name(cast("Connection", Reloads())) == "APP"
